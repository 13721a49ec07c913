"""Saved Langfuse files as single objects with their places: pages, downloads, exports, JSON lines.

A file that was cut off gives the whole rows before the cut, then one problem.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from analyzer.errors import DecodeError
from analyzer.model import Problem
from analyzer.sources.base import open_bytes, read_head, read_lines
from analyzer.sources.decode import Json, JsonObject, dump, kind_of, parse
from analyzer.sources.langfuse.tables import (
    PARQUET_MAGIC,
    is_csv_head,
    read_csv,
    read_parquet,
)
from analyzer.sources.spans.rows import Place

RAW_BYTES = 65_536
_ARRAYS = ("data", "observations", "traces", "scores")
_CUT_ARRAYS = ('"observations"', '"data"')
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Found:
    """One object of a file that is an observation, a trace or a score."""

    value: JsonObject
    place: Place


def read_objects(path: Path) -> Iterator[Found | Problem]:
    """All objects of a file that may be rows, in the file's order."""
    head = read_head(path).data
    if head.startswith(PARQUET_MAGIC):
        yield from _table(path, read_parquet(path))
    elif is_csv_head(head):
        yield from _table(path, read_csv(path))
    else:
        yield from _json(path)


def _table(
    path: Path, rows: Iterator[tuple[int, JsonObject] | Problem]
) -> Iterator[Found | Problem]:
    for found in rows:
        if isinstance(found, Problem):
            yield found
        else:
            yield Found(found[1], Place(str(path), found[0], "$"))


def _json(path: Path) -> Iterator[Found | Problem]:
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        return
    if isinstance(first, Problem):
        yield first
        return
    number, raw = first
    document = _try(raw)
    if document is None:
        second = next(lines, None)
        if second is None or isinstance(second, Problem) or _try(second[1]) is None:
            yield from _whole(path)
            return
        yield _problem(path, number, raw, "expected a JSON line")
        number, raw = second
        document = _try(raw)
    yield from _unpack(document, path, number)
    for line in lines:
        if isinstance(line, Problem):
            yield line
            continue
        yield from _line(path, *line)


def problem_of(place: Place, value: Json, message: str, pointer: str = "$") -> Problem:
    """A problem with one row, with the row's bytes (cut to 64 KiB)."""
    return Problem(place.path, place.line, pointer, message, _bytes(value))


def _bytes(value: Json) -> bytes:
    try:
        return dump(value).encode("utf-8", "surrogatepass")[:RAW_BYTES]
    except RecursionError:
        return b""


def _line(path: Path, number: int, raw: bytes) -> Iterator[Found | Problem]:
    try:
        document = parse(raw)
    except DecodeError as error:
        yield Problem(str(path), number, error.pointer, error.message, raw[:RAW_BYTES])
        return
    yield from _unpack(document, path, number)


def _problem(path: Path, number: int, raw: bytes, message: str) -> Problem:
    try:
        parse(raw)
    except DecodeError as error:
        message = error.message
    return Problem(str(path), number, "$", message, raw[:RAW_BYTES])


def _try(raw: bytes) -> Json:
    try:
        value = parse(raw)
    except DecodeError:
        return None
    return value if isinstance(value, Mapping | Sequence) and not isinstance(value, str) else None


def _whole(path: Path) -> Iterator[Found | Problem]:
    chunks: list[bytes] = []
    broken = None
    try:
        with open_bytes(path) as stream:
            while chunk := stream.read1(1 << 20):
                chunks.append(chunk)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        broken = f"the archive is damaged or cut off: {error}; what came before was read"
    raw = b"".join(chunks)
    try:
        document = parse(raw)
    except DecodeError as error:
        yield from _salvage(path, raw, broken or error.message)
        return
    if broken:
        yield Problem(str(path), None, "$", broken)
    yield from _unpack(document, path, 1)


def _unpack(document: Json, path: Path, line: int) -> Iterator[Found | Problem]:
    """The objects in a page, a download, an array of rows, or a single row."""
    if isinstance(document, Sequence) and not isinstance(document, str):
        yield from _array(document, path, "$")
        return
    if not isinstance(document, Mapping):
        yield Problem(
            str(path),
            line,
            "$",
            f"expected a row or a page, got {kind_of(document)}",
            _bytes(document),
        )
        return
    trace = document.get("trace")
    if isinstance(trace, Mapping) and "observations" in document:
        yield Found(trace, Place(str(path), line, "$.trace"))
        yield from _arrays(trace, path, "$.trace")
    elif "data" not in document:
        yield Found(document, Place(str(path), line))
    yield from _arrays(document, path, "$")


def _arrays(document: JsonObject, path: Path, pointer: str) -> Iterator[Found | Problem]:
    for key in _ARRAYS:
        value = document.get(key)
        if isinstance(value, Sequence) and not isinstance(value, str):
            yield from _array(value, path, f"{pointer}.{key}")


def _array(rows: Sequence[Json], path: Path, pointer: str) -> Iterator[Found | Problem]:
    for i, value in enumerate(rows):
        place = Place(str(path), i + 1, f"{pointer}[{i}]")
        if isinstance(value, Mapping):
            yield Found(value, place)
            if "traceId" not in value and "trace_id" not in value:
                # A saved list of traces holds the ids of its observations, a download the rows.
                yield from _arrays(value, path, place.pointer)
        elif not isinstance(value, str):
            yield problem_of(place, value, f"expected a row, got {kind_of(value)}", place.pointer)


def _salvage(path: Path, raw: bytes, reason: str) -> Iterator[Found | Problem]:
    """Whole rows of a document that cannot be parsed as one, then the problem."""
    text = raw.decode("utf-8", "surrogateescape")
    at = text.find('"trace"')
    if at >= 0 and (trace := _decode(text, text.find("{", at))) is not None:
        yield Found(trace[0], Place(str(path), 1, "$.trace"))
    start = next((text.find(key) for key in _CUT_ARRAYS if key in text), 0)
    at = text.find("[", start) + 1
    count = 0
    while 0 < at < len(text):
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        decoded = _decode(text, at)
        if decoded is None:
            break
        count += 1
        yield Found(decoded[0], Place(str(path), count, f"$[{count - 1}]"))
        at = decoded[1]
    rest = text[max(at, 0) :].encode("utf-8", "surrogateescape")
    message = f"{reason}; {count} whole rows before it were read"
    yield Problem(str(path), count + 1, "$", message, rest[:RAW_BYTES])


def _decode(text: str, at: int) -> tuple[JsonObject, int] | None:
    if at < 0 or at >= len(text) or text[at] != "{":
        return None
    try:
        value, end = _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None
