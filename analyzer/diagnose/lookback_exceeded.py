"""One step added more positions than a breakpoint looks back."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import LOOKBACK_POSITIONS, Case, Verdict
from analyzer.diagnose.reach import collapses, positions_of, reach
from analyzer.ledger import lifetime


class LookbackExceeded:
    """The old entry still exists, but no breakpoint of the new request can reach it."""

    kind: ClassVar[str] = "lookback-exceeded"
    remedy: ClassVar[str] = (
        "Keep a second breakpoint within 20 content blocks of the previous prompt's end (for example "
        "every 15 blocks), so that a step with many parallel calls still finds the last entry."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        if lifetime(case.row) is None or case.told is not None:
            return None
        added = case.appended
        if added is None or case.cut_is_real:
            return None
        parts = case.parts(added)
        found = reach(case)
        recorded = found.positions if found is not None else None
        # Without recorded breakpoints the usual ones are taken: the ends of both prompts. A write
        # behind the last recorded one shows that they are not all there.
        positions = positions_of(case, parts) + 1 if recorded is None else recorded
        if positions <= LOOKBACK_POSITIONS:
            return None
        runs = " (runs of calls and of results count as one)" if collapses(case) else ""
        return Verdict(
            self.kind,
            {
                "summary": f"the step added {positions - 1} positions{runs}; a breakpoint looks back "
                f"over {LOOKBACK_POSITIONS}, itself the first, so the last entry was out of reach",
                "positions": positions - 1,
                "limit": LOOKBACK_POSITIONS - 1,
                "blocks": len(parts),
                "breakpoints_recorded": recorded is not None,
            },
            inferred=not case.recorded,
        )
