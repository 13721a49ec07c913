"""An hour was paid for where every entry was used again within five minutes."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from analyzer.diagnose.base import Finding, total
from analyzer.diagnose.lifetimes import SHORT, five_minutes_instead
from analyzer.ledger import LaneLedger

LEAST_USD = Decimal("0.05")
LEAST_SHARE = Decimal("0.05")
"""Of the lane's cost; less is the price of an insurance against a pause."""
LEAST_STEPS = 20
"""A short lane does not show what pauses its user makes."""


class TtlOverUse:
    """A property of the whole lane, and no break: nothing was paid again."""

    kind: ClassVar[str] = "ttl-over-use"
    remedy: ClassVar[str] = (
        "Ask for 5 min where no pause is longer (sub-agents, batch work): a 1 h write costs 2× input "
        "instead of 1.25×. Keep the hour where a person may pause."
    )

    def find(self, ledger: LaneLedger) -> Finding | None:
        """The finding of a lane; None where the hour was of use, or cost next to nothing."""
        wrote = [row for row in ledger.rows if row.usage.cache_write_1h]
        gaps = [row.gap_s for row in ledger.rows if row.previous is not None]
        if len(wrote) < LEAST_STEPS or any(gap is None or gap > SHORT for gap in gaps):
            return None
        extra = five_minutes_instead(ledger)
        cost = total(row.cost_usd for row in ledger.rows)
        if extra is None or cost is None or extra < max(LEAST_USD, cost * LEAST_SHARE):
            return None
        longest = max((gap for gap in gaps if gap is not None), default=0.0)
        tokens = sum(row.usage.cache_write_1h or 0 for row in wrote)
        return Finding(
            kind=self.kind,
            lane=ledger.lane.name,
            steps=tuple(row.step for row in wrote),
            tokens=0,
            wasted_usd=Decimal(0),
            evidence={
                "summary": f"{tokens:,} tokens were written for 1 h, and no pause was longer than "
                f"{longest:,.0f} s: 5 min would have cost ${extra:.4f} less",
                "written_1h_tokens": tokens,
                "longest_gap_s": round(longest, 1),
                "five_minutes_saves_usd": float(extra),
            },
            remedy=self.remedy,
            inferred=False,
            expected=False,
        )
