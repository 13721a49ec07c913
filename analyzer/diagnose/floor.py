"""What a read fell back to: the level of the prefix, or the earlier entry, that survived."""

from __future__ import annotations

from analyzer.diagnose.base import Case
from analyzer.model import Prompt

NEAR_SHARE = 0.03
"""Sizes inside a measured total are estimates; a read this near to a level's end is that level."""
NEAR_TOKENS = 64


def survived(case: Case) -> str | None:
    """The level that was still read, in words; None where the read is not known.

    A transcript does not show tools and system, so there only earlier totals can name an entry.
    """
    read = case.row.usage.cache_read
    if read is None:
        return None
    if read == 0:
        return "nothing, not even the tools"
    if (entry := _entry(case, read)) is not None:
        return f"the entry that step {entry} wrote"
    prompt = case.prompt
    if prompt is not None and prompt.recorded and (level := _level(case, prompt, read)) is not None:
        return level
    return _head(case, read)


def _entry(case: Case, read: int) -> int | None:
    """The latest earlier step whose written prefix is exactly as long as the read."""
    for row in reversed(case.ledger.rows[: case.row.step]):
        usage = row.usage
        if usage.cache_write and (usage.cache_read or 0) + usage.cache_write == read:
            return row.step
    return None


def _level(case: Case, prompt: Prompt, read: int) -> str | None:
    pool, sizes, index = case.ledger.lane.pool, case.ledger.sizes.cumulative, case.ledger.index
    ends: list[tuple[int, int, int]] = []
    tokens = 0
    for position, i in enumerate(prompt.indices()):
        tokens += sizes[i + 1] - sizes[i]
        ends.append((abs(tokens - read), position, i))
    if not ends:
        return None
    off, position, i = min(ends)
    if off > max(NEAR_TOKENS, NEAR_SHARE * read):
        return None
    section = pool[i].section
    if section == "messages":
        return f"the prefix up to message {index.message_index(prompt, position)}"
    return "the tools" if section == "tools" else "the tools and the system prompt"


def _head(case: Case, read: int) -> str:
    """A read that no step of the lane wrote: an entry that other sessions share, or its first."""
    first = case.ledger.rows[0].usage
    if read <= (first.cache_read or 0) + (first.cache_write or 0):
        return "an entry at the head of the prompt (tools, system, or the first messages)"
    return "an entry that no step of this lane is known to have written"
