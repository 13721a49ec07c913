"""More time passed than the entries were asked to live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from analyzer.diagnose.base import Case, Totalled, Verdict
from analyzer.diagnose.lifetimes import LONG, SHORT, an_hour_instead
from analyzer.ledger import LaneLedger, StepRow, lifetime

AUTOMATIC_IDLE_SECONDS = 600
"""Automatic caches drop idle prefixes after 5 to 10 minutes. Source: OpenAI's prompt caching
guide, read 2026-11; others promise no lifetime at all."""
BOUNDARY_SECONDS = 1_800
"""What OpenAI's models from GPT-5.6 on keep an entry unasked. Source: the same guide, 2026-10."""
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
        limit = _limit(case)
        if row.gap_s is None or limit is None or row.gap_s <= limit:
            return None
        waited = _waited_for(case)
        agent = f"the agent waited for {', '.join(waited)}" if waited else "the agent was busy"
        who = "a person was away" if row.record.human else f"no person spoke meanwhile: {agent}"
        return Verdict(
            self.kind,
            {
                "summary": f"{row.gap_s:,.0f} s since the last request, longer than the lifetime of "
                f"{limit:,} s; {who}",
                "gap_s": round(row.gap_s, 1),
                "ttl_s": limit,
                "person_away": row.record.human,
                "waited_for": waited,
            },
            inferred=row.ttl is None,
            expected=row.record.human,
            remedy=None if row.gap_s <= LONG and limit < LONG else TOO_LONG,
        )

    def total(self, ledger: LaneLedger, rows: Sequence[StepRow]) -> Totalled:
        """See `Totalling`."""
        covered = [r for r in rows if r.gap_s is not None and SHORT < r.gap_s <= LONG]
        if not covered or any(lifetime(row) != SHORT for row in covered):
            return Totalled()
        hour = an_hour_instead(ledger, covered)
        if hour is None:
            return Totalled({"one_hour": "unknown: a step of the lane has no price"})
        saves = hour.saves_usd
        verdict = (
            f"${saves:.4f} less" if saves >= 0 else f"${-saves:.4f} more: it does not pay here"
        )
        return Totalled(
            {
                "one_hour_extra_usd": float(hour.extra_usd),
                "one_hour_avoided_usd": float(hour.avoided_usd),
                "one_hour_saves_usd": float(saves),
                "one_hour_covers": len(covered),
            },
            f"Over this lane 1 h writes would have cost ${hour.extra_usd:.4f} more and avoided "
            f"${hour.avoided_usd:.4f} of rewrites at {len(covered)} of these {len(rows)} steps: {verdict}.",
        )


def _limit(case: Case) -> int | None:
    """Seconds that the entries were promised or known to live; None where nothing is known."""
    asked = lifetime(case.row)
    if asked is not None:
        return asked
    if case.cache == "openai-5.6" and case.row.ttl is None:
        return BOUNDARY_SECONDS
    return None if case.row.usage.cache_write else AUTOMATIC_IDLE_SECONDS


def _waited_for(case: Case) -> list[str]:
    """Tools that the previous response called: what the agent was busy with."""
    before = case.row.previous
    if before is None or case.row.record.human:
        return []
    calls = [p.tool for p in case.parts(before.response) if p.kind == "tool_use" and p.tool]
    return list(dict.fromkeys(calls))
