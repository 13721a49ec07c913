"""Messages and content blocks, in the dialects that requests are written in, as parts.

One place decides what a part's digest covers, so that two sources that saw the same request give
the same prefix. Cache marks are taken out of the content and returned beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import xxhash

from analyzer.model import Kind, Part, Section, Ttl
from analyzer.sources.decode import Json, JsonObject, dump, get_array, get_object, get_text
from analyzer.tokens import (
    CALL_ENVELOPE,
    IMAGE_TOKENS,
    MESSAGE_ENVELOPE,
    RESULT_ENVELOPE,
    estimate,
)
from analyzer.wording import opens_with_markup, reads_like_placeholder, reads_like_summary

_RESPONSE_KINDS = ("reasoning", "_call", "_call_output")
"""How the types of entries end that OpenAI's Responses API has beside messages."""


class Marked(NamedTuple):
    """A part and the lifetime of the cache mark behind it, if any."""

    part: Part
    mark: Ttl | None


def make_part(
    section: Section,
    role: str,
    kind: Kind,
    body: str,
    *,
    tool: str | None = None,
    call_id: str | None = None,
    starts_message: bool = False,
    estimate_tokens: int | None = None,
    salt: str = "",
) -> Part:
    """Build a part; the digest covers everything the provider would hash of it.

    `salt` adds bytes that matter to the provider but are not worth showing (an `is_error` flag).
    """
    head = (
        f"{section}\0{role}\0{kind}\0{tool or ''}\0{call_id or ''}\0{int(starts_message)}\0{salt}\0"
    )
    hasher = xxhash.xxh3_128(head.encode("utf-8", "surrogatepass"))
    hasher.update(body.encode("utf-8", "surrogatepass"))
    envelope = MESSAGE_ENVELOPE if starts_message else 0
    if kind == "tool_use":
        envelope += CALL_ENVELOPE
    elif kind == "tool_result":
        envelope += RESULT_ENVELOPE
    return Part(
        section=section,
        role=role,
        kind=kind,
        digest=hasher.digest(),
        chars=len(body),
        estimate=estimate(body) if estimate_tokens is None else estimate_tokens,
        body=body,
        tool=tool,
        call_id=call_id,
        starts_message=starts_message,
        placeholder=_is_placeholder(section, kind, body),
        envelope=envelope,
        summary=kind == "text" and reads_like_summary(body),
        markup=kind == "text" and opens_with_markup(body),
    )


def _is_placeholder(section: Section, kind: Kind, body: str) -> bool:
    if section != "messages" or kind == "tool_use" or not body:
        return False
    # Prose of a person or a model may talk about removing things; only brackets make it a marker.
    return (kind == "tool_result" or body.lstrip()[:1] in "[<(") and reads_like_placeholder(body)


def mark_of(block: JsonObject) -> Ttl | None:
    """The lifetime a block's `cache_control` asks for; None without a mark."""
    mark = block.get("cache_control")
    if not isinstance(mark, Mapping):
        return None
    return "1h" if mark.get("ttl") == "1h" else "5m"


def unmarked(block: JsonObject) -> JsonObject:
    """A block without its cache mark."""
    if "cache_control" not in block:
        return block
    return {k: v for k, v in block.items() if k != "cache_control"}


def text_of(content: Json) -> str:
    """The text of a content value: a string, or a list of text blocks; anything else as JSON."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, Sequence):
        texts = [
            b.get("text") if isinstance(b, Mapping) and b.get("type") in ("text", None) else None
            for b in content
        ]
        if all(isinstance(t, str) for t in texts):
            return "\n".join(t for t in texts if isinstance(t, str))
    return dump(content)


def tool_parts(tools: Json) -> list[Marked]:
    """Tool definitions, one part each, in the order sent (the order is part of the prefix)."""
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        return []
    out = []
    for tool in tools:
        if not isinstance(tool, Mapping):
            out.append(Marked(make_part("tools", "system", "tool_definition", dump(tool)), None))
            continue
        name = get_text(tool, "name") or get_text(get_object(tool, "function"), "name")
        body = dump(unmarked(tool))
        out.append(
            Marked(make_part("tools", "system", "tool_definition", body, tool=name), mark_of(tool))
        )
    return out


def system_parts(system: Json) -> list[Marked]:
    """A system prompt, a string or a list of blocks, one part a block."""
    if system is None or system == "":
        return []
    if isinstance(system, str):
        return [Marked(make_part("system", "system", "text", system), None)]
    blocks: Iterable[Json] = system if isinstance(system, Sequence) else [system]
    out = []
    for block in blocks:
        if isinstance(block, Mapping) and isinstance(block.get("text"), str):
            out.append(
                Marked(make_part("system", "system", "text", str(block["text"])), mark_of(block))
            )
        elif isinstance(block, str):
            out.append(Marked(make_part("system", "system", "text", block), None))
        elif isinstance(block, Mapping):
            out.append(
                Marked(
                    make_part("system", "system", "other", dump(unmarked(block))), mark_of(block)
                )
            )
    return out


def message_parts(message: JsonObject, tool_names: dict[str, str]) -> list[Marked]:
    """One entry of a messages array (Anthropic or OpenAI chat form, or Responses) as parts.

    `tool_names` maps call ids to tool names and is filled as calls are seen, so that a result
    knows its tool. An entry without content still gives one empty part, so that indices hold.
    """
    if (get_text(message, "type") or "").endswith(_RESPONSE_KINDS) and "role" not in message:
        return message_parts({"role": "assistant", **response_message(message)}, tool_names)
    role = get_text(message, "role") or "user"
    content = message.get("content")
    if role == "tool" or (role == "function" and "content" in message):
        call = get_text(message, "tool_call_id", "name") or ""
        body = text_of(content)
        name = tool_names.get(call) or get_text(message, "name")
        part = make_part(
            "messages", "tool", "tool_result", body, tool=name, call_id=call, starts_message=True
        )
        return [Marked(part, mark_of(message))]
    out = _content_parts(message, role, tool_names)
    for made in get_array(message, "tool_calls"):
        if isinstance(made, Mapping):
            out.append(_chat_call(made, role, not out, tool_names))
    if not out:
        part = make_part("messages", role, "text", "", starts_message=True)
        out.append(Marked(part, mark_of(message)))
    return out


def _content_parts(message: JsonObject, role: str, tool_names: dict[str, str]) -> list[Marked]:
    content = message.get("content")
    out: list[Marked] = []
    if isinstance(content, str):
        if content or not get_array(message, "tool_calls"):
            part = make_part("messages", role, "text", content, starts_message=True)
            out.append(Marked(part, mark_of(message)))
    elif isinstance(content, Sequence):
        for entry in get_array(message, "content"):
            out.append(_block(entry, role, not out, tool_names))
    elif isinstance(content, Mapping):
        out.append(_block(content, role, True, tool_names))
    return out


def response_message(entry: JsonObject) -> JsonObject:
    """One entry of a Responses `input` or `output` as a chat message."""
    match entry.get("type"):
        case None | "message":
            return entry
        case "function_call" | "custom_tool_call":
            function: Json = {
                "name": get_text(entry, "name"),
                "arguments": entry.get("arguments", entry.get("input")),
            }
            call: Json = {"id": get_text(entry, "call_id", "id"), "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "function_call_output" | "custom_tool_call_output":
            output = entry.get("output")
            return {
                "role": "tool",
                "tool_call_id": get_text(entry, "call_id"),
                "content": output if isinstance(output, str) else dump(output),
            }
        case "reasoning":
            return {"role": "assistant", "content": [_thought(entry)]}
        case _:
            kept = {k: v for k, v in entry.items() if k not in ("id", "status")}
            return {"role": "assistant", "content": [kept]}


def _thought(entry: JsonObject) -> JsonObject:
    pieces = [
        get_text(p, "text") or ""
        for p in (*get_array(entry, "summary"), *get_array(entry, "content"))
        if isinstance(p, Mapping)
    ]
    sealed = get_text(entry, "encrypted_content") or get_text(entry, "id")
    return {"type": "thinking", "thinking": "\n".join(pieces), "signature": sealed}


def _chat_call(call: JsonObject, role: str, first: bool, tool_names: dict[str, str]) -> Marked:
    function = get_object(call, "function")
    name = get_text(function, "name") or get_text(call, "name") or "?"
    call_id = get_text(call, "id", "call_id") or ""
    if call_id:
        tool_names[call_id] = name
    arguments = function.get("arguments", call.get("args", call.get("arguments")))
    body = arguments if isinstance(arguments, str) else dump(arguments)
    return Marked(
        make_part(
            "messages", role, "tool_use", body, tool=name, call_id=call_id, starts_message=first
        ),
        None,
    )


def _block(block: Json, role: str, first: bool, tool_names: dict[str, str]) -> Marked:
    if not isinstance(block, Mapping):
        body: str = block if isinstance(block, str) else dump(block)
        return Marked(make_part("messages", role, "text", body, starts_message=first), None)
    mark = mark_of(block)
    match block.get("type"):
        case "text" | "input_text" | "output_text":
            extra = {k: v for k, v in unmarked(block).items() if k not in ("type", "text")}
            salt = dump(extra) if extra else ""
            part = make_part(
                "messages",
                role,
                "text",
                text_of(block.get("text")),
                starts_message=first,
                salt=salt,
            )
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            part = _tool_use(block, role, first, tool_names)
        case "tool_result" | "mcp_tool_result":
            part = _tool_result(block, role, first, tool_names)
        case "thinking" | "redacted_thinking" | "reasoning":
            part = make_part(
                "messages",
                role,
                "thinking",
                text_of(block.get("thinking") or block.get("data") or block.get("text")),
                starts_message=first,
                salt=get_text(block, "signature") or "",
            )
        case "image" | "image_url" | "input_image":
            part = make_part(
                "messages",
                role,
                "image",
                dump(unmarked(block)),
                starts_message=first,
                estimate_tokens=IMAGE_TOKENS,
            )
        case "document" | "file" | "input_file":
            part = make_part(
                "messages", role, "document", dump(unmarked(block)), starts_message=first
            )
        case "compaction":
            part = make_part(
                "messages", role, "summary", text_of(block.get("content")), starts_message=first
            )
        case _:
            part = make_part("messages", role, "other", dump(unmarked(block)), starts_message=first)
    return Marked(part, mark)


def _tool_use(block: JsonObject, role: str, first: bool, tool_names: dict[str, str]) -> Part:
    name = get_text(block, "name") or "?"
    call_id = get_text(block, "id") or ""
    if call_id:
        tool_names[call_id] = name
    return make_part(
        "messages",
        role,
        "tool_use",
        dump(block.get("input")),
        tool=name,
        call_id=call_id,
        starts_message=first,
    )


def _tool_result(block: JsonObject, role: str, first: bool, tool_names: dict[str, str]) -> Part:
    call_id = get_text(block, "tool_use_id") or ""
    content = block.get("content")
    salt = "error" if block.get("is_error") else ""
    if isinstance(content, Sequence) and not isinstance(content, str):
        # A list and a string of the same text are different bytes to the provider.
        salt += "[]"
    images = sum(
        1
        for b in (content if isinstance(content, Sequence) and not isinstance(content, str) else ())
        if isinstance(b, Mapping) and b.get("type") == "image"
    )
    body = text_of(content)
    return make_part(
        "messages",
        role,
        "tool_result",
        body,
        tool=tool_names.get(call_id),
        call_id=call_id,
        starts_message=first,
        salt=salt,
        estimate_tokens=images * IMAGE_TOKENS if images else None,
    )
