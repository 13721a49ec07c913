"""What a request asks to be cached: after which parts a mark stands, and for how long.

Placement is apart from the cache that answers it and from the policy that shaped the prompt. Specs
are `name` or `name:ttl=1h`; `PLACEMENTS` names all members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from analyzer.caching.base import Mark
from analyzer.errors import UsageError
from analyzer.model import TTL_SECONDS, Part, Ttl
from analyzer.specs import join, parameters, split, typed

MAX_MARKS = 4
"""Breakpoints per request; platform.claude.com prompt caching page, 2026-09. More is a 400."""
MIXED = "mixed"
"""The long lifetime for every mark but the last, which gets the short one."""
_ALIASES = {"30m": "5m", "12h": "1h"}
"""OpenAI's two lifetimes stand in the places of Anthropic's."""


class Layout(NamedTuple):
    """What a placement may know of a prompt."""

    parts: Sequence[Part]
    """May go on behind the prompt."""
    length: int
    """Parts of the prompt."""
    head: int
    """Parts of its tools and system sections."""
    ttl: Ttl
    """Lifetime that the recording shows."""
    recorded: Callable[[], tuple[Mark, ...]] | None
    """The recording's own marks on this prompt; None where it shows none in any."""


class Placement(Protocol):
    """Chooses the marks of a request."""

    name: ClassVar[str]
    title: ClassVar[str]

    def marks(self, prompt: Layout) -> tuple[Mark, ...]:
        """The marks in prompt order, at most four, longer lifetimes first."""
        ...


@dataclass(frozen=True, slots=True)
class SystemEnd:
    """Behind the system prompt, and at the end of the prompt."""

    name: ClassVar[str] = "system-end"
    title: ClassVar[str] = "behind the system prompt and at the end of the prompt"
    ttl: str = ""

    def marks(self, prompt: Layout) -> tuple[Mark, ...]:
        """See `Placement`."""
        ends = (prompt.head, prompt.length) if prompt.head else (prompt.length,)
        return _lasting(ends, self.ttl, prompt)


@dataclass(frozen=True, slots=True)
class RecordedMarks:
    """Where the recording set them, moved with the parts they stand behind."""

    name: ClassVar[str] = "recorded"
    title: ClassVar[str] = "where the recording has them (where it shows none: as system-end)"
    ttl: str = ""

    def marks(self, prompt: Layout) -> tuple[Mark, ...]:
        """See `Placement`."""
        if prompt.recorded is None:
            return SystemEnd(self.ttl).marks(prompt)
        marks = prompt.recorded()
        return _lasting([m.parts for m in marks], self.ttl, prompt) if self.ttl else marks


@dataclass(frozen=True, slots=True)
class NoMarks:
    """Nowhere."""

    name: ClassVar[str] = "none"
    title: ClassVar[str] = "no mark at all"

    def marks(self, prompt: Layout) -> tuple[Mark, ...]:
        """See `Placement`."""
        return ()


@dataclass(frozen=True, slots=True)
class End:
    """At the end of the prompt."""

    name: ClassVar[str] = "end"
    title: ClassVar[str] = "at the end of the prompt"
    ttl: str = ""

    def __post_init__(self) -> None:
        if self.ttl == MIXED:
            raise UsageError("placement 'end' has one mark, so its 'ttl' is 5m or 1h, not mixed")

    def marks(self, prompt: Layout) -> tuple[Mark, ...]:
        """See `Placement`."""
        return _lasting((prompt.length,), self.ttl, prompt)


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """Behind the message that opened the turn, and at the end of the prompt."""

    name: ClassVar[str] = "turn-end"
    title: ClassVar[str] = "behind the user message that opened the turn and at the end"
    ttl: str = ""

    def marks(self, prompt: Layout) -> tuple[Mark, ...]:
        """See `Placement`."""
        start = turn_start(prompt)
        return _lasting([n for n in (start, prompt.length) if n], self.ttl, prompt)


@dataclass(frozen=True, slots=True)
class Every:
    """Every k parts: the end of the prompt and the last three multiples before it."""

    name: ClassVar[str] = "every"
    title: ClassVar[str] = "at the end of the prompt and behind the last three multiples of k parts"
    k: int = 18
    """A step may add 19 positions to what it reads, so marks 18 apart never lose the thread."""
    ttl: str = ""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UsageError(f"placement 'every': expected 'k' of 1 or more, got {self.k}")

    def marks(self, prompt: Layout) -> tuple[Mark, ...]:
        """See `Placement`."""
        last = (prompt.length - 1) // self.k * self.k
        steps = range(last, max(0, last - self.k * (MAX_MARKS - 1)), -self.k)
        places = {markable(prompt, n) for n in steps} | {prompt.length}
        return _lasting(sorted(places - {0}), self.ttl, prompt)


PLACEMENTS: Mapping[str, type[Placement]] = {
    kind.name: kind for kind in (RecordedMarks, NoMarks, End, SystemEnd, TurnEnd, Every)
}
AS_RECORDED = RecordedMarks()


def parse_placement(text: str) -> Placement:
    """The placement of a spec. Raises `UsageError` with what there is."""
    name, raw = split(text)
    if name not in PLACEMENTS:
        raise UsageError.unknown("placement", name, PLACEMENTS)
    kind = PLACEMENTS[name]
    values = typed(name, raw, parameters(kind), "placement")
    if "ttl" in values:
        ttl = _ALIASES.get(str(values["ttl"]), values["ttl"])
        if ttl not in (*TTL_SECONDS, MIXED):
            known = ", ".join((*TTL_SECONDS, *_ALIASES, MIXED))
            raise UsageError(
                f"placement {name!r}: expected a 'ttl' of {known}, got {values['ttl']!r}"
            )
        values["ttl"] = ttl
    return kind(**values)


def placement_spec(placement: Placement) -> str:
    """The shortest spec that gives an equal placement."""
    known = parameters(type(placement))
    given = [(key, getattr(placement, key)) for key in known]
    return join(placement.name, [(k, v) for k, v in given if v != known[k].default])


def turn_start(prompt: Layout) -> int:
    """Parts up to and with the last message that a person opened a turn with; 0 if there is none.

    That is a user message which brings no tool result and is not all put in by a program.
    """
    stop, person, answers = prompt.length, False, False
    for n in range(prompt.length - 1, prompt.head - 1, -1):
        part = prompt.parts[n]
        answers = answers or part.role != "user" or part.kind == "tool_result"
        person = person or not part.markup
        if part.starts_message:
            if person and not answers:
                return stop
            stop, person, answers = n, False, False
    return 0


def markable(prompt: Layout, count: int) -> int:
    """The nearest end at or before `count` parts whose part may carry a mark.

    Thinking blocks and empty texts may not. Source: platform.claude.com prompt caching page, "what
    cannot be cached", 2026-09.
    """
    while count and (
        prompt.parts[count - 1].kind == "thinking"
        or (prompt.parts[count - 1].kind == "text" and not prompt.parts[count - 1].chars)
    ):
        count -= 1
    return count


def _lasting(ends: Sequence[int], ttl: str, prompt: Layout) -> tuple[Mark, ...]:
    """Marks at these ends with the lifetimes that a spec names."""
    if ttl == MIXED:
        return (*(Mark(n, "1h") for n in ends[:-1]), *(Mark(n, "5m") for n in ends[-1:]))
    lifetime: Ttl = "1h" if ttl == "1h" else "5m" if ttl else prompt.ttl
    return tuple(Mark(n, lifetime) for n in ends)
