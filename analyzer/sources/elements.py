"""Documents too large to hold: their long arrays stay in the file, and each element is read in turn.

Owns `read_large`: one pass over the text finds where the elements of the outermost arrays lie and
checks that each can be read; what is left without them is the document.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias, overload

import zstandard

from analyzer.errors import DecodeError
from analyzer.sources.base import BOM, READ_BUFFER
from analyzer.sources.decode import TOO_DEEP, Json, parse

HELD_LIMIT = 24 << 20
"""Bytes of a text that is parsed whole; JSON takes several times that as values."""
REST_LIMIT = 64 << 20
"""Bytes of a document without the elements of its arrays."""
DEEPEST = 10_000
LEVELS = 3
"""How often a large element may itself hold large elements."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)
_ARRAYS = (["["], ["{", "["])
"""What is open around an element: the document is an array, or an object that holds one."""
_DAMAGE = (DecodeError, EOFError, zlib.error, zstandard.ZstdError, zipfile.BadZipFile)


class Bytes(Protocol):
    """What is needed of a stream."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes, none at the end."""
        ...


Opened: TypeAlias = "Callable[[], AbstractContextManager[Bytes]]"


class StoredArray(Sequence[Json]):
    """An array whose elements stay in their file; a pass over it reads each anew.

    Raises `OSError` where the file is no longer as it was.
    """

    def __init__(
        self, opened: Opened, rows: Sequence[Json], bounds: array[int], level: int
    ) -> None:
        """A row that is a list holds the number of an element: its place in `bounds`."""
        self._opened = opened
        self._rows = rows
        self._bounds = bounds
        self._level = level
        self._ahead: Iterator[Json] = iter(())
        self._next = 0
        self._last: Json = None
        """The element before the next, kept for those who ask by index."""

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Json]:
        return self._from(0)

    @overload
    def __getitem__(self, index: int) -> Json: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Json]: ...
    def __getitem__(self, index: int | slice) -> Json | Sequence[Json]:
        wanted = range(len(self))[index]
        return self._at(wanted) if isinstance(wanted, int) else [self._at(i) for i in wanted]

    def _at(self, index: int) -> Json:
        """One element; those who ask for one after the other cause a single pass."""
        if not self._next or index != self._next - 1:
            if not self._next or index != self._next:
                self._ahead = self._from(index)
            self._last, self._next = next(self._ahead), index + 1
        return self._last

    def _from(self, first: int) -> Iterator[Json]:
        with self._opened() as stream:
            at = 0
            for index in range(first, len(self._rows)):
                row = self._rows[index]
                if not isinstance(row, list):
                    yield row
                    continue
                start, stop = self._bounds[2 * row[0] : 2 * row[0] + 2]
                if stop - start > HELD_LIMIT:
                    yield self._large(start, stop)
                    continue
                yield self._element(stream, start - at, stop - start)
                at = stop

    def _element(self, stream: Bytes, before: int, size: int) -> Json:
        with _unchanged():
            _skip(stream, before)
            return parse(_exactly(stream, size))

    def _large(self, start: int, stop: int) -> Json:
        with _unchanged():
            return read_large(_within(self._opened, start, stop), level=self._level + 1)


@contextmanager
def _unchanged() -> Iterator[None]:
    """What could be read once can be read again, unless the file is another by now."""
    try:
        yield
    except _DAMAGE as error:
        raise OSError(f"it changed while it was read: {error}") from error


def read_large(
    opened: Opened, stream: Bytes | None = None, begun: bytes = b"", level: int = 0
) -> Json:
    """The document of a file, its outermost arrays left where they are.

    `stream` goes on with what was `begun`; without one the file is opened for it. Raises
    `DecodeError` where a part of it cannot be read or is larger than can be held.
    """
    if stream is None:
        with opened() as own:
            return read_large(opened, own, begun, level)
    scan = _Scan(level)
    scan.run(begun, stream)
    document = parse(bytes(scan.rest))
    for start, stop in zip(scan.bounds[::2], scan.bounds[1::2], strict=True):
        if stop - start > HELD_LIMIT:
            read_large(_within(opened, start, stop), level=level + 1)

    def stored(value: Json) -> Json:
        # What is left of an outermost array holds no array but the numbers of elements.
        if not isinstance(value, list) or not any(isinstance(row, list) for row in value):
            return value
        return StoredArray(opened, value, scan.bounds, level)

    if isinstance(document, Mapping):
        return {key: stored(value) for key, value in document.items()}
    return stored(document)


class _Scan:
    """One pass over a text: `rest` is the text with `[n]` in place of each element."""

    def __init__(self, level: int) -> None:
        self.rest = bytearray()
        self.bounds = array("q")
        """Where each element starts and stops, in the order of the text."""
        self._level = level
        self._buffer = bytearray()
        self._base = 0
        """Place of the buffer in the text."""
        self._copied = 0
        """How much of the buffer `rest` has."""
        self._at = 0
        self._open: list[str] = []
        self._element: int | None = None
        """Where the element that is open begins in the text."""
        self._around = 0

    def run(self, begun: bytes, stream: Bytes) -> None:
        """Take a text to its end. Raises `DecodeError`."""
        block = begun or stream.read(READ_BUFFER)
        if block.startswith(BOM):
            block = b" " * len(BOM) + block[len(BOM) :]
        size = READ_BUFFER
        while block:
            self._buffer += block
            before = self._at
            self._tokens()
            # A text longer than the buffer is looked through from its start each time.
            size = READ_BUFFER if self._at > before else min(2 * size, HELD_LIMIT)
            self._forget()
            block = stream.read(size)
        if self._element is None:
            self.rest += self._buffer[self._copied :]

    def _tokens(self) -> None:
        for token in _TOKEN.finditer(self._buffer, self._at):
            sign = token.group()[:1].decode() if token.end() - token.start() == 1 else ""
            if sign == '"':
                return  # the text goes on behind the buffer
            self._at = token.end()
            if sign in ("{", "["):
                self._opens(sign, token.start())
            elif sign and self._open:
                self._open.pop()
                if self._element is not None and len(self._open) == self._around:
                    self._closes(self._element)

    def _opens(self, sign: str, at: int) -> None:
        if self._element is None and self._open in _ARRAYS:
            self.rest += self._buffer[self._copied : at]
            self._copied = at
            self._element, self._around = self._base + at, len(self._open)
        if len(self._open) >= DEEPEST:
            raise DecodeError(TOO_DEEP)
        self._open.append(sign)

    def _closes(self, start: int) -> None:
        self._element = None
        stop = self._base + self._at
        if stop - start <= HELD_LIMIT:
            parse(bytes(self._buffer[start - self._base : self._at]))
        self.rest += b"[%d]" % (len(self.bounds) // 2)
        self.bounds.extend((start, stop))
        self._copied = self._at

    def _forget(self) -> None:
        """Drop what nobody needs any more. Raises `DecodeError` where it is too much."""
        gone = self._at
        if self._element is None:
            self.rest += self._buffer[self._copied : gone]
        elif self._base + self._at - self._element <= HELD_LIMIT:
            gone = self._element - self._base
        elif self._level + 1 >= LEVELS:
            raise _too_large("elements", HELD_LIMIT)
        del self._buffer[:gone]
        self._base += gone
        self._at -= gone
        self._copied = 0
        if max(len(self._buffer) - self._at, len(self.rest)) > REST_LIMIT:
            raise _too_large("texts, and all that is in no array,", REST_LIMIT)


def _too_large(what: str, limit: int) -> DecodeError:
    return DecodeError(f"expected {what} of at most {limit:,} bytes, got more")


def _within(opened: Opened, start: int, stop: int) -> Opened:
    """A part of a file, as if it were one."""

    @contextmanager
    def part() -> Iterator[Bytes]:
        with opened() as stream:
            _skip(stream, start)
            yield _Part(stream, stop - start)

    return part


class _Part:
    def __init__(self, stream: Bytes, size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int, /) -> bytes:
        block = self._stream.read(min(size, self._left))
        self._left -= len(block)
        return block


def _skip(stream: Bytes, size: int) -> None:
    if isinstance(stream, io.BufferedReader) and stream.seekable():
        stream.seek(size, os.SEEK_CUR)
        return
    while size > 0:
        size -= len(_exactly(stream, min(size, READ_BUFFER)))


def _exactly(stream: Bytes, size: int) -> bytes:
    out = bytearray()
    while len(out) < size and (block := stream.read(size - len(out))):
        out += block
    if len(out) < size:
        raise OSError("it became shorter while it was read")
    return bytes(out)
