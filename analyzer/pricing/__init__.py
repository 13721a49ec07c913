"""Dated prices: `PriceBook` over genai-prices, an overlay for its gaps, and a user's file."""

from __future__ import annotations

from datetime import UTC, datetime, time
from functools import cache
from pathlib import Path

from analyzer.errors import PriceError
from analyzer.pricing.base import (
    APART,
    PER_MTOK,
    PER_THOUSAND,
    SEARCHES,
    Band,
    Cost,
    PartialRates,
    PriceList,
    PriceRow,
    Rates,
    canonical,
    charge,
)
from analyzer.pricing.book import Book
from analyzer.pricing.files import PriceFile
from analyzer.pricing.packaged import PackagedPrices, context_window

__all__ = [
    "APART",
    "PER_MTOK",
    "PER_THOUSAND",
    "SEARCHES",
    "Band",
    "Cost",
    "PartialRates",
    "PriceBook",
    "PriceFile",
    "PriceList",
    "PriceRow",
    "Rates",
    "canonical",
    "charge",
]

_OVERLAY = Path(__file__).with_name("overlay.toml")


class PriceBook(Book):
    """Dated rates and costs of requests; see `Book` for the questions it answers."""

    def window(self, model: str | None, provider: str | None = None) -> int | None:
        """Context window in tokens; None where it is unknown."""
        return context_window(model, provider) if model else None

    @classmethod
    def default(cls, user_file: Path | None = None) -> PriceBook:
        """The book of this installation; a user's file wins over everything.

        Steps without a time are priced as on the day the overlay was last checked. Raises
        `PriceError` if the user's file is malformed.
        """
        overlay = _overlay()
        if overlay.checked is None:
            raise PriceError(f"{_OVERLAY.name}: checked: expected a date, got nothing")
        own = [PriceFile.load(user_file)] if user_file is not None else []
        noon = datetime.combine(overlay.checked, time(12), UTC)
        return cls([*own, overlay, PackagedPrices()], noon)


@cache
def _overlay() -> PriceFile:
    return PriceFile.load(_OVERLAY)
