"""The fast engine's lane: nothing is rebuilt, a prompt exists only as sums.

The lane's whole transcript, future parts included, is laid out once with running sums of tokens and
additive digests; a prompt is the number of parts that are visible. A replaced part is a correction
to those sums. A recipe that keeps its decisions is asked only at steps where it may fire.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np

from analyzer.caching.base import Mark
from analyzer.caching.placement import AS_RECORDED, Layout, Placement
from analyzer.edits import Edit, Placed, Replace, Summarize, arrange
from analyzer.model import Part
from analyzer.policies import Forecast, Policy, Recipe, Recorded, Turn
from analyzer.policies.base import Judge, Memo, resized
from analyzer.policies.recipe import Action, Change, changed, editable, in_domain
from analyzer.replay.base import (
    Exchange,
    LaneState,
    Outgoing,
    ReplayLane,
    digest64,
)
from analyzer.replay.fast.base import Rewrite, Slots
from analyzer.replay.fast.recorded import RecordedLane

NOWHERE = sys.maxsize


@dataclass
class _Sliding:
    """A rule that edits each part of its domain when it leaves the newest N, once and for all."""

    action: Action
    rule: str
    domain: list[int]
    """Base indices of the parts that the rule is about."""
    front: int = 0
    """Places of the domain that were judged."""


class Prepared:
    """What every policy needs of a lane, worked out once: its layout, and parts after an edit."""

    def __init__(self, lane: ReplayLane) -> None:
        """Lays out the whole transcript behind the first head."""
        head = lane.heads[lane.steps[0].head].parts if lane.steps else ()
        order = [*head, *lane.base]
        self.slots = Slots(
            [lane.parts[i] for i in order],
            [lane.tokens[i] for i in order],
            [lane.digests[i] for i in order],
        )
        self.slots.origin = [-1] * len(head) + list(range(len(lane.base)))
        self.slots.visible = len(head)
        self.stops: list[int] = lane.stops.tolist()
        self.changed: dict[Change, dict[tuple[int, int], Rewrite | None]] = {}
        self.memo: Memo = {}
        self.domains: dict[tuple[tuple[str, ...], ...], list[int]] = {}


_PREPARED: WeakKeyDictionary[ReplayLane, Prepared] = WeakKeyDictionary()


def prepared(lane: ReplayLane) -> Prepared:
    """The lane's preparation, kept as long as the lane is."""
    found = _PREPARED.get(lane)
    if found is None:
        found = _PREPARED[lane] = Prepared(lane)
    return found


class FastLane:
    """One lane under one policy; see `LaneState`."""

    def __init__(self, lane: ReplayLane, policy: Policy, placement: Placement) -> None:
        self.lane = lane
        self.policy = policy
        self.placement = placement
        self.moves_recorded = lane.marked and placement == AS_RECORDED
        self.judge = Judge(policy)
        self.red_lines = self.judge.lines
        self.prompt_tokens: list[int] = []
        self.prepared = prepared(lane)
        self.slots = self.prepared.slots.copy()
        self.head = lane.steps[0].head if lane.steps else 0
        self.head_length = self.slots.visible
        self.stop = 0
        self.first_change = NOWHERE
        self.recorded: list[Part] = []
        self.raw = self.slots if policy.memory == "recompute" else None
        self.rewinds = any(step.gone for step in lane.steps)
        self.sliding = self._sliding()
        self.known: dict[tuple[int, int], Rewrite | None] = {}
        if self.sliding is not None:
            self.known = self.prepared.changed.setdefault(self.sliding.action.change, {})
        self.waits = isinstance(policy, Recipe) and policy.memory == "persisted"
        self.wake = 0

    def _sliding(self) -> _Sliding | None:
        policy = self.policy
        if not isinstance(policy, Recipe) or policy.memory != "recompute" or self.rewinds:
            return None
        actions = policy.slides
        if actions is None:
            return None
        select = actions[0].select
        key = (select.kinds, select.roles, select.tools, select.exclude_tools)
        domain = self.prepared.domains.get(key)
        if domain is None:
            parts = self.lane.parts
            domain = [b for b, i in enumerate(self.lane.base) if in_domain(parts[i], select)]
            self.prepared.domains[key] = domain
        return _Sliding(actions[0], policy.rules[0].name, domain)

    def advance(self, step: int, exchange: Exchange) -> Outgoing:
        """See `LaneState`."""
        edits = self.prepare(step, exchange)
        view = self.slots
        head = self.lane.heads[self.head]
        sums = (view.digest(view.visible), self.prompt_tokens[-1])
        same = sums == self.lane.recorded_sums[step]
        return Outgoing(view, self._marks(step), head.tools_end, len(head.parts), edits, same)

    def prepare(self, step: int, exchange: Exchange) -> int:
        """Bring the prompt to a step; gives the number of parts that the policy changed.

        Steps in between may be left out where `quiet_until` says that nothing is edited.
        """
        self.first_change = NOWHERE
        moved = self._environment(step)
        if not isinstance(self.policy, Recipe):
            now = self.lane.steps[step]
            self.recorded[now.keep :] = [self.lane.parts[i] for i in now.tail]
        edits = 0
        if self.sliding is not None:
            edits = self._slide(self.sliding)
        elif not self.waits or step >= self.wake or moved:
            edits = self._ask(step, exchange)
        self.prompt_tokens.append(self.slots.tokens(self.slots.visible))
        if self.waits and (edits or moved or step >= self.wake):
            self._sleep(step + 1)
        return edits

    def quiet_until(self, step: int) -> int:
        """First step behind this one at which the policy may edit."""
        if self.sliding is not None:
            due = self.sliding.front + self.sliding.action.select.protect_newest
            if due >= len(self.sliding.domain):
                return len(self.lane.steps)
            return bisect_right(self.prepared.stops, self.sliding.domain[due], step + 1)
        return self.wake if self.waits else step + 1

    def _environment(self, step: int) -> bool:
        """What the recording did apart from any policy: head, rewinds, new parts."""
        lane, now = self.lane, self.lane.steps[step]
        moved = False
        if self.raw is not None and self.sliding is None and self.slots is not self.raw:
            self.slots = self.raw
        slots = self.slots
        if now.head != self.head:
            head = lane.heads[now.head].parts
            slots.splice(
                0, self.head_length, [(lane.parts[i], lane.tokens[i], "", -1) for i in head]
            )
            self.head, self.head_length = now.head, len(head)
            slots.recompute(0)
            moved = True
        if now.gone:
            self._rewind(now.gone)
            moved = True
        slots.visible += now.stop - self.stop
        self.stop = now.stop
        return moved

    def _rewind(self, gone: Iterable[int]) -> None:
        leaving = set(gone)
        slots = self.slots
        places = [k for k in range(slots.visible) if slots.origin[k] in leaving]
        for place in reversed(places):
            slots.splice(place, place + 1, [])
        if places:
            slots.recompute(places[0])

    def _slide(self, sliding: _Sliding) -> int:
        select, domain, slots = sliding.action.select, sliding.domain, self.slots
        due = bisect_left(domain, self.stop, sliding.front) - select.protect_newest
        whole = slots.tokens(slots.visible) if sliding.front < due else 0
        edits = 0
        while sliding.front < due:
            base = domain[sliding.front]
            place = self.head_length + base
            sliding.front += 1
            part = slots.parts[place]
            if sliding.front <= select.protect_first:
                continue
            if not editable(part, slots.sizes[place], "", select):
                continue
            new = self._rewrite(base, place, sliding.action.change)
            if new is None:
                continue
            behind = whole - slots.tokens(place + 1)
            self.judge.promise.check(part, new.part, behind, self.red_lines)
            if place < self.first_change and new.digest != slots.digests[place]:
                self.first_change = place
            slots.replace(place, new, sliding.rule)
            whole += new.grown
            edits += 1
        return edits

    def _rewrite(self, base: int, place: int, change: Change) -> Rewrite | None:
        """An untouched base part after an edit; None where the edit gains nothing."""
        key = (base, place)
        if key not in self.known:
            lane, part = self.lane, self.slots.parts[place]
            new = changed(part, change)
            if new is None or resized(lane.scale, part, new) >= self.slots.sizes[place]:
                self.known[key] = None
            else:
                new = lane.as_recorded(new)
                self.known[key] = self.slots.rewrite(place, new, lane.size(part, new))
        return self.known[key]

    def _turn(self, step: int, exchange: Exchange) -> Turn:
        slots, lane = self.slots, self.lane
        now, visible = lane.steps[step], self.slots.visible
        head = lane.heads[self.head]
        marks = self._marks(step)
        return Turn(
            step=step,
            at=now.at,
            gap=now.at - lane.steps[step - 1].at if step else None,
            human=now.human,
            prompt=slots.parts[:visible],
            tokens=slots.sizes[:visible],
            edited=slots.edited[:visible],
            window=now.window,
            used=lane.used(step, self.prompt_tokens),
            used_before=lane.used(step - 1, self.prompt_tokens) if step else None,
            scale=lane.scale,
            recorded=self.recorded,
            memo=self.prepared.memo,
            peek=lambda: exchange.peek(slots, marks, (head.tools_end, len(head.parts))),
        )

    def _ask(self, step: int, exchange: Exchange) -> int:
        edits = list(self.policy.edits(self._turn(step, exchange)))
        if not edits:
            return self._count(edits)
        if self.raw is not None:
            self.slots = self.raw.copy()
        head = self.lane.heads[self.head]
        for edit in edits:
            if isinstance(edit, Summarize):
                ends = (head.tools_end, len(head.parts))
                exchange.summary(edit.call, self.slots, self._marks(step), ends)
        changed_parts = self._count(edits)
        self._apply(edits)
        return changed_parts

    def _count(self, edits: Sequence[Edit]) -> int:
        slots = self.slots
        whole = slots.tokens(slots.visible)
        return self.judge.count(
            edits,
            slots.parts[: slots.visible],
            slots.origin,
            lambda position: whole - slots.tokens(position + 1),
        )

    def _apply(self, edits: Sequence[Edit]) -> None:
        slots, lane = self.slots, self.lane
        replaced = [edit for edit in edits if isinstance(edit, Replace)]
        if len(replaced) == len(edits):
            rows = []
            for edit in sorted(replaced, key=lambda edit: edit.position):
                place = edit.position
                part = lane.as_recorded(edit.part)
                rows.append((place, part, lane.size(slots.parts[place], part), edit.rule))
                if place < self.first_change and digest64(part) != slots.digests[place]:
                    self.first_change = place
            slots.replace_all(rows)
            return
        places = arrange(slots.visible, edits)
        first = next((n for n, p in enumerate(places) if p != (n, None, "")), len(places))
        new_rows = [self._row(place) for place in places[first:]]
        old = slots.digests[first : slots.visible]
        alike = (digest64(row[0]) == digest for row, digest in zip(new_rows, old, strict=False))
        self.first_change = first + next(
            (n for n, same in enumerate(alike) if not same), len(new_rows)
        )
        slots.splice(first, slots.visible, new_rows)
        slots.recompute(first)

    def _row(self, place: Placed) -> tuple[Part, int, str, int]:
        slots, lane = self.slots, self.lane
        if place.part is None:
            k = place.origin
            if place.rule:
                # The provider takes the part out of the same bytes: no tokens, same digest.
                return slots.parts[k], 0, place.rule, slots.origin[k]
            return slots.parts[k], slots.sizes[k], slots.edited[k], slots.origin[k]
        part = lane.as_recorded(place.part)
        if place.origin < 0:
            return part, lane.size(None, part), place.rule, -1
        k = place.origin
        return part, lane.size(slots.parts[k], part), place.rule, slots.origin[k]

    def _sleep(self, start: int) -> None:
        """Find the next step at which the recipe may fire."""
        lane, slots = self.lane, self.slots
        assert isinstance(self.policy, Recipe)
        steps = lane.steps
        if start >= len(steps):
            self.wake = start
            return
        totals = slots.totals(lane.stops[start - 1 : -1] - self.stop + slots.visible)
        used = np.full(len(steps), -1, dtype=np.int64)
        used[start:] = totals + lane.outputs[start - 1 : -1]
        if start > 1:
            used[start - 1] = lane.used(start - 1, self.prompt_tokens) or 0
        self.wake = self.policy.next_step(Forecast(used, lane.gaps, lane.windows), start)

    def _marks(self, step: int) -> tuple[Mark, ...]:
        if self.moves_recorded:
            return self._anchored(step)
        slots, ttl = self.slots, self.lane.steps[step].ttl
        own = partial(self._anchored, step) if self.lane.marked else None
        layout = Layout(slots.parts, slots.visible, self.head_length, ttl, own)
        return self.placement.marks(layout)

    def _anchored(self, step: int) -> tuple[Mark, ...]:
        """The recorded marks, moved with the parts they stand behind."""
        now, slots = self.lane.steps[step], self.slots
        marks: dict[int, Mark] = {}
        for where, index, ttl in now.anchors:
            if where == "end":
                count = slots.visible
            elif where == "head":
                count = min(index + 1, self.head_length)
            else:
                count = self._behind(index)
            marks.setdefault(count, Mark(count, ttl))
        return tuple(marks[count] for count in sorted(marks) if count)

    def _behind(self, index: int) -> int:
        """Parts up to and with a base part, or the nearest earlier one that is still there."""
        origin = self.slots.origin
        for place in range(self.slots.visible - 1, self.head_length - 1, -1):
            if 0 <= origin[place] <= index:
                return place + 1
        return self.head_length


def fast_state(lane: ReplayLane, policy: Policy, placement: Placement) -> LaneState:
    """The state that serves a policy fastest."""
    if isinstance(policy, Recorded):
        return RecordedLane(lane, policy, placement)
    return FastLane(lane, policy, placement)
