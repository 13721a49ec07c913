"""A whole session judged: all its lanes, and the sums that a person asks for first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from analyzer.diagnose.base import Finding, Verdict, total
from analyzer.diagnose.lane import LaneDiagnosis, diagnose_lane
from analyzer.ledger import StepRow, Thresholds, lane_ledger
from analyzer.model import Session
from analyzer.pricing import PriceBook


@dataclass(frozen=True)
class SessionDiagnosis:
    """Ledgers, verdicts and findings of one session."""

    session: Session
    lanes: tuple[LaneDiagnosis, ...]

    @cached_property
    def rows(self) -> tuple[tuple[StepRow, Verdict], ...]:
        """Every step with its verdict, lane by lane."""
        return tuple(
            pair
            for lane in self.lanes
            for pair in zip(lane.ledger.rows, lane.verdicts, strict=True)
        )

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, dearest first; contradictions in the accounting, which waste nothing, last."""
        found = [finding for lane in self.lanes for finding in lane.findings]
        return tuple(sorted(found, key=lambda f: (not f.is_loss, -(f.wasted_usd or Decimal(0)))))

    @cached_property
    def cost_usd(self) -> Decimal | None:
        """Cost of all steps that could be priced; None if none could."""
        return total(row.cost_usd for row, _ in self.rows)

    @cached_property
    def unpriced_steps(self) -> int:
        """Steps that `cost_usd` leaves out: unknown model, or usage not reported."""
        return sum(row.cost_usd is None for row, _ in self.rows)

    @cached_property
    def unpriced(self) -> dict[str, int]:
        """Why steps have no price, in words, and how many; empty where all have one."""
        return dict(Counter(row.unpriced for row, _ in self.rows if row.unpriced is not None))

    @cached_property
    def assumed_ttl_steps(self) -> int:
        """Steps whose writes of unknown lifetime were priced as short ones."""
        return sum(row.cost is not None and row.cost.assumed_ttl for row, _ in self.rows)

    @cached_property
    def wasted_usd(self) -> Decimal | None:
        """Dollars lost in all breaks."""
        return self._wasted(lambda verdict: True)

    @cached_property
    def avoidable_usd(self) -> Decimal | None:
        """Dollars lost in breaks that were not the price of a choice."""
        return self._wasted(lambda verdict: not verdict.expected)

    @cached_property
    def hit_ratio(self) -> float | None:
        """Tokens read from the cache as a share of all prompt tokens, 0..1."""
        known = [row.usage for row, _ in self.rows if row.usage.knows_cache]
        prompt = sum(usage.prompt or 0 for usage in known)
        return sum(usage.cache_read or 0 for usage in known) / prompt if prompt else None

    @cached_property
    def breaks(self) -> int:
        """Steps that lost more than the thresholds allow."""
        return sum(row.is_break for row, _ in self.rows)

    def _wasted(self, counts: Callable[[Verdict], bool]) -> Decimal | None:
        broken = [row.wasted_usd for row, v in self.rows if row.is_break and counts(v)]
        if not broken:
            known = any(row.lost_tokens is not None for row, _ in self.rows)
            return Decimal(0) if known else None
        return total(broken)


def diagnose_session(
    session: Session, book: PriceBook, thresholds: Thresholds | None = None
) -> SessionDiagnosis:
    """Judge every lane of a session."""
    limits = thresholds or Thresholds()
    lanes = tuple(diagnose_lane(lane_ledger(lane, book, limits)) for lane in session.lanes)
    return SessionDiagnosis(session, lanes)
