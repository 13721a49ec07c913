"""What is left: nothing on the client's side explains the miss."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import LOOKBACK_POSITIONS, Case, Verdict


class RoutingOrEviction:
    """The residual class. It says what was ruled out, and does not guess."""

    kind: ClassVar[str] = "routing-or-eviction"
    remedy: ClassVar[str] = (
        "Nothing in the trace explains this miss. If it recurs, send a stable routing key "
        "(`prompt_cache_key`, a session id header), and compare with the provider's own diagnostics."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        row = case.row
        seen = (
            "the recorded prompt keeps the previous one as its prefix"
            if case.recorded
            else "the transcript shows no change of content (system prompt and tools are not in it)"
        )
        blocks = _added_blocks(case)
        candidate = (
            f"; the step added {blocks} blocks, which is out of a breakpoint's reach where runs of "
            "calls and results do not count as one"
            if blocks is not None and blocks >= LOOKBACK_POSITIONS
            else ""
        )
        return Verdict(
            self.kind,
            {
                "summary": f"{seen}, and the entries had not expired, yet only "
                f"{row.usage.cache_read or 0:,} of {row.expected_read or 0:,} tokens were read{candidate}. "
                "This is the residual class: a log cannot tell an eviction from another route or a "
                "change out of sight",
                "gap_s": row.gap_s,
                "read_floor": row.usage.cache_read,
                "added_blocks": blocks,
            },
            inferred=not case.recorded,
        )


def _added_blocks(case: Case) -> int | None:
    """Blocks behind an unchanged prefix; None where the prefix is not known to be unchanged."""
    added = case.appended
    return None if added is None else sum(r.stop - r.start for r in added)
