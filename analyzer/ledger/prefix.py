"""How two prompts of a lane compare, without building either: counts, stubs, first difference."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from analyzer.model import Kind, Lane, Part, Prompt, Range
from analyzer.ranges import common_parts, head, part_at, summed

SHRUNK = 0.5
"""Arguments or a result that come again at less than this share of their size are a stub."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where a prompt differs from the one before."""

    common: int
    """Parts that both prompts begin with."""
    index: int
    """Index of the entry in the messages array; -1 for tools and system."""
    was: int | None
    """Pool index of the part there before; None if the earlier prompt ended."""
    now: int
    """Pool index of the part that is there now."""


class PoolIndex:
    """Sums over a lane's pool that answer questions about any prompt of the lane."""

    def __init__(self, lane: Lane) -> None:
        self.pool = lane.pool
        self.stubs = stubs_of(lane.pool)
        self._stub_list = [i for i, stub in enumerate(self.stubs) if stub]
        self._starts = _running(part.starts_message for part in lane.pool)
        self._stub_sums = _running(self.stubs)
        self._shrunk_sums = _running(shrunk(lane.pool, ("tool_use", "tool_result")))

    def n_messages(self, prompt: Prompt) -> int:
        """Entries of the messages array."""
        return summed(prompt.ranges, self._starts)

    def n_stubs(self, prompt: Prompt) -> int:
        """Parts whose content is a placeholder for earlier content."""
        return summed(prompt.ranges, self._stub_sums)

    def n_shrunk(self, prompt: Prompt) -> int:
        """Stubs, and calls whose arguments were shortened: what a sliding window leaves behind."""
        return summed(prompt.ranges, self._shrunk_sums)

    def last_stub_index(self, prompt: Prompt) -> int | None:
        """Index in the messages array of the last stub; None without stubs."""
        for at in range(len(prompt.ranges) - 1, -1, -1):
            r = prompt.ranges[at]
            if self._stub_sums[r.stop] == self._stub_sums[r.start]:
                continue
            stub = self._stub_list[bisect_left(self._stub_list, r.stop) - 1]
            return summed((*prompt.ranges[:at], Range(r.start, stub + 1)), self._starts) - 1
        return None

    def message_index(self, prompt: Prompt, position: int) -> int:
        """Index in the messages array of the part at a position of the prompt; -1 before it."""
        return summed(head(prompt, position + 1), self._starts) - 1


def stubs_of(pool: tuple[Part, ...]) -> list[bool]:
    """For each part: whether it is a placeholder, by its text or by what its call returned before."""
    return shrunk(pool, ("tool_result",))


def shrunk(pool: tuple[Part, ...], kinds: tuple[Kind, ...]) -> list[bool]:
    """For each part: whether it is a placeholder, or of these kinds and much larger before."""
    largest: dict[tuple[str, str], int] = {}
    stubs = []
    for part in pool:
        stub = part.placeholder
        if part.call_id and part.kind in kinds:
            key = (part.call_id, part.kind)
            before = largest.get(key, 0)
            stub = stub or part.chars < before * SHRUNK
            largest[key] = max(before, part.chars)
        stubs.append(stub)
    return stubs


def divergence(index: PoolIndex, before: Prompt, now: Prompt) -> Divergence | None:
    """The first part that differs; None if `now` is `before` with parts added or left off its end."""
    common = common_parts(before, now)
    if common in (len(before), len(now)):
        return None
    was, is_ = part_at(before, common), part_at(now, common)
    in_messages = index.pool[is_].section == "messages" and index.pool[was].section == "messages"
    place = index.message_index(now, common) if in_messages else -1
    return Divergence(common, place, was, is_)


def _running(flags: Iterable[bool]) -> list[int]:
    sums = [0]
    for flag in flags:
        sums.append(sums[-1] + bool(flag))
    return sums
