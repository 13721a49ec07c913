"""Lanes whose recording is a list of messages: what a step sent is everything before its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from analyzer.model import Compaction, LaneSteps, Part, Prompt, Range, SessionKey, Step, Ttl, Usage
from analyzer.sources.anthropic_usage import Round, with_rounds
from analyzer.sources.base import Pool
from analyzer.sources.blocks import message_parts
from analyzer.sources.decode import Json, JsonObject, encode
from analyzer.sources.prompts import PromptReader
from analyzer.sources.transcript import provider_of

_INSTRUCTIONS = ("system", "developer")
_SENT = ("role", "content", "name", "tool_calls", "tool_call_id", "cache_control")
ABSENT = msgspec.Raw()
SUMMARY_SIGNS = ("summary", "continued from a previous", "compact")
"""Words at the beginning of a conversation whose history became a summary."""
SIGN_CHARS = 600
BATCH_STEPS = 256
BATCH_CHARS = 8_000_000
"""Characters of new content that may wait in one lane before they are handed on."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a recording says of one request besides its messages; see the fields of `Step`."""

    key: str
    usage: Usage | None = None
    model: str | None = None
    at: datetime | None = None
    ended_at: datetime | None = None
    provider: str | None = None
    human: bool | None = None
    """None: a person spoke where text of the role `user` is new in the prompt."""
    stop_reason: str | None = None
    miss_reason: str | None = None
    compaction: Compaction | None = None
    earlier: Sequence[Round] = ()
    """Requests inside this one that came before its answer."""
    error: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    line: int | None = None
    reported_cost: float | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)
    auto: Ttl | None = None
    """Lifetime that a mark at the top of the request asks for."""


class HistoryLane:
    """Collects the steps of one lane; feed messages in order, then `take` them."""

    def __init__(self, session: SessionKey, lane: str = "main", parent: str | None = None) -> None:
        self.session = session
        self.lane = lane
        self.parent = parent
        self.recorded = True
        """Set to False where requests held more than is known here (tools, a system prompt)."""
        self._pool = Pool()
        self._reader = PromptReader(self._pool)
        self._heads: tuple[msgspec.Raw, msgspec.Raw] = (ABSENT, ABSENT)
        self._fresh: list[msgspec.Raw] = []
        self._last: Prompt | None = None
        self._steps: list[Step] = []
        self._waiting = 0
        self._count = 0

    def __len__(self) -> int:
        """Steps so far, those that were taken included."""
        return self._count

    def is_continued_by(self, messages: Sequence[JsonObject]) -> bool:
        """Whether another beginning is this conversation, cut at its front or summed up.

        Raises `DecodeError`.
        """
        said = [m for m in messages if m.get("role") not in _INSTRUCTIONS]
        first = opening(said)
        if self._last is None or first is None:
            return False
        return self._reader.holds([to_raw(m) for m in said[:2]]) or reads_like_summary(first.body)

    def open(self, *, tools: Json = None, system: Json = None) -> None:
        """What stands before the messages from here on. Raises `DecodeError`."""
        self._heads = (_raw(tools), _raw(system))

    def say(self, message: JsonObject) -> None:
        """A message that the next request sends. Raises `DecodeError`."""
        self._fresh.append(to_raw(message))

    def ask(self, call: Call, history: Sequence[msgspec.Raw] | None = None) -> Prompt:
        """The prompt of a request: all that was said, or the `history` that was really sent.

        Raises `DecodeError`; what was said since the last request is then left out of the next.
        """
        kept, fresh = self._reader.n_messages, self._fresh
        if history is not None:
            kept, fresh = 0, list(history)
        tools, system = self._heads
        self._fresh = []
        prompt = self._reader.read(tools, system, fresh, call.settings, auto=call.auto, kept=kept)
        return replace(prompt, recorded=self.recorded)

    def answer(self, call: Call, prompt: Prompt | None, messages: Sequence[JsonObject]) -> None:
        """The response to a prompt; the next request sends it too. Raises `DecodeError`."""
        replies = [to_raw({"role": "assistant", **message}) for message in messages]
        response: tuple[Range, ...] = ()
        for reply in replies:
            response += self._reader.response(reply)
        self._fresh.extend(replies)
        human = call.human
        if human is None:
            human = prompt is not None and self._reader.human_since(self._last, prompt)
        self._last = prompt or self._last
        fresh = self._pool.take()
        self._waiting += sum(part.chars for part in fresh)
        steps = with_rounds(
            Step(
                key=call.key,
                lane=self.lane,
                at=call.at,
                ended_at=call.ended_at,
                model=call.model,
                usage=call.usage,
                prompt=prompt,
                new_parts=fresh,
                response=response,
                provider=call.provider or provider_of(call.model),
                human=human,
                compaction=call.compaction,
                miss_reason=call.miss_reason,
                stop_reason=call.stop_reason,
                error=call.error,
                labels=call.labels,
                line=call.line,
                reported_cost=call.reported_cost,
            ),
            call.earlier,
        )
        self._steps += steps
        self._count += len(steps)

    def step(self, call: Call, message: JsonObject) -> None:
        """A request for all that was said, and its one message of response. Raises `DecodeError`."""
        self.answer(call, self.ask(call), (message,))

    def ready(self) -> Iterator[LaneSteps]:
        """A batch of steps, once they hold so much that they should be handed on."""
        if self._waiting > BATCH_CHARS or len(self._steps) >= BATCH_STEPS:
            yield self.take()

    def take(self, title: str | None = None) -> LaneSteps:
        """The steps since the last call."""
        steps, self._steps, self._waiting = tuple(self._steps), [], 0
        return LaneSteps(self.session, self.lane, steps, self.parent, title)


def opening(messages: Sequence[JsonObject]) -> Part | None:
    """How a conversation begins: its first message that is no system prompt, cache marks left out.

    It stays while the conversation grows. None without any. Raises `DecodeError`.
    """
    for message in messages:
        if message.get("role") not in _INSTRUCTIONS:
            return message_parts(message, {})[0].part
    return None


def reads_like_summary(text: str | None) -> bool:
    """Whether a conversation that begins like this goes on from a summary of another."""
    start = (text or "")[:SIGN_CHARS].lower()
    return any(sign in start for sign in SUMMARY_SIGNS)


def beginning(messages: Sequence[JsonObject]) -> int:
    """A digest of the opening, to tell conversations apart. Raises `DecodeError`."""
    part = opening(messages)
    return 0 if part is None else int.from_bytes(part.digest[:8], "big")


def to_raw(message: JsonObject) -> msgspec.Raw:
    """A chat message as it is sent, without what the recording wrote beside it.

    Raises `DecodeError`.
    """
    return _raw({key: message[key] for key in _SENT if message.get(key) is not None})


def _raw(value: Json) -> msgspec.Raw:
    return ABSENT if value is None else msgspec.Raw(encode(value))
