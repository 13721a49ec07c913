"""The breakpoint stands on a block that never comes again, so its entry can never be read."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict, describe
from analyzer.diagnose.variation import pinned
from analyzer.ledger import Divergence
from analyzer.model import Part, Prompt
from analyzer.ranges import head

IMPLICIT = "openai-5.6"
"""Its implicit breakpoint stands at the end of the newest message. Source: OpenAI, prompt caching
guide, 2026-10."""
UNCHANGED_SHARE = 0.5
"""Of the lost tokens that did not change: otherwise the change itself is the loss."""


class BreakpointVolatile:
    """What changed is the newest block of the prompt before; nearly all that was lost is equal."""

    kind: ClassVar[str] = "breakpoint-volatile"
    remedy: ClassVar[str] = (
        "Put the breakpoint on the last block that comes again unchanged, and send what varies (a "
        "clock, a reminder, retrieved context) behind it."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        diverged, before, row = case.row.divergence, case.before, case.row
        if not case.recorded or diverged is None or before is None or diverged.index < 0:
            return None
        if case.was is None or not _fleeting(case, case.was, diverged):
            return None
        marked = _mark_behind(case, before, diverged.common)
        if marked is None:
            return None
        sizes, lost = case.ledger.sizes, row.lost_tokens or 0
        equal = sizes.of(head(before, diverged.common)) - (row.usage.cache_read or 0)
        if equal < lost * UNCHANGED_SHARE:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"{marked} on {describe(case.was)}, which did not come again; the "
                f"{equal:,} tokens before it are equal, but no entry ends there",
                "message": diverged.index,
                "breakpoint": before.breakpoints[-1].position if before.breakpoints else None,
                "equal_tokens": equal,
                **pinned(case.was, case.now),
            },
        )


def _fleeting(case: Case, was: Part, diverged: Divergence) -> bool:
    """Whether the part that changed is a text at the end of the prompt before, not an old message."""
    before, now = case.before, case.now
    if before is None or was.kind not in ("text", "other") or was.role == "assistant":
        return False
    if now is not None and (now.placeholder or now.summary):
        return False
    behind = list(before.indices())[diverged.common :]
    return not any(case.ledger.lane.pool[i].role == "assistant" for i in behind)


def _mark_behind(case: Case, before: Prompt, common: int) -> str | None:
    """How the entry behind the change was asked for; None where nothing recorded says so."""
    if any(mark.position >= common for mark in before.breakpoints):
        return "the breakpoint stood"
    if case.cache == IMPLICIT and not before.breakpoints:
        return "the implicit breakpoint stood"
    return None
