"""What another lifetime of the cache's entries would have cost over a whole lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from analyzer.ledger import LaneLedger, StepRow
from analyzer.model import TTL_SECONDS

SHORT, LONG = TTL_SECONDS["5m"], TTL_SECONDS["1h"]


@dataclass(frozen=True, slots=True)
class Hour:
    """The hour instead of five minutes: what its writes cost more, and which rewrites it avoids."""

    extra_usd: Decimal
    avoided_usd: Decimal

    @property
    def saves_usd(self) -> Decimal:
        """USD; negative where the hour costs more than it avoids."""
        return self.avoided_usd - self.extra_usd


def an_hour_instead(ledger: LaneLedger, expired: Iterable[StepRow]) -> Hour | None:
    """The lane with 1 h writes, where `expired` are the breaks by a lifetime that ran out.

    What an expired break wrote again would have been read, and so is not written at all; every
    other 5 m write costs the price of an hour. None where a step that wrote has no price.
    """
    avoided = [row for row in expired if row.gap_s is not None and SHORT < row.gap_s <= LONG]
    again = {row.step: min(row.lost_tokens or 0, _short(row)) for row in avoided}
    extra = Decimal(0)
    for row in ledger.rows:
        written = _short(row) - again.get(row.step, 0)
        if not written:
            continue
        if row.rates is None:
            return None
        extra += written * (row.rates.write_1h - row.rates.write_5m)
    saved = [row.wasted_usd for row in avoided]
    known = [usd for usd in saved if usd is not None]
    return Hour(extra, sum(known, Decimal(0))) if len(known) == len(saved) else None


def five_minutes_instead(ledger: LaneLedger) -> Decimal | None:
    """USD that the lane's 1 h writes cost more than 5 m ones; None where a price is not known."""
    extra = Decimal(0)
    for row in ledger.rows:
        written = row.usage.cache_write_1h or 0
        if written and row.rates is None:
            return None
        if written and row.rates is not None:
            extra += written * (row.rates.write_1h - row.rates.write_5m)
    return extra


def _short(row: StepRow) -> int:
    """Tokens written for five minutes, those of unknown lifetime included (the default)."""
    return (row.usage.cache_write or 0) - (row.usage.cache_write_1h or 0)
