"""How the recorded prompts of a lane lie over its un-compacted transcript.

Parts are matched from step to step by content, then by call id (a stub stands for its earlier
result), then by place between matched neighbours. What a policy took out stays in the base; what
left with the end of a prompt (a rewind, a passing reminder) leaves the base too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from analyzer.model import Part

PUT_IN = -1
"""Stands for a part that the recording's policy put in."""


@dataclass
class Aligned:
    """What one recorded prompt changes: per message part its base index, and the base's changes."""

    base: list[int]
    """Base index of each message part, or `PUT_IN`."""
    added: list[int] = field(default_factory=list)
    """Positions in the prompt's messages that are new to the base, in order."""
    gone: list[int] = field(default_factory=list)
    """Base indices that left, and not by a policy."""
    cut: bool = False
    """A policy changed or took out older content."""


def is_summary(part: Part) -> bool:
    """Whether a part reads like a summary of the conversation."""
    return part.kind == "summary" or part.summary


class Aligner:
    """State of one pass over a lane's recorded prompts."""

    def __init__(self, part: Callable[[int], Part]) -> None:
        """`part` gives a part of the lane by index."""
        self._part = part
        self._now: list[int] = []
        self._base: list[int] = []
        self._lost: dict[Hashable, int] = {}
        self._size = 0

    def key(self, index: int) -> Hashable:
        """Identity of a part: call id and kind where it has one, else its content."""
        part = self._part(index)
        return (part.call_id, part.kind) if part.call_id else part.digest

    def append(self, count: int) -> list[int]:
        """Base indices for new parts at the end."""
        fresh = list(range(self._size, self._size + count))
        self._size += count
        return fresh

    def extend(self, added: Sequence[int]) -> Aligned:
        """A prompt that only adds parts to the one before."""
        self._now.extend(added)
        self._base += self.append(len(added))
        return Aligned(self._base)

    def align(self, messages: Sequence[int], compacted: bool) -> Aligned:
        """Lay the next prompt over the base. `compacted`: the recording says it was summarized."""
        old, new = self._now, messages
        head = common_length(old, new)
        out = Aligned(self._base[:head])
        if head < len(old):
            self._rest(head, new, out, compacted)
        else:
            out.added = list(range(head, len(new)))
            out.base += self.append(len(new) - head)
        self._now, self._base = list(new), out.base
        return out

    def _rest(self, head: int, new: Sequence[int], out: Aligned, compacted: bool) -> None:
        pairs = self._anchors(head, new)
        i, j = head, head
        for a, b in pairs:
            if i == a and b > j and not self._is_old(new[j:b]):
                # Parts of the end moved behind fresh ones: they are sent anew.
                break
            self._gap(i, a, new, j, b, out)
            out.base.append(self._base[a])
            out.cut |= self._now[a] != new[b]
            i, j = a + 1, b + 1
        self._end(i, new, j, out, compacted)

    def _is_old(self, indices: Sequence[int]) -> bool:
        """Whether inserted parts are the doing of a policy: summaries, or content seen before."""
        return all(is_summary(self._part(i)) or self.key(i) in self._lost for i in indices)

    def _anchors(self, head: int, new: Sequence[int]) -> list[tuple[int, int]]:
        """Pairs of equal identity, in order in both prompts."""
        places: dict[Hashable, list[int]] = {}
        for a in range(head, len(self._now)):
            places.setdefault(self.key(self._now[a]), []).append(a)
        seen: dict[Hashable, list[int]] = {}
        for b in range(head, len(new)):
            seen.setdefault(self.key(new[b]), []).append(b)
        pairs = [
            (a, b)
            for key, bs in seen.items()
            if key in places
            for a, b in zip(places[key], bs, strict=False)
        ]
        return _increasing(sorted(pairs, key=lambda pair: pair[1]))

    def _gap(self, i: int, a: int, new: Sequence[int], j: int, b: int, out: Aligned) -> None:
        """Between two matched neighbours: by place where kinds agree, else put in and taken out."""
        old_at = i
        for at in range(j, b):
            part = self._part(new[at])
            match = next(
                (
                    k
                    for k in range(old_at, a)
                    if self._part(self._now[k]).kind == part.kind
                    and self._part(self._now[k]).role == part.role
                    and not is_summary(part)
                ),
                None,
            )
            if match is None:
                out.base.append(self._lost.get(self.key(new[at]), PUT_IN))
                continue
            self._lose(old_at, match)
            out.base.append(self._base[match])
            old_at = match + 1
        self._lose(old_at, a)
        out.cut = out.cut or a > i or b > j

    def _lose(self, start: int, stop: int) -> None:
        for k in range(start, stop):
            if self._base[k] != PUT_IN:
                self._lost[self.key(self._now[k])] = self._base[k]

    def _end(self, i: int, new: Sequence[int], j: int, out: Aligned, compacted: bool) -> None:
        """Behind the last match: new parts, and old ones that a summary or a rewind took away."""
        leaving = i < len(self._now)
        if leaving and j < len(new) and (compacted or is_summary(self._part(new[j]))):
            out.base.append(PUT_IN)
            out.cut = True
            self._lose(i, len(self._now))
            j += 1
        elif leaving:
            out.gone = [self._base[k] for k in range(i, len(self._now)) if self._base[k] != PUT_IN]
        out.added = list(range(j, len(new)))
        out.base += self.append(len(out.added))


def common_length(old: Sequence[int], new: Sequence[int]) -> int:
    """How many entries two lists begin with in common."""
    shortest = min(len(old), len(new))
    if old[:shortest] == new[:shortest]:
        return shortest
    return next(i for i in range(shortest) if old[i] != new[i])


def _increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs that increases on both sides (patience sorting)."""
    ends: list[int] = []
    best: list[int] = []
    link: list[int] = []
    for n, (a, _) in enumerate(pairs):
        at = bisect_left(ends, a)
        if at == len(ends):
            ends.append(a)
            best.append(n)
        else:
            ends[at] = a
            best[at] = n
        link.append(best[at - 1] if at else -1)
    out: list[tuple[int, int]] = []
    n = best[-1] if best else -1
    while n >= 0:
        out.append(pairs[n])
        n = link[n]
    return out[::-1]
