"""The recorded prompts of a lane, cut back and extended from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from weakref import WeakKeyDictionary

import numpy as np

from analyzer.caching.base import Mark, mix
from analyzer.caching.placement import Layout, Placement
from analyzer.edits import diff
from analyzer.model import Part
from analyzer.policies import Policy
from analyzer.policies.base import Judge, RedLines
from analyzer.replay.base import (
    MASK,
    Exchange,
    Outgoing,
    Prices,
    ReplayLane,
    ReplayStep,
    collapses,
)
from analyzer.replay.fast.lanecost import Predicted, assemble
from analyzer.replay.result import LaneReplay

_CHANGES: WeakKeyDictionary[ReplayLane, tuple[list[int], RedLines]] = WeakKeyDictionary()


def recorded_run(
    lanes: Sequence[ReplayLane], policy: Policy, placement: Placement, book: Prices
) -> list[LaneReplay] | None:
    """The recording itself as a replay; None where it does not tell the usage of every step.

    Nothing deviates, so no cache is asked; only how the recording changed its history is counted.
    """
    if any(s.usage is None or not s.usage.knows_cache for lane in lanes for s in lane.steps):
        return None
    out = []
    for lane in lanes:
        found = _CHANGES.get(lane)
        if found is None:
            state = RecordedLane(lane, policy, placement)
            edits = [state.change(n) for n in range(len(lane.steps))]
            found = _CHANGES[lane] = (edits, state.red_lines)
        total = lane.recorded_columns[1]
        same = np.ones(len(total), dtype=bool)
        none = np.zeros_like(total)
        replayed = assemble(lane, Predicted(total, none, none, same, found[0], "5m", True), book)
        replayed.red_lines = found[1]
        out.append(replayed)
    return out


class RecordedLane:
    """One lane as it was sent: each prompt is the one before, cut back and extended."""

    def __init__(self, lane: ReplayLane, policy: Policy, placement: Placement) -> None:
        self.lane = lane
        self.placement = placement
        self.judge = Judge(policy)
        self.red_lines = self.judge.lines
        self._digest = [0]
        self._tokens = [0]
        self._position = [0]
        self._parts: list[Part] = []

    def __len__(self) -> int:
        return len(self._parts)

    def digest(self, n: int) -> int:
        """See `PrefixView`."""
        return self._digest[n]

    def tokens(self, n: int) -> int:
        """See `PrefixView`."""
        return self._tokens[n]

    def position(self, n: int) -> int:
        """See `PrefixView`."""
        return self._position[n]

    def advance(self, step: int, _exchange: Exchange) -> Outgoing:
        """See `LaneState`."""
        changed_parts = self.change(step)
        lane = self.lane
        now = lane.steps[step]
        head = lane.heads[now.head]
        ends = (head.tools_end, len(head.parts))
        return Outgoing(self, self._marks(now, ends[1]), *ends, changed_parts, True)

    def change(self, step: int) -> int:
        """Bring the prompt to a step; gives the number of parts that the recording changed."""
        lane = self.lane
        now = lane.steps[step]
        changed_parts = self._count(step) if now.keep < len(self) else 0
        for sums in (self._digest, self._tokens, self._position):
            del sums[now.keep + 1 :]
        del self._parts[now.keep :]
        for i in now.tail:
            part = lane.parts[i]
            before = self._parts[-1] if self._parts else None
            self._digest.append((self._digest[-1] + mix(len(self), lane.digests[i])) & MASK)
            self._tokens.append(self._tokens[-1] + lane.tokens[i])
            self._position.append(self._position[-1] + (not collapses(before, part)))
            self._parts.append(part)
        return changed_parts

    def _count(self, step: int) -> int:
        """What the recording changed of its own history, and the red lines it crossed."""
        lane, now = self.lane, self.lane.steps[step]
        was = lane.steps[step - 1]
        head = [lane.parts[i] for i in lane.heads[now.head].parts]
        left = {lane.parts[lane.base[b]].digest for b in now.gone}
        old = self._parts[len(lane.heads[was.head].parts) :]
        added = [lane.parts[i] for i in lane.base[was.stop : now.stop]]
        # What both begin with is left out, so that a late change costs little.
        skip = max(0, now.keep - len(head))
        expected = [p for p in [*old[skip:], *added] if p.digest not in left]
        sent = [lane.parts[i] for i in now.tail][max(0, len(head) - now.keep) :]
        sizes = [lane.size(None, part) for part in expected]
        behind = list(accumulate(reversed(sizes), initial=0))[::-1]
        edits = diff(expected, sent)
        return self.judge.count(
            edits, expected, range(len(expected)), lambda position: behind[position + 1]
        )

    def _marks(self, now: ReplayStep, head: int) -> tuple[Mark, ...]:
        own = (lambda: now.marks) if self.lane.marked else None
        return self.placement.marks(Layout(self._parts, len(self), head, now.ttl, own))
