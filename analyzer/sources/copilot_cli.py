"""Copilot CLI sessions: `~/.copilot/session-state/<session>/events.jsonl`.

A message tells only its output tokens. What the cache did is known for the whole session, at its
end, and cannot be divided among the steps: it stays unknown for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from analyzer.model import Compaction, LaneSteps, Part, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head
from analyzer.sources.blocks import make_part, text_of
from analyzer.sources.decode import (
    JsonObject,
    as_object,
    dump,
    get_array,
    get_count,
    get_object,
    get_text,
    to_time,
)
from analyzer.sources.documents import run_name, stem_of
from analyzer.sources.journal import labels_of, new_answer, read_journal
from analyzer.sources.transcript import LaneBuilder

_START = re.compile(rb'"type"\s*:\s*"session\.(start|resume)"')
_TURN = re.compile(rb'"type"\s*:\s*"assistant\.(turn_start|message)"')

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class CopilotCliSource:
    """Reads the events of one session."""

    name: ClassVar[str] = "copilot-cli"
    title: ClassVar[str] = "Copilot CLI sessions (~/.copilot/session-state/**/events.jsonl)"

    def detect(self, head: Head) -> bool:
        """A session start of Copilot, or one of its turns."""
        return any(
            b'"data"' in line
            and (
                (_START.search(line) is not None and b'"copilotVersion"' in line)
                or (_TURN.search(line) is not None and b'"turnId"' in line)
            )
            for line in head.lines[:20]
        )

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        return read_journal(path, _Events(path, context))


class _Events:
    def __init__(self, path: Path, context: Context) -> None:
        self.context = context
        stem = stem_of(path)
        self.name = path.parent.name if stem == "events" else stem
        self.id: str | None = None
        self.version: str | None = None
        self.tools: dict[str, str] = {}
        self.lanes: dict[str, LaneBuilder] = {}
        self.systems: dict[str, str] = {}
        self.started: dict[str, datetime | None] = {}

    def builders(self) -> Iterable[LaneBuilder]:
        return self.lanes.values()

    def end(self) -> str | None:
        return None

    def row(self, row: JsonObject, number: int) -> None:
        kind = get_text(row, "type")
        if kind not in _HANDLED:
            return
        data = as_object(row.get("data"), "$.data")
        at = to_time(row.get("timestamp"), "$.timestamp")
        self.id = self.id or self._identity(kind, data, row)
        lane = self._lane(get_text(data, "parentToolCallId") or "main")
        match kind:
            case "session.start" | "session.resume":
                self.version = get_text(data, "copilotVersion") or self.version
            case "assistant.turn_start":
                self.started[lane.lane] = at
            case "assistant.message":
                self._answer(lane, data, at, number)
            case "session.compaction_complete":
                self._compacted(lane, data)
            case _:
                self._say(lane, kind, data, at)

    def _identity(self, kind: str, data: JsonObject, row: JsonObject) -> str:
        """The session that the first event names, or the folder that Copilot names after it."""
        own = get_text(data, "sessionId") if kind in ("session.start", "session.resume") else None
        return own or (self.name if _UUID.fullmatch(self.name) else run_name(self.name, row))

    def _say(
        self, lane: LaneBuilder, kind: str | None, data: JsonObject, at: datetime | None
    ) -> None:
        match kind:
            case "system.message":
                body = text_of(data.get("content"))
                if self.systems.get(lane.lane) != body:
                    self.systems[lane.lane] = body
                    lane.lead([make_part("system", "system", "text", body)])
            case "user.message":
                text = get_text(data, "transformedContent", "content") or ""
                lane.say([_text("user", text)], at, human=lane.lane == "main")
            case "system.notification":
                lane.say([_text("user", text_of(data.get("content")))], at, human=False)
            case "tool.execution_complete":
                lane.say([self._result(data)], at, human=False)

    def _lane(self, name: str) -> LaneBuilder:
        lane = self.lanes.get(name)
        if lane is None:
            key = SessionKey(self.context.project, self.context.user, str(self.id))
            parent = None if name == "main" else "main"
            lane = self.lanes[name] = LaneBuilder(key, name, parent)
        return lane

    def _answer(
        self, lane: LaneBuilder, data: JsonObject, at: datetime | None, number: int
    ) -> None:
        parts: list[Part] = []
        for kind, key in (("thinking", "reasoningText"), ("text", "content")):
            body = get_text(data, key)
            if body:
                part = _text("assistant", body, first=not parts)
                if kind == "thinking":
                    part = make_part(
                        "messages", "assistant", "thinking", body, starts_message=not parts
                    )
                parts.append(part)
        for i, raw in enumerate(get_array(data, "toolRequests")):
            request = as_object(raw, f"$.data.toolRequests[{i}]")
            parts.append(self._call(request, not parts))
        output = get_count(data, "outputTokens", "$.data")
        usage = None if output is None else Usage(output=output)
        name = get_text(data, "apiCallId", "messageId") or f"{self.id}:{number}"
        answer = new_answer(name, at, get_text(data, "model"), usage, number)
        answer.started_at = self.started.pop(lane.lane, None)
        answer.labels = labels_of(version=self.version)
        lane.answer(answer, parts)

    def _call(self, request: JsonObject, first: bool) -> Part:
        call, tool = get_text(request, "toolCallId"), get_text(request, "name") or "?"
        if call:
            self.tools[call] = tool
        body = dump(request.get("arguments"))
        return make_part(
            "messages", "assistant", "tool_use", body, tool=tool, call_id=call, starts_message=first
        )

    def _result(self, data: JsonObject) -> Part:
        call = get_text(data, "toolCallId")
        failed = data.get("success") is False
        result = data.get("error") if failed else get_object(data, "result").get("content")
        message = get_text(as_object(result), "message") if isinstance(result, dict) else None
        return make_part(
            "messages",
            "tool",
            "tool_result",
            message or text_of(result),
            tool=self.tools.get(call or ""),
            call_id=call,
            starts_message=True,
            salt="error" if failed else "",
        )

    @staticmethod
    def _compacted(lane: LaneBuilder, data: JsonObject) -> None:
        if data.get("success") is False:
            return
        done = Compaction(
            kind="summary",
            pre_tokens=get_count(data, "preCompactionTokens", "$.data"),
            post_tokens=get_count(data, "postCompactionTokens", "$.data"),
            tokens_saved=get_count(data, "tokensRemoved", "$.data"),
            summary_called=True,
        )
        text = get_text(data, "summaryContent")
        part = make_part("messages", "user", "summary", text or "", starts_message=True)
        lane.compact(done, [part] if text else ())


_HANDLED = frozenset(
    {
        "session.start",
        "session.resume",
        "system.message",
        "user.message",
        "system.notification",
        "assistant.turn_start",
        "assistant.message",
        "tool.execution_complete",
        "session.compaction_complete",
    }
)


def _text(role: str, text: str, *, first: bool = True) -> Part:
    return make_part("messages", role, "text", text, starts_message=first)
