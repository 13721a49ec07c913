"""Reads gzip so that a damaged archive still gives every byte before the damage."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 15
PIECE = 32
_GZIP = 16 + zlib.MAX_WBITS


class GzipReader(io.RawIOBase):
    """A gzip stream of one or more members.

    Raises `zlib.error` or `EOFError` at the damage, but only once all that came before was read:
    the standard library's reader drops the whole buffer in which it finds the damage.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._member = zlib.decompressobj(_GZIP)
        self._rest = b""
        self._out = b""
        self._failure: Exception | None = None

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

    def _fill(self) -> bool:
        """Decompress the next chunk; False at the clean end."""
        chunk = self._rest or self._raw.read(CHUNK)
        self._rest = b""
        if not chunk:
            if not self._member.eof:
                self._failure = EOFError("the archive ends before its end mark")
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


def _salvage(member: zlib._Decompress, chunk: bytes) -> bytes:
    """What comes out of a chunk up to its damage."""
    out = []
    for at in range(0, len(chunk), PIECE):
        try:
            out.append(member.decompress(chunk[at : at + PIECE]))
        except zlib.error:
            break
    return b"".join(out)
