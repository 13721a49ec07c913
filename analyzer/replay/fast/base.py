"""The parts of a lane in sending order with running sums, so that an edit is a correction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzer.caching.base import mix
from analyzer.model import Part
from analyzer.policies.base import Ints
from analyzer.replay.base import MASK, collapses, digest64

Words = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def mix_all(start: int, digests: Words) -> Words:
    """`mix` of every digest at its place, the first one at `start`."""
    places = np.arange(start + 1, start + 1 + len(digests), dtype=np.uint64)
    z = digests + places * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    mixed: Words = z ^ (z >> np.uint64(31))
    return mixed


FEW = 8
"""Up to so many corrections in the middle are cheaper than sums made anew."""


class Rewrite(NamedTuple):
    """Another part for one place, with what it changes in the running sums."""

    part: Part
    size: int
    digest: int
    more: int
    """Added to the digests of all prefixes behind the place."""
    grown: int
    """Added to their tokens."""


class Slots:
    """The parts of a lane in sending order, those of the future too, with their running sums.

    As a `PrefixView` it shows the first `visible` of them.
    """

    __slots__ = (
        "_at",
        "_digest",
        "_more_digest",
        "_more_tokens",
        "_places",
        "_position",
        "_sums",
        "_tokens",
        "_words",
        "digests",
        "edited",
        "origin",
        "parts",
        "sizes",
        "visible",
    )

    def __init__(self, parts: list[Part], sizes: list[int], digests: list[int]) -> None:
        self.parts = parts
        self.sizes = sizes
        self.digests = digests
        self.edited = [""] * len(parts)
        self.origin: list[int] = []
        self.visible = 0
        self._digest = [0]
        self._tokens = [0]
        self._position = [0]
        self._sums = np.zeros(1, dtype=np.int64)
        self._words = np.zeros(1, dtype=np.uint64)
        self._places = np.zeros(1, dtype=np.int64)
        self._clear()
        self.recompute(0)

    def _clear(self) -> None:
        self._at: list[int] = []
        self._more_digest = [0]
        self._more_tokens = [0]

    def copy(self) -> Slots:
        """An independent copy; the running sums are copied, not computed."""
        twin = object.__new__(Slots)
        for name in ("parts", "sizes", "digests", "edited", "origin"):
            setattr(twin, name, getattr(self, name).copy())
        twin.visible = self.visible
        twin._digest, twin._tokens = self._digest, self._tokens
        twin._position, twin._sums, twin._words = self._position, self._sums, self._words
        twin._places = self._places
        twin._at = self._at.copy()
        twin._more_digest = self._more_digest.copy()
        twin._more_tokens = self._more_tokens.copy()
        return twin

    def __len__(self) -> int:
        return self.visible

    def digest(self, n: int) -> int:
        """See `PrefixView`."""
        if not self._at or n <= self._at[0]:
            return self._digest[n]
        return (self._digest[n] + self._more_digest[bisect_left(self._at, n)]) & MASK

    def tokens(self, n: int) -> int:
        """See `PrefixView`."""
        if not self._at or n <= self._at[0]:
            return self._tokens[n]
        return self._tokens[n] + self._more_tokens[bisect_left(self._at, n)]

    def totals(self, counts: Ints) -> Ints:
        """Tokens of prompts of so many parts, none of them shorter than what is visible."""
        return self._sums[counts] + self._more_tokens[-1]

    def ends(self, counts: Ints) -> Words:
        """Digests of prompts of so many parts, none of them shorter than what is visible."""
        return self._words[counts] + np.uint64(self._more_digest[-1] & MASK)

    def all_positions(self, counts: Ints) -> Ints:
        """`position` of many counts."""
        return self._places[counts]

    def position(self, n: int) -> int:
        """See `PrefixView`."""
        return self._position[n]

    def recompute(self, start: int, *, positions: bool = True) -> None:
        """Running sums anew from the part at `start` on; positions too if kinds may have changed."""
        if self._at:
            start = min(start, self._at[0])
            self._clear()
        words = mix_all(start, np.array(self.digests[start:], dtype=np.uint64))
        words = np.cumsum(words, dtype=np.uint64) + np.uint64(self._digest[start])
        sums = np.cumsum(np.array(self.sizes[start:], dtype=np.int64)) + self._tokens[start]
        self._digest = [*self._digest[: start + 1], *words.tolist()]
        self._tokens = [*self._tokens[: start + 1], *sums.tolist()]
        self._sums = np.concatenate([self._sums[: start + 1], sums])
        self._words = np.concatenate([self._words[: start + 1], words])
        if positions:
            self._reposition(start)

    def _reposition(self, start: int) -> None:
        places = self._position[: start + 1]
        before = self.parts[start - 1] if start else None
        at = places[-1]
        for part in self.parts[start:]:
            at += not collapses(before, part)
            places.append(at)
            before = part
        self._position = places
        self._places = np.array(places, dtype=np.int64)

    def rewrite(self, place: int, part: Part, size: int) -> Rewrite:
        """What another part at a place would change in the sums."""
        digest = digest64(part)
        more = mix(place, digest) - mix(place, self.digests[place])
        return Rewrite(part, size, digest, more, size - self.sizes[place])

    def replace(self, place: int, new: Rewrite, rule: str) -> None:
        """Another part at a place; the places behind keep theirs."""
        self.parts[place] = new.part
        self.sizes[place] = new.size
        self.digests[place] = new.digest
        self.edited[place] = rule
        at = self._at
        if not at or place > at[-1]:
            at.append(place)
            self._more_digest.append((self._more_digest[-1] + new.more) & MASK)
            self._more_tokens.append(self._more_tokens[-1] + new.grown)
            return
        k = bisect_left(at, place)
        if at[k] != place:
            at.insert(k, place)
            self._more_digest.insert(k + 1, self._more_digest[k])
            self._more_tokens.insert(k + 1, self._more_tokens[k])
        for behind in range(k + 1, len(self._more_digest)):
            self._more_digest[behind] = (self._more_digest[behind] + new.more) & MASK
            self._more_tokens[behind] += new.grown

    def replace_all(self, rows: Sequence[tuple[int, Part, int, str]]) -> None:
        """Other parts at some places, in order; many at once cost one pass over the sums."""
        if len(rows) <= FEW or not self._at or rows[0][0] > self._at[-1]:
            for place, part, size, rule in rows:
                self.replace(place, self.rewrite(place, part, size), rule)
            return
        for place, part, size, rule in rows:
            self.parts[place] = part
            self.sizes[place] = size
            self.digests[place] = digest64(part)
            self.edited[place] = rule
        self.recompute(rows[0][0], positions=False)

    def splice(self, start: int, stop: int, parts: Sequence[tuple[Part, int, str, int]]) -> None:
        """Other parts (with size, rule, base index) from `start` to `stop`; sums are not renewed."""
        self.parts[start:stop] = [p for p, _, _, _ in parts]
        self.sizes[start:stop] = [s for _, s, _, _ in parts]
        self.edited[start:stop] = [r for _, _, r, _ in parts]
        self.origin[start:stop] = [o for _, _, _, o in parts]
        self.digests[start:stop] = [digest64(p) for p, _, _, _ in parts]
        if start < self.visible:
            self.visible += len(parts) - (stop - start)
