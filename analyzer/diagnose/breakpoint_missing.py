"""No breakpoint was sent where one is needed: nothing, or not the history, was cached."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar

from analyzer.caching import minimum_tokens
from analyzer.diagnose.base import Case, Totalled, Verdict
from analyzer.diagnose.reach import reach
from analyzer.ledger import LaneLedger, StepRow
from analyzer.model import TTL_SECONDS, Step

UNCACHED_SHARE = 0.5
"""Of the lost tokens that must have been sent uncached for a missing breakpoint to explain them."""


class BreakpointMissing:
    """Both counters at zero above the minimum, or recorded breakpoints that end before the history."""

    kind: ClassVar[str] = "breakpoint-missing"
    remedy: ClassVar[str] = (
        "Send `cache_control` on the last block of every request (or once at the top level), and on "
        "the end of the system prompt; check that no layer in between drops it, and that it does not "
        "stand on a thinking block or on an empty text, which cannot carry it."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        if case.cache != "anthropic":
            return None
        return self._nothing(case) if case.uncached else self._too_early(case)

    def _nothing(self, case: Case) -> Verdict | None:
        prompt, shared = case.row.prompt_tokens, _shared(case)
        least = minimum_tokens(case.model)
        if prompt is None or prompt < least or shared is None or shared < least:
            return None
        marks = case.prompt.breakpoints if case.prompt is not None else ()
        if marks and case.recorded:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"nothing was read and nothing written, though the prompt has {prompt:,} tokens "
                f"(the minimum is {least:,}) and begins with {shared:,} of the request before: no "
                "breakpoint took effect",
                "prompt_tokens": prompt,
                "minimum_tokens": least,
                "shared_tokens": shared,
                "breakpoints": 0,
            },
            inferred=not case.recorded,
        )

    def _too_early(self, case: Case) -> Verdict | None:
        found = reach(case)
        lost, sent = case.row.lost_tokens or 0, case.row.usage.input or 0
        if found is None or found.mark is not None or sent < lost * UNCACHED_SHARE:
            return None
        where = (
            f"the last breakpoint stands behind part {found.last_mark} of {found.end}"
            if found.last_mark is not None
            else "the request has no breakpoint"
        )
        return Verdict(
            self.kind,
            {
                "summary": f"{where}, before the end of the last entry (part {found.entry}): "
                f"{sent:,} tokens were sent uncached",
                "breakpoints": len(case.prompt.breakpoints) if case.prompt is not None else 0,
                "last_breakpoint": found.last_mark,
                "last_entry": found.entry,
                "parts": found.end,
            },
        )

    def total(self, ledger: LaneLedger, rows: Sequence[StepRow]) -> Totalled:
        """See `Totalling`."""
        saved = _saving(ledger, rows)
        if saved is None:
            return Totalled()
        return Totalled(
            {"marked_saves_usd": float(saved)},
            f"With a breakpoint at its end, these steps would have cost ${saved:.4f} less.",
        )


def _shared(case: Case) -> int | None:
    """Tokens that could have been read, had both requests been marked and the pause been short."""
    row = case.row
    before = row.previous.usage if row.previous is not None else None
    if row.gap_s is not None and row.gap_s > TTL_SECONDS["5m"]:
        return None
    if case.recorded:
        return row.shared_prefix_tokens
    return before.prompt if before is not None and case.appended is not None else None


def _saving(ledger: LaneLedger, rows: Sequence[StepRow]) -> Decimal | None:
    """USD that breakpoints would have saved: reads for input, less the write price of what is new.

    None where a step has no price. A break already counts what it lost as waste.
    """
    saved = Decimal(0)
    inside = {id(row.record) for row in rows}
    for row in rows:
        shared, prompt, before = _shared(Case(ledger, row)), row.prompt_tokens, row.previous
        if shared is None or prompt is None or row.rates is None or before is None:
            return None
        fresh = max(0, prompt - shared)
        if id(before) not in inside and not _wrote(before):
            # The request before would have had to write what this one reads.
            fresh += shared
        extra = row.rates.write_5m - row.rates.input
        saved += min(shared, prompt) * (row.rates.input - row.rates.read) - fresh * extra
    return saved


def _wrote(step: Step) -> bool:
    return step.usage is not None and bool(step.usage.cache_read or step.usage.cache_write)
