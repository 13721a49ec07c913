"""What a source is, and the pool that turns whole prompts into ranges.

A source reads one file, streaming, and yields batches of steps and problems. It never opens a
socket, never writes, and never raises for a bad record: that becomes a `Problem`.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol, TypeVar

import zstandard

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Part, Problem, Range
from analyzer.sources.unpack import GzipReader, ZstdReader

T = TypeVar("T")

HEAD_BYTES = 65_536
RAW_LIMIT = 65_536
"""Bytes of a bad record that its problem keeps."""
READ_BUFFER = 1 << 20
"""Lines of whole prompts are long; the default of 8 kB puts each together from dozens of pieces."""
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BOM = b"\xef\xbb\xbf"
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Head:
    """What `detect` may look at: the path's name and the first decompressed bytes, no BOM."""

    path: Path
    data: bytes

    @property
    def lines(self) -> list[bytes]:
        """Complete, non-empty lines of the head (the last one counts only if the file ends there)."""
        rows = self.data.split(b"\n")
        if len(self.data) >= HEAD_BYTES and len(rows) > 1:
            rows.pop()
        return [row for row in rows if row.strip()]


@dataclass(frozen=True, slots=True)
class Context:
    """What the caller knows and the file may not say."""

    project: str = DEFAULT_PROJECT
    user: str = ""
    keep_content: bool = True


class Source(Protocol):
    """One format. `read` yields batches in the order of the file."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One line for `analyzer sources`."""

    def detect(self, head: Head) -> bool:
        """Whether a file is of this format, by its first bytes."""
        ...

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """Read a file. Memory stays bounded; a bad record becomes a `Problem`."""
        ...


class JointSource(Source, Protocol):
    """A format whose files say together what none of them says alone (pages of one export)."""

    joint: ClassVar[bool] = True

    def read_many(self, paths: Sequence[Path], context: Context) -> Iterator[LaneSteps | Problem]:
        """Read all files of the format that an ingest found, at once; otherwise as `read`."""
        ...


def read_head(path: Path) -> Head:
    """The first decompressed bytes of a file; whatever can be had of a corrupt archive."""
    out = bytearray()
    try:
        with open_bytes(path) as stream:
            while len(out) < HEAD_BYTES:
                # One raw read at a time: what came before damage is kept.
                chunk = stream.read1(HEAD_BYTES - len(out))
                if not chunk:
                    break
                out += chunk
    except (OSError, EOFError, zlib.error, zstandard.ZstdError):
        pass
    return Head(path, bytes(out).removeprefix(BOM))


def is_packed(path: Path) -> bool:
    """Whether a file is a gzip or zstd archive, by content; False where it cannot be read."""
    try:
        with path.open("rb") as raw:
            return _packed(raw.read(4))
    except OSError:
        return False


def _packed(magic: bytes) -> bool:
    return magic.startswith(GZIP_MAGIC) or magic == ZSTD_MAGIC


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader[Any]]:
    """Open a file for reading, unpacking gzip and zstd by content and not by name."""
    with io.BufferedReader(path.open("rb", buffering=0), READ_BUFFER) as raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic.startswith(GZIP_MAGIC):
            with io.BufferedReader(GzipReader(raw), 1 << 16) as unpacked:
                yield unpacked
        elif magic == ZSTD_MAGIC:
            with io.BufferedReader(ZstdReader(raw), 1 << 16) as unpacked:
                yield unpacked
        else:
            yield raw


def read_up_to(stream: IO[bytes], limit: int) -> bytes:
    """The first bytes of a stream, at most `limit`.

    `stream.read(limit)` would take all that memory before it knows how much there is.
    """
    out = bytearray()
    while len(out) < limit and (block := stream.read(min(READ_BUFFER, limit - len(out)))):
        out += block
    return bytes(out)


def read_lines(path: Path) -> Iterator[tuple[int, bytes] | Problem]:
    """Numbered lines of a file, blank ones left out, without line ends and byte order mark.

    A last line without an end is yielded like the others: the caller knows by parsing it whether
    the file is still being written. A damaged archive gives its readable lines, then a problem.
    """
    number = 0
    try:
        with open_bytes(path) as stream:
            for raw in stream:
                number += 1
                line = (raw if number > 1 else raw.removeprefix(BOM)).rstrip(b"\r\n")
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        yield Problem(
            str(path),
            number + 1,
            "$",
            f"the archive is damaged or cut off after line {number}: {error}; "
            "what came before was read",
        )


def ends_with_newline(path: Path) -> bool:
    """Whether the last line of a file is ended; an unended line is still being written."""
    with path.open("rb") as raw:
        if _packed(raw.read(4)):
            return True
        size = raw.seek(0, io.SEEK_END)
        if size == 0:
            return False
        raw.seek(-1, io.SEEK_END)
        return raw.read(1) == b"\n"


def read_records(path: Path, read: Callable[[bytes, int], T]) -> Iterator[T | Problem]:
    """What `read` makes of each line (its bytes and number) of a file; a problem for a bad line.

    `read` raises `DecodeError`. A last line without an end that cannot be read is still being
    written, and no problem.
    """
    held: Problem | None = None
    for entry in read_lines(path):
        if held is not None:
            yield held
            held = None
        if isinstance(entry, Problem):
            yield entry
            continue
        number, line = entry
        try:
            yield read(line, number)
        except DecodeError as error:
            held = Problem(str(path), number, error.pointer, error.message, line[:RAW_LIMIT])
    if held is not None and ends_with_newline(path):
        yield held


class Pool:
    """Distinct parts of one lane in order of first appearance; turns prompts into ranges."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._fresh: list[Part] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, part: Part) -> int:
        """Index of a part, adding it where its content is new."""
        index = self._index.get(part.digest)
        return self.append(part) if index is None else index

    def append(self, part: Part) -> int:
        """Add a part as a new occurrence, even where its content was seen before."""
        index = self._size
        self._index.setdefault(part.digest, index)
        self._fresh.append(part)
        self._size += 1
        return index

    def take(self) -> tuple[Part, ...]:
        """The parts added since the last call."""
        fresh = tuple(self._fresh)
        self._fresh.clear()
        return fresh


def to_ranges(indices: Iterable[int]) -> tuple[Range, ...]:
    """Compress indices into half-open ranges, keeping their order."""
    out: list[Range] = []
    start = stop = -1
    for i in indices:
        if i == stop:
            stop += 1
            continue
        if stop > start >= 0:
            out.append(Range(start, stop))
        start, stop = i, i + 1
    if stop > start >= 0:
        out.append(Range(start, stop))
    return tuple(out)
