"""A streamed response (server-sent events) put together into the message it carried."""

from __future__ import annotations

from typing import Any

from analyzer.errors import DecodeError
from analyzer.sources.decode import JsonObject, as_object, get_object, parse
from analyzer.sources.wrappers import Body, events_of


def message_of(body: Body) -> JsonObject:
    """The message in a body: JSON, an event stream or its events. Raises `DecodeError`."""
    if isinstance(body, str) and body.lstrip().startswith("{"):
        return as_object(parse(body.encode("utf-8", "surrogatepass")), "$.response")
    message: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    for event in events_of(body) if isinstance(body, str) else body:
        _apply(event, message, blocks)
    if not message:
        raise DecodeError("expected a message or an event stream, got other text", "$.response")
    return {**message, "content": blocks}


def _apply(event: JsonObject, message: dict[str, Any], blocks: list[dict[str, Any]]) -> None:
    match event.get("type"):
        case "message_start":
            message.update(get_object(event, "message"))
        case "content_block_start":
            blocks.append(dict(get_object(event, "content_block")))
        case "content_block_delta" if blocks:
            _extend(blocks[-1], get_object(event, "delta"))
        case "message_delta":
            message.update({k: v for k, v in get_object(event, "delta").items() if v is not None})
            if get_object(event, "context_management"):
                message["context_management"] = dict(get_object(event, "context_management"))
            # The closing counts replace the opening ones; they are totals, not additions.
            message["usage"] = _closed(message.get("usage") or {}, get_object(event, "usage"))
        case "error":
            message["error"] = dict(get_object(event, "error"))


def _closed(opened: JsonObject, closing: JsonObject) -> JsonObject:
    """Usage at the end of a stream: of the opening counts what the closing ones do not replace.

    The split of the writes belongs to the flat count that it came with.
    """
    flat, split = "cache_creation_input_tokens", "cache_creation"
    stale = flat in closing and split not in closing and closing[flat] != opened.get(flat)
    return {**{k: v for k, v in opened.items() if not (stale and k == split)}, **closing}


def _extend(block: dict[str, Any], delta: JsonObject) -> None:
    for field in ("text", "thinking", "signature"):
        piece = delta.get(field)
        if isinstance(piece, str):
            block[field] = str(block.get(field) or "") + piece
    piece = delta.get("partial_json")
    if isinstance(piece, str):
        block["partial"] = str(block.get("partial") or "") + piece
        try:
            block["input"] = parse(str(block["partial"]).encode())
        except DecodeError:
            return
        block.pop("partial")
