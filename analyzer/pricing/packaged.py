"""The prices that come with the `genai-prices` package, read offline.

Owns the choice of the one entry that stands for a model. The package matches by prefixes in list
order; here the longest literal wins, and a prefix never swallows a further version number.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from importlib.metadata import version

from genai_prices import types
from genai_prices.data_snapshot import find_provider_by_id, get_snapshot

from analyzer.pricing.base import (
    PER_MTOK,
    PER_THOUSAND,
    SEARCHES,
    Band,
    Factor,
    PartialRates,
    PriceRow,
    continues_version,
    spellings,
)

_PRICES = {
    "input": "input_mtok",
    "read": "cache_read_mtok",
    "write_5m": "cache_write_mtok",
    "write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
}
_APART = {
    "audio_input": "input_audio_mtok",
    "audio_read": "cache_audio_read_mtok",
    "audio_output": "output_audio_mtok",
    "image_input": "input_image_mtok",
    SEARCHES: "web_searches_kcount",
}
_CONTEXT_KEYS = ("processing", "service_tier", "speed")
"""Under which the package's variants name a term: `{"processing": "batch"}`, `{"speed": "fast"}` …"""
_HOUR_WRITE = Decimal(2)
"""A 1h write costs twice the input price; platform.claude.com pricing page, 2026-10."""
_CLOUDS = {"bedrock": "aws", "vertex": "google", "azure": "azure"}
_VENDORS = {"glm-": "zai"}
"""Vendors that the package does not recognise by the model's name; zai is the list in USD."""
_RESELLERS = ("openrouter",)
"""Asked last: they list a vendor's models without all of its cache prices."""


def matched(clause: types.MatchLogic, text: str) -> int:
    """Length of the literal by which a clause matches a name; 0 if it does not stand for it."""
    match clause:
        case types.ClauseOr():
            return max((matched(c, text) for c in clause.or_), default=0)
        case types.ClauseAnd():
            lengths = [matched(c, text) for c in clause.and_]
            return max(lengths) if lengths and all(lengths) else 0
        case types.ClauseStartsWith(starts_with=head):
            ok = text.startswith(head.lower()) and not continues_version(text[len(head) :])
            return len(head) if ok else 0
        case types.ClauseContains(contains=piece):
            at = text.find(piece.lower())
            ok = at >= 0 and not continues_version(text[at + len(piece) :])
            return len(piece) if ok else 0
        case types.ClauseRegex():
            # A look-ahead such as "not -tts" matches everything; it must not outrank a name.
            return 1 if clause.is_match(text) and "(?!" in clause.regex else _whole(clause, text)
        case _:
            return _whole(clause, text)


def _whole(clause: types.MatchLogic, text: str) -> int:
    return len(text) + 1 if clause.is_match(text) else 0


@cache
def _find(model: str, provider: str | None) -> tuple[types.Provider, types.ModelInfo] | None:
    labels = [s for s in (provider or "", *model.split("/")[:-1]) if s]
    resellers = [find_provider_by_id(get_snapshot().providers, label) for label in _RESELLERS]
    asked = [p for p in resellers if p is not None and p.id in {s.lower() for s in labels}]
    # The vendor's own list under any spelling, before a reseller's under the full one.
    for last in (False, True):
        for name in spellings(model):
            for where in asked if last else _providers(name, labels):
                scored = [(matched(m.match, name), m) for m in where.models]
                best = max(scored, key=lambda pair: pair[0], default=None)
                if best is not None and best[0] > 0:
                    return where, best[1]
    return None


def _providers(name: str, labels: list[str]) -> list[types.Provider]:
    """Where to look a name up: the providers stated with it, then its vendor."""
    listed = get_snapshot().providers
    stated = [*labels, *(["aws"] if "anthropic." in name else [])]
    stated += [vendor for head, vendor in _VENDORS.items() if name.startswith(head)]
    chosen: list[types.Provider] = []
    for label in stated:
        found = find_provider_by_id(listed, _cloud(label))
        if found is not None and found.id not in _RESELLERS:
            chosen.append(found)
            chosen += [p for p in listed if p.id in (found.fallback_model_providers or ())]
    chosen += [p for p in listed if p.model_match is not None and p.model_match.is_match(name)]
    return chosen


def _cloud(label: str) -> str:
    text = label.lower()
    return next((cloud for word, cloud in _CLOUDS.items() if word in text), text)


def context_window(model: str, provider: str | None = None) -> int | None:
    """Context window of a model in tokens; None where the package does not know it."""
    found = _find(model, provider)
    return found[1].context_window if found else None


class PackagedPrices:
    """The price list of the installed `genai-prices`."""

    def __init__(self) -> None:
        self._label = f"genai-prices {version('genai-prices')}"

    def bands(
        self, model: str, provider: str | None, at: datetime, term: str | None = None
    ) -> tuple[Band, ...]:
        """See `PriceList`."""
        found = _find(model, provider)
        if found is None:
            return ()
        where, entry = found
        if term is None:
            return self._bands(where.id, entry, entry.get_prices(at))
        return self._bands(where.id, entry, _variant(entry, at, term), f", {term}")

    def factor(self, model: str, provider: str | None, at: datetime, term: str) -> Factor | None:
        """See `PriceList`; the package states prices, no multiples."""
        return None

    def by_the_hour(self, model: str, provider: str | None) -> bool:
        """See `PriceList`."""
        found = _find(model, provider)
        if found is None or isinstance(found[1].prices, types.ModelPrice):
            return False
        return any(isinstance(p.constraint, types.TimeOfDateConstraint) for p in found[1].prices)

    def _bands(
        self,
        provider: str,
        entry: types.ModelInfo,
        prices: types.ModelPrice | None,
        note: str = "",
    ) -> tuple[Band, ...]:
        if prices is None:
            return ()
        # `_APART` too: audio has tiers of its own.
        values = {n: getattr(prices, key, None) for n, key in (*_PRICES.items(), *_APART.items())}
        # Prices by the second, by the picture or by the request are no prices of prompts.
        if values["input"] is None or values["output"] is None:
            return ()
        starts = {0}
        for value in values.values():
            if isinstance(value, types.TieredPrices):
                starts.update(tier.start for tier in value.tiers)
        source = f"{self._label}: {provider}/{entry.id}{note}"
        return tuple(
            Band(above, _rates(values, above, source, "claude" in entry.id))
            for above in sorted(starts)
        )

    def rows(self) -> list[PriceRow]:
        """See `PriceList`; vendors only, the resellers repeat them."""
        rows: list[PriceRow] = []
        for provider in get_snapshot().providers:
            if provider.model_match is None:
                continue
            for entry in provider.models:
                for starts, hours, prices in _dated(entry):
                    rows += [
                        PriceRow(entry.id, provider.id, starts, hours, band.above, band.rates)
                        for band in self._bands(provider.id, entry, prices)
                    ]
                for term, starts, prices in _variants(entry):
                    rows += [
                        PriceRow(entry.id, provider.id, starts, "", band.above, band.rates, term)
                        for band in self._bands(provider.id, entry, prices, f", {term}")
                    ]
        return rows


def _rates(
    values: dict[str, Decimal | types.TieredPrices | None], above: int, source: str, claude: bool
) -> PartialRates:
    at = {name: _at(value, above) for name, value in values.items()}
    if claude and at["write_5m"] is not None and at["write_1h"] is None and at["input"] is not None:
        at["write_1h"] = at["input"] * _HOUR_WRITE
    priced = ((name, at.pop(name)) for name in _APART)
    apart = tuple(
        (name, rate * PER_MTOK / PER_THOUSAND if name == SEARCHES else rate)
        for name, rate in priced
        if rate is not None
    )
    return PartialRates(**at, source=source, apart=apart)


def _at(value: Decimal | types.TieredPrices | None, above: int) -> Decimal | None:
    if value is None:
        return None
    if not isinstance(value, types.TieredPrices):
        return value / PER_MTOK
    begun = [tier.price for tier in value.tiers if tier.start <= above]
    return (begun[-1] if begun else value.base) / PER_MTOK


def _dated(entry: types.ModelInfo) -> list[tuple[date | None, str, types.ModelPrice]]:
    if isinstance(entry.prices, types.ModelPrice):
        return [(None, "", entry.prices)]
    found: list[tuple[date | None, str, types.ModelPrice]] = []
    for price in entry.prices:
        match price.constraint:
            case types.StartDateConstraint(start_date=day):
                found.append((day, "", price.prices))
            case types.TimeOfDateConstraint(start_time=begin, end_time=end):
                found.append((None, f"{begin:%H:%M}-{end:%H:%M}", price.prices))
            case _:
                found.append((None, "", price.prices))
    return found


def _variants(
    entry: types.ModelInfo,
) -> list[tuple[str, date | None, types.ModelPrice]]:
    """What a model costs under other terms: term, first day as the package has it, prices."""
    found = []
    for variant in entry.price_variants or ():
        words = {w for key, w in variant.when.items() if key in _CONTEXT_KEYS}
        if len(words) != 1 or len(variant.when) != 1 or not _states(variant.prices):
            continue
        limit = variant.constraint
        day = limit.start_date if isinstance(limit, types.StartDateConstraint) else None
        found.append((words.pop(), day, variant.prices))
    return found


def _states(prices: types.ModelPrice) -> bool:
    return getattr(prices, "input_mtok", None) is not None


def _variant(entry: types.ModelInfo, at: datetime, term: str) -> types.ModelPrice | None:
    """Prices of a model under a term at a time; None where the package does not state them.

    The package dates its variants by the day on which it took them up. Before that day the first of
    them holds as long as the usual price was the one that it had on that day.
    """
    known = [(day, prices) for word, day, prices in _variants(entry) if word == term]
    begun = [(day, p) for day, p in known if day is None or day <= at.astimezone(UTC).date()]
    if begun:
        return max(begun, key=lambda pair: pair[0] or date.min)[1]
    if not known:
        return None
    first, prices = min(known, key=lambda pair: pair[0] or date.min)
    noon = datetime.combine(first or date.min, time(12), UTC)
    return prices if entry.get_prices(at) == entry.get_prices(noon) else None
