"""Price files: the dated overlay of this package, and a user's own list in the same format.

Owns the TOML format:

    [[price]]
    model = "claude-opus-5*"     # exact name, or a pattern with `*` and `?`
    provider = "anthropic"       # optional; without it the price holds for every provider
    from = 2026-07-01            # first day; the latest that has begun wins
    input = 5                    # USD per million tokens; a price left out comes from the next list
    read = "0.50"
    source = "…"
    [[price.tier]]               # prices of the whole request for longer prompts
    above = 200000
    input = 10

    [[price]]                    # the same model where it is billed otherwise
    model = "claude-opus-5*"
    term = "fast"                # batch, flex, priority, fast, us …
    input = 10

    [[factor]]                   # a multiple of every token price, where no list states the prices
    model = "claude-*"
    term = "batch"
    factor = 0.5
    source = "…"

Beside `input`, `read`, `write_5m`, `write_1h` and `output` an entry may price `audio_input`,
`audio_read`, `audio_output`, `image_input` (USD per million tokens) and `web_searches` (USD per
thousand).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

from analyzer.errors import PriceError
from analyzer.pricing.base import (
    APART,
    PER_MTOK,
    PER_THOUSAND,
    SEARCHES,
    Band,
    Factor,
    PartialRates,
    PriceRow,
    spellings,
)

_RATES = ("input", "read", "write_5m", "write_1h", "output")
_WHO = {"model", "provider", "from", "source", "term"}
_ENTRY_KEYS = {*_WHO, "checked", "tier", *_RATES, *APART}
_TIER_KEYS = {"above", *_RATES, *APART}
_FACTOR_KEYS = {*_WHO, "factor"}


@dataclass(frozen=True, slots=True)
class _Entry:
    pattern: str
    provider: str | None
    starts: date | None
    bands: tuple[Band, ...]
    term: str | None = None
    factor: Factor | None = None

    def matches(self, names: tuple[str, ...], provider: str | None) -> bool:
        if self.provider is not None and provider is not None and self.provider != provider.lower():
            return False
        # A request that states no provider may be any provider's.
        return any(fnmatchcase(name, self.pattern) for name in names)

    @property
    def rank(self) -> tuple[bool, int, date]:
        exact = not any(c in self.pattern for c in "*?[")
        return exact, len(self.pattern), self.starts or date.min


class PriceFile:
    """The prices of one TOML file."""

    def __init__(self, entries: tuple[_Entry, ...], checked: date | None = None) -> None:
        self._entries = entries
        self.checked = checked
        """Day on which the file was last compared with its sources."""

    @classmethod
    def load(cls, path: Path) -> PriceFile:
        """Read a price file. Raises `PriceError` with file, key, what was expected, what came."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PriceError(
                f"{path}: expected a readable price file in UTF-8, got {error}"
            ) from error
        try:
            raw = tomllib.loads(text, parse_float=Decimal)
        except tomllib.TOMLDecodeError as error:
            raise PriceError(f"{path}: expected TOML, got {error}") from error
        reader = _Reader(path.name)
        return cls(reader.entries(raw), reader.day(raw, "checked", "checked"))

    def bands(
        self, model: str, provider: str | None, at: datetime, term: str | None = None
    ) -> tuple[Band, ...]:
        """See `PriceList`. An exact name beats a pattern, a longer pattern a shorter one."""
        found = self._best(
            (e for e in self._entries if e.factor is None), model, provider, at, term
        )
        return found.bands if found else ()

    def factor(self, model: str, provider: str | None, at: datetime, term: str) -> Factor | None:
        """See `PriceList`; chosen as `bands` are."""
        found = self._best((e for e in self._entries if e.factor), model, provider, at, term)
        return found.factor if found else None

    @staticmethod
    def _best(
        entries: Iterable[_Entry], model: str, provider: str | None, at: datetime, term: str | None
    ) -> _Entry | None:
        # Patterns may be written for any spelling: with or without region, revision or date.
        names = spellings(model)
        day = at.astimezone(UTC).date()
        fits = [
            e
            for e in entries
            if e.term == term
            and e.matches(names, provider)
            and (e.starts is None or e.starts <= day)
        ]
        return max(fits, key=lambda e: e.rank) if fits else None

    def by_the_hour(self, model: str, provider: str | None) -> bool:
        """See `PriceList`; a file has days only."""
        return False

    def rows(self) -> list[PriceRow]:
        """See `PriceList`."""
        return [
            PriceRow(e.pattern, e.provider, e.starts, "", band.above, band.rates, e.term)
            for e in self._entries
            for band in e.bands
        ] + [
            PriceRow(e.pattern, e.provider, e.starts, "", 0, of, e.term, e.factor.factor)
            for e in self._entries
            if e.factor is not None
            for of in [PartialRates(source=e.factor.source)]
        ]


class _Reader:
    """Checks one parsed file; every message names the file and the key."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, key: str, expected: str, got: object) -> PriceError:
        return PriceError(f"{self.file}: {key}: expected {expected}, got {got!r}")

    def entries(self, raw: Mapping[str, object]) -> tuple[_Entry, ...]:
        unknown = set(raw) - {"price", "factor", "checked"}
        if unknown:
            wanted = "one of the keys checked, factor, price"
            raise self.fail(min(unknown), wanted, raw[min(unknown)])
        found: list[_Entry] = []
        for name, read in (("price", self._entry), ("factor", self._multiple)):
            listed = raw.get(name, [])
            if not isinstance(listed, list):
                raise self.fail(name, f"an array of tables ([[{name}]])", listed)
            found += [read(entry, f"{name}[{i}]") for i, entry in enumerate(listed)]
        return tuple(found)

    def _table(self, value: object, key: str, known: set[str]) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise self.fail(key, "a table", value)
        unknown = set(value) - known
        if unknown:
            raise self.fail(f"{key}.{min(unknown)}", f"one of {', '.join(sorted(known))}", "it")
        return cast("Mapping[str, object]", value)

    def _multiple(self, value: object, key: str) -> _Entry:
        table = self._table(value, key, _FACTOR_KEYS)
        by = self._number(table, "factor", key, "a factor, 0 or more")
        if by is None or self._text(table, "term", key) is None:
            missing = "term" if by is not None else "factor"
            raise self.fail(f"{key}.{missing}", "a `term` and a `factor`", None)
        found = self._who(table, key, ())
        return replace(found, factor=Factor(by, self._text(table, "source", key) or self.file))

    def _who(self, table: Mapping[str, object], key: str, bands: tuple[Band, ...]) -> _Entry:
        model = self._text(table, "model", key)
        if not model:
            raise self.fail(f"{key}.model", "a model name or pattern", table.get("model"))
        provider = self._text(table, "provider", key)
        return _Entry(
            model.lower(),
            provider.lower() if provider else None,
            self.day(table, "from", f"{key}.from"),
            bands,
            self._text(table, "term", key),
        )

    def _entry(self, value: object, key: str) -> _Entry:
        table = self._table(value, key, _ENTRY_KEYS)
        source = self._text(table, "source", key) or self.file
        bands = [Band(0, self._rates(table, key, source))]
        tiers = table.get("tier", [])
        if not isinstance(tiers, list):
            raise self.fail(f"{key}.tier", "an array of tables ([[price.tier]])", tiers)
        for i, tier in enumerate(tiers):
            place = f"{key}.tier[{i}]"
            inner = self._table(tier, place, _TIER_KEYS)
            above = inner.get("above")
            if not isinstance(above, int) or isinstance(above, bool) or above <= 0:
                raise self.fail(f"{place}.above", "a number of tokens above 0", above)
            bands.append(Band(above, self._rates(inner, place, source)))
        return self._who(table, key, tuple(sorted(bands, key=lambda b: b.above)))

    def _text(self, table: Mapping[str, object], name: str, key: str) -> str | None:
        value = table.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.fail(f"{key}.{name}", "a string", value)

    def day(self, table: Mapping[str, object], name: str, key: str) -> date | None:
        value = table.get(name)
        if value is None:
            return None
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        raise self.fail(key, "a date such as 2026-07-01", value)

    def _rates(self, table: Mapping[str, object], key: str, source: str) -> PartialRates:
        values = {name: self._rate(table, name, key, PER_MTOK) for name in _RATES}
        apart = {
            name: self._rate(table, name, key, PER_THOUSAND if name == SEARCHES else PER_MTOK)
            for name in APART
        }
        known = tuple((name, rate) for name, rate in apart.items() if rate is not None)
        return PartialRates(**values, source=source, apart=known)

    def _rate(
        self, table: Mapping[str, object], name: str, key: str, unit: Decimal
    ) -> Decimal | None:
        kind = "thousand" if unit == PER_THOUSAND else "million tokens"
        rate = self._number(table, name, key, f"USD per {kind}, 0 or more")
        return None if rate is None else rate / unit

    def _number(
        self, table: Mapping[str, object], name: str, key: str, expected: str
    ) -> Decimal | None:
        value = table.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
            raise self.fail(f"{key}.{name}", expected, value)
        try:
            # Quoted numbers are taken too, so that a price may be written as it is published.
            number = Decimal(value)
        except InvalidOperation as error:
            raise self.fail(f"{key}.{name}", expected, value) from error
        if not number.is_finite() or number < 0:
            raise self.fail(f"{key}.{name}", expected, value)
        return number
