"""One step added more positions than a breakpoint looks back."""

from __future__ import annotations

from typing import ClassVar

from analyzer.caching import collapsed_runs
from analyzer.diagnose.base import LOOKBACK_POSITIONS, Case, Verdict
from analyzer.ledger import lifetime
from analyzer.model import Part, Range
from analyzer.ranges import appended_ranges


class LookbackExceeded:
    """The old entry still exists, but no breakpoint of the new request can reach it."""

    kind: ClassVar[str] = "lookback-exceeded"
    remedy: ClassVar[str] = (
        "Keep a second breakpoint within 20 content blocks of the previous prompt's end (for example "
        "every 15 blocks), so that a step with many parallel calls still finds the last entry."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        before, now = case.row.previous, case.row.record
        if before is None or before.prompt is None or now.prompt is None:
            return None
        if lifetime(case.row) is None or case.told is not None:
            return None
        added = appended_ranges(before.prompt, now.prompt)
        if added is None or case.cut_is_real:
            return None
        parts = [p for r in added for p in _slice(case, r)]
        # Bedrock counts every block; see `collapsed_runs`.
        collapses = "bedrock" not in (now.provider or "").lower()
        shared = collapsed_runs([part.kind for part in parts]).count(True) if collapses else 0
        positions = len(parts) - shared
        if positions < LOOKBACK_POSITIONS:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"the step added {positions} positions"
                + (" (runs of calls and of results count as one)" if collapses else "")
                + f"; a breakpoint looks back over {LOOKBACK_POSITIONS}",
                "positions": positions,
                "blocks": len(parts),
            },
            inferred=not case.recorded,
        )


def _slice(case: Case, r: Range) -> tuple[Part, ...]:
    return case.ledger.lane.pool[r.start : r.stop]
