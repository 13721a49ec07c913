"""One request as a recount sees it, and how files of any packing are opened.

Nothing here or beside it imports the package that is being checked: only the standard library and a
reader of YAML, and the rules of each format as its own makers and users describe them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Request(NamedTuple):
    """The disjoint counts of one request; None is not recorded."""

    session: str
    key: str
    """Equal for records of one request in one file."""
    input: int | None = None
    read: int | None = None
    write: int | None = None
    write_5m: int | None = None
    write_1h: int | None = None
    output: int | None = None

    @property
    def counts(self) -> tuple[int | None, ...]:
        return self[2:]


def unpacked(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def document(path: Path) -> Any:
    return json.loads(unpacked(path))


def lines(path: Path) -> Iterator[Any]:
    """Every JSON value of a file of lines, also those glued together; what is none is left out."""
    decoder = json.JSONDecoder()
    for raw in unpacked(path).split(b"\n"):
        text = raw.decode("utf-8", "surrogateescape").strip()
        while text:
            try:
                value, end = decoder.raw_decode(text)
            except ValueError:
                break
            yield value
            text = text[end:].strip()


def inside(value: Any, *path: str | int) -> Any:
    """What stands at a path; None where anything on the way is missing."""
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def rest(total: int | None, *parts: int | None) -> int | None:
    """The uncached remainder of an inclusive total."""
    return None if total is None else total - sum(part or 0 for part in parts)
