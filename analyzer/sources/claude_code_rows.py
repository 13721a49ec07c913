"""The rows of a Claude Code transcript as typed values, and their content as parts.

Only what carries the conversation or its usage is named; everything else in a row is skipped by
the decoder without becoming an object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from analyzer.errors import DecodeError
from analyzer.model import Part
from analyzer.sources.blocks import make_part
from analyzer.sources.decode import MALFORMED, as_object, dump, parse_many
from analyzer.tokens import IMAGE_TOKENS

REASON_CHARS = 80
READ = frozenset(
    {"assistant", "user", "system", "progress", "attachment", "summary", "custom-title", "ai-title"}
)
"""Types of the rows that are read. Each version adds others, whose fields are their own."""


class Content(msgspec.Struct):
    """One content block, whatever its type."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    tool_use_id: str | None = None
    content: msgspec.Raw = msgspec.Raw()
    source: msgspec.Raw = msgspec.Raw()
    is_error: bool | None = None


class Message(msgspec.Struct):
    """The API message inside a row."""

    id: str | None = None
    model: str | None = None
    content: msgspec.Raw = msgspec.Raw()
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    diagnostics: Any = None
    context_management: Any = None


class Row(msgspec.Struct):
    """One line of a transcript."""

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None  # noqa: N815 - field names are the file's
    logicalParentUuid: str | None = None  # noqa: N815
    sessionId: str | None = None  # noqa: N815
    agentId: str | None = None  # noqa: N815
    requestId: str | None = None  # noqa: N815
    timestamp: str | int | float | None = None
    version: str | None = None
    isSidechain: bool | None = None  # noqa: N815
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    message: Message | None = None
    data: msgspec.Raw = msgspec.Raw()
    compactMetadata: dict[str, Any] | None = None  # noqa: N815
    microcompactMetadata: dict[str, Any] | None = None  # noqa: N815
    error: Any = None
    summary: str | None = None
    customTitle: str | None = None  # noqa: N815
    aiTitle: str | None = None  # noqa: N815

    @property
    def reason(self) -> str | None:
        """Why a request failed, in the words of the API: `529 overloaded_error`, `rate_limit` …"""
        if isinstance(self.error, str):
            return self.error[:REASON_CHARS] or None
        layers: list[dict[str, Any]] = []
        inner = self.error
        while isinstance(inner, dict):
            layers.insert(0, inner)
            inner = inner.get("error") or inner.get("connection")
        # The innermost type is the API's; the outer ones only say "error".
        words = [layer.get(key) for layer in layers for key in ("type", "code", "name")]
        kind = next((w for w in words if isinstance(w, str) and w != "error"), None)
        status = layers[-1].get("status") if layers else None
        said = [str(w) for w in (status, kind) if isinstance(w, str | int)]
        return " ".join(said)[:REASON_CHARS] or None


class Progress(msgspec.Struct):
    """The `data` of a progress row; a sub-agent's own row stands inside it."""

    type: str = ""
    agentId: str | None = None  # noqa: N815
    message: Row | None = None


_rows = msgspec.json.Decoder(Row)
_contents = msgspec.json.Decoder(str | list[Content | str])
_progress = msgspec.json.Decoder(Progress)
_texts = msgspec.json.Decoder(str | list[Content | str])


def decode_rows(line: bytes) -> list[Row]:
    """The rows of a line: one, or several objects that were glued together.

    A row of a type that is not read may be left out, whatever its fields hold.
    Raises `DecodeError` with a pointer.
    """
    try:
        return [_rows.decode(line)]
    except MALFORMED:
        pass
    rows = []
    for value in parse_many(line):
        row = as_object(value)
        kind = row.get("type")
        if isinstance(kind, str) and kind not in READ:
            continue
        text = dump(row).encode("utf-8", "replace")
        try:
            rows.append(_rows.decode(text))
        except MALFORMED as error:
            raise _pointed(error, "$") from error
    return rows


def decode_progress(data: bytes) -> Progress | None:
    """The sub-agent row inside a progress row; None if there is none."""
    try:
        return _progress.decode(data) if data else None
    except MALFORMED:
        return None


def _pointed(error: Exception, base: str) -> DecodeError:
    message, _, pointer = str(error).partition(" - at `")
    return DecodeError(message, base + pointer.rstrip("`").removeprefix("$"))


class ContentReader:
    """Turns the content of a message into parts; remembers which call was of which tool."""

    def __init__(self) -> None:
        self.tools: dict[str, str] = {}

    def parts(self, raw: msgspec.Raw, role: str, first: bool) -> Iterator[Part]:
        """Parts of a content value: a string, or a list of blocks. Raises `DecodeError`."""
        if not bytes(raw):
            return
        try:
            content = _contents.decode(raw)
        except MALFORMED as error:
            raise _pointed(error, "$.message.content") from error
        if isinstance(content, str):
            yield make_part("messages", role, "text", content, starts_message=first)
            return
        for block in content:
            if isinstance(block, str):
                yield make_part("messages", role, "text", block, starts_message=first)
            else:
                yield self._block(block, role, first)
            first = False

    def _block(self, block: Content, role: str, first: bool) -> Part:
        match block.type:
            case "text":
                return make_part("messages", role, "text", block.text or "", starts_message=first)
            case "thinking" | "redacted_thinking":
                body = block.thinking or block.data or ""
                return make_part(
                    "messages",
                    role,
                    "thinking",
                    body,
                    starts_message=first,
                    salt=block.signature or "",
                )
            case "tool_use" | "server_tool_use":
                if block.id and block.name:
                    self.tools[block.id] = block.name
                body = bytes(block.input).decode("utf-8", "replace")
                return make_part(
                    "messages",
                    role,
                    "tool_use",
                    body,
                    tool=block.name,
                    call_id=block.id,
                    starts_message=first,
                )
            case "tool_result":
                return self._result(block, role, first)
            case "image":
                return make_part(
                    "messages",
                    role,
                    "image",
                    bytes(block.source).decode("utf-8", "replace"),
                    starts_message=first,
                    estimate_tokens=IMAGE_TOKENS,
                )
            case _:
                body = block.text or bytes(block.content).decode("utf-8", "replace")
                return make_part(
                    "messages", role, "other", body, starts_message=first, salt=block.type
                )

    def _result(self, block: Content, role: str, first: bool) -> Part:
        images = 0
        body = ""
        if bytes(block.content):
            try:
                content = _texts.decode(block.content)
            except MALFORMED:
                content = bytes(block.content).decode("utf-8", "replace")
            if isinstance(content, str):
                body = content
            else:
                images = sum(1 for b in content if isinstance(b, Content) and b.type == "image")
                body = "\n".join(b if isinstance(b, str) else (b.text or "") for b in content)
        return make_part(
            "messages",
            role,
            "tool_result",
            body,
            tool=self.tools.get(block.tool_use_id or ""),
            call_id=block.tool_use_id,
            starts_message=first,
            salt="error" if block.is_error else "",
            estimate_tokens=images * IMAGE_TOKENS if images else None,
        )
