"""What is left: nothing on the client's side explains the miss."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict


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
        return Verdict(
            self.kind,
            {
                "summary": f"{seen}, and the entries had not expired, yet only "
                f"{row.usage.cache_read or 0:,} of {row.expected_read or 0:,} tokens were read",
                "gap_s": row.gap_s,
                "read_floor": row.usage.cache_read,
            },
            inferred=not case.recorded,
        )
