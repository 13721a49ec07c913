"""How prompts of one lane lie over each other, without building either: pure arithmetic on ranges."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from analyzer.model import Prompt, Range


def common_parts(before: Prompt, now: Prompt) -> int:
    """How many parts two prompts of one lane begin with in common."""
    pairs = enumerate(zip(before.ranges, now.ranges, strict=False))
    whole = min(len(before.ranges), len(now.ranges))
    equal = next((i for i, (a, b) in pairs if a != b), whole)
    common = len(Prompt(before.ranges[:equal]))
    old = iter(before.ranges[equal:])
    new = iter(now.ranges[equal:])
    a, b = next(old, None), next(new, None)
    while a is not None and b is not None and a.start == b.start:
        length = min(a.stop - a.start, b.stop - b.start)
        common += length
        a = Range(a.start + length, a.stop) if length < a.stop - a.start else next(old, None)
        b = Range(b.start + length, b.stop) if length < b.stop - b.start else next(new, None)
    return common


def part_at(prompt: Prompt, position: int) -> int:
    """Pool index of the part at a position of a prompt."""
    for r in prompt.ranges:
        if position < r.stop - r.start:
            return r.start + position
        position -= r.stop - r.start
    raise IndexError(position)


def head(prompt: Prompt, parts: int) -> tuple[Range, ...]:
    """The ranges of the first so many parts."""
    for i, r in enumerate(prompt.ranges):
        if parts <= r.stop - r.start:
            return (*prompt.ranges[:i], Range(r.start, r.start + max(0, parts)))
        parts -= r.stop - r.start
    return prompt.ranges


def summed(ranges: Sequence[Range], sums: Sequence[int]) -> int:
    """A quantity over ranges, where `sums[i]` is its sum over pool parts 0..i-1."""
    # Prompts that were edited often have very many ranges, so the loop is left to `map`.
    stops = sum(map(sums.__getitem__, map(itemgetter(1), ranges)))
    return stops - sum(map(sums.__getitem__, map(itemgetter(0), ranges)))


def appended_ranges(before: Prompt, now: Prompt) -> tuple[Range, ...] | None:
    """What `now` adds behind `before`; None if `before` is not a prefix of `now`."""
    old, new = list(before.ranges), list(now.ranges)
    for i, r in enumerate(old):
        if i >= len(new):
            return None
        if new[i] == r:
            continue
        last = i == len(old) - 1
        if last and new[i].start == r.start and new[i].stop >= r.stop:
            return (Range(r.stop, new[i].stop), *new[i + 1 :])
        return None
    return tuple(new[len(old) :])


def tail_ranges(before: Prompt, now: Prompt) -> tuple[Range, ...]:
    """The end of `now` behind the last part that `before` holds too.

    With nothing in common the tail is the whole prompt.
    """
    held = sorted(before.ranges)
    tail: list[Range] = []
    for r in reversed(now.ranges):
        cut = max(
            (min(r.stop, h.stop) for h in held if h.start < r.stop and h.stop > r.start),
            default=None,
        )
        if cut is None:
            tail.append(r)
            continue
        if cut < r.stop:
            tail.append(Range(cut, r.stop))
        break
    return tuple(reversed(tail))
