"""More time passed than the entries were asked to live."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.ledger import lifetime
from analyzer.model import TTL_SECONDS

AUTOMATIC_IDLE_SECONDS = 600
"""Automatic caches drop idle prefixes after 5 to 10 minutes. Source: OpenAI's prompt caching
guide, read 2026-11; others promise no lifetime at all."""

LONGEST_SECONDS = TTL_SECONDS["1h"]
TOO_LONG = (
    "No lifetime on offer covers this pause. Compact or clear before a long pause, so that less has to "
    "be written again, or go on in a new session; a request now and then to keep the prefix warm pays "
    "only if it costs less than one rewrite."
)


class TtlExpired:
    """Expected where a person had been away; avoidable where the agent itself was busy."""

    kind: ClassVar[str] = "ttl-expired"
    remedy: ClassVar[str] = (
        "Ask for the 1 h lifetime where pauses are common (a 1 h write costs 2× input instead of "
        "1.25×, and saves rewriting the whole prefix), or send a small request before the lifetime ends."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        row = case.row
        if row.gap_s is None:
            return None
        limit = lifetime(row)
        if limit is None and not row.usage.cache_write:
            limit = AUTOMATIC_IDLE_SECONDS
        if limit is None or row.gap_s <= limit:
            return None
        who = (
            "a person was away"
            if row.record.human
            else "no person spoke meanwhile: the agent, a tool or a permission prompt took that long"
        )
        return Verdict(
            self.kind,
            {
                "summary": f"{row.gap_s:,.0f} s since the last request, longer than the lifetime of "
                f"{limit:,} s; {who}",
                "gap_s": round(row.gap_s, 1),
                "ttl_s": limit,
                "person_away": row.record.human,
            },
            inferred=row.ttl is None,
            expected=row.record.human,
            remedy=None if row.gap_s <= LONGEST_SECONDS and limit < LONGEST_SECONDS else TOO_LONG,
        )
