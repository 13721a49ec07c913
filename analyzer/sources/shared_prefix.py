"""Cuts out of a line the messages that an earlier line of the file holds byte for byte.

Agents that log whole prompts write the same history again at every step. Comparing it with memory
that was already parsed costs a tenth of splitting it again, so only what is new gets parsed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np

Raw: TypeAlias = msgspec.Raw

REMEMBERED_LINES = 8
"""Lines to compare with; enough for as many lanes that take turns in one file."""
REMEMBERED_BYTES = 32_000_000
_KEY = b'"messages"'
_VALUE = re.compile(rb"\s*:\s*(?=\[)")
_COMMA = re.compile(rb"\s*,\s*")
_raws = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A line that was read: where its messages array begins and where each message ends."""

    number: int
    """Counts the lines remembered, from 1."""
    line: bytes
    start: int
    ends: tuple[int, ...]
    """Offsets from `start`, behind the last byte of each message."""

    def text(self, messages: int) -> memoryview:
        """The array's bytes from its bracket to the end of the first so many messages."""
        return memoryview(self.line)[self.start : self.start + self.ends[messages - 1]]


@dataclass(frozen=True, slots=True)
class Cut:
    """A line without the messages that it shares with a line seen before."""

    line: bytes
    start: int
    """Where the messages array begins, in both the whole and the cut line."""
    kept: int
    """Leading messages that were cut out."""
    seen: Seen


class SharedPrefix:
    """Remembers the last lines of a file and cuts new ones against them."""

    def __init__(self) -> None:
        self._seen: deque[Seen] = deque(maxlen=REMEMBERED_LINES)
        self._count = 0

    def cut(self, line: bytes) -> Cut | None:
        """The line without the messages it shares; None where it shares none.

        The place is a guess until `confirms` has seen the parsed array.
        """
        at = line.find(_KEY) if self._seen else -1
        value = _VALUE.match(line, at + len(_KEY)) if at >= 0 else None
        if value is None:
            return None
        start = value.end()
        kept, seen = max(
            ((_shared(line, start, seen), seen) for seen in self._seen), key=lambda pair: pair[0]
        )
        if kept == 0:
            return None
        rest = start + seen.ends[kept - 1]
        comma = _COMMA.match(line, rest)
        return Cut(line[: start + 1] + line[comma.end() if comma else rest :], start, kept, seen)

    def confirms(self, cut: Cut, messages: Raw) -> bool:
        """Whether the array that a parser found in `cut.line` is the one that was cut."""
        return _offset(messages, cut.line) == cut.start

    def remember(
        self, line: bytes, messages: Raw, fresh: Sequence[Raw], cut: Cut | None = None
    ) -> int:
        """Keep a line for comparison and number it.

        `messages` is its array and `fresh` are the array's entries as `split` gave them, of the
        whole line or, with `cut`, of the cut one.
        """
        self._count += 1
        if cut is None:
            start, ends = _offset(messages, line), _ends(messages, fresh, 0)
        else:
            self._seen.remove(cut.seen)
            start = cut.start
            ends = cut.seen.ends[: cut.kept] + _ends(messages, fresh, len(line) - len(cut.line))
        if ends:
            self._seen.append(Seen(self._count, line, start, ends))
        while sum(len(seen.line) for seen in self._seen) > REMEMBERED_BYTES:
            self._seen.popleft()
        return self._count


def split(messages: Raw) -> list[Raw]:
    """The entries of an array, unparsed. Raises `msgspec.DecodeError`."""
    return _raws.decode(messages)


def _shared(line: bytes, start: int, seen: Seen) -> int:
    """How many whole messages a line has in common with one seen before."""
    low, high = 0, len(seen.ends)
    if high and line.startswith(seen.text(high), start):
        return high
    while low < high - 1:
        middle = (low + high) // 2
        if line.startswith(seen.text(middle), start):
            low = middle
        else:
            high = middle
    return low


def _address(buffer: bytes | Raw | memoryview) -> int:
    pointer: int = np.frombuffer(buffer, dtype=np.uint8).__array_interface__["data"][0]
    return pointer


def _offset(part: Raw, line: bytes) -> int:
    return _address(memoryview(part)) - _address(line)


def _ends(messages: Raw, fresh: Sequence[Raw], moved: int) -> tuple[int, ...]:
    base = _address(memoryview(messages)) - moved
    views = [memoryview(raw) for raw in fresh]
    return tuple(_address(view) - base + view.nbytes for view in views)
