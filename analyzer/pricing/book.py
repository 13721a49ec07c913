"""Dated prices of a request, from several lists of which the first that knows a price wins.

Owns the memory that makes it fast: a model's lists are asked once per day (once per minute where a
price depends on the hour), never once per request.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal

from analyzer.model import Usage
from analyzer.pricing.base import (
    SEARCHES,
    Band,
    Cost,
    Factor,
    PartialRates,
    PriceList,
    PriceRow,
    Rates,
    canonical,
    charge,
)

_KINDS = ("input", "read", "write_5m", "write_1h", "output")
_FAST = re.compile(r"claude-.*-fast")
"""Gateways make a model of its own of Anthropic's fast mode."""
_FLOAT = tuple[float, float, float, float, float]
Terms = tuple[str, ...]
"""See `Usage.terms`."""


@dataclass(slots=True)
class _Sheet:
    """Prices of one model on one day, by the size of the prompt."""

    above: list[int]
    rates: list[Rates]
    floats: list[_FLOAT]

    def place(self, prompt: int) -> int:
        """Index of the band for a prompt; `above` itself still belongs to the band below."""
        return max(0, bisect_left(self.above, prompt) - 1)


@dataclass(slots=True)
class _Quotes:
    by_the_hour: bool
    sheets: dict[int, _Sheet | None] = field(default_factory=dict)


class Book:
    """Rates and costs, in USD as `Decimal`. Unknown models are `None`, never 0."""

    def __init__(self, lists: Sequence[PriceList], when_undated: datetime) -> None:
        """`when_undated`: the time whose prices hold for steps without a time."""
        self._lists = tuple(lists)
        self._undated = when_undated
        self._quotes: dict[tuple[str, str | None, Terms], _Quotes] = {}

    def rates(
        self,
        model: str | None,
        at: datetime | None,
        prompt_tokens: int | None = None,
        provider: str | None = None,
        terms: Terms = (),
    ) -> Rates | None:
        """Prices per token for a request of this model at this time, billed on these terms.

        `prompt_tokens` is the whole prompt (uncached, read and written), which decides the tier;
        without it the price of short prompts is given. `None` for a model that no list knows, and
        for terms without a published price.
        """
        sheet = self._sheet(model, at, provider, terms)
        if sheet is None:
            return None
        return sheet.rates[sheet.place(prompt_tokens or 0)]

    def cost(
        self, usage: Usage, model: str | None, at: datetime | None, provider: str | None = None
    ) -> Cost | None:
        """Price one request.

        `None` where the model is unknown, its terms have no published price, or the input or output
        count was not reported (`why_not` says which). Cache counts that were not reported add
        nothing: such a report has the whole prompt in `input`.
        """
        if usage.input is None or usage.output is None:
            return None
        sheet = self._sheet(model, at, provider, usage.terms)
        if sheet is None:
            return None
        read = usage.cache_read or 0
        short, long, unsplit = writes(usage)
        prompt = usage.input + read + short + long
        rates = sheet.rates[sheet.place(prompt) if len(sheet.above) > 1 else 0]
        assumed = unsplit and rates.write_5m != rates.write_1h
        if usage.apart and _unpriced_searches(usage, rates):
            return None
        tokens = (usage.input, read, short, long, usage.output)
        return charge(rates, tokens, assumed, usage.apart)

    def why_not(
        self, usage: Usage | None, model: str | None, at: datetime | None, provider: str | None
    ) -> str | None:
        """Why `cost` is unknown, in words; None where it is known."""
        if usage is None or (usage.input is None and usage.output is None):
            return "no token counts were recorded"
        if usage.input is None or usage.output is None:
            return f"no {'input' if usage.input is None else 'output'} count was recorded"
        if not model or self._sheet(model, at, provider, ()) is None:
            return f"model {model} is in no price list" if model else "no model was recorded"
        if self._sheet(model, at, provider, usage.terms) is None:
            return f"{' and '.join(usage.terms)} has no published price for {model}"
        if self.cost(usage, model, at, provider) is None:
            return f"web searches have no published price for {model}"
        return None

    def cost_float(
        self, usage: Usage, model: str | None, at: datetime | None, provider: str | None = None
    ) -> float | None:
        """The total of `cost` as a float, for sums over very many requests."""
        if usage.apart:
            exact = self.cost(usage, model, at, provider)
            return None if exact is None else float(exact.total)
        if usage.input is None or usage.output is None:
            return None
        sheet = self._sheet(model, at, provider, usage.terms)
        if sheet is None:
            return None
        read = usage.cache_read or 0
        short, long, _ = writes(usage)
        place = sheet.place(usage.input + read + short + long) if len(sheet.above) > 1 else 0
        p_in, p_read, p_short, p_long, p_out = sheet.floats[place]
        written = short * p_short + long * p_long
        return usage.input * p_in + read * p_read + written + usage.output * p_out

    def table(self) -> list[PriceRow]:
        """Every price of every list, the list that wins first."""
        return [row for prices in self._lists for row in prices.rows()]

    def _sheet(
        self, model: str | None, at: datetime | None, provider: str | None, terms: Terms
    ) -> _Sheet | None:
        if not model:
            return None
        quotes = self._quotes.get((model, provider, terms))
        if quotes is None:
            quotes = self._quotes[model, provider, terms] = _Quotes(
                any(prices.by_the_hour(model, provider) for prices in self._lists)
            )
        if at is None:
            at = self._undated
        # Nearly every time is UTC already; the identity test spares a conversion per request.
        if at.tzinfo is not UTC:
            at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
        when = at.toordinal()
        # Peak hours need not begin on the hour, so the key is the minute.
        if quotes.by_the_hour:
            when = when * 1440 + at.hour * 60 + at.minute
        try:
            return quotes.sheets[when]
        except KeyError:
            sheet = quotes.sheets[when] = self._build(model, provider, at, terms)
            return sheet

    def _build(self, model: str, provider: str | None, at: datetime, terms: Terms) -> _Sheet | None:
        name = canonical(model)
        if not name:
            return None
        if _FAST.fullmatch(name) and "fast" not in terms:
            terms = (*terms, "fast")
        lists = [bands for p in self._lists if (bands := p.bands(model, provider, at))]
        usual = lists
        factors: list[Factor] = []
        for term in terms:
            special = [b for p in self._lists if (b := p.bands(model, provider, at, term))]
            factor = None if special else self._factor(model, provider, at, term)
            if not special and factor is None:
                return None
            # What a list states for the term goes before every usual price.
            lists = [*special, *lists]
            factors += [factor] if factor else []
        above = sorted({band.above for bands in lists for band in bands})
        merged = [_merge(lists, start) for start in above]
        if not merged or any(rates is None for rates in merged):
            return None
        rates = [r for r in merged if r is not None]
        if len(lists) > len(usual):
            rates = [_long_write(r, lists[0], usual, a) for r, a in zip(rates, above, strict=True)]
        rates = [_times(r, factors) for r in rates]
        floats = [
            (float(r.input), float(r.read), float(r.write_5m), float(r.write_1h), float(r.output))
            for r in rates
        ]
        return _Sheet(above, rates, floats)

    def _factor(self, model: str, provider: str | None, at: datetime, term: str) -> Factor | None:
        found = (p.factor(model, provider, at, term) for p in self._lists)
        return next((factor for factor in found if factor is not None), None)


def _long_write(
    rates: Rates, special: tuple[Band, ...], usual: Sequence[tuple[Band, ...]], above: int
) -> Rates:
    """Prices under a term whose list states the short write only: the long one keeps its ratio."""
    before = _merge(usual, above)
    if before is None or not before.input or _band(special, above).write_1h is not None:
        return rates
    return replace(rates, write_1h=before.write_1h * rates.input / before.input)


def _times(rates: Rates, factors: Sequence[Factor]) -> Rates:
    """All prices of tokens times some factors; requests of the provider's tools keep theirs."""
    for one in factors:
        by = one.factor
        rates = replace(
            rates,
            input=rates.input * by,
            read=rates.read * by,
            write_5m=rates.write_5m * by,
            write_1h=rates.write_1h * by,
            output=rates.output * by,
            apart=tuple((n, p if n == SEARCHES else p * by) for n, p in rates.apart),
            source=f"{rates.source}; times {by}: {one.source}",
        )
    return rates


def _unpriced_searches(usage: Usage, rates: Rates) -> bool:
    return any(n == SEARCHES and c for n, c in usage.apart) and SEARCHES not in dict(rates.apart)


def writes(usage: Usage) -> tuple[int, int, bool]:
    """Tokens written for a short and for a long time, and whether part of the split was assumed."""
    short, long = usage.cache_write_5m or 0, usage.cache_write_1h or 0
    rest = (usage.cache_write or 0) - short - long
    if rest <= 0:
        return short, long, False
    return short + rest, long, usage.cache_write_5m is None


def _merge(lists: Sequence[tuple[Band, ...]], above: int) -> Rates | None:
    """One price of each kind from the first list that states it; None without input and output."""
    stated = [_band(bands, above) for bands in lists]

    def first(name: str) -> Decimal | None:
        return next((v for s in stated if (v := getattr(s, name)) is not None), None)

    price, output = first("input"), first("output")
    if price is None or output is None:
        return None
    write = first("write_5m")
    long = first("write_1h")
    read = first("read")
    # A provider that names no write price bills written tokens as plain input.
    short = write if write is not None else price
    return Rates(
        price,
        read if read is not None else price,
        short,
        long if long is not None else short,
        output,
        f">{above}" if above else "standard",
        "; ".join(dict.fromkeys(s.source for s in stated if s != PartialRates(source=s.source))),
        tuple({name: p for s in reversed(stated) for name, p in s.apart}.items()),
    )


def _band(bands: tuple[Band, ...], above: int) -> PartialRates:
    """What one list says for a prompt size: a tier leaves the rest as its shorter tiers have it."""
    chosen = PartialRates()
    for band in bands:
        if band.above <= above:
            said = {k: v for k in _KINDS if (v := getattr(band.rates, k)) is not None}
            apart = tuple({**dict(chosen.apart), **dict(band.rates.apart)}.items())
            chosen = replace(chosen, **said, source=band.rates.source, apart=apart)
    return chosen
