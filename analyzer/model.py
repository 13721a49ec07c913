"""The words of the field as values: sessions, lanes, steps, prompts, parts, usage.

Frozen, without input or output. Everything a source reads becomes these, and everything after a
source is a pure function over them.

A lane holds a *pool*: its distinct parts in order of first appearance. A prompt is a short list of
ranges into that pool, so an append-only prompt is one range however long it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Literal, NamedTuple

Section = Literal["tools", "system", "messages"]
Kind = Literal[
    "text",
    "thinking",
    "tool_use",
    "tool_result",
    "tool_definition",
    "image",
    "document",
    "summary",
    "other",
]
Ttl = Literal["5m", "1h"]
TTL_SECONDS: Mapping[Ttl, int] = {"5m": 300, "1h": 3600}
ITERATION = "iteration"
"""Label of a step that is one of several requests inside a response: which kind it is."""
ADVISOR = "advisor_message"
"""The kind of a request to another model, with a prompt of its own that no other step continues."""


class Range(NamedTuple):
    """Half-open range of indices into a lane's pool."""

    start: int
    stop: int


class Doubt(NamedTuple):
    """A contradiction inside what a sender recorded of one request, and how it was settled."""

    name: str
    """Which contradiction; `diagnose.accounting` says each in words."""
    said: int | None
    """Tokens (rows, for repeated records) that the sender's own figures give; None if they differ
    among themselves."""
    right: int | None
    """Tokens that are counted instead; None where nobody can tell."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Disjoint token counts of one request, as the provider reported them.

    `input` is always the uncached remainder. `None` is "not reported", which is never the same as 0.
    """

    input: int | None = None
    """Tokens that were neither read from nor written to the cache."""
    cache_read: int | None = None
    cache_write: int | None = None
    """All cache writes; the two below are its split by lifetime where the provider gives one."""
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    """Generated tokens, `reasoning` included."""
    reasoning: int | None = None
    terms: tuple[str, ...] = ()
    """What changes the price of every token, sorted: `batch`, `flex`, `priority`, `fast`, `us` …"""
    apart: tuple[tuple[str, int], ...] = ()
    """Counts that have prices of their own, sorted: `audio_input`, `audio_read`, `audio_output`,
    `image_input` (each a part of the count above it), and `web_searches` (requests)."""
    doubts: tuple[Doubt, ...] = ()
    """Contradictions in the sender's counts."""

    @property
    def prompt(self) -> int | None:
        """Tokens of the whole prompt: uncached + read + written; None if the remainder is unknown."""
        if self.input is None:
            return None
        return self.input + (self.cache_read or 0) + (self.cache_write or 0)

    @property
    def knows_cache(self) -> bool:
        """Whether the provider said what was read from the cache."""
        return self.input is not None and self.cache_read is not None


@dataclass(frozen=True, slots=True)
class Part:
    """One content unit of a prompt: a tool definition, a system block, or a content block.

    The digest covers what the provider hashes (section, role, kind, ids, content) and leaves cache
    marks out, so moving a mark never looks like a change of content.
    """

    section: Section
    role: str
    kind: Kind
    digest: bytes
    """16 bytes, xxh3-128."""
    chars: int
    """Unicode characters of the content (not of its envelope)."""
    estimate: int
    """Estimated tokens of the content alone; `tokens.measure` turns estimates into measured sizes."""
    body: str | None = None
    """The content as text; None where it was not kept."""
    tool: str | None = None
    call_id: str | None = None
    """Pairs a tool call with its result; also the identity that survives a change of content."""
    starts_message: bool = False
    """First part of its entry in the messages array (always False for tools and system)."""
    placeholder: bool = False
    """The content itself reads like a placeholder ("[Old tool result content cleared]")."""
    envelope: int = 0
    """Estimated tokens around the content (role, ids, names); they stay when content is replaced."""
    summary: bool = False
    """A text that begins like a summary of the conversation."""
    markup: bool = False
    """A text that begins with a tag ("<system-reminder>"): put in by a program, not typed."""


class Breakpoint(NamedTuple):
    """A mark that asks the provider to cache the prompt up to and including one part."""

    position: int
    """Index of the part in the prompt (0 = first part)."""
    ttl: Ttl


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request sent, as ranges into its lane's pool: tools, then system, then messages."""

    ranges: tuple[Range, ...]
    breakpoints: tuple[Breakpoint, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    """Request parameters that belong to the cache key (tool_choice, thinking, effort …), sorted."""
    recorded: bool = True
    """True: the request as it was sent. False: rebuilt from a transcript that leaves the system
    prompt and the tools out, and that may show content which had been replaced when it was sent."""

    def __len__(self) -> int:
        stops: int = sum(map(itemgetter(1), self.ranges))
        starts: int = sum(map(itemgetter(0), self.ranges))
        return stops - starts

    def indices(self) -> Iterator[int]:
        """Pool indices of the parts, in the order the provider renders them."""
        for r in self.ranges:
            yield from range(r.start, r.stop)


class SessionKey(NamedTuple):
    """Identity of a session; every query for rows or content is scoped by its first two fields."""

    project: str
    user: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction as the recording tells it, attached to the first step after it."""

    kind: Literal["summary", "clear", "other"] = "summary"
    """summary: history replaced by a summary; clear: old results cleared in place."""
    trigger: str | None = None
    tier: str | None = None
    pre_tokens: int | None = None
    post_tokens: int | None = None
    window_used: float | None = None
    """Share of the window in use when it began, 0..1."""
    snipped: int | None = None
    pruned: int | None = None
    summary_called: bool | None = None
    tokens_saved: int | None = None
    decisions_reused: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One model request and its response."""

    key: str
    """Identity at the origin, equal wherever the same request is recorded again."""
    lane: str
    """Name of the lane inside the session; "main" is the main loop."""
    at: datetime | None
    """Start of the request (aware UTC); estimated where a transcript stamps responses only."""
    ended_at: datetime | None
    model: str | None
    usage: Usage | None
    prompt: Prompt | None
    new_parts: tuple[Part, ...] = ()
    """Parts that this step adds to the end of its lane's pool."""
    response: tuple[Range, ...] = ()
    """Parts of the response, as ranges into the pool (they are usually in the next prompt)."""
    provider: str | None = None
    human: bool = False
    """A person spoke between the previous step and this one."""
    compaction: Compaction | None = None
    miss_reason: str | None = None
    """The provider's own `cache_miss_reason`, never overwritten by ours."""
    stop_reason: str | None = None
    error: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    """Anything else worth keeping, sorted pairs (service tier, client version, label of an arm)."""
    copied_from: str | None = None
    """Session id that the record itself names, where it differs from the session it stands in."""
    line: int | None = None
    """Line (or array index) of the record in its file, from 1."""
    reported_cost: float | None = None
    """USD that the recording states; shown beside ours and never used instead of it."""

    @property
    def is_aside(self) -> bool:
        """Whether it asked another model with a prompt of its own, in the middle of a response."""
        return (ITERATION, ADVISOR) in self.labels


@dataclass(frozen=True, slots=True)
class LaneSteps:
    """A batch of steps of one lane, in order; what a source yields.

    A lane may come in several batches (bounded memory); `new_parts` and ranges go on counting.
    """

    session: SessionKey
    lane: str
    steps: tuple[Step, ...]
    parent: str | None = None
    """Lane that started this one; None for a main loop."""
    title: str | None = None
    tail_parts: tuple[Part, ...] = ()
    """Parts seen after the last step (a tool result that no request has sent yet)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A record that could not be read, kept with its place and its bytes."""

    path: str
    line: int | None
    pointer: str
    message: str
    raw: bytes = b""


@dataclass(frozen=True)
class Lane:
    """One growing context inside a session, with all its steps and its pool of parts."""

    session: SessionKey
    name: str
    steps: tuple[Step, ...]
    pool: tuple[Part, ...]
    parent: str | None = None
    source: str = ""
    previous: Step | None = None
    """The request before the first step where the recording continues another session's lane. Its
    prompt, if any, is in ranges of this lane's pool."""

    def parts(self, prompt: Prompt) -> list[Part]:
        """The parts of a prompt of this lane, in order."""
        return [part for r in prompt.ranges for part in self.pool[r.start : r.stop]]


@dataclass(frozen=True)
class Session:
    """One conversation of one agent with one user."""

    key: SessionKey
    lanes: tuple[Lane, ...]
    source: str = ""
    title: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
