"""Rebuilds the prompts of one lane from a transcript: rows in, steps out.

A transcript shows messages, not requests. What was sent at a step is everything visible before it:
this module keeps that view (appending, summaries, rewinds, results cleared in place) and knows
that the rows of one response may be many and not adjacent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from analyzer.model import (
    Compaction,
    LaneSteps,
    Part,
    Prompt,
    Range,
    SessionKey,
    Step,
    Usage,
)
from analyzer.sources.anthropic_usage import Round, with_rounds
from analyzer.sources.base import Pool, to_ranges
from analyzer.sources.blocks import make_part
from analyzer.sources.responses import differing, output_of, started

BATCH_STEPS = 256
OPEN_STEPS = 32
"""Steps held back from a batch, since a late row of their response may still correct their usage."""
CLEARED = "[Old tool result content cleared]"


@dataclass(slots=True)
class Answer:
    """One response while its rows are still coming in."""

    key: str
    first_at: datetime | None
    last_at: datetime | None
    model: str | None
    usage: Usage | None
    line: int
    prompt: Prompt
    parts: list[Part] = field(default_factory=list)
    stop_reason: str | None = None
    miss_reason: str | None = None
    copied_from: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    provider: str | None = None
    """Recorded provider; used where the model's name does not tell it."""
    error: str | None = None
    reported_cost: float | None = None
    started_at: datetime | None = None
    """Recorded start of the request; without it the start is estimated."""
    earlier: tuple[Round, ...] = ()
    """Requests inside this response that came before the last one (a fallback, a compaction)."""
    cleared: Compaction | None = None
    """What the server cleared from this request's prompt."""
    asked_at: datetime | None = None
    human: bool = False
    compaction: Compaction | None = None


class _Result(NamedTuple):
    """What a lane still needs to know of a tool result that it handed over."""

    role: str
    call_id: str | None
    tool: str | None
    starts_message: bool


GONE = -1
"""Place of a row that a summary has replaced."""


class LaneBuilder:
    """The view of one lane; feed rows in file order, then call `finish`."""

    def __init__(self, session: SessionKey, lane: str, parent: str | None = None) -> None:
        self.session = session
        self.lane = lane
        self.parent = parent
        self.pool = Pool()
        # A transcript may be larger than memory: of its parts only what the view needs is kept.
        self._roles: list[str] = []
        self._results: dict[int, _Result] = {}
        self._view: list[int] = []
        self._ranges: tuple[Range, ...] | None = ()
        self._answers = 0
        self._open: Answer | None = None
        self._held: list[Part] = []
        self._steps: list[Step] = []
        self._index: dict[str, int] = {}
        self._places: dict[int, int] = {}
        self._heads = 0
        self._asked_at: datetime | None = None
        self._human = False
        self._compaction: Compaction | None = None
        self._notes: dict[str, str] = {}
        self._done = 0

    @property
    def open_key(self) -> str | None:
        """Key of the response whose rows are still coming in."""
        return self._open.key if self._open else None

    def is_open(self, key: str) -> bool:
        """Whether rows of this response are still coming in."""
        return self._open is not None and self._open.key == key

    # -- rows ---------------------------------------------------------------------------------

    def place(self, uuid: str | None) -> None:
        """Remember where the view stands after the row with this id."""
        if uuid:
            parts = len(self._view) + len(self._held)
            self._places[hash(uuid)] = parts << 32 | self._answers

    def knows(self, uuid: str | None) -> bool:
        """Whether a row of this id was already read."""
        return uuid is not None and hash(uuid) in self._places

    def follow(self, parent: str | None) -> None:
        """Go back to where `parent` stood if a later answer was given since: the person rewound."""
        place = self._places.get(hash(parent), GONE) if parent else GONE
        parts, answers = place >> 32, place & 0xFFFF_FFFF
        if place == GONE or answers >= self._answers:
            return
        self.close()
        if parts < len(self._view):
            self._cut(parts)

    def lead(self, parts: Iterable[Part]) -> None:
        """Tools and system prompt: they stand before all messages, whatever becomes of those."""
        self.close()
        head = [self._store(part) for part in parts]
        moved = len(head) - self._heads
        self._view[: self._heads] = head
        self._heads = len(head)
        self._ranges = None
        self._places = {k: v if v == GONE else v + (moved << 32) for k, v in self._places.items()}

    def say(self, parts: Iterable[Part], at: datetime | None, *, human: bool) -> None:
        """A user row: tool results, a prompt, injected text."""
        if at is not None:
            self._asked_at = at
        self._human = self._human or human
        if self._open is not None:
            self._held.extend(parts)
        else:
            for part in parts:
                self._append(part)

    def note(self, name: str, value: str) -> None:
        """Something that happened before the next response; it becomes a label of its step."""
        self._notes[name] = value

    def retry(self, reason: str | None) -> None:
        """A request that failed and was sent again; the next response tells how often."""
        self.note("retries", str(int(self._notes.get("retries", "0")) + 1))
        if reason is not None:
            self.note("retry_reason", reason)

    def answer(self, answer: Answer, parts: Iterable[Part]) -> None:
        """A row of a response; rows of one key are one response and its last usage counts."""
        if self._open is not None and self._open.key == answer.key:
            self._merge(self._open, answer)
            self._open.parts.extend(parts)
            return
        if answer.key in self._index:
            self._correct(answer)
            return
        self.close()
        answer.prompt = Prompt(self._current_ranges(), recorded=False)
        answer.asked_at, answer.human = self._asked_at, self._human
        answer.compaction = self._compaction
        self._asked_at, self._human, self._compaction = None, False, None
        if self._notes:
            answer.labels = tuple(sorted({**self._notes, **dict(answer.labels)}.items()))
            self._notes = {}
        answer.parts.extend(parts)
        self._open = answer
        self._answers += 1

    def compact(
        self, compaction: Compaction, summary: Iterable[Part] = (), kept_from: str | None = None
    ) -> None:
        """The history up to here is replaced by a summary, here or in the rows that come next.

        `kept_from` is the id of the row behind which the history is kept, after the summary.
        """
        self.close()
        place = self._places.get(hash(kept_from), GONE) if kept_from else GONE
        start = len(self._view) if place == GONE else place >> 32
        tail = self._view[start:]
        self._cut(self._heads)
        for part in summary:
            self._append(part)
        moved = len(self._view) - start
        self._view.extend(tail)
        self._ranges = None
        self._places = {
            k: v + (moved << 32) if place != GONE and v >> 32 >= start else GONE
            for k, v in self._places.items()
        }
        self._compaction = compaction

    def clear_results(self, call_ids: set[str], compaction: Compaction) -> None:
        """Tool results are cleared in place."""
        self.close()
        for i, index in enumerate(self._view):
            result = self._results.get(index)
            if result is not None and result.call_id in call_ids:
                stub = make_part(
                    "messages",
                    result.role,
                    "tool_result",
                    CLEARED,
                    tool=result.tool,
                    call_id=result.call_id,
                    starts_message=result.starts_message,
                )
                self._view[i] = self._store(stub)
        self._ranges = None
        self._compaction = compaction

    def last_role(self) -> str | None:
        """Role of the newest part that the next row would follow."""
        if self._held:
            return self._held[-1].role
        if self._open is not None:
            return "assistant"
        return self._roles[self._view[-1]] if self._view else None

    # -- steps --------------------------------------------------------------------------------

    def close(self) -> None:
        """End the open response: its step is made, and what came meanwhile follows it."""
        answer, self._open = self._open, None
        if answer is None:
            return
        start = len(self.pool)
        for part in answer.parts:
            self._append(part)
        stop = len(self.pool)
        response = (Range(start, stop),) if stop > start else ()
        self._steps += with_rounds(self._step(answer, response), answer.earlier)
        self._index[answer.key] = self._done + len(self._steps) - 1
        held, self._held = self._held, []
        for part in held:
            self._append(part)

    def take(self) -> LaneSteps | None:
        """A batch of finished steps, once there are enough of them."""
        if len(self._steps) < BATCH_STEPS + OPEN_STEPS:
            return None
        ready, self._steps = self._steps[:BATCH_STEPS], self._steps[BATCH_STEPS:]
        self._done += len(ready)
        return LaneSteps(self.session, self.lane, tuple(ready), self.parent)

    def finish(self, title: str | None = None) -> LaneSteps | None:
        """The rest of the lane; None if the lane has no step at all."""
        self.close()
        if not self._steps and not self._done:
            return None
        return LaneSteps(
            self.session,
            self.lane,
            tuple(self._steps),
            self.parent,
            title,
            tail_parts=self.pool.take(),
        )

    def _step(self, answer: Answer, response: tuple[Range, ...]) -> Step:
        model, usage = answer.model, answer.usage
        return Step(
            key=answer.key,
            lane=self.lane,
            at=answer.started_at or started(answer.asked_at, answer.first_at, usage),
            ended_at=answer.last_at,
            model=model,
            provider=provider_of(model) or answer.provider,
            usage=usage,
            prompt=answer.prompt,
            new_parts=self.pool.take(),
            response=response,
            human=answer.human,
            compaction=answer.compaction or answer.cleared,
            miss_reason=answer.miss_reason,
            stop_reason=answer.stop_reason,
            copied_from=answer.copied_from,
            error=answer.error,
            reported_cost=answer.reported_cost,
            labels=answer.labels,
            line=answer.line,
        )

    def _correct(self, late: Answer) -> None:
        at = self._index[late.key] - self._done
        if at < 0 or late.usage is None:
            return
        step = self._steps[at]
        if output_of(late.usage) >= output_of(step.usage):
            self._steps[at] = replace(step, usage=late.usage)

    @staticmethod
    def _merge(open_: Answer, row: Answer) -> None:
        open_.last_at = row.last_at or open_.last_at
        open_.stop_reason = row.stop_reason or open_.stop_reason
        open_.miss_reason = row.miss_reason or open_.miss_reason
        open_.cleared = row.cleared or open_.cleared
        # Streamed rows repeat the usage; the last one is the final count, and a whole row is kept
        # rather than a maximum per field. A later row that counts less is a stale copy.
        doubts = differing(open_.usage, row.usage)
        if row.usage is not None and output_of(row.usage) >= output_of(open_.usage):
            open_.usage, open_.model, open_.earlier = row.usage, row.model, row.earlier
        if doubts and open_.usage is not None:
            open_.usage = replace(open_.usage, doubts=doubts)

    # -- view ---------------------------------------------------------------------------------

    def _store(self, part: Part) -> int:
        index = self.pool.append(part)
        self._roles.append(part.role)
        if part.kind == "tool_result":
            self._results[index] = _Result(part.role, part.call_id, part.tool, part.starts_message)
        return index

    def _append(self, part: Part) -> None:
        index = self._store(part)
        self._view.append(index)
        if self._ranges:
            last = self._ranges[-1]
            if last.stop == index:
                self._ranges = (*self._ranges[:-1], Range(last.start, index + 1))
                return
        if self._ranges is not None:
            self._ranges = (*self._ranges, Range(index, index + 1))

    def _cut(self, length: int) -> None:
        del self._view[length:]
        self._ranges = None

    def _current_ranges(self) -> tuple[Range, ...]:
        if self._ranges is None:
            self._ranges = to_ranges(self._view)
        return self._ranges


def provider_of(model: str | None) -> str | None:
    """The provider a bare model name belongs to; None where the name does not say."""
    if not model:
        return None
    name = model.lower().rsplit("/", 1)[-1]
    for prefix, provider in _PROVIDERS:
        if name.startswith(prefix):
            return provider
    return None


_PROVIDERS = (
    ("claude", "anthropic"),
    ("gpt", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("codex", "openai"),
    ("gemini", "google"),
    ("deepseek", "deepseek"),
    ("grok", "x-ai"),
    ("kimi", "moonshotai"),
    ("moonshot", "moonshotai"),
    ("qwen", "qwen"),
    ("glm", "z-ai"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
)
