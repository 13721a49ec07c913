"""Messages of pi and OpenClaw as rows of a lane, wherever they were written down.

`usage.input` leaves the cache out, and the cost in USD stands beside it.
"""

from __future__ import annotations

from datetime import datetime

from analyzer.errors import DecodeError
from analyzer.model import Part, Usage
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
from analyzer.sources.journal import counts_of, labels_of, new_answer, with_total
from analyzer.sources.transcript import LaneBuilder

_CLIENT = "openclaw"
"""Provider of messages that the gateway wrote itself, without asking a model."""
_COUNTS = ("input", "output", "cacheRead", "cacheWrite")
_POINTER = "$.message.usage"


class MessageReader:
    """Feeds messages, in order, to the lane that they belong to."""

    def __init__(self, lane: LaneBuilder) -> None:
        self.lane = lane
        self._tools: dict[str, str] = {}

    def take(
        self,
        message: JsonObject,
        at: datetime | None,
        number: int,
        copied_from: str | None = None,
    ) -> None:
        """A message of whatever role; `at` is when it was written. Raises `DecodeError`."""
        match message.get("role"):
            case "assistant":
                self._assistant(message, at, number, copied_from)
            case "toolResult":
                self.lane.say([self._result(message)], at, human=False)
            case "bashExecution":
                if not message.get("excludeFromContext"):
                    self.lane.say([_shell(message)], at, human=False)
            case "compactionSummary" | "branchSummary":
                summary = get_text(message, "summary") or ""
                self.lane.say([summary_part(summary)], at, human=False)
            case "user":
                parts = self.texts("user", message)
                # OpenClaw says where a message came from when another session sent it.
                self.lane.say(parts, at, human="provenance" not in message)
            case _:
                self.lane.say(self.texts("user", message), at, human=False)

    def parts(self, message: JsonObject) -> list[Part]:
        """What a message is in a prompt. Raises `DecodeError`."""
        match message.get("role"):
            case "assistant":
                return self._response(message)
            case "toolResult":
                return [self._result(message)]
            case _:
                return self.texts("user", message)

    def texts(self, role: str, record: JsonObject) -> list[Part]:
        """The content of a record as a message of some role."""
        entry = {"role": role, "content": record.get("content")}
        return [marked.part for marked in message_parts(entry, self._tools)]

    def _assistant(
        self, message: JsonObject, at: datetime | None, number: int, copied_from: str | None
    ) -> None:
        lane = self.lane
        parts = self._response(message)
        if message.get("provider") == _CLIENT:
            lane.say(parts, at, human=False)
            return
        counts = get_object(message, "usage")
        usage = with_total(_usage(counts), get_count(counts, "totalTokens", _POINTER))
        started = to_time(message.get("timestamp"), "$.message.timestamp")
        model = get_text(message, "responseModel", "model")
        answer = new_answer(message_key(message), started or at, model, usage, number)
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
        answer.copied_from = copied_from
        lane.answer(answer, parts)
        lane.close()

    def _response(self, message: JsonObject) -> list[Part]:
        content = message.get("content")
        if isinstance(content, str):
            return self.texts("assistant", message)
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
                    parts.extend(marked.part for marked in message_parts(entry, self._tools))
        return parts

    def _call(self, block: JsonObject, first: bool) -> Part:
        call, tool = get_text(block, "id"), get_text(block, "name") or "?"
        if call:
            self._tools[call] = tool
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
            tool=get_text(message, "toolName") or self._tools.get(call or ""),
            call_id=call,
            starts_message=self.lane.last_role() != "user",
            salt="error" if message.get("isError") else "",
        )


def summary_part(text: str) -> Part:
    """A summary that stands for earlier messages."""
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


def message_key(message: JsonObject) -> str:
    """Identity of an answer, equal for each copy of it in any file."""
    response = get_text(message, "responseId")
    if response is not None and "REDACTED" not in response:
        return response
    counts = get_object(message, "usage")
    shown = "-".join(str(counts.get(field, "")) for field in _COUNTS)
    return f"{message.get('timestamp')}:{get_text(message, 'model')}:{shown}"
