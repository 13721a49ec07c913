"""A lane tied to its recording, and what a replay of it gives.

Owns the values that the engines, the context and the fidelity report speak: `ReplayLane`,
`ReplayStep`, `Event`, `LaneReplay`, `ReplayResult`. A replay is open-loop: recorded outputs and
times stay as they are, only the prompts change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from analyzer.caching.base import BreakpointTerms, CacheModel, Mark, PrefixView, mix
from analyzer.caching.placement import Placement
from analyzer.edits import CostClass, SummaryCall
from analyzer.model import Part, SessionKey, Ttl, Usage
from analyzer.policies.base import Floats, Ints, Policy, RedLines, Scale, content_size
from analyzer.pricing import Rates

MASK = (1 << 64) - 1
BREAK_TOKENS = 2000
BREAK_SHARE = 0.05
"""A step that reads this much less than it could is a break (design/metrics.md §1)."""


CACHED_CLASSES: tuple[CostClass, ...] = ("shared", "in_band", "server_iteration")
"""Summary calls that send the prompt itself, and so read it from the cache."""


class Prices(Protocol):
    """What a replay asks of a price book; USD, None where the model is unknown."""

    def cost_float(
        self, usage: Usage, model: str | None, at: datetime | None, provider: str | None = None
    ) -> float | None:
        """Price of a request."""
        ...

    def rates(
        self,
        model: str | None,
        at: datetime | None,
        prompt_tokens: int | None = None,
        provider: str | None = None,
        terms: tuple[str, ...] = (),
    ) -> Rates | None:
        """Prices per token, so that whole columns can be priced at once."""
        ...


def split_writes(usage: Usage, ttl: Ttl) -> tuple[int, int]:
    """Short and long writes; writes without a split go to the lifetime that the lane shows."""
    short, long = usage.cache_write_5m or 0, usage.cache_write_1h or 0
    unsplit = max(0, (usage.cache_write or 0) - short - long)
    return (short, long + unsplit) if ttl == "1h" else (short + unsplit, long)


def billed_as(usage: Usage, recorded: Usage | None) -> Usage:
    """A foreseen usage on the terms of the recorded request, with what was priced apart in it."""
    if recorded is None or not (recorded.terms or recorded.apart):
        return usage
    return replace(usage, terms=recorded.terms, apart=recorded.apart)


class LaneKey(NamedTuple):
    """Identity of a lane over all sessions."""

    session: SessionKey
    lane: str


class Anchor(NamedTuple):
    """A recorded breakpoint by what it stands behind, so that it can move with its part."""

    where: Literal["head", "base", "end"]
    place: int
    """Position in the head, or index of a base part; 0 for the end."""
    ttl: Ttl


class Event(NamedTuple):
    """What the recording read at a step and the cache model does not foresee.

    Less than foreseen: an eviction, a change out of sight. More: somebody else kept the prefix warm.
    """

    read_tokens: int
    own: bool = False
    """The step is one at which the recording's own policy cut content; other policies did not
    meet this."""


Events = Mapping[tuple[LaneKey, int], Event]


class Head(NamedTuple):
    """Tools and system prompt of a step, as indices into the lane's parts."""

    parts: tuple[int, ...]
    tools_end: int


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One recorded request, as changes to the one before."""

    at: float
    """Start, epoch seconds; never earlier than the step before."""
    ready_at: float
    when: datetime | None
    """Start as recorded, for the price."""
    model: str
    provider: str | None
    head: int
    """Index into the lane's heads."""
    stop: int
    """Base parts that exist by now."""
    gone: tuple[int, ...]
    """Base parts that left at this step, and not by a policy (a rewind)."""
    cut: bool
    """The recording's own policy changed or took out older content here."""
    keep: int
    """Parts that the recorded prompt shares with the one before."""
    tail: tuple[int, ...]
    """Its parts behind those, as indices into the lane's parts."""
    marks: tuple[Mark, ...]
    """Breakpoints of the recorded prompt."""
    anchors: tuple[Anchor, ...]
    """The same, by what they stand behind."""
    ttl: Ttl
    """Lifetime that usage shows, for placements that name none."""
    settings: tuple[tuple[str, str], ...]
    """Request parameters that belong to the cache key."""
    usage: Usage | None
    output: int
    human: bool
    window: int


@dataclass(frozen=True, eq=False)
class ReplayLane:
    """A lane's un-compacted transcript (the base) and its recorded prompts over one list of parts."""

    key: LaneKey
    parts: tuple[Part, ...]
    tokens: tuple[int, ...]
    heads: tuple[Head, ...]
    base: tuple[int, ...]
    """The append-only transcript as indices into `parts`."""
    steps: tuple[ReplayStep, ...]
    scale: Scale
    marked: bool
    """Whether the recording shows breakpoints."""
    tail_input: int
    """Uncached tokens that every recorded request ends with (0 where they vary)."""
    unrecovered: int
    """Placeholders whose original the recording never showed."""

    @cached_property
    def digests(self) -> list[int]:
        """64-bit digests of the parts."""
        return [digest64(part) for part in self.parts]

    @cached_property
    def variants(self) -> dict[tuple[str, str, str], int]:
        """Parts with a call id and a body: the recording's own bytes for a content."""
        return {
            (p.call_id, p.kind, p.body): i
            for i, p in enumerate(self.parts)
            if p.call_id and p.body is not None
        }

    @cached_property
    def plain_heads(self) -> bool:
        """Whether all steps share one head, one model and one set of settings, without rewinds."""
        first = self.steps[0]
        return all(
            s.head == first.head
            and s.model == first.model
            and s.settings == first.settings
            and not s.gone
            for s in self.steps
        )

    @cached_property
    def usual_marks(self) -> Ttl | None:
        """Lifetime of the recorded marks, where each step marks its head and its end alone."""
        ttls: set[Ttl] = set()
        for step in self.steps:
            head = len(self.heads[step.head].parts)
            if [a[:2] for a in step.anchors] != [("head", head - 1), ("end", 0)]:
                return None
            ttls.update(anchor.ttl for anchor in step.anchors)
        return ttls.pop() if len(ttls) == 1 else None

    @cached_property
    def shown_ttl(self) -> Ttl | None:
        """Lifetime that usage shows, where all steps show the same."""
        ttls = {step.ttl for step in self.steps}
        return ttls.pop() if len(ttls) == 1 else None

    @cached_property
    def times(self) -> tuple[list[float], list[float]]:
        """Start of each request, and when its entry can be read."""
        return [s.at for s in self.steps], [s.ready_at for s in self.steps]

    @cached_property
    def openings(self) -> set[int]:
        """Digests of the first part of each head; 0 for prompts without tools and system."""
        return {self.digests[head.parts[0]] if head.parts else 0 for head in self.heads}

    @cached_property
    def recorded_sums(self) -> list[tuple[int, int]]:
        """Digest and tokens of each recorded prompt."""
        digests, tokens = [0], [0]
        out = []
        for step in self.steps:
            del digests[step.keep + 1 :], tokens[step.keep + 1 :]
            for i in step.tail:
                digests.append((digests[-1] + mix(len(digests) - 1, self.digests[i])) & MASK)
                tokens.append(tokens[-1] + self.tokens[i])
            out.append((digests[-1], tokens[-1]))
        return out

    @cached_property
    def recorded_columns(self) -> tuple[npt.NDArray[np.uint64], Ints]:
        """The same as two columns."""
        digests = np.array([d for d, _ in self.recorded_sums], dtype=np.uint64)
        return digests, np.array([t for _, t in self.recorded_sums], dtype=np.int64)

    def recorded(self, step: int) -> list[Part]:
        """The recorded prompt of a step."""
        indices: list[int] = []
        for s in self.steps[: step + 1]:
            del indices[s.keep :]
            indices.extend(s.tail)
        return [self.parts[i] for i in indices]

    def as_recorded(self, part: Part) -> Part:
        """The recording's own part of this identity and content, or the part itself."""
        if not part.call_id or part.body is None:
            return part
        index = self.variants.get((part.call_id, part.kind, part.body))
        return part if index is None else self.parts[index]

    @cached_property
    def _by_digest(self) -> dict[bytes, int]:
        return {part.digest: i for i, part in enumerate(self.parts)}

    def size(self, old: Part | None, new: Part) -> int:
        """Tokens of a part in the place of another (None: put in): as the recording measured it
        where it holds this part, else the place's envelope and the content's estimate."""
        index = self._by_digest.get(new.digest)
        if index is not None:
            return self.tokens[index]
        return self.scale.envelope(new if old is None else old) + content_size(self.scale, new)

    @cached_property
    def stops(self) -> Ints:
        """Per step, the base parts that exist."""
        return np.array([s.stop for s in self.steps], dtype=np.int64)

    @cached_property
    def outputs(self) -> Ints:
        """Per step, generated tokens."""
        return np.array([s.output for s in self.steps], dtype=np.int64)

    @cached_property
    def windows(self) -> Ints:
        """Per step, the model's context window in tokens."""
        return np.array([s.window for s in self.steps], dtype=np.int64)

    @cached_property
    def gaps(self) -> Floats:
        """Per step, seconds since the one before; -1 for the first."""
        times = np.array([s.at for s in self.steps], dtype=np.float64)
        return np.concatenate([[-1.0], np.diff(times)])

    def used(self, step: int, prompt_tokens: Sequence[int]) -> int | None:
        """Tokens of the request before a step, prompt and response; None for the first."""
        return prompt_tokens[step - 1] + self.steps[step - 1].output if step else None


def digest64(part: Part) -> int:
    """A part's digest as the cache models take it."""
    return int.from_bytes(part.digest[:8], "little")


def collapses(before: Part | None, part: Part) -> bool:
    """Whether a part shares the look-back position of the one before it.

    The rule for one part of what `caching.base.collapsed_runs` says of a whole prompt.
    """
    return (
        before is not None and part.kind == before.kind and part.kind in ("tool_use", "tool_result")
    )


class Outgoing(NamedTuple):
    """A request's prompt as a lane state gives it to the engine."""

    view: PrefixView
    """Valid until the state advances."""
    marks: tuple[Mark, ...]
    tools_end: int
    system_end: int
    edits: int
    same: bool
    """Equal to the recorded prompt, part by part."""


class Exchange(Protocol):
    """What a lane state may ask the engine while it prepares a step."""

    def peek(self, view: PrefixView, marks: tuple[Mark, ...], head: tuple[int, int]) -> int:
        """Tokens that this prompt would read now."""
        ...

    def summary(
        self, call: SummaryCall, view: PrefixView, marks: tuple[Mark, ...], head: tuple[int, int]
    ) -> None:
        """Bill a summary call; the view is the prompt before the edits."""
        ...


class LaneState(Protocol):
    """The prompt of one lane under one policy, step by step."""

    red_lines: RedLines

    def advance(self, step: int, exchange: Exchange) -> Outgoing:
        """Prepare the request of the next step; steps come in order."""
        ...


@runtime_checkable
class BreakpointRule(Protocol):
    """A cache that stores and finds prefixes as `caching.breakpoints` describes."""

    name: ClassVar[str]

    @property
    def breakpoint_rule(self) -> BreakpointTerms:
        """The numbers of the rule."""
        ...


StateFactory = Callable[[ReplayLane, Policy, Placement], LaneState]
CacheFactory = Callable[[], CacheModel]
