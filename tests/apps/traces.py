"""Step JSONL files with known truth: a window of stubs that slides, and sessions that lack things."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

MODEL = "claude-sonnet-4-5-20250929"
START = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
CHARS_PER_TOKEN = 4


@dataclass
class Trace:
    """One session of an agent that reads a file at every step and stubs all but the newest results."""

    session: str
    steps: int = 14
    keep: int = 4
    """Newest results that stay whole; the step count or more: nothing is ever stubbed."""
    tool: str = "read_file"
    text: str = "line of a file that was read "
    project: str = "demo"
    user: str = ""
    lane: str = "main"
    title: str | None = None
    usage: bool = True
    start: datetime = START
    _before: list[str] = field(default_factory=list)

    def lines(self) -> list[dict[str, Any]]:
        """The session's records."""
        steps = [self._line(n) for n in range(self.steps)]
        if self.title is None:
            return steps
        named = {k: steps[0][k] for k in ("v", "session", "project", "user") if k in steps[0]}
        return [named | {"type": "session", "title": self.title}, *steps]

    def _line(self, n: int) -> dict[str, Any]:
        request = {
            "tools": [
                {"name": self.tool, "description": "reads", "input_schema": {"type": "object"}}
            ],
            "system": [{"type": "text", "text": "You are an agent. " * 600}],
            "messages": self._messages(n),
        }
        at = self.start + timedelta(seconds=20 * n)
        line: dict[str, Any] = {
            "v": 1,
            "session": self.session,
            "project": self.project,
            "lane": self.lane,
            "step": n + 1,
            "id": f"{self.session}-{self.lane}-{n}",
            "at": at.isoformat(),
            "ended_at": (at + timedelta(seconds=4)).isoformat(),
            "model": MODEL,
            "provider": "anthropic",
        }
        if self.user:
            line["user"] = self.user
        line["request"] = request
        if self.usage:
            line["usage"] = self._usage(request)
        return line

    def _messages(self, n: int) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"{self.text} please"}]
        for i in range(n):
            call = {
                "type": "tool_use",
                "id": f"t{i}",
                "name": self.tool,
                "input": {"path": f"f{i}.py"},
            }
            whole = i >= n - self.keep
            text = f"{i}: " + self.text * 420 if whole else "[Old tool result content cleared]"
            result = {"type": "tool_result", "tool_use_id": f"t{i}", "content": text}
            messages += [
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
        return messages

    def _usage(self, request: dict[str, Any]) -> dict[str, int]:
        """Counts of a provider that reads exactly the prefix that it served before."""
        pieces = [json.dumps(request["tools"]), json.dumps(request["system"])]
        pieces += [json.dumps(message) for message in request["messages"]]
        read = 0
        for old, new in zip(self._before, pieces, strict=False):
            if old != new:
                break
            read += len(new) // CHARS_PER_TOKEN
        self._before = pieces
        whole = sum(len(piece) // CHARS_PER_TOKEN for piece in pieces)
        return {
            "input_tokens": 3,
            "cache_read_tokens": read,
            "cache_write_tokens": whole - read,
            "cache_write_5m_tokens": whole - read,
            "cache_write_1h_tokens": 0,
            "output_tokens": 60,
        }


def write(path: Path, *traces: Trace) -> Path:
    """Write traces into one file."""
    lines = [json.dumps(line) for trace in traces for line in trace.lines()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_without_prompts(path: Path, steps: int = 6) -> Path:
    """A saved page of Langfuse observations whose inputs were never recorded."""
    rows = []
    for n in range(steps):
        at = START + timedelta(seconds=30 * n)
        rows.append(
            {
                "id": f"observation-{n}",
                "traceId": f"trace-{n}",
                "sessionId": "no-prompts",
                "projectId": "langfuse-project",
                "parentObservationId": None,
                "startTime": at.isoformat().replace("+00:00", "Z"),
                "endTime": (at + timedelta(seconds=3)).isoformat().replace("+00:00", "Z"),
                "type": "GENERATION",
                "name": "agent-step",
                "model": MODEL,
                "input": None,
                "output": None,
                "usageDetails": {
                    "input": 5,
                    "output": 40,
                    "cache_read_input_tokens": 0 if n == 3 else 20_000 + 900 * n,
                    "input_cache_creation_5m": 20_900 if n == 3 else 900,
                },
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    page = {"data": rows, "meta": {"page": 1, "limit": 50, "totalItems": steps, "totalPages": 1}}
    path.write_text(json.dumps(page), encoding="utf-8")
    return path
