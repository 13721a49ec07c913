"""A seeded synthetic agent: full-prompt logs and transcripts whose truth is known by construction.

The agent reads files in a loop. What it sends is decided by a `shape` function over the messages;
what the provider's cache does is played by the simplest rule: an entry at the end of the system
prompt and one at the end of every prompt, found only by exact prefix within 20 messages.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

STUB = "[Old tool result content cleared]"
MODEL = "claude-sonnet-4-6"
START = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)
WORDS = [
    "read",
    "write",
    "cache",
    "prompt",
    "token",
    "index",
    "value",
    "result",
    "error",
    "table",
    "merge",
    "branch",
    "layer",
    "queue",
]
Shape = Callable[[list[dict[str, Any]], int], None]


def words(rng: random.Random, chars: int) -> str:
    """Text of a given length."""
    text = ""
    while len(text) < chars:
        text += rng.choice(WORDS) + " "
    return text[:chars]


def results(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tool results of some messages that are still whole."""
    return [
        block
        for message in messages
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] == "tool_result" and block["content"] != STUB
    ]


def as_is(messages: list[dict[str, Any]], step: int) -> None:
    """Send everything."""


def keep_newest(n: int) -> Shape:
    """Stub all but the newest n results, judged at every step."""

    def shape(messages: list[dict[str, Any]], step: int) -> None:
        for block in results(messages)[:-n]:
            block["content"] = STUB

    return shape


def clear_once(at: int, keep: int) -> Shape:
    """Stub old results in one batch at one step."""

    def shape(messages: list[dict[str, Any]], step: int) -> None:
        if step == at:
            keep_newest(keep)(messages, step)

    return shape


def anthropic_records(
    steps: int = 24,
    *,
    seed: int = 1,
    shape: Shape = as_is,
    system: Callable[[int], str] | None = None,
    tools: Callable[[int], int] | None = None,
    gap: Callable[[int], float] = lambda step: 12.0,
) -> list[dict[str, Any]]:
    """Request/response records of one run; usage follows from the content."""
    rng = random.Random(seed)
    base = words(random.Random(99), 24_000)
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": words(rng, 600)}]}
    ]
    entries: set[str] = set()
    at = START
    records = []
    for step in range(steps):
        at += timedelta(seconds=gap(step))
        shape(messages, step)
        request = {
            "model": MODEL,
            "max_tokens": 4096,
            "tools": [_tool(i) for i in range(tools(step) if tools else 3)],
            "system": [
                {
                    "type": "text",
                    "text": system(step) + base if system else base,
                    "cache_control": {"type": "ephemeral"},
                }
            ],
            "messages": copy.deepcopy(messages),
        }
        usage = _serve(request, entries)
        request["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        answer = [
            {"type": "text", "text": words(rng, 160)},
            {
                "type": "tool_use",
                "id": f"call_{step}",
                "name": "read",
                "input": {"path": f"f{step}"},
            },
        ]
        records.append(
            {
                "ts": at.isoformat(),
                "request": request,
                "response": {
                    "id": f"msg_{seed}_{step}",
                    "type": "message",
                    "role": "assistant",
                    "model": MODEL,
                    "content": answer,
                    "usage": usage,
                },
            }
        )
        result = {
            "type": "tool_result",
            "tool_use_id": f"call_{step}",
            "content": words(rng, rng.randint(3_000, 6_000)),
        }
        messages += [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": [result]},
        ]
    return records


def _tool(i: int) -> dict[str, Any]:
    return {
        "name": f"tool{i}",
        "description": words(random.Random(i), 900),
        "input_schema": {"type": "object"},
    }


def _serve(request: dict[str, Any], entries: set[str]) -> dict[str, Any]:
    units = [json.dumps(t) for t in request["tools"]] + [request["system"][0]["text"]]
    head = len(units)
    units += [json.dumps(m) for m in request["messages"]]
    tokens = [max(1, len(u) // 4) for u in units]
    places = [*range(len(units), max(head, len(units) - 20), -1), head]
    hit = next((n for n in places if "\0".join(units[:n]) in entries), 0)
    entries |= {"\0".join(units), "\0".join(units[:head])}
    read = sum(tokens[:hit])
    write = sum(tokens) - read
    return {
        "input_tokens": 3,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "cache_creation": {"ephemeral_5m_input_tokens": write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 120,
    }


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def log_of(session_id: str) -> str:
    """Name of the log that a session without an id of its own was read from."""
    name, _, digest = session_id.rpartition("-")
    assert len(digest) == 8, session_id
    return name


class Transcript:
    """Writes a Claude Code transcript row by row."""

    def __init__(self, session: str = "11111111-2222-4333-8444-555555555555") -> None:
        self.session = session
        self.rows: list[dict[str, Any]] = []
        self.at = START
        self.parent: str | None = None
        self.count = 0

    def row(self, kind: str, *, wait: float = 1.0, **fields: Any) -> dict[str, Any]:
        """Append one chained row."""
        self.count += 1
        self.at += timedelta(seconds=wait)
        row = {
            "type": kind,
            "uuid": f"u{self.count}",
            "parentUuid": self.parent,
            "sessionId": self.session,
            "isSidechain": False,
            "timestamp": self.at.isoformat().replace("+00:00", "Z"),
            "version": "2.1.0",
            **fields,
        }
        self.parent = str(row["uuid"])
        self.rows.append(row)
        return row

    def user(self, text: str, **fields: Any) -> dict[str, Any]:
        """A prompt of a person."""
        return self.row("user", message={"role": "user", "content": text}, **fields)

    def result(self, call: str, text: str, **fields: Any) -> dict[str, Any]:
        """A tool result."""
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return self.row("user", message={"role": "user", "content": [block]}, **fields)

    def answer(
        self, name: str, read: int, write: int, *, output: int = 50, blocks: int = 2, **fields: Any
    ) -> None:
        """One response as several rows; only the last has the final output count."""
        contents: list[dict[str, Any]] = [
            {"type": "text", "text": f"thinking about {name}"},
            {"type": "tool_use", "id": f"call-{name}", "name": "Read", "input": {"path": name}},
        ]
        for i, block in enumerate(contents[:blocks]):
            usage = {
                "input_tokens": 3,
                "cache_read_input_tokens": read,
                "cache_creation_input_tokens": write,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": write,
                    "ephemeral_1h_input_tokens": 0,
                },
                "output_tokens": output if i == blocks - 1 else 2,
            }
            message = {
                "id": f"msg-{name}",
                "role": "assistant",
                "model": MODEL,
                "content": [block],
                "usage": usage,
            }
            self.row("assistant", message=message, **{"requestId": f"req-{name}", **fields})

    def write(self, folder: Path, name: str | None = None) -> Path:
        """Write the file into a folder."""
        return write_lines(folder / f"{name or self.session}.jsonl", self.rows)
