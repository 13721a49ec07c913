"""Step lines for tests: writing them, and reading a file of them whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analyzer.model import LaneSteps, Part, Problem, Step
from analyzer.sources.base import Context
from analyzer.sources.blocks import message_parts, system_parts, tool_parts
from analyzer.sources.steps import StepsSource

Row = dict[str, Any]


def user(text: str) -> Row:
    return {"role": "user", "content": text}


def call(call_id: str) -> Row:
    block = {"type": "tool_use", "id": call_id, "name": "grep", "input": {"q": call_id}}
    return {"role": "assistant", "content": [block]}


def result(call_id: str, content: str) -> Row:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {"role": "user", "content": [block]}


def whole(*messages: Row, **more: Any) -> Row:
    return {"session": "s", "request": {"system": "S", "messages": list(messages)}, **more}


def write_lines(path: Path, rows: list[Row], end: str = "\n") -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + end, encoding="utf-8")
    return path


class Read:
    """Everything that a file gave, lanes put together."""

    def __init__(self, path: Path) -> None:
        self.steps: list[Step] = []
        self.problems: list[Problem] = []
        self.batches: list[LaneSteps] = []
        self.pools: dict[tuple[str, str], list[Part]] = {}
        self.lane_of: list[tuple[str, str]] = []
        for entry in StepsSource().read(path, Context()):
            if isinstance(entry, Problem):
                self.problems.append(entry)
                continue
            self.batches.append(entry)
            key = (entry.session.session_id, entry.lane)
            for step in entry.steps:
                self.steps.append(step)
                self.lane_of.append(key)
                self.pools.setdefault(key, []).extend(step.new_parts)

    def digests(self, number: int) -> list[bytes]:
        prompt = self.steps[number].prompt
        assert prompt is not None
        pool = self.pools[self.lane_of[number]]
        return [pool[i].digest for i in prompt.indices()]

    def bodies(self, number: int) -> list[str | None]:
        prompt = self.steps[number].prompt
        assert prompt is not None
        pool = self.pools[self.lane_of[number]]
        return [pool[i].body for i in prompt.indices()]


def oracle(request: Row) -> list[bytes]:
    """Digests of a request's parts, each decoded on its own."""
    names: dict[str, str] = {}
    marked = [*tool_parts(request.get("tools")), *system_parts(request.get("system"))]
    for message in request["messages"]:
        marked += message_parts(message, names)
    return [m.part.digest for m in marked]
