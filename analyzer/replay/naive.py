"""The oracle: each prompt is rebuilt as a list, hashed whole, and the policy asked at every step.

Slow on purpose. The fast engine must agree with it to the token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from analyzer.caching.base import ListPrefix, Mark, collapsed_runs
from analyzer.caching.placement import Layout, Placement
from analyzer.edits import Edit, Summarize, apply, arrange
from analyzer.errors import LawError
from analyzer.model import Part
from analyzer.policies import Policy, Recorded, Turn
from analyzer.policies.base import Judge
from analyzer.replay.base import Exchange, Outgoing, ReplayLane, digest64


class _Entry(NamedTuple):
    part: Part
    size: int
    edited: str
    origin: int
    """Base index; -1 for what a policy put in."""


class NaiveLane:
    """One lane under one policy; see `LaneState`."""

    def __init__(self, lane: ReplayLane, policy: Policy, placement: Placement) -> None:
        self.lane = lane
        self.policy = policy
        self.placement = placement
        self._judge = Judge(policy)
        self.red_lines = self._judge.lines
        self._sent: list[_Entry] = []
        self._stop = 0
        self._gone: set[int] = set()
        self._totals: list[int] = []

    def advance(self, step: int, exchange: Exchange) -> Outgoing:
        """See `LaneState`."""
        lane, now = self.lane, self.lane.steps[step]
        head = lane.heads[now.head]
        opening = [_Entry(lane.parts[i], lane.tokens[i], "", -1) for i in head.parts]
        self._gone |= set(now.gone)
        known = 0 if self.policy.memory == "recompute" else self._stop
        fresh = [
            _Entry(lane.parts[lane.base[b]], lane.tokens[lane.base[b]], "", b)
            for b in range(known, now.stop)
            if b not in self._gone
        ]
        kept = [e for e in self._sent if e.origin not in self._gone] if known else []
        entries = [*opening, *kept, *fresh]
        self._stop = now.stop
        ends = (head.tools_end, len(head.parts))
        edits = list(self.policy.edits(self._turn(step, entries, exchange, ends)))
        for edit in edits:
            if isinstance(edit, Summarize):
                marks = self._marks(step, entries)
                exchange.summary(edit.call, _view(entries), marks, ends)
        changed = self._judge.count(
            edits,
            [e.part for e in entries],
            [e.origin for e in entries],
            self._behind(entries),
        )
        entries = self._apply(entries, edits)
        sent = [e.part for e in entries]
        if isinstance(self.policy, Recorded) and sent != lane.recorded(step):
            raise LawError(
                f"expected the recorded policy to reproduce step {step} of lane {lane.key.lane!r} "
                f"in session {lane.key.session.session_id!r} part by part, got another prompt"
            )
        self._sent = entries[len(head.parts) :]
        view = _view(entries)
        self._totals.append(view.tokens(len(view)))
        same = (view.digest(len(view)), self._totals[-1]) == lane.recorded_sums[step]
        return Outgoing(view, self._marks(step, entries), *ends, changed, same)

    @staticmethod
    def _behind(entries: Sequence[_Entry]) -> Callable[[int], int]:
        return lambda position: sum(e.size for e in entries[position + 1 :])

    def _turn(
        self, step: int, entries: Sequence[_Entry], exchange: Exchange, ends: tuple[int, int]
    ) -> Turn:
        lane, now = self.lane, self.lane.steps[step]
        return Turn(
            step=step,
            at=now.at,
            gap=now.at - lane.steps[step - 1].at if step else None,
            human=now.human,
            prompt=[e.part for e in entries],
            tokens=[e.size for e in entries],
            edited=[e.edited for e in entries],
            window=now.window,
            used=lane.used(step, self._totals),
            used_before=lane.used(step - 1, self._totals) if step else None,
            scale=lane.scale,
            recorded=lane.recorded(step),
            peek=lambda: exchange.peek(_view(entries), self._marks(step, entries), ends),
        )

    def _apply(self, entries: list[_Entry], edits: list[Edit]) -> list[_Entry]:
        out = []
        for origin, put, rule in arrange(len(entries), edits):
            old = entries[origin] if origin >= 0 else None
            if put is None:
                assert old is not None
                out.append(old._replace(size=0, edited=rule) if rule else old)
                continue
            new = self.lane.as_recorded(put)
            size = self.lane.size(old.part if old else None, new)
            out.append(_Entry(new, size, rule, old.origin if old else -1))
        assert len(apply([e.part for e in entries], edits)) == len(out)
        return out

    def _marks(self, step: int, entries: Sequence[_Entry]) -> tuple[Mark, ...]:
        now = self.lane.steps[step]
        head = len(self.lane.heads[now.head].parts)
        own = (lambda: self._anchored(step, entries)) if self.lane.marked else None
        parts = [e.part for e in entries]
        return self.placement.marks(Layout(parts, len(parts), head, now.ttl, own))

    def _anchored(self, step: int, entries: Sequence[_Entry]) -> tuple[Mark, ...]:
        """The recorded marks, moved with the parts they stand behind."""
        now = self.lane.steps[step]
        head = len(self.lane.heads[now.head].parts)
        marks: dict[int, Mark] = {}
        for where, index, ttl in now.anchors:
            count = len(entries)
            if where == "head":
                count = min(index + 1, head)
            elif where == "base":
                places = [k for k, e in enumerate(entries) if 0 <= e.origin <= index]
                count = places[-1] + 1 if places else head
            marks.setdefault(count, Mark(count, ttl))
        return tuple(marks[count] for count in sorted(marks) if count)


def _view(entries: Sequence[_Entry]) -> ListPrefix:
    parts = [e.part for e in entries]
    shared = collapsed_runs([part.kind for part in parts])
    return ListPrefix([digest64(p) for p in parts], [e.size for e in entries], shared)
