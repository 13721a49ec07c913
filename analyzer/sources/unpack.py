"""Reads gzip and zstd so that a damaged archive still gives the bytes before the damage."""

from __future__ import annotations

import io
import zlib
from abc import abstractmethod
from typing import TYPE_CHECKING, BinaryIO

import zstandard

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 15
PIECE = 32
ZSTD_CHUNK = 1 << 10
"""A failing call gives nothing of its chunk and cannot be taken back, so chunks are small."""
_GZIP = 16 + zlib.MAX_WBITS
_CUT_OFF = "the archive ends before its end mark"


class _Reader(io.RawIOBase):
    """A packed stream whose failure is raised only once all that came before it was read."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._rest = b""
        self._out = b""
        self._failure: Exception | None = None

    @abstractmethod
    def _fill(self) -> bool:
        """Unpack the next chunk into `_out`, or set `_failure`; False at the clean end."""

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """See `io.RawIOBase`."""
        view = memoryview(buffer).cast("B")
        while not self._out:
            if self._failure is not None:
                raise self._failure
            if not self._fill():
                return 0
        size = min(len(view), len(self._out))
        view[:size] = self._out[:size]
        self._out = self._out[size:]
        return size


class GzipReader(_Reader):
    """A gzip stream of one or more members.

    Raises `zlib.error` or `EOFError` at the damage, but only once all that came before was read:
    the standard library's reader drops the whole buffer in which it finds the damage.
    """

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(raw)
        self._member = zlib.decompressobj(_GZIP)

    def _fill(self) -> bool:
        chunk = self._rest or self._raw.read(CHUNK)
        self._rest = b""
        if not chunk:
            if not self._member.eof:
                self._failure = EOFError(_CUT_OFF)
                return True
            return False
        if self._member.eof:
            chunk = chunk.lstrip(b"\0")
            if not chunk:
                return True
            self._member = zlib.decompressobj(_GZIP)
        before = self._member.copy()
        try:
            self._out = self._member.decompress(chunk)
            self._rest = self._member.unused_data
        except zlib.error as error:
            self._out = _salvage(before, chunk)
            self._failure = error
        return True


class ZstdReader(_Reader):
    """A zstd stream of one or more frames.

    Raises `zstandard.ZstdError` or `EOFError` at the damage, once what came before was read: the
    library's own reader takes the end of the file for the end of a frame.
    """

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(raw)
        self._frames = zstandard.ZstdDecompressor()
        self._frame = self._frames.decompressobj()

    def _fill(self) -> bool:
        chunk = self._rest or self._raw.read(ZSTD_CHUNK)
        self._rest = b""
        if not chunk:
            if self._frame.eof:
                return False
            self._failure = EOFError(_CUT_OFF)
            return True
        if self._frame.eof:
            self._frame = self._frames.decompressobj()
        try:
            self._out = self._frame.decompress(chunk)
            self._rest = self._frame.unused_data
        except zstandard.ZstdError as error:
            self._failure = error
        return True


def _salvage(member: zlib._Decompress, chunk: bytes) -> bytes:
    """What comes out of a chunk up to its damage."""
    out = []
    for at in range(0, len(chunk), PIECE):
        try:
            out.append(member.decompress(chunk[at : at + PIECE]))
        except zlib.error:
            break
    return b"".join(out)
