"""Whole recorded requests as prompts, decoding only what the lane has not seen before.

Owns `PromptReader`: one per lane. It finds known messages by a hash of their raw bytes, so the
prefix that a request shares with the one before costs neither decoding nor hashing of its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import xxhash

from analyzer.errors import DecodeError
from analyzer.model import Breakpoint, Part, Prompt, Range, Ttl
from analyzer.ranges import tail_ranges
from analyzer.sources.base import Pool, to_ranges
from analyzer.sources.blocks import Marked, message_parts, system_parts, tool_parts
from analyzer.sources.decode import Json, JsonObject, as_array, as_object, dump, parse

Raw: TypeAlias = msgspec.Raw

CACHE_KEY_SETTINGS = frozenset(
    {
        "context_management",
        "disable_parallel_tool_use",
        "effort",
        "output_config",
        "output_format",
        "parallel_tool_calls",
        "prompt_cache_key",
        "reasoning",
        "reasoning_effort",
        "response_format",
        "speed",
        "text",
        "thinking",
        "tool_choice",
        "verbosity",
    }
)
"""Request parameters that providers put into the cache key (`max_tokens` and the like are not)."""

_MESSAGE_KEYS = ("content", "role", "tool_calls")
_REMINDERS = ("<system-reminder", "<system_reminder")
_Slot: TypeAlias = "tuple[int, _Entry | Raw]"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One decoded message (or all tools, or the system prompt) as places in the pool."""

    ranges: tuple[Range, ...]
    size: int
    marks: tuple[Breakpoint, ...]
    """Positions count from the entry's first part."""


class _Built:
    """A prompt under construction that can be cut back to any of its entries."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        self.marks: list[Breakpoint] = []
        self.size = 0
        self._entries: list[_Entry] = []
        self._cuts: list[tuple[int, int, int, int]] = []
        self._held = bytearray()
        """How often each part of the pool stands in the prompt."""

    def holds(self, index: int) -> bool:
        return index < len(self._held) and self._held[index] > 0

    def clashes(self, entry: _Entry) -> bool:
        return any(any(self._held[r.start : r.stop]) for r in entry.ranges)

    def push(self, entry: _Entry) -> None:
        last = self.ranges[-1].stop if self.ranges else -1
        self._cuts.append((len(self.ranges), last, self.size, len(self.marks)))
        self._entries.append(entry)
        for r in entry.ranges:
            if self.ranges and self.ranges[-1].stop == r.start:
                self.ranges[-1] = Range(self.ranges[-1].start, r.stop)
            else:
                self.ranges.append(r)
            self._held.extend(bytes(max(0, r.stop - len(self._held))))
            for index in range(r.start, r.stop):
                self._held[index] += 1
        if entry.marks:
            self.marks.extend(Breakpoint(self.size + m.position, m.ttl) for m in entry.marks)
        self.size += entry.size

    def cut(self, entries: int) -> None:
        """Keep the first entries only."""
        if entries >= len(self._cuts):
            return
        n_ranges, last, self.size, n_marks = self._cuts[entries]
        for entry in self._entries[entries:]:
            for r in entry.ranges:
                for index in range(r.start, r.stop):
                    self._held[index] -= 1
        del self.ranges[n_ranges:], self.marks[n_marks:]
        del self._cuts[entries:], self._entries[entries:]
        if self.ranges:
            self.ranges[-1] = Range(self.ranges[-1].start, last)


class PromptReader:
    """Turns the requests of one lane, in order, into prompts over the lane's pool.

    Equal content that stands twice in one prompt gives two parts of the pool. A request that raises
    `DecodeError` leaves the reader as it was, so the next one can be read.
    """

    def __init__(self, pool: Pool) -> None:
        """`pool` is the lane's; it may already hold parts."""
        self._pool = pool
        self._tool_names: dict[str, str] = {}
        self._places: dict[bytes, list[int]] = {}
        self._known: dict[int, _Entry] = {}
        self._heads: tuple[int | None, int | None] = (None, None)
        self._head: tuple[_Entry, ...] = ()
        self._slots: list[tuple[int, _Entry]] = []
        self._built = _Built()
        self._settings: tuple[tuple[str, str], ...] = ()
        self._starts = bytearray()
        self._human = bytearray()
        self._unmarkable: set[int] = set()

    @property
    def n_messages(self) -> int:
        """Entries of the messages array of the last prompt."""
        return len(self._slots)

    def holds(self, messages: Sequence[Raw]) -> bool:
        """Whether the last prompt holds all of some messages, of which there must be two at least."""
        held = {digest for digest, _ in self._slots}
        return len(messages) > 1 and held.issuperset(map(xxhash.xxh3_64_intdigest, messages))

    def read(
        self,
        tools: Raw | None,
        system: Raw | None,
        messages: Sequence[Raw],
        settings: Mapping[str, Json],
        *,
        auto: Ttl | None = None,
        kept: int = 0,
    ) -> Prompt:
        """One whole request as a prompt.

        `kept` says that the first so many messages are those of the last prompt and were left out
        of `messages`. `auto` is the lifetime of a top-level `cache_control`: it marks the last part
        that can carry a mark. An empty `Raw` is an absent field. Of `settings` only those in
        `CACHE_KEY_SETTINGS` are kept. Raises `DecodeError` with the place inside the request.
        """
        slots: list[_Slot] = list(self._slots[:kept])
        digests = [xxhash.xxh3_64_intdigest(m) for m in messages]
        shared = kept
        if kept == 0:
            shared = _common([d for d, _ in self._slots], digests)
            slots.extend(self._slots[:shared])
        slots.extend(zip(digests[shared - kept :], messages[shared - kept :], strict=True))
        heads = self._read_heads(tools, system)
        chosen = settings_of(settings)
        self._commit(slots, shared, heads)
        self._settings = chosen
        return self._prompt(auto)

    def edit(
        self,
        append: Sequence[Raw],
        *,
        replace: Mapping[int, Raw] | None = None,
        drop: Iterable[tuple[int, int]] = (),
        auto: Ttl | None = None,
    ) -> Prompt:
        """The last prompt with recorded edits and with messages appended; its settings stay.

        `replace` and the half-open ranges of `drop` are indices into the last messages array;
        replacements are made first. Raises `DecodeError` where an index is not in it.
        """
        slots: list[_Slot] = list(self._slots)
        first = len(slots)
        for index, message in (replace or {}).items():
            if not 0 <= index < len(self._slots):
                raise DecodeError(_no_message(index, len(self._slots)), "$.replace")
            slots[index] = (xxhash.xxh3_64_intdigest(message), message)
            first = min(first, index)
        gone: set[int] = set()
        for start, stop in drop:
            if not 0 <= start <= stop <= len(self._slots):
                raise DecodeError(_no_message(stop, len(self._slots)), "$.drop")
            gone.update(range(start, stop))
        if gone:
            slots = [slot for i, slot in enumerate(slots) if i not in gone]
            first = min(first, *gone)
        slots.extend((xxhash.xxh3_64_intdigest(m), m) for m in append)
        self._commit(slots, first, None)
        return self._prompt(auto)

    def response(self, content: Raw) -> tuple[Range, ...]:
        """A response as ranges into the pool: its content (text or blocks), or its whole message.

        Its parts are found again when the next prompt holds them. Raises `DecodeError`.
        """
        value = _parsed(content, "$.response")
        whole = isinstance(value, Mapping) and not value.keys().isdisjoint(_MESSAGE_KEYS)
        message = as_object(value) if whole else {"content": value}
        answer: JsonObject = {**message, "role": "assistant", "content": _sent(message)}
        indices: list[int] = []
        for part, _ in message_parts(answer, self._tool_names):
            indices.append(self._place(part, indices))
        return to_ranges(indices)

    def messages_in(self, prompt: Prompt) -> int:
        """Entries of a prompt's messages array."""
        return sum(self._starts.count(1, r.start, r.stop) for r in prompt.ranges)

    def human_since(self, previous: Prompt | None, now: Prompt) -> bool:
        """Whether text of a person (no tool result) stands behind all that two prompts share."""
        ranges = now.ranges if previous is None else tail_ranges(previous, now)
        return any(self._human.find(1, r.start, r.stop) >= 0 for r in ranges)

    def _read_heads(
        self, tools: Raw | None, system: Raw | None
    ) -> tuple[tuple[int | None, int | None], list[list[Marked]]] | None:
        """Digests and parts of tools and system; None where both are as before."""
        digests = (_digest(tools), _digest(system))
        if digests == self._heads:
            return None
        blocks = [
            tool_parts(_parsed(tools, "$.request.tools")),
            system_parts(_parsed(system, "$.request.system")),
        ]
        return digests, blocks

    def _commit(
        self,
        slots: Sequence[_Slot],
        shared: int,
        heads: tuple[tuple[int | None, int | None], list[list[Marked]]] | None,
    ) -> None:
        """Make a prompt of slots, of which the first `shared` stand unchanged in the last one.

        Everything is decoded before anything changes, so that a bad message changes nothing.
        """
        decoded = [
            self._decode(i, raw, digest) if isinstance(raw, Raw) else raw
            for i, (digest, raw) in enumerate(slots[shared:], shared)
        ]
        if heads is not None:
            self._heads, blocks = heads
            self._built = _Built()
            self._head = tuple(self._push(parts) for parts in blocks if parts)
            for _, entry in self._slots[:shared]:
                self._built.push(entry)
        self._built.cut(len(self._head) + shared)
        self._slots = self._slots[:shared]
        for (digest, raw), ready in zip(slots[shared:], decoded, strict=True):
            entry = self._settle(digest, raw, ready)
            self._slots.append((digest, entry))

    def _decode(self, index: int, raw: Raw, digest: int) -> _Entry | list[Marked]:
        known = self._known.get(digest)
        if known is not None:
            return known
        pointer = f"$.request.messages[{index}]"
        return message_parts(as_object(_parsed(raw, pointer), pointer), self._tool_names)

    def _settle(self, digest: int, raw: _Entry | Raw, ready: _Entry | list[Marked]) -> _Entry:
        if isinstance(ready, _Entry):
            if not isinstance(raw, Raw) or not self._built.clashes(ready):
                self._built.push(ready)
                return ready
            # The same bytes stand earlier in this prompt: a second occurrence gets its own parts.
            ready = message_parts(as_object(parse(bytes(raw))), self._tool_names)
        entry = self._push(ready)
        self._known.setdefault(digest, entry)
        return entry

    def _push(self, parts: Sequence[Marked]) -> _Entry:
        indices: list[int] = []
        marks: list[Breakpoint] = []
        for position, (part, mark) in enumerate(parts):
            indices.append(self._place(part, indices))
            if mark is not None:
                marks.append(Breakpoint(position, mark))
        entry = _Entry(to_ranges(indices), len(indices), tuple(marks))
        self._built.push(entry)
        return entry

    def _place(self, part: Part, taken: Sequence[int]) -> int:
        """Index of a part: its first occurrence that this prompt does not hold yet, or a new one.

        Choosing by content and order alone gives equal prefixes equal indices.
        """
        places = self._places.setdefault(part.digest, [])
        for index in places:
            if index not in taken and not self._built.holds(index):
                return index
        index = self._pool.append(part)
        places.append(index)
        for flags in (self._starts, self._human):
            flags.extend(bytes(index + 1 - len(flags)))
        self._starts[index] = part.starts_message
        self._human[index] = _is_human(part)
        if part.kind == "thinking" or (part.kind == "text" and not part.chars):
            self._unmarkable.add(index)
        return index

    def _prompt(self, auto: Ttl | None) -> Prompt:
        marks = list(self._built.marks)
        position = self._last_markable() if auto is not None else None
        if auto is not None and position is not None:
            marks = [m for m in marks if m.position != position]
            marks.append(Breakpoint(position, auto))
            marks.sort()
        return Prompt(tuple(self._built.ranges), tuple(marks), self._settings)

    def _last_markable(self) -> int | None:
        position = self._built.size
        for r in reversed(self._built.ranges):
            for index in range(r.stop - 1, r.start - 1, -1):
                position -= 1
                if index not in self._unmarkable:
                    return position
        return None


def settings_of(request: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    """The parameters of a request that belong to the cache key, sorted; values as text or JSON."""
    return tuple(
        (key, value if isinstance(value, str) else dump(value, by_key=True))
        for key, value in sorted(request.items())
        if key in CACHE_KEY_SETTINGS and value is not None
    )


def _sent(message: JsonObject) -> Json:
    """The content of a response as clients send it back: without fields that hold null."""
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [
            {k: v for k, v in block.items() if v is not None}
            if isinstance(block, Mapping)
            else block
            for block in as_array(content)
        ]
    return content


def _is_human(part: Part) -> bool:
    if part.role != "user" or part.kind not in ("text", "image", "document"):
        return False
    body = part.body or ""
    return bool(body.strip()) and not body.lstrip().startswith(_REMINDERS)


def _common(old: Sequence[int], new: Sequence[int]) -> int:
    """Length of the common prefix of two lists of digests."""
    n = min(len(old), len(new))
    if old[:n] == new[:n]:
        return n
    return next(i for i in range(n) if old[i] != new[i])


def _digest(raw: Raw | None) -> int | None:
    return None if raw is None or raw == Raw() else xxhash.xxh3_64_intdigest(raw)


def _parsed(raw: Raw | None, pointer: str) -> Json:
    if raw is None or raw == Raw():
        return None
    try:
        return parse(bytes(raw))
    except DecodeError as error:
        raise DecodeError(error.message, pointer) from error


def _no_message(index: int, size: int) -> str:
    return f"expected an index into the lane's last {size} messages, got {index}"
