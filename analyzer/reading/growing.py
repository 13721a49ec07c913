"""A file that is read on while it grows: at its end the reading process forks.

The child takes the end for the end, finishes what the source has begun and hands it over as the
*tail*; the parent keeps the source as it stands, in the middle of its reading, and goes on with the
bytes that come. So nothing is read twice, any source can be followed that reads a file from front
to back, and what the store shows between two growths is what a whole reading would give.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path, PosixPath
from typing import IO, Any

import xxhash

from analyzer.reading.frames import read_frame, write_frame
from analyzer.records import Chunk, Flattener, to_bytes


class GrowingFile(io.RawIOBase):
    """The bytes of a file; what its end means is for `at_end` to say."""

    def __init__(self, path: Path, at_end: Callable[[], bool]) -> None:
        """`at_end` waits for more bytes and returns True, or ends the file with False."""
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        self._at_end = at_end
        self._hasher = xxhash.xxh3_128()
        self._hashed: int | None = 0
        self._ended = False

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; bytes that are left out make the digest unknown."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        """Read what is there; at the end wait, as long as `at_end` does."""
        start = self._file.tell()
        while not self._ended:
            size = self._file.readinto(buffer)
            if size:
                self._hash(start, memoryview(buffer)[:size])
                return size
            self._ended = not self._at_end()
        return 0

    def _hash(self, start: int, data: memoryview) -> None:
        if self._hashed is None or start > self._hashed:
            self._hashed = None
        elif start + len(data) > self._hashed:
            self._hasher.update(data[self._hashed - start :])
            self._hashed = start + len(data)

    def read_so_far(self) -> tuple[int, bytes] | None:
        """Number and digest of the bytes read; None if they were not read from front to back."""
        return None if self._hashed is None else (self._hashed, self._hasher.digest())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        super().close()


class GrowingPath(PosixPath):
    """A path whose file, opened for the first time without a buffer, is a `GrowingFile`.

    Paths made of it, and further openings, are ordinary: after a fork they see no more of the file
    than was read of it.
    """

    _at_end: Callable[[], bool] | None = None
    _file: GrowingFile | None = None

    @classmethod
    def of(cls, path: Path, at_end: Callable[[], bool]) -> GrowingPath:
        """A path to follow; see `GrowingFile` for `at_end`."""
        growing = cls(path)
        growing._at_end = at_end
        return growing

    # The overloads of `Path.open` name a class for each mode; no raw file of ours is among them.
    def open(  # type: ignore[override]
        self, mode: str = "r", buffering: int = -1, **options: Any
    ) -> IO[Any] | GrowingFile:
        """Open the file; see the class."""
        if self._file is None and self._at_end is not None and (mode, buffering) == ("rb", 0):
            self._file = GrowingFile(self, self._at_end)
            return self._file
        known = self._file.read_so_far() if self._file is not None else None
        if known is None or mode != "rb":
            return open(self, mode, buffering, **options)
        return io.BufferedReader(_Beginning(self, known[0]))

    def read_so_far(self) -> tuple[int, bytes] | None:
        """Number and digest of the bytes read; None where that is not known."""
        return self._file.read_so_far() if self._file is not None else None


class _Beginning(io.FileIO):
    """The first bytes of a file, as if it ended there."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, "rb")
        self._size = size

    def readinto(self, buffer: Any) -> int:
        room = max(0, self._size - self.tell())
        return super().readinto(memoryview(buffer)[:room])

    def readall(self) -> bytes:
        return self.read(max(0, self._size - self.tell())) or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            offset, whence = self._size + offset, os.SEEK_SET
        return super().seek(offset, whence)


class Growth:
    """The reading of one growing file in a worker, over the worker's own pipes."""

    def __init__(self, out: IO[bytes], orders: IO[bytes]) -> None:
        """`orders` brings one frame for each time the file is to be read on."""
        self.in_tail = False
        """This process is the child that ends the file where it was read to."""
        self._out = out
        self._orders = orders
        self._flat: Flattener | None = None
        self._path: GrowingPath | None = None

    def follow(self, path: Path, flat: Flattener) -> Path:
        """The path that the source is to read instead of `path`."""
        self._flat = flat
        self._path = GrowingPath.of(path, self._at_end)
        return self._path

    def stamped(self, chunk: Chunk) -> Chunk:
        """The chunk with what the receiver has to know to replace it later."""
        chunk.tail = self.in_tail
        if chunk.last and self._path is not None:
            chunk.read = self._path.read_so_far()
        return chunk

    def _at_end(self) -> bool:
        assert self._flat is not None
        # What is final so far goes ahead, so that the child's rows are the tail and nothing else.
        write_frame(self._out, to_bytes(self.stamped(self._flat.take())))
        child = os.fork()
        if child == 0:
            self.in_tail = True
            return False
        _, status = os.waitpid(child, 0)
        if status or read_frame(self._orders) is None:
            os._exit(1 if status else 0)
        return True
