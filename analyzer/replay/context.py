"""A recorded lane as a `ReplayLane`: the un-compacted transcript, and each recorded prompt over it.

A recording that compacted itself is undone here. Prompts rebuilt from transcripts leave the system
prompt and the tools out, so a part of measured size stands for them; where usage shows that content
was cut out of sight, the oldest results are taken to be cut, and the base does not shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from statistics import median

from analyzer.caching.base import Mark
from analyzer.model import Breakpoint, Lane, Part, Prompt, Step, Ttl, Usage
from analyzer.ranges import appended_ranges
from analyzer.replay.align import PUT_IN, Aligned, Aligner, common_length
from analyzer.replay.base import Anchor, Head, LaneKey, ReplayLane, ReplayStep
from analyzer.replay.unseen import Unseen
from analyzer.tokens import Sizes, measure

UNDATED_GAP_S = 1.0
"""Between steps without times: inside every lifetime."""
FIRST_TOKEN_S = 2.0
"""A response begins about this long after its request."""
TAIL_INPUT = 16
"""Largest uncached remainder that is a constant of the protocol and not a choice of the client."""
DEFAULT_WINDOW = 200_000
LARGE_WINDOW = 1_000_000


def build_lane(
    lane: Lane,
    sizes: Sizes | None = None,
    *,
    cuts: Collection[int] | None = None,
    window: Callable[[str | None, str | None], int | None] | None = None,
) -> ReplayLane:
    """Tie a lane to its recording.

    `cuts` are the steps at which the recording's own policy cut content out of sight, by the
    ledger's verdicts (None: every fall of the hidden tokens counts as one). `window` gives the
    context window of a model and provider in tokens, None where it is unknown.
    """
    return _Builder(lane, sizes or measure(lane), cuts, window).run()


class _Builder:
    """State of one pass over the steps of a lane."""

    def __init__(
        self,
        lane: Lane,
        sizes: Sizes,
        cuts: Collection[int] | None,
        window: Callable[[str | None, str | None], int | None] | None,
    ) -> None:
        self.lane = lane
        self.sizes = sizes
        self.cuts = cuts
        self.window = window
        self.parts: list[Part] = list(lane.pool)
        self.tokens: list[int] = list(sizes.parts)
        self.heads: dict[Head, int] = {}
        self.base: list[int] = []
        self.steps: list[ReplayStep] = []
        self.aligner = Aligner(self.parts.__getitem__)
        self.previous: list[int] = []
        self.head_parts: list[int] = []
        self.shown: Prompt | None = None
        self.marked = any(s.prompt is not None and s.prompt.breakpoints for s in lane.steps)
        self.ttl: Ttl = "5m"
        self.at = 0.0
        self.unseen = Unseen(self)
        self.largest = max(
            (s.usage.prompt or 0 for s in lane.steps if s.usage is not None), default=0
        )

    def run(self) -> ReplayLane:
        shown: Prompt | None = None
        for number, step in enumerate(self.lane.steps):
            if step.prompt is not None:
                shown = step.prompt
            self._step(number, step, shown)
        seen = {(p.call_id, p.kind) for p in self.parts if p.call_id and not p.placeholder}
        stubs = [self.parts[i] for i in self.base if self.parts[i].placeholder]
        return ReplayLane(
            key=LaneKey(self.lane.session, self.lane.name),
            parts=tuple(self.parts),
            tokens=tuple(self.tokens),
            heads=tuple(self.heads),
            base=tuple(self.base),
            steps=tuple(self.steps),
            scale=self.sizes,
            marked=self.marked,
            tail_input=_tail_input(self.lane.steps),
            unrecovered=sum((p.call_id, p.kind) not in seen for p in stubs),
        )

    def add_part(self, part: Part, tokens: int) -> int:
        """A part that no request showed."""
        self.parts.append(part)
        self.tokens.append(tokens)
        return len(self.parts) - 1

    def _step(self, number: int, step: Step, shown: Prompt | None) -> None:
        head_parts, aligned, keep, tail = self._lay(number, step, shown)
        self.shown = shown
        head = self._head(head_parts)
        self._time(step)
        marks, anchors = self._marks(step.prompt, aligned)
        self.steps.append(
            ReplayStep(
                at=self.at,
                ready_at=self._ready(step),
                when=step.at,
                model=step.model or "",
                provider=step.provider,
                head=head,
                stop=len(self.base),
                gone=tuple(aligned.gone),
                cut=aligned.cut,
                keep=keep,
                tail=tuple(tail),
                marks=marks,
                anchors=anchors,
                ttl=self._ttl(step.usage),
                settings=step.prompt.settings if step.prompt is not None else (),
                usage=step.usage,
                output=(step.usage.output or 0) if step.usage is not None else 0,
                human=step.human,
                window=self._window(step),
            )
        )

    def _lay(
        self, number: int, step: Step, shown: Prompt | None
    ) -> tuple[Sequence[int], Aligned, int, list[int]]:
        """Lay a prompt over the base; gives its head, what it changed, and how it goes on from
        the one before (parts kept, parts behind them)."""
        added = None if step.compaction is not None else self._appended(shown)
        if added is not None:
            keep = len(self.previous)
            self.previous.extend(added)
            self.base.extend(added)
            return self.head_parts, self.aligner.extend(added), keep, added
        indices = list(shown.indices()) if shown is not None else []
        split = next(
            (n for n, i in enumerate(indices) if self.parts[i].section == "messages"), len(indices)
        )
        head_parts, messages = indices[:split], indices[split:]
        aligned = self.aligner.align(messages, step.compaction is not None and number > 0)
        recorded = messages
        if shown is None or not shown.recorded:
            head_parts, recorded = self.unseen.resolve(number, step, messages, aligned)
        else:
            self.base.extend(messages[k] for k in aligned.added)
        whole = [*head_parts, *recorded]
        keep = common_length(self.previous, whole)
        self.previous, self.head_parts = whole, head_parts
        return head_parts, aligned, keep, whole[keep:]

    def _appended(self, shown: Prompt | None) -> list[int] | None:
        """What a prompt adds to the one before, where it does nothing else."""
        before = self.shown
        if before is None or shown is None or not (before.recorded and shown.recorded):
            return None
        ranges = appended_ranges(before, shown)
        if ranges is None:
            return None
        added = [i for r in ranges for i in range(r.start, r.stop)]
        return added if all(self.parts[i].section == "messages" for i in added) else None

    def _marks(
        self, prompt: Prompt | None, aligned: Aligned
    ) -> tuple[tuple[Mark, ...], tuple[Anchor, ...]]:
        """The breakpoints of the prompt that was laid last, by place and by what they follow."""
        if prompt is None or not prompt.breakpoints:
            return (), ()
        head, length = len(self.head_parts), len(self.previous)
        counts = {b.position + 1: b.ttl for b in prompt.breakpoints}
        if not prompt.recorded:
            # Positions count in what was seen, and what was laid has another head and length.
            seen = list(prompt.indices())
            counts = {self.unseen.count(seen, b.position): b.ttl for b in prompt.breakpoints}
            head = sum(self.parts[i].section != "messages" for i in seen)
            length = len(seen)
        marks = tuple(Mark(count, counts[count]) for count in sorted(counts))
        return marks, _anchors(prompt.breakpoints, head, length, aligned.base)

    def _head(self, parts: Sequence[int]) -> int:
        tools = sum(self.parts[i].section == "tools" for i in parts)
        return self.heads.setdefault(Head(tuple(parts), tools), len(self.heads))

    def _time(self, step: Step) -> None:
        at = step.at.timestamp() if step.at is not None else self.at + UNDATED_GAP_S
        self.at = max(self.at, at)

    def _ready(self, step: Step) -> float:
        ended = step.ended_at.timestamp() if step.ended_at is not None else self.at + FIRST_TOKEN_S
        return max(self.at, min(ended, self.at + FIRST_TOKEN_S))

    def _ttl(self, usage: Usage | None) -> Ttl:
        if usage is not None and (usage.cache_write_1h or usage.cache_write_5m):
            long = (usage.cache_write_1h or 0) >= (usage.cache_write_5m or 0)
            self.ttl = "1h" if long else "5m"
        return self.ttl

    def _window(self, step: Step) -> int:
        known = self.window(step.model, step.provider) if self.window else None
        window = known or DEFAULT_WINDOW
        return window if self.largest <= window else max(LARGE_WINDOW, self.largest)


def _anchors(
    breakpoints: Sequence[Breakpoint], head: int, length: int, base: Sequence[int]
) -> tuple[Anchor, ...]:
    out = []
    for position, ttl in breakpoints:
        if position == length - 1:
            out.append(Anchor("end", 0, ttl))
        elif position < head:
            out.append(Anchor("head", position, ttl))
        else:
            behind = next(
                (base[k] for k in range(position - head, -1, -1) if base[k] != PUT_IN), None
            )
            out.append(
                Anchor("head", head - 1, ttl) if behind is None else Anchor("base", behind, ttl)
            )
    return tuple(out)


def _tail_input(steps: Sequence[Step]) -> int:
    remainders = [
        s.usage.input
        for s in steps
        if s.usage is not None and s.usage.input is not None and s.usage.cache_write
    ]
    if not remainders:
        return 0
    usual = int(median(remainders))
    return usual if usual <= TAIL_INPUT else 0
