"""What a price is, and how a model's name is read.

Owns the values (`Rates`, `Cost`, `PriceRow`), the protocol of a price list, and the reading of
model names: the same model is written in a dozen ways by gateways, clouds and logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Protocol

PER_MTOK = Decimal(1_000_000)
PER_THOUSAND = Decimal(1_000)
_NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of one model at one time and prompt size, in USD per token."""

    input: Decimal
    read: Decimal
    write_5m: Decimal
    """Short cache write: Anthropic's 5 minutes, OpenAI's 30 minutes."""
    write_1h: Decimal
    """Long cache write: Anthropic's hour, OpenAI's 12 hours."""
    output: Decimal
    tier: str
    """`standard`, or `>200000`: the price for prompts of more tokens than that."""
    source: str
    apart: tuple[tuple[str, Decimal], ...] = ()
    """Prices of the counts in `Usage.apart`: USD per token, `web_searches` USD per request."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one request cost, in USD."""

    input: Decimal
    read: Decimal
    write: Decimal
    output: Decimal
    total: Decimal
    assumed_ttl: bool = False
    """Writes of unknown lifetime were priced as short ones."""
    tools: Decimal = _NOTHING
    """What the provider's own tools cost by the request (web searches)."""


SEARCHES = "web_searches"
APART = ("audio_input", "audio_read", "audio_output", "image_input", SEARCHES)
"""Names of the counts that may have prices of their own."""
_PART_OF = {
    "audio_input": "input",
    "image_input": "input",
    "audio_read": "read",
    "audio_output": "output",
}
"""Count that is priced apart -> the count that it is a part of. Tokens for which no price of their
own is published cost what the others do."""


def charge(
    rates: Rates,
    tokens: tuple[int, int, int, int, int],
    assumed_ttl: bool = False,
    apart: tuple[tuple[str, int], ...] = (),
) -> Cost:
    """Price disjoint counts: uncached input, read, short write, long write, output."""
    uncached, read, short, long, output = tokens
    paid_input = uncached * rates.input
    paid_read = read * rates.read
    paid_write = short * rates.write_5m + long * rates.write_1h if short or long else _NOTHING
    paid_output = output * rates.output
    tools = _NOTHING
    if apart:
        more = _surcharges(rates, apart)
        paid_input += more["input"]
        paid_read += more["read"]
        paid_output += more["output"]
        tools = more[SEARCHES]
    total = paid_input + paid_read + paid_write + paid_output + tools
    return Cost(paid_input, paid_read, paid_write, paid_output, total, assumed_ttl, tools)


def _surcharges(rates: Rates, apart: tuple[tuple[str, int], ...]) -> dict[str, Decimal]:
    """What counts with prices of their own cost beyond the price of the count they are part of."""
    prices = dict(rates.apart)
    more = {"input": _NOTHING, "read": _NOTHING, "output": _NOTHING, SEARCHES: _NOTHING}
    for name, count in apart:
        price = prices.get(name)
        if name == SEARCHES:
            more[SEARCHES] += count * (price or _NOTHING)
        elif price is not None and name in _PART_OF:
            usual: Decimal = getattr(rates, _PART_OF[name])
            more[_PART_OF[name]] += count * (price - usual)
    return more


@dataclass(frozen=True, slots=True)
class PartialRates:
    """Prices in USD per token as one list states them; None where it says nothing."""

    input: Decimal | None = None
    read: Decimal | None = None
    write_5m: Decimal | None = None
    write_1h: Decimal | None = None
    output: Decimal | None = None
    source: str = ""
    apart: tuple[tuple[str, Decimal], ...] = ()
    """Prices of counts that are billed apart, as in `Rates`."""


@dataclass(frozen=True, slots=True)
class Band:
    """Prices for whole prompts of more than `above` tokens (0: every prompt)."""

    above: int
    rates: PartialRates


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One line of the price table."""

    model: str
    provider: str | None
    starts: date | None
    """First day of the price; None where the list gives no date."""
    hours: str
    """UTC hours in which the price holds, such as `01:00-04:00`; empty: all day."""
    above: int
    """The price holds for prompts of more tokens than this."""
    rates: PartialRates
    term: str | None = None
    """How a request is billed that has this price (`batch` …); None: as usual."""
    factor: Decimal | None = None
    """A multiple of the usual prices instead of prices."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A multiple of all token prices of some requests."""

    factor: Decimal
    source: str


class PriceList(Protocol):
    """One source of prices; a `PriceBook` asks several, the first that knows a price wins."""

    def bands(
        self, model: str, provider: str | None, at: datetime, term: str | None = None
    ) -> tuple[Band, ...]:
        """Prices at a time, ascending by `above`; empty if the model is not in this list.

        With a `term` only what the list states for requests that are billed so.
        """
        ...

    def factor(self, model: str, provider: str | None, at: datetime, term: str) -> Factor | None:
        """Multiple of the usual prices for requests billed so; None where the list has none."""
        ...

    def by_the_hour(self, model: str, provider: str | None) -> bool:
        """Whether the price depends on the time of day."""
        ...

    def rows(self) -> list[PriceRow]:
        """Everything in the list."""
        ...


# Applied in the order of `spellings`, each once: a name loses a prefix, then what stands behind it.
_REGION = re.compile(r"^(?:us|eu|apac|jp|au|ca|sa|me|af|us-gov|global|regional)\.")
_VENDOR = re.compile(r"^(?:anthropic|amazon|meta|mistral|cohere|deepseek|openai|qwen|zai)(?:\.|--)")
_BRACKET = re.compile(r"\[[^\]]*\]$")
_REVISION = re.compile(r"(?:-v\d+(?::\d+)?|@default|@latest|:thinking|:beta|:extended)$")
_DATE = re.compile(r"[-@](?:20\d{6}|20\d{2}-\d{2}-\d{2})$")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_NUMBER_FIRST = re.compile(r"^claude-(\d+(?:-\d+)?)-(opus|sonnet|haiku)(?=$|-)")
_NUMBER_LAST = re.compile(r"^claude-(opus|sonnet|haiku)-(3(?:-\d)?)(?=$|-)")
# Four digits and more are a date or a build, one or two are a version.
_MORE_VERSION = re.compile(r"^(?:\d|[-.]\d{1,2}(?!\d))")


def spellings(model: str) -> tuple[str, ...]:
    """The ways to look a model up, from the full name as given to the bare one; lower case.

    Gateways put providers in front (`openrouter/anthropic/…`), clouds put regions
    (`us.anthropic.…`) and revisions (`-v1:0`), logs put dates. Names in angle brackets
    (`<synthetic>`) are no models.
    """
    name = model.strip().lower()
    if not name or name.startswith("<"):
        return ()
    found = [name]

    def add(text: str) -> str:
        if text and text not in found:
            found.append(text)
        return text

    while "/" in name:
        name = add(name.split("/", 1)[1])
    name = add(_BRACKET.sub("", name))
    for pattern in (_REGION, _VENDOR, _REVISION, _DATE, _REVISION):
        name = add(pattern.sub("", name))
    # Gateways write 4.5 for 4-5, and the number before or behind the family.
    if name.startswith("claude"):
        add(_claude(name))
    return tuple(found)


def _claude(name: str) -> str:
    """Anthropic's own spelling: numbers joined by `-`, behind the family from version 4 on."""
    name = _POINT.sub("-", name)
    first = _NUMBER_FIRST.match(name)
    if first and int(first[1].split("-")[0]) >= 4:
        return f"claude-{first[2]}-{first[1]}{name[first.end() :]}"
    last = _NUMBER_LAST.match(name)
    return f"claude-{last[2]}-{last[1]}{name[last.end() :]}" if last else name


def canonical(model: str) -> str:
    """The bare name of a model: no provider, region, revision or date, `claude-opus-4-8` style.

    An empty string for names that stand for no model.
    """
    return next(reversed(spellings(model)), "")


def continues_version(rest: str) -> bool:
    """Whether what follows a matched name makes it another model (`-8` behind `claude-opus-4`)."""
    return bool(_MORE_VERSION.match(rest))
