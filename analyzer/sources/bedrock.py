"""Bodies of Amazon Bedrock's Converse API as Anthropic's content blocks and disjoint counts.

Source: Amazon Bedrock user guide, prompt caching and Converse, read 2026-11. `inputTokens` leaves
the cache out; a `cachePoint` block marks everything before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from analyzer.errors import DecodeError
from analyzer.model import Usage
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_object,
    get_array,
    get_count,
    get_object,
    get_text,
    parse,
)

_decoder = json.JSONDecoder()
_READ = ("cacheReadInputTokens", "cacheReadInputTokenCount")
_WRITTEN = ("cacheWriteInputTokens", "cacheWriteInputTokenCount")


def is_bedrock(request: JsonObject, response: JsonObject) -> bool:
    """Whether bodies are of the Converse form."""
    if "inferenceConfig" in request or "toolConfig" in request:
        return True
    return "inputTokens" in get_object(response, "usage")


def bedrock_usage(obj: JsonObject, pointer: str = "$.usage") -> Usage:
    """Read a usage object. Raises `DecodeError` where a count is not a count."""
    written = _either(obj, _WRITTEN, pointer)
    split = {"5m": 0, "1h": 0}
    for i, entry in enumerate(get_array(obj, "cacheDetails")):
        ttl = get_text(entry, "ttl") if isinstance(entry, Mapping) else None
        if isinstance(entry, Mapping) and ttl in split:
            split[ttl] += get_count(entry, "inputTokens", f"{pointer}.cacheDetails[{i}]") or 0
    known = sum(split.values()) == written
    return Usage(
        input=get_count(obj, "inputTokens", pointer),
        cache_read=_either(obj, _READ, pointer),
        cache_write=written,
        cache_write_5m=split["5m"] if known else None,
        cache_write_1h=split["1h"] if known else None,
        output=get_count(obj, "outputTokens", pointer),
    )


def bedrock_stream(text: str) -> JsonObject:
    """A streamed response put together; its events are JSON between binary frames.

    Raises `DecodeError` where it holds no event at all.
    """
    if text.lstrip().startswith("{"):
        return as_object(parse(text.encode("utf-8", "surrogatepass")), "$.response")
    blocks: list[JsonObject] = []
    whole: dict[str, Json] = {}
    for event in _events(text):
        if get_object(event, "start"):
            blocks.append(get_object(event, "start"))
        elif get_object(event, "delta"):
            _extend(blocks, get_object(event, "delta"))
        whole.update({k: v for k, v in event.items() if k in ("stopReason", "usage")})
    if not whole:
        raise DecodeError("expected the events of a stream, got none", "$.response")
    message: Json = {"role": "assistant", "content": [_finished(b) for b in blocks]}
    return {**whole, "output": {"message": message}}


def _extend(blocks: list[JsonObject], delta: JsonObject) -> None:
    """Add a piece to the last block, or begin one: blocks of text have no start of their own."""
    piece, call = get_text(delta, "text"), get_object(delta, "toolUse")
    last = blocks[-1] if blocks else {}
    if piece is not None:
        if "text" in last:
            blocks.pop()
        blocks.append({"text": (get_text(last, "text") or "") + piece})
    elif call and "toolUse" in last:
        use = get_object(last, "toolUse")
        joined = (get_text(use, "input") or "") + (get_text(call, "input") or "")
        blocks[-1] = {"toolUse": {**use, "input": joined}}


def _finished(block: JsonObject) -> JsonObject:
    """A block whose arguments came as pieces of JSON, with them parsed where they are whole."""
    use = get_object(block, "toolUse")
    try:
        given = parse((get_text(use, "input") or "{}").encode("utf-8", "surrogatepass"))
    except DecodeError:
        return block
    return {"toolUse": {**use, "input": given}} if use else block


def _events(text: str) -> Iterator[JsonObject]:
    at = text.find('{"')
    while at >= 0:
        try:
            value, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(value, dict):
                yield value
        at = text.find('{"', end)


def bedrock_message(message: JsonObject) -> JsonObject:
    """A message with its blocks in Anthropic's form, cache points as marks."""
    content: Json = _marked([_block(b) for b in get_array(message, "content")])
    return {"role": get_text(message, "role") or "user", "content": content}


def bedrock_system(blocks: Sequence[Json]) -> list[Json]:
    """The system prompt's blocks, cache points as marks."""
    return _marked([_block(b) for b in blocks])


def bedrock_tools(config: JsonObject) -> list[Json]:
    """The tools' definitions, cache points as marks."""
    return _marked(
        [
            get_object(t, "toolSpec") or t if isinstance(t, Mapping) else t
            for t in get_array(config, "tools")
        ]
    )


def _block(block: Json) -> Json:
    if not isinstance(block, Mapping):
        return block
    if isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    use, result = get_object(block, "toolUse"), get_object(block, "toolResult")
    if use:
        return {
            "type": "tool_use",
            "id": use.get("toolUseId"),
            "name": use.get("name"),
            "input": use.get("input"),
        }
    if result:
        return {
            "type": "tool_result",
            "tool_use_id": result.get("toolUseId"),
            "content": [_block(b) for b in get_array(result, "content")],
            "is_error": result.get("status") == "error",
        }
    thought = get_object(get_object(block, "reasoningContent"), "reasoningText")
    if thought:
        return {
            "type": "thinking",
            "thinking": thought.get("text"),
            "signature": thought.get("signature"),
        }
    for name in ("image", "document"):
        if name in block:
            return {"type": name, name: block[name]}
    return block


def _marked(blocks: list[Json]) -> list[Json]:
    """Blocks without their cache points; the block before each carries its mark."""
    out: list[Json] = []
    for block in blocks:
        point = block.get("cachePoint") if isinstance(block, Mapping) else None
        if not isinstance(point, Mapping):
            out.append(block)
        elif out and isinstance(out[-1], Mapping):
            mark: Json = {"type": "ephemeral", "ttl": get_text(point, "ttl") or "5m"}
            out[-1] = {**out[-1], "cache_control": mark}
    return out


def _either(obj: JsonObject, names: tuple[str, ...], pointer: str) -> int | None:
    for name in names:
        count = get_count(obj, name, pointer)
        if count is not None:
            return count
    return None
