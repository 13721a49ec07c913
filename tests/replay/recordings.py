"""Recordings for the replay's tests: conversations as message lists, sent step by step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from analyzer.caching import CACHES
from analyzer.model import Breakpoint, Lane, Part, Problem, Prompt, SessionKey, Step, Usage
from analyzer.policies import parse_spec
from analyzer.pricing import PriceBook
from analyzer.replay import ReplayLane, build_lane, replay
from analyzer.sources import named
from analyzer.sources.base import Context, Pool, to_ranges
from analyzer.sources.blocks import message_parts, system_parts, tool_parts

MODEL = "claude-sonnet-4-5-20250929"
START = datetime(2026, 11, 28, 9, tzinfo=UTC)
WORDS = (
    *("def", "return", "import", "self", "value", "error", "index"),
    *("table", "request", "cache", "prefix", "token", "window"),
)
STUB = "[Old tool result content cleared]"
Message = dict[str, object]


def words(r: random.Random, n: int) -> str:
    """Text of n words with some line ends."""
    return "".join(r.choice(WORDS) + r.choice([" ", " ", " ", "\n"]) for _ in range(n))


def user(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def call(call_id: str, text: str = "", tool: str = "bash") -> Message:
    blocks: list[Message] = [{"type": "text", "text": text}] if text else []
    blocks.append({"type": "tool_use", "id": call_id, "name": tool, "input": {"q": call_id}})
    return {"role": "assistant", "content": blocks}


def result(call_id: str, text: str) -> Message:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}],
    }


@dataclass
class Recorder:
    """Collects the requests of one lane; `lane` gives it as a source would."""

    session: str = "s"
    name: str = "main"
    marked: bool = True
    tools: int = 2
    system: str = "You are an agent. " * 300
    at: datetime = START
    pool: Pool = field(default_factory=Pool)
    parts: list[Part] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def send(
        self,
        messages: Sequence[Message],
        *,
        gap: float = 10,
        model: str = MODEL,
        output: int = 50,
        human: bool = False,
        read: Callable[[int], int] = lambda total: 0,
    ) -> None:
        """Record one request; `read` gives the tokens read from the cache of a prompt's total."""
        tools = [{"name": f"tool{i}", "description": "does it " * 80} for i in range(self.tools)]
        marked = [*tool_parts(tools), *system_parts(self.system)]
        head = len(marked)
        for message in messages:
            marked += message_parts(message, self.names)
        indices = []
        for entry in marked:
            index = self.pool.add(entry.part)
            indices.append(self.pool.append(entry.part) if index in indices else index)
        fresh = self.pool.take()
        self.parts += fresh
        total = sum(self.parts[i].estimate + self.parts[i].envelope for i in indices)
        hit = min(total, read(total))
        written = max(0, total - hit - 4)
        usage = Usage(total - hit - written, hit, written, written, 0, output)
        marks = (Breakpoint(head - 1, "5m"), Breakpoint(len(indices) - 1, "5m"))
        prompt = Prompt(to_ranges(indices), marks if self.marked else ())
        self.at += timedelta(seconds=gap)
        self.steps.append(
            Step(
                f"{self.session}-{len(self.steps)}",
                self.name,
                self.at,
                None,
                model,
                usage,
                prompt,
                fresh,
                human=human,
            )
        )

    def lane(self) -> Lane:
        return Lane(
            SessionKey("p", "u", self.session), self.name, tuple(self.steps), tuple(self.parts)
        )


def agent(
    steps: int,
    seed: int = 1,
    *,
    compact: Callable[[list[Message], int], list[Message]] = lambda messages, _step: messages,
    size: tuple[int, int] = (100, 700),
    recorder: Recorder | None = None,
) -> Lane:
    """An agent of so many steps that calls a tool each time; `compact` is its own policy."""
    r = random.Random(seed)
    recorder = recorder or Recorder(session=f"s{seed}")
    messages = [user("Please fix the parser. " + words(r, 60))]
    for n in range(steps):
        messages = compact(messages, n)
        recorder.send(messages, gap=r.uniform(5, 30), output=r.randint(20, 200))
        text = f"Step {n}. First I look. Then I think about it. Then I act. " + words(r, 10)
        messages = [*messages, call(f"c{n}", text), result(f"c{n}", words(r, r.randint(*size)))]
    return recorder.lane()


def keep_newest(keep: int) -> Callable[[list[Message], int], list[Message]]:
    """The anti-pattern as the recording's own policy: all but the newest results are stubs."""

    def compact(messages: list[Message], _step: int) -> list[Message]:
        results = [n for n, m in enumerate(messages) if _result_id(m)]
        out = list(messages)
        for n in results[: max(0, len(results) - keep)]:
            out[n] = result(_result_id(messages[n]), STUB)
        return out

    return compact


def clear_at(step: int, keep: int = 2) -> Callable[[list[Message], int], list[Message]]:
    """One batch clear at a step, kept from then on."""
    sliding = keep_newest(keep)
    return lambda messages, n: sliding(messages, n) if n == step else messages


def summarize_at(step: int, tail: int = 4) -> Callable[[list[Message], int], list[Message]]:
    """A summary replaces everything but the newest messages, once."""

    def compact(messages: list[Message], n: int) -> list[Message]:
        if n != step:
            return messages
        return [user("Summary of the conversation so far: all is well."), *messages[-tail:]]

    return compact


def _result_id(message: Message) -> str:
    content = message["content"]
    assert isinstance(content, list)
    block = content[0]
    return str(block.get("tool_use_id", "")) if isinstance(block, dict) else ""


def with_usage(lane: Lane, cache: str = "anthropic") -> Lane:
    """The lane with the usage that a cache model gives for its recorded prompts."""
    built = build_lane(lane)
    out = replay([built], parse_spec("recorded"), CACHES[cache], PriceBook.default(), carried=False)
    column = out.lanes[0]
    steps = []
    for n, step in enumerate(lane.steps):
        assert step.usage is not None
        usage = replace(
            step.usage,
            input=column.input[n],
            cache_read=column.read[n],
            cache_write=column.write_5m[n] + column.write_1h[n],
            cache_write_5m=column.write_5m[n],
            cache_write_1h=column.write_1h[n],
        )
        steps.append(replace(step, usage=usage))
    return replace(lane, steps=tuple(steps))


def read_lanes(path: Path, source: str) -> list[ReplayLane]:
    """The lanes of one file."""
    steps: dict[tuple[SessionKey, str], list[Step]] = {}
    parts: dict[tuple[SessionKey, str], list[Part]] = {}
    for batch in named(source).read(path, Context()):
        assert not isinstance(batch, Problem), batch
        key = (batch.session, batch.lane)
        steps.setdefault(key, []).extend(batch.steps)
        pool = parts.setdefault(key, [])
        for step in batch.steps:
            pool.extend(step.new_parts)
        pool.extend(batch.tail_parts)
    return [
        build_lane(Lane(key[0], key[1], tuple(found), tuple(parts[key])))
        for key, found in steps.items()
        if found
    ]
