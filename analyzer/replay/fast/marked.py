"""Whole lanes at once through a breakpoint cache, where nobody else can meet their prefixes.

A step that only appends, inside the lifetime and the look-back, reads what the step before sent.
Runs of such steps are slices of running sums; the cache's rule is worked out only at the others.
It must agree with the cache model to the token; where its short cut could be wrong it
gives up, and the engine sends the lanes request by request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analyzer.caching import settings_levels
from analyzer.caching.base import Mark, PrefixView
from analyzer.caching.placement import Placement, RecordedMarks, SystemEnd
from analyzer.edits import SummaryCall
from analyzer.model import TTL_SECONDS, Ttl, Usage
from analyzer.policies import Policy, Recipe
from analyzer.policies.base import Ints
from analyzer.replay.base import CACHED_CLASSES, BreakpointRule, Prices, ReplayLane
from analyzer.replay.fast import NOWHERE, FastLane
from analyzer.replay.fast.lanecost import Predicted, assemble
from analyzer.replay.result import LaneReplay

Bools = npt.NDArray[np.bool_]


class _GiveUp(Exception):  # noqa: N818 - a signal inside this module
    """The short cut does not cover this lane."""


def eligible(lanes: Sequence[ReplayLane], policy: Policy, placement: Placement) -> bool:
    """Whether the short cut covers a policy and all of some lanes that share a system prompt."""
    if not isinstance(policy, Recipe) or policy.looks:
        return False
    if any(r.summarize and r.summarize.cost_class in CACHED_CLASSES for r in policy.rules):
        return False
    firsts = {_opening(lane) for lane in lanes}
    return len(firsts) == len(lanes) and all(_plain(lane, placement) for lane in lanes)


def _opening(lane: ReplayLane) -> tuple[bytes, ...]:
    """The first parts up to the first message; lanes that share them may share entries."""
    head = lane.heads[lane.steps[0].head].parts
    return tuple(lane.parts[i].digest for i in (*head, *lane.base[:1]))


def _lifetime(lane: ReplayLane, placement: Placement) -> Ttl | None:
    """Lifetime of the marks behind head and prompt; None where marks are others or differ."""
    if not isinstance(placement, SystemEnd | RecordedMarks):
        return None
    moved = lane.marked and isinstance(placement, RecordedMarks)
    shown = lane.usual_marks if moved else lane.shown_ttl
    if not placement.ttl or (moved and shown is None):
        return shown
    named: dict[str, Ttl] = {"5m": "5m", "1h": "1h"}
    return named.get(placement.ttl)


def _plain(lane: ReplayLane, placement: Placement) -> bool:
    """One head, one model, one lifetime, no rewinds, marks behind head and prompt only."""
    first = lane.steps[0]
    return (
        bool(lane.heads[first.head].parts)
        and first.stop > 0
        and lane.plain_heads
        and _lifetime(lane, placement) is not None
    )


@dataclass
class _Paths:
    """The stored prompt ends of a lane: a chain used by every step, and ends passed over."""

    steps: list[int] = field(default_factory=list)
    passed: list[tuple[int, float]] = field(default_factory=list)
    """Step and last use of ends that a later request did not reach."""


@dataclass
class _Calls:
    """Collects summary calls; see `Exchange`."""

    step: int = 0
    made: list[tuple[int, SummaryCall]] = field(default_factory=list)

    def peek(self, view: PrefixView, marks: tuple[Mark, ...], head: tuple[int, int]) -> int:
        """Never asked: policies that look are not eligible."""
        raise _GiveUp

    def summary(
        self, call: SummaryCall, view: PrefixView, marks: tuple[Mark, ...], head: tuple[int, int]
    ) -> None:
        """Note a call."""
        self.made.append((self.step, call))


class MarkedLane:
    """One lane on its way; arrays have one entry a step."""

    def __init__(
        self, lane: ReplayLane, policy: Policy, placement: Placement, cache: BreakpointRule
    ) -> None:
        self.lane = lane
        self.state = FastLane(lane, policy, placement)
        ttl = _lifetime(lane, placement)
        assert ttl is not None
        self.ttl: Ttl = ttl
        rule = cache.breakpoint_rule
        self.lookback, self.per_block = rule.lookback, rule.per_block
        self.least = rule.minimum(lane.steps[0].model)
        self.seconds = TTL_SECONDS[ttl] * rule.stretch
        self.head = self.state.head_length
        self.cache = cache.name
        self.at, self.ready = lane.times
        steps = len(lane.steps)
        self.total: Ints = np.zeros(steps, dtype=np.int64)
        self.read: Ints = np.zeros(steps, dtype=np.int64)
        self.rest: Ints = np.zeros(steps, dtype=np.int64)
        self.digest = np.zeros(steps, dtype=np.uint64)
        self.edits: list[int] = [0] * steps
        self.parts: list[int] = [0] * steps
        self.positions: list[int] = [0] * steps
        self.paths = _Paths()
        self.calls = _Calls()

    def run(self, head_found: Bools) -> None:
        """Work out every step. Raises `_GiveUp`."""
        steps = len(self.lane.steps)
        unquiet = self._unquiet()
        n = 0
        while n < steps:
            self.calls.step = n
            self.edits[n] = self.state.prepare(n, self.calls)
            self._serve(n, bool(head_found[n]))
            stop = min(self.state.quiet_until(n), steps)
            if stop > n + 1 and self.total[n] >= self.least:
                at = bisect_left(unquiet, n + 1)
                stop = min(stop, unquiet[at] if at < len(unquiet) else steps)
                if stop > n + 1:
                    self._append(n + 1, stop)
                    n = stop
                    continue
            n += 1

    def _places(self, counts: Ints) -> Ints:
        """Look-back positions of prompts of so many parts."""
        return counts if self.per_block else self.state.slots.all_positions(counts)

    def _unquiet(self) -> list[int]:
        """Steps that do not simply read what the step before sent, whatever the policy."""
        lane = self.lane
        position = self._places(lane.stops + self.head)
        ready = np.array(self.ready)
        at = np.array(self.at)
        plain = (at[1:] - at[:-1] < self.seconds) & (ready[:-1] <= at[1:])
        plain &= (np.diff(position) < self.lookback) & (np.diff(lane.stops) > 0)
        return [0, *(np.flatnonzero(~plain) + 1).tolist()]

    def _append(self, start: int, stop: int) -> None:
        """A run of steps that only append."""
        state, lane = self.state, self.lane
        slots = state.slots
        counts = lane.stops[start:stop] + (slots.visible - state.stop)
        totals = slots.totals(counts)
        self.total[start:stop] = totals
        self.digest[start:stop] = slots.ends(counts)
        self.read[start] = self.total[start - 1]
        self.read[start + 1 : stop] = totals[:-1]
        state.prompt_tokens.extend(totals.tolist())
        self.parts[start:stop] = counts.tolist()
        self.positions[start:stop] = self._places(counts).tolist()
        self.paths.steps.extend(range(start, stop))

    def _serve(self, n: int, head_found: bool) -> None:
        """One step by the rule of the cache."""
        slots = self.state.slots
        count, total = slots.visible, self.state.prompt_tokens[n]
        self.parts[n] = count
        self.positions[n] = count if self.per_block else slots.position(count)
        self.total[n] = total
        self.digest[n] = slots.digest(count)
        hit = self._hit(n)
        read, stored = 0, 0
        if hit is not None:
            read = stored = slots.tokens(self.parts[hit])
        elif head_found:
            read = stored = slots.tokens(self.head)
        elif (head := slots.tokens(self.head)) >= self.least:
            stored = head
        if total >= self.least:
            if hit is None or self.parts[hit] < count:
                self.paths.steps.append(n)
            stored = total
        self.read[n] = read
        self.rest[n] = total - stored

    def _hit(self, n: int) -> int | None:
        """Step whose prompt is the longest prefix found, and the chain cut back to it."""
        paths, at = self.paths, self.at[n]
        self._invalidate(self.state.first_change)
        last = self.at[n - 1] if n else at
        if at - last >= self.seconds:
            paths.steps.clear()
        hit = None
        while paths.steps:
            step = paths.steps[-1]
            if self.positions[n] - self.positions[step] >= self.lookback:
                break
            if self.ready[step] <= at:
                hit = step
                break
            paths.passed.append((paths.steps.pop(), last))
        if hit is None and paths.steps:
            paths.passed.extend((step, last) for step in paths.steps)
            paths.steps.clear()
        for step, used in paths.passed:
            if self._reachable(n, step, used) and (
                hit is None or self.parts[step] > self.parts[hit]
            ):
                raise _GiveUp
        return hit

    def _invalidate(self, first: int) -> None:
        """Drop the ends behind the first part that an edit changed."""
        paths = self.paths
        if first == NOWHERE:
            return
        while paths.steps and self.parts[paths.steps[-1]] > first:
            paths.steps.pop()
        if paths.passed:
            paths.passed = [p for p in paths.passed if self.parts[p[0]] <= first]

    def _reachable(self, n: int, step: int, used: float) -> bool:
        """Whether a step's entry, last used at a time, would be found from the end of prompt n."""
        near = self.positions[n] - self.positions[step] < self.lookback
        return near and self.at[n] - used < self.seconds and self.ready[step] <= self.at[n]


def heads_found(lanes: Sequence[MarkedLane]) -> list[Bools]:
    """Per lane and step, whether the head's entry is there to be read.

    Every request of every lane with this head uses it or writes it, whatever the policy.
    """
    out: list[Bools] = [np.zeros(len(lane.at), dtype=bool) for lane in lanes]
    groups: dict[tuple[object, ...], list[int]] = {}
    for k, lane in enumerate(lanes):
        first = lane.lane.steps[0]
        head = lane.state.slots.digest(lane.head)
        levels = settings_levels(lane.cache, dict(first.settings))[:2]
        key = (lane.lane.key.session.project, first.model, levels, head)
        groups.setdefault(key, []).append(k)
    for members in groups.values():
        if len({lanes[k].seconds for k in members}) > 1:
            raise _GiveUp
        if len(members) == 1:
            order = [(at, members[0], n) for n, at in enumerate(lanes[members[0]].at)]
        else:
            order = sorted((lanes[k].at[n], k, n) for k in members for n in range(len(lanes[k].at)))
        last, ready = -np.inf, np.inf
        for at, k, n in order:
            lane = lanes[k]
            if at - last >= lane.seconds:
                ready = lane.ready[n]
            elif ready <= at:
                out[k][n] = lane.state.slots.tokens(lane.head) >= lane.least
            else:
                ready = min(ready, lane.ready[n])
            last = at
    return out


def marked_run(
    lanes: Sequence[ReplayLane],
    policy: Policy,
    placement: Placement,
    cache: BreakpointRule,
    book: Prices,
    measured: bool,
) -> list[LaneReplay] | None:
    """Replay lanes that share a system prompt; None where the short cut does not cover them."""
    if not eligible(lanes, policy, placement):
        return None
    marked = [MarkedLane(lane, policy, placement, cache) for lane in lanes]
    try:
        for lane, found in zip(marked, heads_found(marked), strict=True):
            lane.run(found)
    except _GiveUp:
        return None
    return [_billed(lane, book, measured) for lane in marked]


def _billed(marked: MarkedLane, book: Prices, measured: bool) -> LaneReplay:
    """The columns of a replay, with the calls that the policy made."""
    lane = marked.lane
    digests, tokens = lane.recorded_columns
    same = (marked.digest == digests) & (marked.total == tokens)
    said = Predicted(
        marked.total, marked.read, marked.rest, same, marked.edits, marked.ttl, measured
    )
    out = assemble(lane, said, book)
    for n, call in marked.calls.made:
        if call.cost_class == "precomputed":
            continue
        usage = Usage(input=call.input_tokens, output=call.output_tokens)
        step = lane.steps[n]
        model = call.model or step.model or None
        out.add_call(n, usage, book.cost_float(usage, model, step.when, step.provider))
    out.red_lines = marked.state.red_lines
    return out
