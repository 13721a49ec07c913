"""Files that are one JSON document: how to know them by their beginning, and how to read them.

Owns the outline of a head: the names a document uses, found without parsing text that is cut off.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import xxhash
import zstandard

from analyzer.errors import DecodeError
from analyzer.model import Problem
from analyzer.sources.base import (
    BOM,
    HEAD_BYTES,
    RAW_LIMIT,
    is_packed,
    open_bytes,
    read_head,
    read_up_to,
)
from analyzer.sources.decode import Json, dump, encode, parse
from analyzer.sources.elements import HELD_LIMIT, read_large

OUTLINE_DEPTH = 6
SCALAR_LIMIT = 200
_TOKEN = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?\Z)|[{}\[\]:,]|[^\s"{}\[\]:,]+', re.DOTALL)
_ENDINGS = re.compile(r"(\.(jsonl?|ndjson|log|gz|zst|traj|trajectory|eval|ya?ml))+$", re.IGNORECASE)


@lru_cache(maxsize=4)
def outline(data: bytes) -> Mapping[str, str]:
    """Paths of the keys at the beginning of a JSON text, with the first scalar at each.

    Keys are joined by dots and `[]` stands for a place in an array, so `[].traj` is the key `traj`
    of an object in a top-level array. A path that holds an object or an array has the value "".
    Works on text that is cut off anywhere; stops behind the first document. The last few are kept,
    since every source asks for the same one.
    """
    found: dict[str, str] = {}
    levels: list[_Level] = []
    for token in _TOKEN.finditer(data):
        text = token.group()
        if text in (b"{", b"["):
            # Deep places are not named: a head of nothing but brackets would make long names.
            place = levels[-1].place() if 0 < len(levels) <= OUTLINE_DEPTH else ""
            if place:
                found.setdefault(place, "")
            levels.append(_Level(place, text == b"{"))
        elif not levels:
            break
        elif text in (b"}", b"]"):
            levels.pop()
            if not levels:
                break
        elif text not in (b":", b","):
            levels[-1].see(token, found, len(levels) <= OUTLINE_DEPTH)
        elif text == b",":
            levels[-1].key = None
    return MappingProxyType(found)


@dataclass(slots=True)
class _Level:
    """One open object or array of an outline."""

    path: str
    in_object: bool
    key: str | None = None

    def place(self) -> str:
        """The path of what comes next."""
        name = (self.key or "") if self.in_object else "[]"
        return f"{self.path}.{name}" if self.path else name

    def see(self, token: re.Match[bytes], found: dict[str, str], wanted: bool) -> None:
        """A key or a scalar."""
        if self.in_object and self.key is None:
            self.key = _scalar(token)
        elif wanted:
            found.setdefault(self.place(), _scalar(token))


def _scalar(token: re.Match[bytes]) -> str:
    text = token.group(1) if token.group()[:1] == b'"' else token.group()
    return text[:SCALAR_LIMIT].decode("utf-8", "replace")


def read_document(path: Path) -> tuple[Json, Problem | None]:
    """The one JSON value of a file; a problem instead where it cannot be read.

    The long arrays of a large one stay in the file (`elements.StoredArray`).
    """
    raw = b""
    try:
        with open_bytes(path) as stream:
            raw = read_up_to(stream, HELD_LIMIT + 1)
            if len(raw) > HELD_LIMIT:
                # The same opening reads on: of a growing file only the first sees it grow.
                return read_large(lambda: open_bytes(path), stream, raw), None
        return parse(raw.removeprefix(BOM)), None
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        return None, Problem(str(path), None, "$", f"the archive is damaged or cut off: {error}")
    except DecodeError as error:
        return None, Problem(str(path), None, error.pointer, error.message, raw[:RAW_LIMIT])


def holds_lines(path: Path) -> bool:
    """Whether a file of JSON has a value on each line, and is not one value over many lines."""
    try:
        # An own opening, so that the one that follows a growing file is the reader's.
        data = read_head(path).data if is_packed(path) else _beginning(path)
    except OSError:
        return True
    first, end, _ = data.removeprefix(BOM).lstrip().partition(b"\n")
    if not end or first[:1] not in (b"{", b"["):
        return True
    try:
        parse(first)
    except DecodeError:
        return False
    return True


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def stem_of(path: Path) -> str:
    """The name of a file without the endings that only say its format."""
    return _ENDINGS.sub("", path.name) or path.name


def run_name(name: str, *evidence: Json) -> str:
    """A session id: a name, and a digest of what sets this run apart from others of that name.

    Runs of one benchmark instance share their name; what they were asked and first answered does
    not change while a run grows.
    """
    digest = xxhash.xxh3_64_hexdigest(b"\0".join(_evidence(value) for value in evidence))
    return f"{name}-{digest[:8]}"


def _evidence(value: Json) -> bytes:
    try:
        return encode(value)
    except DecodeError:
        # Whoever reads this value reports it.
        return b""


def problem(path: Path, line: int | None, error: DecodeError, record: Json = None) -> Problem:
    """What a decoding error becomes; the record is kept as far as it can be written."""
    try:
        raw = dump(record).encode("utf-8", "replace")[:RAW_LIMIT] if record is not None else b""
    except DecodeError:
        raw = b""
    return Problem(str(path), line, error.pointer, error.message, raw)
