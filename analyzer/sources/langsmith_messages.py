"""The inputs and outputs of a LangSmith run as one request and its response.

Inputs are those of a wrapped client, or messages of LangChain: serialised constructors, their
flat forms, and `[role, content]` pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analyzer.errors import DecodeError
from analyzer.sources.blocks import mark_of
from analyzer.sources.decode import Json, JsonObject, as_object, get_array, get_object, get_text
from analyzer.sources.exchanges import Exchange, exchange_of

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "developer": "developer",
}
_CLASSES = {f"{kind.capitalize()}Message": kind for kind in ("human", "system", "tool", "function")}
_CLASSES |= {"AIMessage": "ai"}
_CALLS = ("tool_use", "tool_call")
_SYSTEM_APART = ("anthropic", "amazon_bedrock", "bedrock", "google_genai", "google_vertexai")
"""Providers whose requests hold the system prompt beside the messages; clients show it as one."""


class RunBodies(NamedTuple):
    """What a run sent and got, and the answer as LangChain keeps it."""

    request: JsonObject
    exchange: Exchange
    outputs: JsonObject
    answer: JsonObject
    known: bool
    """Whether the inputs are those of a model."""


def bodies_of(run: JsonObject, provider: str | None) -> RunBodies:
    """Read a run of the type `llm`. Raises `DecodeError`."""
    inputs, outputs = get_object(run, "inputs"), get_object(run, "outputs")
    given = get_object(get_object(run, "extra"), "invocation_params")
    request: JsonObject = {**given, **{k: v for k, v in inputs.items() if v is not None}}
    answer, finish = _answer(outputs)
    messages = _messages(inputs)
    if messages is None and _is_request(inputs):
        exchange = exchange_of(request, outputs, {})
        return RunBodies(request, exchange, outputs, answer, True)
    chat = [chat_message(m, f"$.inputs.messages[{i}]") for i, m in enumerate(messages or ())]
    system = request.get("system")
    if system is None and provider in _SYSTEM_APART:
        chat, system = _lifted(chat)
    exchange = Exchange(
        messages=chat,
        tools=get_array(request, "tools") or get_array(request, "functions") or None,
        system=system,
        replies=[chat_message(answer, "$.outputs")] if answer else [],
        stop_reason=finish,
        auto=mark_of(request),
    )
    return RunBodies(request, exchange, outputs, _fields(answer), messages is not None)


def _messages(inputs: JsonObject) -> Sequence[Json] | None:
    """The messages of a run; LangChain keeps a list for each of several prompts. None without."""
    for name in ("messages", "prompt", "prompts"):
        found = get_array(inputs, name)
        if found and isinstance(found[0], list) and not _is_pair(found[0]):
            found = found[0]
        if found:
            return found
    return None


def _is_request(inputs: JsonObject) -> bool:
    """Whether inputs without messages are still those of an API, and not of some function."""
    given = inputs.get("input")
    if isinstance(given, list):
        return bool(given) and all(isinstance(entry, Mapping) for entry in given)
    return isinstance(given, str) or isinstance(inputs.get("prompt"), str)


def _answer(outputs: JsonObject) -> tuple[JsonObject, str | None]:
    """The message of a response, and why it ended."""
    for name in ("choices", "generations"):
        made = get_array(outputs, name)
        first = made[0] if made else None
        if isinstance(first, list):
            first = first[0] if first else None
        if isinstance(first, Mapping):
            text: JsonObject = {"role": "assistant", "content": get_text(first, "text")}
            message = get_object(first, "message") or text
            why = _finish(first) or _finish(get_object(first, "generation_info"))
            return message, why or _finish(get_object(_fields(message), "response_metadata"))
    for holder in (get_object(outputs, "message"), get_object(outputs, "output"), outputs):
        if "content" in holder or "kwargs" in holder or "tool_calls" in holder:
            return {**holder, "role": "assistant"}, _finish(holder)
    said = outputs.get("output")
    return ({"role": "assistant", "content": said} if isinstance(said, str) else {}), None


def _finish(obj: JsonObject) -> str | None:
    """Why a response ended; a streamed one may keep its last chunk there."""
    inner = get_object(obj, "finish_reason")
    return get_text(inner or obj, "finish_reason", "stop_reason")


def _lifted(chat: list[JsonObject]) -> tuple[list[JsonObject], Json]:
    """Messages, and the system prompt that stood before them."""
    first = chat[0] if chat else {}
    return (chat[1:], first.get("content")) if first.get("role") == "system" else (chat, None)


def _fields(message: JsonObject) -> JsonObject:
    """What a message says, without the wrapping of its serialised form."""
    return get_object(message, "kwargs") or get_object(message, "data") or message


def _is_pair(value: Json) -> bool:
    return isinstance(value, list) and len(value) == 2 and value[0] in (*_ROLES, *_ROLES.values())


def chat_message(message: Json, pointer: str) -> JsonObject:
    """A message in the chat form; what is none of LangChain's stays as it is.

    Raises `DecodeError` where it is no message at all.
    """
    if isinstance(message, str):
        return {"role": "user", "content": message}
    if isinstance(message, list) and _is_pair(message):
        return {"role": _ROLES.get(str(message[0]), message[0]), "content": message[1]}
    if not isinstance(message, Mapping):
        raise DecodeError("expected a message, got none", pointer)
    fields = _fields(message)
    role = _role(message, fields)
    if role is None:
        return message
    content = fields.get("content")
    calls = _calls(fields, content)
    return {
        "role": role,
        "content": _blocks(content),
        "tool_call_id": fields.get("tool_call_id"),
        "name": fields.get("name") if role == "tool" else None,
        "tool_calls": calls or None,
        "cache_control": fields.get("cache_control"),
    }


def _role(message: JsonObject, fields: JsonObject) -> str | None:
    """The role of a message of LangChain, by its kind or by the name of its class."""
    if "role" in message:
        # Wrapped clients keep messages as they were sent, whatever their blocks are called.
        return get_text(message, "role") if get_array(message, "tool_calls") else None
    kind = (get_text(fields, "type") or get_text(message, "type") or "").removesuffix(
        "MessageChunk"
    )
    path = [name for name in get_array(message, "id") if isinstance(name, str)]
    named = _CLASSES.get(path[-1].removesuffix("Chunk")) if path else None
    kind = named or ("ai" if kind == "AI" else kind)
    return _ROLES.get(kind) or get_text(fields, "role")


def _calls(fields: JsonObject, content: Json) -> list[Json]:
    """The calls of a message that its content does not hold as blocks already."""
    shown = {
        get_text(block, "id")
        for block in (content if isinstance(content, list) else ())
        if isinstance(block, Mapping) and block.get("type") in _CALLS
    }
    raw = get_array(get_object(fields, "additional_kwargs"), "tool_calls")
    made = get_array(fields, "tool_calls") or raw
    return [_call(c) for c in _objects(made) if get_text(c, "id") not in shown]


def _call(call: JsonObject) -> JsonObject:
    if "function" in call:
        return call
    function: Json = {"name": get_text(call, "name"), "arguments": call.get("args")}
    return {"id": get_text(call, "id"), "function": function}


def _blocks(content: Json) -> Json:
    """Content with LangChain's own form of calls as a provider knows it."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "tool_use", "id": b.get("id"), "name": b.get("name"), "input": b.get("args")}
        if isinstance(b, Mapping) and b.get("type") == "tool_call"
        else b
        for b in content
    ]


def _objects(values: Iterable[Json]) -> list[JsonObject]:
    return [as_object(v) for v in values if isinstance(v, Mapping)]
