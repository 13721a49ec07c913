"""A table as data: what its columns are, how a value reads, and its forms as JSON, CSV, Markdown.

Trace text is hostile: control characters and escape sequences never reach a terminal, and a cell
is never taken as markup.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

Value: TypeAlias = str | int | float | Decimal | bool | datetime | Sequence[str] | None
Row: TypeAlias = Mapping[str, Value]
Style: TypeAlias = Literal["text", "count", "usd", "share", "seconds", "time"]

UNKNOWN = "–"
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the key in a row, the heading, and how its values read."""

    key: str
    heading: str
    style: Style = "text"
    width: int | None = None
    """Longest text shown in a terminal; None for all of it."""
    shown: bool = True
    """False: only in JSON and CSV."""
    spare: int = 0
    """On a narrow terminal the columns with the largest number go first; 0 never goes."""


@dataclass(frozen=True)
class Table:
    """Rows under columns, with a title that says the finding."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    note: str = ""


def clean(text: str) -> str:
    """A text without control characters, escape sequences or direction marks."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, width: int | None = None) -> str:
    """A text on one line, cut to a width."""
    flat = re.sub(r"\s+", " ", clean(text)).strip()
    return flat if width is None or len(flat) <= width else flat[: width - 1] + "…"


def show(value: Value, style: Style, width: int | None = None) -> str:
    """A value as a person reads it; unknown is a dash, never 0."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case str():
            return one_line(value, width)
        case int() | float() | Decimal():
            return _number(value, style)
        case _:
            return one_line(", ".join(str(v) for v in value), width)


def _number(value: int | float | Decimal, style: Style) -> str:
    match style:
        case "usd":
            return usd(value)
        case "share":
            return f"{value:.1%}"
        case "seconds":
            return duration(float(value))
        case _:
            return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def usd(value: int | float | Decimal | None) -> str:
    """Dollars to the cent; below ten cents to a hundredth of a cent."""
    if value is None:
        return UNKNOWN
    sign = "-" if value < 0 else ""
    size = abs(Decimal(value))
    return f"{sign}${size:,.2f}" if size == 0 or size >= Decimal("0.1") else f"{sign}${size:.4f}"


def duration(seconds: float) -> str:
    """Seconds as the two largest units that matter."""
    if abs(seconds) < 120:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(abs(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if seconds < 0 else ""
    if days:
        return f"{sign}{days} d {hours} h"
    return f"{sign}{hours} h {minutes} min" if hours else f"{sign}{minutes} min {rest} s"


def plural(count: int, word: str) -> str:
    """A count with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def plain(value: Value) -> object:
    """A value for JSON and CSV: money as a number, times as ISO 8601 UTC."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value


def to_json(document: object) -> str:
    """A document as JSON text; `Decimal` and times inside it as in `plain`."""
    return json.dumps(document, default=_fallback, ensure_ascii=False, indent=1)


def _fallback(value: object) -> object:
    if isinstance(value, Decimal | datetime):
        return plain(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def to_csv(table: Table) -> str:
    """All columns, shown or not, with their keys as the header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.key for c in table.columns])
    for row in table.rows:
        writer.writerow([_cell(row.get(c.key)) for c in table.columns])
    return out.getvalue()


def _cell(value: Value) -> object:
    got = plain(value)
    if isinstance(got, str):
        # A spreadsheet would run a cell that begins like a formula.
        return "'" + got if got[:1] in ("=", "+", "-", "@", "\t") else got
    return got if not isinstance(got, list | tuple) else "; ".join(str(v) for v in got)


def to_markdown(table: Table) -> str:
    """The shown columns as a Markdown table, with cell text escaped."""
    columns = [c for c in table.columns if c.shown]
    lines = [
        "| " + " | ".join(c.heading for c in columns) + " |",
        "|" + "|".join("---:" if c.style != "text" else "---" for c in columns) + "|",
    ]
    for row in table.rows:
        cells = [_escape(show(row.get(c.key), c.style, c.width)) for c in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)
