"""What a policy sees and answers, and what it must not touch.

Owns `Turn`, the `Policy` protocol, the draft that rules work on, and the red lines. A policy keeps no
state: what it did earlier is visible in the prompt, and the engine owns memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from analyzer.edits import Drop, Edit, Insert, Replace, ServerDelete, Summarize, SummaryCall
from analyzer.model import Part

Memory = Literal["persisted", "recompute"]
"""persisted: what was sent stays as it was sent. recompute: judged anew from the un-compacted
transcript at every request."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CODE_BLOCK = re.compile(
    r"(?P<open>^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*\n)(?P<code>.*?)"
    r"(?P<close>^[ \t]*(?P=fence)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
PROTECT_TOKENS = 8000
PROTECT_TOOLS = ("Skill", "Task")
"""Red lines for policies that promise nothing themselves. Source: article 1, sections 6.2 and 8."""


Memo = dict[object, dict[bytes, Part | None]]


class Scale(Protocol):
    """Measured sizes on the scale of one lane."""

    @property
    def ratio(self) -> float:
        """Measured tokens per estimated token."""
        ...

    def envelope(self, part: Part) -> int:
        """Tokens around a part's content; they stay when the content is replaced."""
        ...

    def text(self, text: str) -> int:
        """Tokens of a text."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """All that a policy may know before one request is sent."""

    step: int
    """Index of the step in its lane, from 0."""
    at: float
    """Start of the request, epoch seconds."""
    gap: float | None
    """Seconds since the lane's previous request began; None for the first."""
    human: bool
    """A person spoke since the previous request."""
    prompt: Sequence[Part]
    """The prompt as it would be sent."""
    tokens: Sequence[int]
    """Measured tokens of each part, envelope included."""
    edited: Sequence[str]
    """Per part the name of the rule that last changed it; empty where it is as first sent."""
    window: int
    """Context window of the model, tokens."""
    used: int | None
    """Tokens of the previous request as measured (prompt and response); None for the first."""
    used_before: int | None
    """The same one request earlier."""
    scale: Scale
    recorded: Sequence[Part]
    """The prompt that the recording sent here."""
    peek: Callable[[], int]
    """Asks the cache model what the prompt would read if it were sent as it is."""

    memo: Memo = field(default_factory=dict)
    """Contents that were rewritten before, by edit and digest; the same edit gives the same part."""

    @property
    def would_read(self) -> int:
        """Tokens that a request with this prompt would read from the cache now."""
        return self.peek()


class Policy(Protocol):
    """Given a turn, the edits to make before sending. Same turn, same edits."""

    @property
    def name(self) -> str:
        """Name under which results show it."""
        ...

    @property
    def memory(self) -> Memory:
        """What the engine remembers of earlier edits."""
        ...

    def edits(self, turn: Turn) -> Iterable[Edit]:
        """Edits to the turn's prompt; positions refer to the prompt before any of them."""
        ...


@dataclass(frozen=True, slots=True)
class Forecast:
    """A lane's future steps if no further edit is made; lets a recipe name the step it waits for."""

    used: Ints
    """Per step, `Turn.used`; -1 where it would be None."""
    gaps: Floats
    """Per step, `Turn.gap`; -1 where it would be None."""
    window: Ints
    """Per step, `Turn.window`."""


def is_spoken(part: Part) -> bool:
    """Whether a part is what a person wrote (not a result, a reminder or a summary)."""
    return part.kind == "text" and part.role == "user" and not part.placeholder and not part.markup


def plain_text(text: str) -> str:
    """A text without the inside of its fenced code blocks."""
    return CODE_BLOCK.sub(lambda m: m["open"] + m["close"], text)


class Draft:
    """A prompt while the rules of one turn work on it; gives the edits at the end."""

    def __init__(self, turn: Turn) -> None:
        """Starts as the turn's prompt."""
        self.turn = turn
        self.parts = list(turn.prompt)
        self.tokens = list(turn.tokens)
        self.edited = list(turn.edited)
        self.removed: set[int] = set()
        self.deleted: dict[int, str] = {}
        self.saved = 0
        self._changed: dict[int, str] = {}
        self._dropped: dict[int, str] = {}
        self._summary: tuple[int, int, Part, SummaryCall, str] | None = None

    def here(self, position: int) -> bool:
        """Whether the part at a position is still in the prompt."""
        return position not in self.removed and position not in self.deleted

    def used(self) -> int | None:
        """Tokens of the previous request less what this turn saved so far."""
        return None if self.turn.used is None else self.turn.used - self.saved

    def size(self, position: int, part: Part) -> int:
        """Measured tokens that another part would have at a position."""
        return resized(self.turn.scale, self.parts[position], part)

    def replace(self, position: int, part: Part, rule: str) -> None:
        """Put another part at a position."""
        size = self.size(position, part)
        self.saved += self.tokens[position] - size
        self.parts[position] = part
        self.tokens[position] = size
        self.edited[position] = rule
        self._changed[position] = rule

    def drop(self, position: int, rule: str) -> None:
        """Take a part out."""
        self.saved += self.tokens[position]
        self.removed.add(position)
        self._dropped[position] = rule

    def delete(self, position: int, rule: str) -> None:
        """Let the provider take a part out."""
        self.saved += self.tokens[position]
        self.deleted[position] = rule

    def summarize(self, gone: Sequence[int], part: Part, call: SummaryCall, rule: str) -> None:
        """Take parts out and put a summary in the place of the last unbroken run of them."""
        for position in gone:
            self.drop(position, rule)
        start = gone[-1]
        while start - 1 in self.removed and start - 1 in self._dropped:
            start -= 1
        self._summary = (start, gone[-1] + 1, part, call, rule)
        self.saved -= part.estimate

    def edits(self) -> list[Edit]:
        """Everything that was decided, as edits to the turn's prompt."""
        out: list[Edit] = []
        dropped = dict(self._dropped)
        if self._summary is not None:
            start, stop, part, call, rule = self._summary
            out.append(Summarize(start, stop, part, call, rule))
            for position in range(start, stop):
                dropped.pop(position, None)
        out.extend(self._drops(dropped))
        for position, rule in self._changed.items():
            if position not in self.removed:
                out.append(Replace(position, self.parts[position], rule))
        out.extend(ServerDelete(position, rule) for position, rule in self.deleted.items())
        return out

    @staticmethod
    def _drops(dropped: dict[int, str]) -> Iterable[Edit]:
        start = stop = -1
        rule = ""
        for position in sorted(dropped):
            if position == stop and dropped[position] == rule:
                stop += 1
                continue
            if stop > start:
                yield Drop(start, stop, rule)
            start, stop, rule = position, position + 1, dropped[position]
        if stop > start:
            yield Drop(start, stop, rule)


def resized(scale: Scale, old: Part, new: Part) -> int:
    """Measured tokens of a part that takes the place of another: the envelope stays."""
    return scale.envelope(old) + content_size(scale, new)


def content_size(scale: Scale, part: Part) -> int:
    """Measured tokens of a part's content that no request showed.

    The length of a summary is given in measured tokens, everything else is estimated.
    """
    return part.estimate if part.kind == "summary" else round(part.estimate * scale.ratio)


@dataclass
class RedLines:
    """Counts of what no policy should do."""

    user_text: int = 0
    """Words of a person changed or taken out."""
    protected_tool: int = 0
    protected_tail: int = 0
    orphans: int = 0
    """A call without its result, or a result without its call."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.user_text + self.protected_tool + self.protected_tail + self.orphans

    def add(self, other: RedLines) -> None:
        """Add another count to this one."""
        self.user_text += other.user_text
        self.protected_tool += other.protected_tool
        self.protected_tail += other.protected_tail
        self.orphans += other.orphans


@dataclass(frozen=True, slots=True)
class Promise:
    """What a policy says it does not touch."""

    tail: int
    tools: tuple[str, ...]

    @classmethod
    def of(cls, policy: Policy) -> Promise:
        """A policy's own promise, or the usual one."""
        tail = getattr(policy, "protect_tokens", None)
        tools = getattr(policy, "protect_tools", ()) or PROTECT_TOOLS
        return cls(PROTECT_TOKENS if tail is None else int(tail), tuple(tools))

    def check(self, part: Part, now: Part | None, behind: int, lines: RedLines) -> None:
        """Count what replacing a part (by None: taking it out) crosses.

        `behind` is the tokens of the prompt behind the part.
        """
        if is_spoken(part) and (now is None or _plain(part) != _plain(now)):
            lines.user_text += 1
        if part.tool in self.tools and part.kind in ("tool_use", "tool_result"):
            lines.protected_tool += 1
        if behind < self.tail:
            lines.protected_tail += 1


def _plain(part: Part) -> str | None:
    return None if part.body is None else plain_text(part.body)


class Judge:
    """Counts what a policy changes against what was sent before, and the red lines it crosses.

    A policy that judges anew at each request makes the same edits again and again; only what
    differs from the last request counts.
    """

    def __init__(self, policy: Policy) -> None:
        """Starts with nothing sent."""
        self.promise = Promise.of(policy)
        self.lines = RedLines()
        self._repeats = policy.memory == "recompute"
        self._known: dict[int, bytes] = {}
        self._put: frozenset[bytes] = frozenset()

    def count(
        self,
        edits: Sequence[Edit],
        parts: Sequence[Part],
        origin: Sequence[int],
        behind: Callable[[int], int],
    ) -> int:
        """Parts that some edits change, take out or put in, against the request before.

        `origin` names each part across requests; `behind` gives the tokens behind a position.
        """
        known: dict[int, bytes] = {}
        put: list[bytes] = []
        taken: list[Part] = []
        fresh = 0
        for edit in edits:
            if isinstance(edit, Insert):
                put.extend(part.digest for part in edit.parts)
            elif isinstance(edit, Summarize):
                put.append(edit.part.digest)
            for position in _touched(edit):
                new = edit.part if isinstance(edit, Replace) else None
                mark = b"" if new is None else new.digest
                known[origin[position]] = mark
                if self._repeats and self._known.get(origin[position]) == mark:
                    continue
                fresh += 1
                self.promise.check(parts[position], new, behind(position), self.lines)
                if isinstance(edit, Drop | Summarize):
                    taken.append(parts[position])
        fresh += sum(digest not in self._put for digest in put)
        if self._repeats:
            self._known, self._put = known, frozenset(put)
        self.lines.orphans += count_orphans(taken, parts)
        return fresh


def _touched(edit: Edit) -> range:
    match edit:
        case Replace(position=position) | ServerDelete(position=position):
            return range(position, position + 1)
        case Drop(start=start, stop=stop) | Summarize(start=start, stop=stop):
            return range(start, stop)
        case Insert():
            return range(0)


def count_orphans(taken: Sequence[Part], prompt: Sequence[Part]) -> int:
    """Calls and results of a prompt that lose their other half when some parts are taken out."""
    left = {"tool_use": set[str](), "tool_result": set[str]()}
    for part in taken:
        if part.call_id and part.kind in left:
            left[part.kind].add(part.call_id)
    calls, results = left["tool_use"], left["tool_result"]
    if calls == results:
        return 0
    return sum(
        part.call_id in (results - calls if part.kind == "tool_use" else calls - results)
        for part in prompt
        if part.kind in left and part.call_id
    )
