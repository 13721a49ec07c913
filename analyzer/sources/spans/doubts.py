"""What contradicts itself in the usage of a Langfuse observation, as `Doubt` values.

Said is what the contract's reading of the keys gives (every bucket beside the others, as the server
adds them up); right is what the arithmetic shows.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from analyzer.model import Doubt, Usage


class Stated(NamedTuple):
    """The sender's own figures of one observation, tokens."""

    input: int
    cached: int
    """Read and written, each once."""
    total: int | None
    """The total that was compared with the buckets."""
    summed: int
    """Sum of all keys, as the server makes it."""
    flat_write: int | None
    """Writes of a key without a lifetime, where keys with one stand beside it."""


def doubts_of(flags: Set[str], stated: Stated, usage: Usage) -> tuple[Doubt, ...]:
    """The contradictions that the flags of a reading name, with both figures."""
    prompt = usage.prompt
    if prompt is None:
        return ()
    found = [
        Doubt(flag, stated.input + stated.cached, prompt)
        for flag in ("input_inclusive", "write_inside_input", "clamped_input")
        if flag in flags and stated.input + stated.cached != prompt
    ]
    whole = prompt + (usage.output or 0)
    if "total_inflated" in flags:
        found.append(Doubt("total_inflated", stated.summed, whole))
    elif flags & {"total_mismatch", "total_without_cache"} and stated.total != whole:
        name = "total_without_cache" if "total_without_cache" in flags else "total_mismatch"
        found.append(Doubt(name, stated.total, whole))
    if stated.flat_write and stated.flat_write != usage.cache_write:
        found.append(Doubt("write_split", stated.flat_write, usage.cache_write))
    return tuple(found)
