"""One growing file: the process that reads it, and what of it the store holds."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash

from analyzer.content import Mode
from analyzer.errors import ReaderLostError
from analyzer.intake.sink import counted, problems_of
from analyzer.intake.watching import Mark, mark_of
from analyzer.model import Problem
from analyzer.reading import Answer, Job, Reader, encode
from analyzer.records import Chunk, Scalar, from_bytes
from analyzer.store import FileRow, Tail

PROBE_BYTES = 512
LARGEST_GROWTH = 64 << 20
"""What comes at once beyond this is read like a new file, in pieces and with bounded memory."""
_NEVER = (1 << 31) - 1
"""No recording has so many rows: nothing of that table is in the tail."""


@dataclass(frozen=True, slots=True)
class State:
    """A file as the store holds it between two growths."""

    row: FileRow
    tails: tuple[Tail, ...]
    problems: tuple[Problem, ...]
    """Those of the tail."""
    recordings: frozenset[tuple[Scalar, ...]]
    digest: bytes
    """Of the tail's rows: equal where nothing changed."""
    probe: bytes
    """The first and the last bytes of what was read, to see that they are still there."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What takes the place of a file's tail, and the file's state then."""

    chunks: list[Chunk]
    state: State
    sessions: int
    problems: list[Problem]
    """Those that were not there before."""


class LiveFile:
    """A file whose reader stays, once `begin` was read to its end."""

    def __init__(self, path: Path, row: FileRow) -> None:
        """`row` is the file as it was planned."""
        self.path = path
        self.state: State | None = None
        """None until the reader waits for more: it came to the end of the file, front to back."""
        self.used = 0.0
        """When it last grew, by the monotonic clock."""
        self._row = row
        self.content: Mode = "full"
        self._reader = Reader()
        self._kept = [0, 0, 0]
        self._file: int | None = None
        """Open to know the file again under any name."""

    def begin(self, job: Job) -> Iterator[Answer]:
        """The file as it is now."""
        self.content = job.content
        tail: list[Chunk] = []
        with contextlib.suppress(OSError):
            self._file = os.open(self.path, os.O_RDONLY)
        try:
            for message in self._reader.ask(encode(job)):
                self._take(message, [], tail)
                yield Answer(job, message)
        except ReaderLostError as lost:
            yield Answer(job, None, lost.exit_code)
            return
        self.state = self._state(tail)

    def grow(self) -> Growth | None:
        """What came since; None if that changes nothing.

        The state is for the caller to set once it is stored. Raises `ReaderLostError`, also where
        the reader can no longer follow.
        """
        before = self.state
        assert before is not None
        fresh: list[Chunk] = []
        tail: list[Chunk] = []
        for message in self._reader.ask():
            self._take(message, fresh, tail)
        state = self._state(tail)
        if state is None:
            raise ReaderLostError(0)
        fresh = [chunk for chunk in fresh if chunk.columns]
        if not fresh and state.digest == before.digest:
            return None
        found = [problem for chunk in (*fresh, *tail) for problem in problems_of(chunk)]
        return Growth(
            [*fresh, *tail],
            state,
            len({row[2:5] for row in state.recordings - before.recordings}),
            [problem for problem in found if problem not in before.problems],
        )

    def goes_on(self) -> bool:
        """Whether its path still leads to this file, and what was read of it did not change."""
        now, own = mark_of(self.path), self._status()
        if now is None or own is None or self.state is None or not _same(now, own):
            return False
        read = self.state.row.size
        fits = read <= now.size <= read + LARGEST_GROWTH
        return fits and self.state.probe == self._probed(read)

    def was_replaced(self) -> bool:
        """Whether its path leads to another file by now: what this one still got can be read."""
        now, own = mark_of(self.path), self._status()
        return self.state is not None and own is not None and (now is None or not _same(now, own))

    def is_at(self, mark: Mark) -> bool:
        """Whether a mark is that of this file."""
        own = self._status()
        return own is not None and _same(mark, own)

    def close(self) -> None:
        """End the reader."""
        self._reader.kill()
        self._reader.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _status(self) -> os.stat_result | None:
        return os.fstat(self._file) if self._file is not None else None

    def _probed(self, read: int) -> bytes:
        """The first and the last bytes of what was read."""
        if self._file is None:
            return b""
        size = min(PROBE_BYTES, read)
        return os.pread(self._file, size, 0) + os.pread(self._file, size, read - size)

    def _take(self, message: bytes, fresh: list[Chunk], tail: list[Chunk]) -> None:
        chunk = from_bytes(message)
        (tail if chunk.tail else fresh).append(chunk)
        if not chunk.tail:
            for i, table in enumerate(("steps", "parts", "problems")):
                self._kept[i] += chunk.rows(table)

    def _state(self, tail: list[Chunk]) -> State | None:
        read = tail[-1].read if tail else None
        if read is None or self._file is None:
            return None
        counts = [
            kept + sum(chunk.rows(table) for chunk in tail)
            for kept, table in zip(self._kept, ("steps", "parts", "problems"), strict=True)
        ]
        row = counted(self._row, counts[0], counts[1], counts[2], read=read)
        recordings = tail[-1].columns.get("recordings", [])
        hasher = xxhash.xxh3_128()
        for chunk in tail:
            hasher.update(msgspec.msgpack.encode(chunk.columns))
        self.used = time.monotonic()
        return State(
            row,
            tuple(_tails(tail)),
            tuple(problem for chunk in tail for problem in problems_of(chunk)),
            frozenset(zip(*recordings, strict=True)),
            hasher.digest(),
            self._probed(read[0]),
        )


def _same(mark: Mark, own: os.stat_result) -> bool:
    return (mark.device, mark.inode) == (own.st_dev, own.st_ino)


def _tails(chunks: list[Chunk]) -> list[Tail]:
    """Where the rows of some chunks begin, recording by recording."""
    starts: dict[int, list[int]] = {}
    for chunk in chunks:
        for i, table in enumerate(("steps", "parts", "packs")):
            columns = chunk.columns.get(table)
            for rec, number in zip(columns[0], columns[1], strict=True) if columns else ():
                assert isinstance(rec, int)
                assert isinstance(number, int)
                start = starts.setdefault(rec, [_NEVER, _NEVER, _NEVER])
                start[i] = min(start[i], number)
    return [Tail(rec, *start) for rec, start in starts.items()]
