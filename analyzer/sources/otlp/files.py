"""Files of spans and log records as single objects with their places.

A file is a request or a span a line, or one document, or several one after another. One that is
damaged gives the whole spans in it, then a problem.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import zstandard

from analyzer.errors import DecodeError
from analyzer.model import Problem
from analyzer.sources.base import BOM, RAW_LIMIT, ends_with_newline, open_bytes, read_lines
from analyzer.sources.decode import Json, JsonObject, dump, get_array, kind_of, parse
from analyzer.sources.otlp.span import Origins, field_of, is_log, is_span, origins_of
from analyzer.sources.otlp.values import is_list
from analyzer.sources.spans.rows import Place

GROUPS = ("resourceSpans", "resourceLogs", "batches")
"""Fields that hold spans or log records by the resource that sent them."""
IGNORED = ("resourceMetrics", "resource_metrics", "resourceProfiles")
WRAPPERS = ("data", "trace", "traces", "result", "spans")
"""Fields in which servers and tools wrap what they give out."""
SCOPED = (
    "scopeSpans",
    "instrumentationLibrarySpans",
    "scopeLogs",
    "instrumentationLibraryLogs",
)
_HELD = re.compile(
    r'"(resource|scope|instrumentationScope|instrumentation_scope|instrumentationLibrary'
    r'|instrumentation_library|spans|logRecords|log_records|data|traces)"\s*:\s*'
)
_ARRAYS = frozenset({"spans", "logRecords", "log_records", "data", "traces"})
_NEXT = re.compile(r"^(?=[{\[])", re.MULTILINE)
_GAP = re.compile(r"[\s,]*")
_MAX_NESTING = 4
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Found:
    """One span or log record of a file."""

    value: JsonObject
    origins: Origins
    place: Place
    log: bool = False


def read_objects(path: Path) -> Iterator[Found | Problem]:
    """All spans and log records of a file, in its order."""
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        return
    if isinstance(first, Problem) or not _is_document(first[1]):
        yield from _whole(path)
        return
    held: Problem | None = None
    for entry in chain((first,), lines):
        if held is not None:
            yield held
            held = None
        if isinstance(entry, Problem):
            yield entry
            continue
        number, raw = entry
        try:
            document = parse(raw)
        except DecodeError as error:
            found = _salvage(raw.decode("utf-8", "surrogateescape"), Place(str(path), number))
            yield from found
            held = _damage(Place(str(path), number), error.message, len(found), raw)
            continue
        yield from _unpack(document, Place(str(path), number))
    # A last line without an end is still being written, and no problem.
    if held is not None and ends_with_newline(path):
        yield held


def _is_document(raw: bytes) -> bool:
    try:
        return isinstance(parse(raw), Mapping | list)
    except DecodeError:
        return False


def _damage(place: Place, reason: str, count: int, raw: bytes) -> Problem:
    message = f"{reason}; {count} whole spans of it were read"
    return Problem(place.path, place.line, place.pointer, message, raw[:RAW_LIMIT])


# -- one document, or several one after another ------------------------------------------------


def _whole(path: Path) -> Iterator[Found | Problem]:
    chunks: list[bytes] = []
    broken = None
    try:
        with open_bytes(path) as stream:
            while chunk := stream.read1(1 << 20):
                chunks.append(chunk)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        broken = f"the archive is damaged or cut off: {error}; what came before was read"
    raw = b"".join(chunks).removeprefix(BOM)
    if broken:
        yield Problem(str(path), None, "$", broken)
    try:
        document = parse(raw)
    except DecodeError:
        yield from _several(raw.decode("utf-8", "surrogateescape"), path)
        return
    yield from _unpack(document, Place(str(path), 1))


def _several(text: str, path: Path) -> Iterator[Found | Problem]:
    """Documents one after another, as the console exporters print them; other text is a problem."""
    at = 0
    line = 1
    while True:
        start = _behind_gap(text, at)
        line += text.count("\n", at, start)
        if start >= len(text):
            return
        place = Place(str(path), line)
        decoded = _decode(text, start)
        if decoded is not None:
            yield from _unpack(decoded[0], place)
            at = decoded[1]
        else:
            following = _NEXT.search(text, start + 1)
            at = following.start() if following else len(text)
            piece = text[start:at]
            found = _salvage(piece, place)
            yield from found
            reason = f"expected JSON, got {piece[:40]!r}"
            yield _damage(place, reason, len(found), piece[:RAW_LIMIT].encode("utf-8", "replace"))
        line += text.count("\n", start, at)


def _behind_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return gap.end() if gap else at


def _decode(text: str, at: int) -> tuple[Json, int] | None:
    if text[at : at + 1] not in ("{", "["):
        return None
    try:
        return _decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _salvage(text: str, place: Place) -> list[Found]:
    """Whole spans of a document that cannot be parsed, with the resource and scope before them."""
    found: list[Found] = []
    resource: Json = None
    origins = Origins()
    at = 0
    while held := _HELD.search(text, at):
        name, at = held.group(1), held.end()
        if name in _ARRAYS:
            at = _salvage_array(text, at, origins, place, found)
            continue
        decoded = _decode(text, at)
        if decoded is None:
            continue
        value, at = decoded
        resource = value if name == "resource" else resource
        scope = {} if name == "resource" or not isinstance(value, Mapping) else {"scope": value}
        origins = origins_of(resource, scope)
    if not found and text[:1] == "[":
        _salvage_array(text, 0, Origins(), place, found)
    return found


def _salvage_array(text: str, at: int, origins: Origins, place: Place, found: list[Found]) -> int:
    if text[at : at + 1] != "[":
        return at
    at += 1
    while True:
        at = _behind_gap(text, at)
        decoded = _decode(text, at)
        if decoded is None:
            return at
        value, at = decoded
        if isinstance(value, Mapping) and (is_span(value) or field_of(value, "spanId")):
            found.append(Found(value, origins, place, not is_span(value)))


# -- what stands in a document -----------------------------------------------------------------


def _unpack(document: Json, place: Place, depth: int = 0) -> Iterator[Found | Problem]:
    if is_list(document) and depth < _MAX_NESTING:
        for i, entry in enumerate(document):
            yield from _unpack(entry, _at(place, f"[{i}]"), depth + 1)
        return
    if not isinstance(document, Mapping):
        yield _unknown(document, place)
        return
    groups = [(key, field_of(document, key)) for key in GROUPS]
    listed = [(key, value) for key, value in groups if is_list(value)]
    if listed:
        for key, value in listed:
            yield from _groups(value, _at(place, f".{key}"))
    elif any(field_of(document, key) is not None for key in SCOPED):
        # The Java SDK logs each resource by itself.
        yield from _groups([document], place)
    elif is_span(document) or is_log(document):
        yield Found(document, Origins(), place, is_log(document))
    elif any(key in document for key in IGNORED):
        return
    else:
        held = next(
            (key for key in WRAPPERS if isinstance(document.get(key), Mapping | list)), None
        )
        if held is None or depth >= _MAX_NESTING:
            yield _unknown(document, place)
        else:
            yield from _unpack(document[held], _at(place, f".{held}"), depth + 1)


def _groups(groups: Sequence[Json], place: Place) -> Iterator[Found | Problem]:
    for i, group in enumerate(groups):
        here = _at(place, f"[{i}]")
        if not isinstance(group, Mapping):
            yield _unknown(group, here)
            continue
        for key in SCOPED:
            scoped = field_of(group, key)
            for j, holder in enumerate(scoped if is_list(scoped) else ()):
                inner = _at(here, f".{key}[{j}]")
                if isinstance(holder, Mapping):
                    yield from _held(holder, group.get("resource"), inner)
                else:
                    yield _unknown(holder, inner)


def _held(holder: JsonObject, resource: Json, place: Place) -> Iterator[Found | Problem]:
    origins = origins_of(resource, holder)
    for key, log in (("spans", False), ("logRecords", True), ("log_records", True)):
        for i, value in enumerate(get_array(holder, key)):
            here = _at(place, f".{key}[{i}]")
            if isinstance(value, Mapping):
                yield Found(value, origins, here, log)
            else:
                yield _unknown(value, here)


def _at(place: Place, pointer: str) -> Place:
    return Place(place.path, place.line, place.pointer + pointer)


def _unknown(value: Json, place: Place) -> Problem:
    got = ", ".join(list(value)[:8]) if isinstance(value, Mapping) else kind_of(value)
    message = (
        f"expected resourceSpans, or a span with a trace id and a span id, got {got or 'no key'}"
    )
    return problem_of(value, place, message)


def problem_of(value: Json, place: Place, message: str, pointer: str = "$") -> Problem:
    """A problem with one span or record; `pointer` goes on from its place."""
    try:
        raw = dump(value).encode("utf-8", "surrogatepass")[:RAW_LIMIT]
    except DecodeError:
        raw = b""
    return Problem(place.path, place.line, place.pointer + pointer[1:], message, raw)
