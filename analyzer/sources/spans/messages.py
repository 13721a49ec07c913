"""Single messages and content blocks of the dialects that senders of spans write, as one dialect.

Everything becomes the Anthropic or chat form that `blocks.message_parts` reads, so that a message
has the same digest as a response and as part of the next prompt, and across senders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzer.sources.decode import Json, JsonObject, dump, get_array, get_object, get_text
from analyzer.sources.spans.blocks import (
    RESULTS,
    Calls,
    argument_object,
    blocks,
    first_of,
    tool_result,
    with_mark,
)

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "humanmessage": "user",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "systemmessage": "system",
    "toolmessage": "tool",
    "human_message": "user",
}
_KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def is_message(value: Json) -> bool:
    """Whether a value is an entry of a messages array in some dialect."""
    if not isinstance(value, Mapping):
        return False
    if "role" in value or isinstance(value.get("message"), Mapping):
        return True
    kind = value.get("type")
    if isinstance(kind, str) and (
        kind.lower() in _ROLES or kind.startswith(("function_call", "message", "reasoning"))
    ):
        return True
    return "event.name" in value or _is_serialised(value)


def _is_serialised(value: JsonObject) -> bool:
    return "lc" in value and isinstance(value.get("kwargs"), Mapping)


def is_tool_definition(message: Json) -> bool:
    """LangChain appends tool definitions to the messages, as role "tool" without a call id."""
    if not isinstance(message, Mapping) or message.get("role") != "tool":
        return False
    content = message.get("content")
    return (
        isinstance(content, Mapping)
        and "tool_call_id" not in message
        and isinstance(content.get("function"), Mapping)
        and content.get("type") == "function"
    )


def canonical(message: Json, calls: Calls, role: str | None = None) -> JsonObject:
    """One message in the form that `message_parts` reads. `role` is the default."""
    if not isinstance(message, Mapping):
        text = message if isinstance(message, str) else dump(message)
        return {"role": role or "user", "content": text}
    message = _unwrapped(message)
    item = _response_item(message, calls)
    if item is not None:
        return item
    role = role_of(message, role)
    if "tool_results" in message:
        return {"role": "user", "content": _hook_results(message, calls)}
    if role not in _KNOWN_ROLES and calls.knows(role):
        return _tool_message(message, role, calls)
    if role in ("tool", "function") and not _blocks_are_results(message):
        return _tool_message(message, get_text(message, "name", "tool_name"), calls)
    content = _content(message, calls)
    out: dict[str, Json] = {"role": role, "content": content}
    if role in ("tool", "function"):
        out["role"] = "user"
    made = _tool_calls(message, content, calls)
    if made:
        out["tool_calls"] = made
    return with_mark(out, message)


def role_of(message: JsonObject, default: str | None = None) -> str:
    """The role of a message, whatever its dialect calls it."""
    event = get_text(message, "event.name")
    if event and "role" not in message:
        event = event.removeprefix("gen_ai.").removesuffix(".message")
        return "assistant" if event == "choice" else event
    name = get_text(message, "role", "type") or default or "user"
    return _ROLES.get(name.lower(), "assistant" if name == "message" else name)


def _unwrapped(message: JsonObject) -> JsonObject:
    inner = message.get("message")
    if isinstance(inner, Mapping):
        return inner
    if _is_serialised(message):
        kwargs = get_object(message, "kwargs")
        names = get_array(message, "id")
        name = names[-1] if names and isinstance(names[-1], str) else ""
        return {"type": name, **kwargs} if "type" not in kwargs else kwargs
    return message


def _response_item(message: JsonObject, calls: Calls) -> JsonObject | None:
    """Items of the Responses API that are no messages."""
    if "role" in message:
        return None
    match message.get("type"):
        case "function_call" | "custom_tool_call":
            name = get_text(message, "name") or "?"
            call_id = calls.called(name, get_text(message, "call_id", "id"))
            arguments = message.get("arguments", message.get("input"))
            return {"role": "assistant", "tool_calls": [_chat_call(call_id, name, arguments)]}
        case "function_call_output" | "custom_tool_call_output":
            call_id = calls.answered(None, get_text(message, "call_id"))
            return {"role": "tool", "tool_call_id": call_id, "content": message.get("output")}
        case "reasoning":
            summary = [
                text
                for part in get_array(message, "summary")
                if isinstance(part, Mapping) and (text := get_text(part, "text"))
            ]
            block: JsonObject = {
                "type": "thinking",
                "thinking": "\n".join(summary),
                "signature": message.get("encrypted_content"),
            }
            return {"role": "assistant", "content": [block]}
    return None


def _chat_call(call_id: str, name: str, arguments: Json) -> JsonObject:
    text = arguments if isinstance(arguments, str) else dump(arguments)
    return {"id": call_id, "function": {"name": name, "arguments": text}}


def _hook_results(message: JsonObject, calls: Calls) -> list[Json]:
    out: list[Json] = []
    for result in get_array(message, "tool_results"):
        if isinstance(result, Mapping):
            name = get_text(result, "tool_name", "name")
            call_id = calls.answered(name, get_text(result, "tool_use_id", "tool_call_id", "id"))
            out.append(tool_result(call_id, result.get("output", result.get("content"))))
    return out


def _tool_message(message: JsonObject, name: str | None, calls: Calls) -> JsonObject:
    given = get_text(message, "tool_call_id", "toolCallId")
    if given is None and "event.name" in message:
        given = get_text(message, "id")
    call_id = calls.answered(name, given)
    content = message.get("content", message.get("output"))
    out: dict[str, Json] = {"role": "tool", "tool_call_id": call_id, "content": content}
    if name:
        out["name"] = name
    return with_mark(out, message)


def _blocks_are_results(message: JsonObject) -> bool:
    keys = ("toolResult", "functionResponse", "function_response")
    return any(
        get_text(b, "type") in RESULTS or any(key in b for key in keys)
        for b in get_array(message, "content") or get_array(message, "parts")
        if isinstance(b, Mapping)
    )


def _content(message: JsonObject, calls: Calls) -> Json:
    for key in ("parts", "contents", "content"):
        value = message.get(key)
        if isinstance(value, Mapping):
            value = [value]
        if isinstance(value, Sequence) and not isinstance(value, str):
            return list(blocks(value, calls))
        if key == "content" and value is not None:
            return value if isinstance(value, str) else dump(value)
    return None


def _tool_calls(message: JsonObject, content: Json, calls: Calls) -> list[Json]:
    listed = get_array(message, "tool_calls") or get_array(
        get_object(message, "additional_kwargs"), "tool_calls"
    )
    # LangChain repeats the calls that stand in the content already.
    shown = {
        get_text(b, "id")
        for b in (content if isinstance(content, list) else ())
        if isinstance(b, Mapping) and b.get("type") == "tool_use"
    }
    out: list[Json] = []
    legacy = message.get("function_call")
    for entry in [*listed, *([{"function": legacy}] if isinstance(legacy, Mapping) else [])]:
        if not isinstance(entry, Mapping):
            continue
        call = get_object(entry, "tool_call") or entry
        if not (shown and _call_id(call) in shown):
            out.append(_listed_call(call, calls))
    return out


def _call_id(call: JsonObject) -> str | None:
    return get_text(call, "id", "toolCallId", "call_id")


def _listed_call(call: JsonObject, calls: Calls) -> JsonObject:
    function = get_object(call, "function")
    name = get_text(function, "name") or get_text(call, "name", "toolName") or "?"
    arguments = function.get("arguments")
    if arguments is None:
        arguments = argument_object(first_of(call, "args", "arguments", "input"))
    return _chat_call(calls.called(name, _call_id(call)), name, arguments)
