"""Sends lanes again under a policy: in time order, over one cache, every token billed once.

Open-loop: recorded outputs and times stay, only the prompts change. The engine knows prompts only
through lane states, so that the naive and the fast one share this loop and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzer.caching import settings_levels
from analyzer.caching.base import BreakpointTerms, CacheModel, Mark, PrefixView, Request, Served
from analyzer.edits import SummaryCall
from analyzer.model import Usage
from analyzer.replay.base import (
    BREAK_SHARE,
    BREAK_TOKENS,
    CACHED_CLASSES,
    BreakpointRule,
    Event,
    Events,
    LaneKey,
    LaneState,
    Outgoing,
    Prices,
    ReplayLane,
    ReplayStep,
    billed_as,
    split_writes,
)
from analyzer.replay.result import LaneReplay

READ_TOLERANCE = 64
"""Tokens, and 1 % of the read, that sizes of parts may be off."""


@dataclass
class _Track:
    """A lane on its way through the replay."""

    lane: ReplayLane
    state: LaneState
    out: LaneReplay
    deviated: bool = False
    calls: list[tuple[SummaryCall, Usage]] = field(default_factory=list)


class Run:
    """One replay: a cache, a price book, and the lanes' states."""

    def __init__(
        self,
        cache: CacheModel,
        book: Prices,
        *,
        carried: bool,
        events: Events,
        measured: bool = True,
        placed: bool = False,
        learn: dict[tuple[LaneKey, int], Event] | None = None,
        warm: Mapping[LaneKey, int] | None = None,
    ) -> None:
        """`events` are what the recording shows and the model cannot know; for carried replays only.

        `measured`: a carried replay takes recorded usage while prompts are the recorded ones.
        `placed`: the marks are others than those that were recorded. `learn` is filled with the
        reads that the model does not foresee. `warm` are the tokens of a lane's tools and system
        prompt that others keep in the cache.
        """
        self.cache = cache
        self.book = book
        self.carried = carried
        self.events = events if carried else {}
        self.measured = carried and measured
        self.placed = placed
        self.learn = learn
        self.warm = warm or {}
        self._known_levels: dict[tuple[tuple[str, str], ...], tuple[str, str, str]] = {}
        self._track: _Track | None = None
        self._now: ReplayStep | None = None

    def run(
        self, lanes: Sequence[ReplayLane], states: Iterable[LaneState]
    ) -> tuple[LaneReplay, ...]:
        """Replay all lanes. Raises `LawError` where a token would be billed twice or not at all."""
        tracks = [
            _Track(lane, state, LaneReplay(lane.key, unrecovered=lane.unrecovered))
            for lane, state in zip(lanes, states, strict=True)
        ]
        order = sorted(
            (step.at, number, n)
            for number, track in enumerate(tracks)
            for n, step in enumerate(track.lane.steps)
        )
        for _, number, n in order:
            self._step(tracks[number], n)
        for track in tracks:
            track.out.red_lines = track.state.red_lines
        return tuple(track.out for track in tracks)

    def peek(self, view: PrefixView, marks: tuple[Mark, ...], head: tuple[int, int]) -> int:
        """See `Exchange`."""
        return self.cache.peek(self._request(view, marks, head)).read

    def summary(
        self, call: SummaryCall, view: PrefixView, marks: tuple[Mark, ...], head: tuple[int, int]
    ) -> None:
        """See `Exchange`."""
        assert self._track is not None
        if call.cost_class == "precomputed":
            return
        usage = Usage(input=call.input_tokens, output=call.output_tokens)
        if call.cost_class in CACHED_CLASSES:
            served = self.cache.serve(self._request(view, marks, head))
            usage = Usage(
                input=served.input + call.instruction_tokens,
                cache_read=served.read,
                cache_write=served.write,
                cache_write_5m=served.write_5m,
                cache_write_1h=served.write_1h,
                output=call.output_tokens,
            )
        self._track.calls.append((call, usage))

    def _request(self, view: PrefixView, marks: tuple[Mark, ...], head: tuple[int, int]) -> Request:
        assert self._track is not None
        assert self._now is not None
        now = self._now
        return Request(
            now.at,
            now.ready_at,
            now.model,
            view,
            marks,
            self._track.lane.key.session.project,
            head[0],
            head[1],
            self._levels(now.settings),
        )

    def _levels(self, settings: tuple[tuple[str, str], ...]) -> tuple[str, str, str]:
        levels = self._known_levels.get(settings)
        if levels is None:
            levels = settings_levels(self.cache.name, dict(settings))
            self._known_levels[settings] = levels
        return levels

    def _step(self, track: _Track, n: int) -> None:
        now = track.lane.steps[n]
        self._track, self._now = track, now
        outgoing = track.state.advance(n, self)
        ends = (outgoing.tools_end, outgoing.system_end)
        request = self._request(outgoing.view, outgoing.marks, ends)
        if not outgoing.same:
            track.deviated = True
        event = self.events.get((track.lane.key, n)) if self.events else None
        if event is not None and not (event.own and track.deviated):
            self.cache.forget(request, event.read_tokens)
            served = self.cache.serve(request)
            served = _lifted(served, self._known_read(event, track, outgoing, request))
        else:
            if self.learn is not None:
                self._learn(self.learn, track, n, request)
            served = self.cache.serve(request)
            if self.warm:
                head = outgoing.view.tokens(outgoing.system_end)
                served = _lifted(served, min(self.warm.get(track.lane.key, 0), head))
        usage = now.usage
        if usage is None or not usage.knows_cache or track.deviated or not self.measured:
            usage = _billed(served, track.lane.tail_input, now.output)
        self._record(track, n, now, outgoing, usage)

    def _known_read(self, event: Event, track: _Track, outgoing: Outgoing, request: Request) -> int:
        """Tokens of a recorded read that the prompt of the replay would have met too."""
        # Of a prompt that is no longer the recorded one, only the head is known to be the same.
        known = outgoing.view.tokens(outgoing.system_end if track.deviated else len(outgoing.view))
        read = min(event.read_tokens, known)
        if not self.placed or not isinstance(self.cache, BreakpointRule):
            return read
        rule = self.cache.breakpoint_rule
        if looks_up(request, read, rule):
            return read
        # A read that the recorded marks do not explain either says nothing against other marks.
        recorded = () if self._now is None else self._now.marks
        explained = looks_up(replace(request, marks=recorded), read, rule)
        return 0 if explained or not request.marks else read

    def _learn(
        self,
        learn: dict[tuple[LaneKey, int], Event],
        track: _Track,
        n: int,
        request: Request,
    ) -> None:
        """Note a read that the model does not foresee."""
        now = track.lane.steps[n]
        if now.usage is None or not now.usage.knows_cache:
            return
        read = now.usage.cache_read or 0
        foreseen = self.cache.peek(request).read
        if abs(foreseen - read) > max(READ_TOLERANCE, foreseen // 100):
            learn[track.lane.key, n] = Event(read, now.cut)
            self.cache.forget(request, read)

    def _record(
        self, track: _Track, n: int, now: ReplayStep, outgoing: Outgoing, usage: Usage
    ) -> None:
        out = track.out
        short, long = split_writes(usage, now.ttl)
        read, rest = usage.cache_read or 0, usage.input or 0
        prompt = read + short + long + rest
        before = out.prompt[-1] - out.input[-1] if out.prompt else 0
        could = min(before, prompt)
        lost = could - read
        out.breaks.append(lost >= BREAK_TOKENS and lost > BREAK_SHARE * could)
        out.prompt.append(prompt)
        out.read.append(read)
        out.write_5m.append(short)
        out.write_1h.append(long)
        out.input.append(rest)
        out.output.append(now.output)
        out.edits.append(outgoing.edits)
        out.same.append(outgoing.same)
        billed = billed_as(usage, now.usage)
        cost = self.book.cost_float(billed, now.model or None, now.when, now.provider)
        out.cost.append(cost)
        if track.calls:
            self._bill_calls(track, n, now)
        # A measured total holds what no part explains (a tool prompt, turn markers).
        sent = prompt if usage is now.usage else outgoing.view.tokens(len(outgoing.view))
        out.check(n, sent)

    def _bill_calls(self, track: _Track, n: int, now: ReplayStep) -> None:
        for call, usage in track.calls:
            model = call.model or now.model or None
            paid = self.book.cost_float(usage, model, now.when, now.provider)
            track.out.add_call(n, usage, paid)
        track.calls.clear()


def looks_up(request: Request, tokens: int, rule: BreakpointTerms) -> bool:
    """Whether a mark's window holds the end of a prefix of about so many tokens."""
    view = request.prefix
    place = int if rule.per_block else view.position
    slack = max(READ_TOLERANCE, tokens // 100)
    near = [n for n in range(1, len(view) + 1) if abs(view.tokens(n) - tokens) <= slack]
    return any(
        n <= mark.parts and place(mark.parts) - place(n) < rule.lookback
        for mark in request.marks
        for n in near
    )


def _lifted(served: Served, read: int) -> Served:
    """A request that read at least so many tokens; what it wrote or paid in full gets less."""
    missing = read - served.read
    if missing <= 0:
        return served
    from_short = min(served.write_5m, missing)
    from_long = min(served.write_1h, missing - from_short)
    rest = missing - from_short - from_long
    return replace(
        served,
        read=read,
        write_5m=served.write_5m - from_short,
        write_1h=served.write_1h - from_long,
        input=served.input - rest,
    )


def _billed(served: Served, tail: int, output: int) -> Usage:
    """Usage as the provider would report it: every prompt ends with a few uncached tokens."""
    short, long, rest = served.write_5m, served.write_1h, served.input
    missing = max(0, tail - rest)
    from_short = min(short, missing)
    from_long = min(long, missing - from_short)
    short, long, rest = short - from_short, long - from_long, rest + from_short + from_long
    return Usage(
        input=rest,
        cache_read=served.read,
        cache_write=short + long,
        cache_write_5m=short,
        cache_write_1h=long,
        output=output,
    )
