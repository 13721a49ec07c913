"""Sessions of pi and of OpenClaw, which writes the same journal.

`usage.input` leaves the cache out, and the cost in USD stands beside it. Newer files are trees
(`id`, `parentId`); a branched session begins with a copy of its parent's rows, with their times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import Compaction, LaneSteps, Part, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head
from analyzer.sources.blocks import make_part, message_parts, text_of
from analyzer.sources.decode import (
    JsonObject,
    as_array,
    as_object,
    dump,
    get_count,
    get_object,
    get_text,
    to_cost,
    to_time,
)
from analyzer.sources.documents import outline
from analyzer.sources.journal import (
    counts_of,
    labels_of,
    new_answer,
    read_journal,
    soft_time,
)
from analyzer.sources.transcript import LaneBuilder

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_CLIENT = "openclaw"
"""Provider of messages that the gateway wrote itself, without asking a model."""
_COUNTS = ("input", "output", "cacheRead", "cacheWrite")
_POINTER = "$.message.usage"


class PiSource:
    """Reads one session of pi or OpenClaw."""

    name: ClassVar[str] = "pi"
    title: ClassVar[str] = "pi and OpenClaw sessions (~/.pi/agent/sessions/**.jsonl)"

    def detect(self, head: Head) -> bool:
        """A session header with a working directory, or a stamped message."""
        return any(_is_row(line) for line in head.lines[:20])

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        return read_journal(path, _Session(path, context))


def _is_row(line: bytes) -> bool:
    """Whether a line is a session's header, or a message of a file whose beginning is elsewhere."""
    if b'"timestamp"' not in line:
        return False
    keys = outline(line)
    match keys.get("type"):
        case "session":
            return "cwd" in keys and "timestamp" in keys
        case "message":
            return "message.role" in keys and "message.timestamp" in keys and "timestamp" in keys
        case _:
            return False


class _Session:
    def __init__(self, path: Path, context: Context) -> None:
        self.context = context
        found = _UUID.findall(path.name)
        self.id = found[-1] if found else path.name.split(".", 1)[0]
        self.begun: datetime | None = None
        self.branched_from: str | None = None
        self.title: str | None = None
        self.tools: dict[str, str] = {}
        self.rows = 0
        self.lane: LaneBuilder | None = None

    def builders(self) -> Iterable[LaneBuilder]:
        return () if self.lane is None else (self.lane,)

    def end(self) -> str | None:
        return self.title

    def row(self, row: JsonObject, number: int) -> None:
        index, self.rows = self.rows, self.rows + 1
        if row.get("type") == "session":
            self._header(row)
            return
        lane = self._lane()
        name = get_text(row, "id") or f"row {index}"
        at = to_time(row.get("timestamp"), "$.timestamp")
        kind = row.get("type")
        if kind in ("message", "custom_message", "compaction", "branch_summary"):
            lane.follow(get_text(row, "parentId"))
        lane.place(_before(name))
        match kind:
            case "message":
                self._message(as_object(row.get("message"), "$.message"), at, number)
            case "custom_message":
                lane.say(self._texts("user", row), at, human=False)
            case "branch_summary":
                lane.say([_summary(get_text(row, "summary") or "")], at, human=False)
            case "compaction":
                self._compaction(row)
            case "session_info":
                self.title = get_text(row, "name") or self.title
        lane.place(name)

    def _header(self, row: JsonObject) -> None:
        if self.lane is not None:
            return
        self.id = get_text(row, "id") or self.id
        self.begun = soft_time(row.get("timestamp"))
        parent = get_text(row, "branchedFrom", "parentSession")
        if parent is not None:
            stem = re.split(r"[/\\]", parent)[-1].removesuffix(".jsonl")
            found = _UUID.findall(stem)
            self.branched_from = found[-1] if found else stem

    def _lane(self) -> LaneBuilder:
        if self.lane is None:
            key = SessionKey(self.context.project, self.context.user, self.id)
            self.lane = LaneBuilder(key, "main")
        return self.lane

    # -- messages -----------------------------------------------------------------------------

    def _message(self, message: JsonObject, at: datetime | None, number: int) -> None:
        lane = self._lane()
        match message.get("role"):
            case "assistant":
                self._assistant(message, at, number)
            case "toolResult":
                lane.say([self._result(message)], at, human=False)
            case "bashExecution":
                if not message.get("excludeFromContext"):
                    lane.say([_shell(message)], at, human=False)
            case "user":
                parts = self._texts("user", message)
                # OpenClaw says where a message came from when another session sent it.
                lane.say(parts, at, human="provenance" not in message)
            case _:
                lane.say(self._texts("user", message), at, human=False)

    def _assistant(self, message: JsonObject, at: datetime | None, number: int) -> None:
        lane = self._lane()
        parts = self._response(message)
        if message.get("provider") == _CLIENT:
            lane.say(parts, at, human=False)
            return
        counts = get_object(message, "usage")
        usage = _usage(counts)
        started = to_time(message.get("timestamp"), "$.message.timestamp")
        model = get_text(message, "responseModel", "model")
        answer = new_answer(_key(message, counts), started or at, model, usage, number)
        answer.started_at = started
        answer.last_at = at
        answer.provider = get_text(message, "provider")
        answer.stop_reason = get_text(message, "stopReason")
        answer.error = get_text(message, "errorMessage")
        if usage is not None:
            cost = get_object(counts, "cost").get("total")
            answer.reported_cost = to_cost(cost, f"{_POINTER}.cost.total")
        answer.labels = labels_of(
            api=get_text(message, "api"),
            provider=answer.provider,
            total_tokens=_odd_total(counts),
        )
        is_copy = self.begun is not None and at is not None and at < self.begun
        answer.copied_from = self.branched_from if is_copy else None
        lane.answer(answer, parts)
        lane.close()

    def _response(self, message: JsonObject) -> list[Part]:
        content = message.get("content")
        if isinstance(content, str):
            return self._texts("assistant", message)
        parts: list[Part] = []
        for i, raw in enumerate(as_array(content, "$.message.content")):
            block = as_object(raw, f"$.message.content[{i}]")
            first = not parts
            match block.get("type"):
                case "toolCall":
                    parts.append(self._call(block, first))
                case "thinking":
                    body = text_of(block.get("thinking"))
                    salt = get_text(block, "thinkingSignature") or ""
                    part = make_part(
                        "messages", "assistant", "thinking", body, starts_message=first, salt=salt
                    )
                    parts.append(part)
                case _:
                    entry: JsonObject = {"role": "assistant", "content": [block]}
                    parts.extend(marked.part for marked in message_parts(entry, self.tools))
        return parts

    def _call(self, block: JsonObject, first: bool) -> Part:
        call, tool = get_text(block, "id"), get_text(block, "name") or "?"
        if call:
            self.tools[call] = tool
        body = dump(block.get("arguments"))
        return make_part(
            "messages", "assistant", "tool_use", body, tool=tool, call_id=call, starts_message=first
        )

    def _result(self, message: JsonObject) -> Part:
        call = get_text(message, "toolCallId")
        return make_part(
            "messages",
            "user",
            "tool_result",
            text_of(message.get("content")),
            tool=get_text(message, "toolName") or self.tools.get(call or ""),
            call_id=call,
            starts_message=self._lane().last_role() != "user",
            salt="error" if message.get("isError") else "",
        )

    def _texts(self, role: str, record: JsonObject) -> list[Part]:
        entry = {"role": role, "content": record.get("content")}
        return [marked.part for marked in message_parts(entry, self.tools)]

    def _compaction(self, row: JsonObject) -> None:
        kept = get_text(row, "firstKeptEntryId")
        index = get_count(row, "firstKeptEntryIndex")
        if kept is None and index is not None:
            kept = f"row {index}"
        done = Compaction(
            kind="summary", pre_tokens=get_count(row, "tokensBefore"), summary_called=True
        )
        summary = _summary(get_text(row, "summary") or "")
        self._lane().compact(done, [summary], None if kept is None else _before(kept))


def _before(name: str) -> str:
    return f"before {name}"


def _summary(text: str) -> Part:
    return make_part("messages", "user", "summary", text, starts_message=True)


def _shell(message: JsonObject) -> Part:
    """A command that the person ran, as the model is told of it."""
    output = get_text(message, "output") or "(no output)"
    body = f"Ran `{get_text(message, 'command') or ''}`\n```\n{output}\n```"
    return make_part("messages", "user", "text", body, starts_message=True)


def _usage(counts: JsonObject) -> Usage | None:
    """Usage, additive as recorded; None where all is 0: a request that nothing was reported of."""
    plain, output, read, write = counts_of(counts, _POINTER, *_COUNTS)
    if not any((plain, output, read, write)):
        return None
    long = get_count(counts, "cacheWrite1h", _POINTER)
    if long is not None and long > (write or 0):
        raise DecodeError(
            f"expected at most {write} tokens, got {long}", f"{_POINTER}.cacheWrite1h"
        )
    return Usage(
        input=plain,
        cache_read=read,
        cache_write=write,
        cache_write_1h=long,
        cache_write_5m=None if long is None else (write or 0) - long,
        output=output,
        reasoning=get_count(counts, "reasoning", _POINTER),
    )


def _odd_total(counts: JsonObject) -> int | None:
    """The recorded total where it is not the sum: the counts may be of several requests."""
    total = get_count(counts, "totalTokens", _POINTER)
    parts = counts_of(counts, _POINTER, *_COUNTS)
    return total if total is not None and total != sum(p or 0 for p in parts) else None


def _key(message: JsonObject, counts: JsonObject) -> str:
    """Equal for a message and its copy in a branched session."""
    response = get_text(message, "responseId")
    if response is not None and "REDACTED" not in response:
        return response
    shown = "-".join(str(counts.get(field, "")) for field in _COUNTS)
    return f"{message.get('timestamp')}:{get_text(message, 'model')}:{shown}"
