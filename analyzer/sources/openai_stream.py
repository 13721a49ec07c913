"""A streamed response of OpenAI's APIs (server-sent events) put together into what it carried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from analyzer.errors import DecodeError
from analyzer.sources.decode import JsonObject, as_object, get_array, get_object, get_text, parse
from analyzer.sources.wrappers import Body, events_of

_FINAL = ("response.completed", "response.incomplete", "response.failed")


def response_of(body: Body) -> JsonObject:
    """The response in a body: JSON, an event stream or its events. Raises `DecodeError`."""
    if not isinstance(body, str):
        return join_events(body)
    if body.lstrip().startswith("{"):
        return as_object(parse(body.encode("utf-8", "surrogatepass")), "$.response")
    return join_events(events_of(body))


def join_events(events: Iterable[JsonObject]) -> JsonObject:
    """Chunks of a chat completion, or events of a response, as one response.

    Raises `DecodeError` where they hold neither.
    """
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    finish: str | None = None
    for event in events:
        if get_text(event, "type") in _FINAL:
            return get_object(event, "response")
        whole.update({k: v for k, v in event.items() if k != "choices" and v is not None})
        for choice in get_array(event, "choices")[:1]:
            if isinstance(choice, dict):
                _extend(message, get_object(choice, "delta"))
                finish = get_text(choice, "finish_reason") or finish
    if not whole:
        raise DecodeError("expected a response or an event stream, got other text", "$.response")
    return {**whole, "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def _extend(message: dict[str, Any], delta: JsonObject) -> None:
    piece = get_text(delta, "content")
    if piece is not None:
        message["content"] = (message["content"] or "") + piece
    for part in get_array(delta, "tool_calls"):
        if not isinstance(part, dict):
            continue
        calls: list[dict[str, Any]] = message.setdefault("tool_calls", [])
        at = part.get("index")
        place = at if isinstance(at, int) and 0 <= at <= len(calls) else len(calls)
        if place == len(calls):
            calls.append({"type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[place], get_object(part, "function")
        call["id"] = get_text(part, "id") or call.get("id")
        call["function"]["name"] += get_text(function, "name") or ""
        call["function"]["arguments"] += get_text(function, "arguments") or ""
