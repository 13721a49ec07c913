"""Gemini CLI sessions: `~/.gemini/tmp/<project>/chats/session-*.json`, one JSON document each.

`cached` is part of `input`, `thoughts` come on top of `output`. Thoughts are shown to the person
and not sent again, so they are no part of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Part, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head
from analyzer.sources.blocks import make_part, text_of
from analyzer.sources.decode import (
    Json,
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
from analyzer.sources.journal import (
    counts_of,
    document_lanes,
    new_answer,
    read_object,
    usage_within,
    with_total,
)
from analyzer.sources.transcript import LaneBuilder

_TOKENS = "$.tokens"


class GeminiCliSource:
    """Reads one saved chat."""

    name: ClassVar[str] = "gemini-cli"
    title: ClassVar[str] = "Gemini CLI sessions (~/.gemini/tmp/**/session-*.json)"

    def detect(self, head: Head) -> bool:
        """A document with a session, a project's hash and messages."""
        keys = (b'"sessionId"', b'"projectHash"', b'"messages"')
        return head.data.lstrip()[:1] == b"{" and all(key in head.data for key in keys)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        document = read_object(path)
        if isinstance(document, Problem):
            return iter((document,))
        chat = _Chat(document, path, context)
        return document_lanes(
            path, document, chat.message, chat.lane, get_text(document, "summary")
        )


class _Chat:
    def __init__(self, document: JsonObject, path: Path, context: Context) -> None:
        named = get_text(document, "sessionId")
        self.id = named or run_name(stem_of(path), *get_array(document, "messages")[:1])
        self.lane = LaneBuilder(SessionKey(context.project, context.user, self.id), "main")

    def message(self, message: JsonObject, index: int) -> None:
        match message.get("type"):
            case "user":
                at = to_time(message.get("timestamp"), "$.timestamp")
                self.lane.say(_texts("user", message.get("content")), at, human=True)
            case "gemini":
                self._answer(message, index)

    def _answer(self, message: JsonObject, index: int) -> None:
        at = to_time(message.get("timestamp"), "$.timestamp")
        parts = _texts("assistant", message.get("content"))
        results: list[Part] = []
        for i, raw in enumerate(get_array(message, "toolCalls")):
            call = as_object(raw, f"$.toolCalls[{i}]")
            parts.append(_call(call, not parts))
            results.extend(_results(call, not results))
        key = get_text(message, "id") or f"{self.id}:{index}"
        usage = _usage(get_object(message, "tokens"))
        self.lane.answer(new_answer(key, at, get_text(message, "model"), usage, index + 1), parts)
        self.lane.close()
        self.lane.say(results, at, human=False)


def _texts(role: str, content: Json) -> list[Part]:
    """Content as parts: a text, or a list of the parts that the Gemini API knows."""
    if isinstance(content, str):
        blocks: Sequence[Json] = [content] if content else []
    elif isinstance(content, Sequence):
        blocks = content
    else:
        blocks = [] if content is None else [content]
    out: list[Part] = []
    for block in blocks:
        first = not out
        text = block.get("text") if isinstance(block, Mapping) else block
        if isinstance(text, str):
            out.append(make_part("messages", role, "text", text, starts_message=first))
        else:
            out.append(make_part("messages", role, "other", dump(block), starts_message=first))
    return out


def _call(call: JsonObject, first: bool) -> Part:
    return make_part(
        "messages",
        "assistant",
        "tool_use",
        dump(call.get("args")),
        tool=get_text(call, "name") or "?",
        call_id=get_text(call, "id"),
        starts_message=first,
    )


def _results(call: JsonObject, first: bool) -> list[Part]:
    """What was sent back for a call; nothing where it brought no result."""
    result = call.get("result")
    if result is None:
        return []
    bodies: list[str] = []
    for entry in (
        result if isinstance(result, Sequence) and not isinstance(result, str) else [result]
    ):
        given = get_object(entry, "functionResponse") if isinstance(entry, Mapping) else {}
        response = get_object(given, "response")
        output = response.get("output", response.get("error"))
        bodies.append(text_of(output if output is not None else entry))
    return [
        make_part(
            "messages",
            "user",
            "tool_result",
            "\n".join(bodies),
            tool=get_text(call, "name"),
            call_id=get_text(call, "id"),
            starts_message=first,
            salt="error" if call.get("status") == "error" else "",
        )
    ]


def _usage(tokens: JsonObject) -> Usage | None:
    """Disjoint usage; None where all is 0: a response that nothing was reported of.

    Tokens that a server-side tool put into the prompt are counted beside `input`.
    """
    given, cached, output, thoughts, tool = counts_of(
        tokens, _TOKENS, "input", "cached", "output", "thoughts", "tool"
    )
    if not any((given, cached, output, thoughts, tool)):
        return None
    if given is None:
        raise DecodeError("expected the tokens of the input, got none", f"{_TOKENS}.input")
    made = None if output is None and thoughts is None else (output or 0) + (thoughts or 0)
    usage = usage_within(given + (tool or 0), cached, None, made, thoughts, _TOKENS)
    return with_total(usage, get_count(tokens, "total", _TOKENS))
