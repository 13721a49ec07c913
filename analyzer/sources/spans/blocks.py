"""Content blocks of the dialects that senders of spans write, in the Anthropic form.

Owns the ids of tool calls too: some dialects have none, and pair a result with its call by order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from analyzer.errors import DecodeError
from analyzer.sources.decode import Json, JsonObject, dump, get_array, get_object, get_text, parse

MAX_DECODES = 3
_MARK_HOLDERS = ("providerOptions", "providerMetadata", "experimental_providerMetadata")
_THINKING = frozenset({"thinking", "reasoning", "redacted_thinking"})
_CALLS = frozenset({"tool-call", "tool_call", "tool_use", "server_tool_use", "mcp_tool_use"})
RESULTS = frozenset({"tool-result", "tool_call_response", "tool_result", "mcp_tool_result"})
"""Types of a content block that holds the result of a tool."""
_MEDIA_KEYS = ("inline_data", "inlineData", "file_data", "fileData", "blob", "image", "video")


class Calls:
    """The tool calls of one prompt: their names, and ids where the dialect has none."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.by_order = False
        """Whether an id had to be made from the order of the calls since `mark`."""
        self._made: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._last: dict[str, str] = {}
        self._journal: list[tuple[str, str]] = []

    def mark(self) -> None:
        """Forget which calls were noted so far, for `noted`."""
        self._journal = []
        self.by_order = False

    def noted(self) -> tuple[tuple[str, str], ...]:
        """Calls since `mark`, as (name, id)."""
        return tuple(self._journal)

    def called(self, name: str, call_id: str | None) -> str:
        """Note a call; gives it an id by its number among the calls of this tool if it has none."""
        if not call_id:
            self._made[name] += 1
            call_id = f"{name}#{self._made[name]}"
            self.by_order = True
        self.names[call_id] = name
        self._last[name] = call_id
        self._journal.append((name, call_id))
        return call_id

    def answered(self, name: str | None, call_id: str | None) -> str:
        """The id of the call that a result belongs to."""
        if call_id:
            if name:
                self.names.setdefault(call_id, name)
            return call_id
        if not name:
            return ""
        self.by_order = True
        self._answered[name] += 1
        guess = f"{name}#{self._answered[name]}"
        return guess if guess in self.names else self._last.get(name, guess)

    def knows(self, name: str) -> bool:
        """Whether a tool of this name was called."""
        return name in self._last


def decoded(value: Json, rounds: int = MAX_DECODES) -> tuple[Json, int]:
    """A value freed of the JSON texts around it, and how many there were."""
    taken = 0
    while taken < rounds and isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            value = parse(value.encode("utf-8", "surrogatepass"))
        except DecodeError:
            break
        taken += 1
    return value, taken


def blocks(parts: Iterable[Json], calls: Calls) -> Iterable[Json]:
    """Content blocks of any dialect, in the Anthropic form; cache points become marks."""
    held: JsonObject | str | None = None
    for part in parts:
        if isinstance(part, Mapping) and "cachePoint" in part:
            if held is not None:
                held = _marked(_as_block(held), get_object(part, "cachePoint"))
            continue
        if held is not None:
            yield held
        held = _block(part, calls)
    if held is not None:
        yield held


def _as_block(block: JsonObject | str) -> JsonObject:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def _block(part: Json, calls: Calls) -> JsonObject | str:
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else dump(part)
    inner = part.get("message_content")
    if isinstance(inner, Mapping):
        part = inner
    block = _typed_block(part, calls) or _keyed_block(part, calls)
    if block is None:
        block = {k: v for k, v in part.items() if k not in _MARK_HOLDERS}
    return with_mark(block, part)


def _typed_block(part: JsonObject, calls: Calls) -> JsonObject | None:
    """Blocks that say what they are in `type`: Anthropic, OpenTelemetry, the AI SDK."""
    kind = get_text(part, "type")
    if kind == "text":
        text = part.get("text", part.get("content"))
        citations = part.get("citations")
        return {"type": "text", "text": text, **({"citations": citations} if citations else {})}
    if kind in _THINKING:
        return _thinking(part)
    if kind in _CALLS:
        name = get_text(part, "name", "toolName") or "?"
        call_id = calls.called(name, get_text(part, "id", "toolCallId"))
        arguments = first_of(part, "input", "arguments", "args")
        return {
            "type": "tool_use",
            "id": call_id,
            "name": name,
            "input": argument_object(arguments),
        }
    if kind in RESULTS:
        tool = get_text(part, "name", "toolName")
        given = get_text(part, "tool_use_id", "toolCallId", "id")
        content = first_of(part, "content", "output", "response", "result")
        error = bool(part.get("is_error") or part.get("isError"))
        return tool_result(calls.answered(tool, given), _typed_output(content), error=error)
    if kind in ("blob", "uri"):
        return {**part, "type": "image" if part.get("modality", "image") == "image" else "file"}
    return None


def _keyed_block(part: JsonObject, calls: Calls) -> JsonObject | None:
    """Blocks that say what they are by their key: Gemini and Bedrock."""
    call = part.get("function_call") or part.get("functionCall") or part.get("toolUse")
    if isinstance(call, Mapping):
        name = get_text(call, "name") or "?"
        call_id = calls.called(name, get_text(call, "id", "toolUseId"))
        arguments = first_of(call, "args", "input")
        return {
            "type": "tool_use",
            "id": call_id,
            "name": name,
            "input": argument_object(arguments),
        }
    answer = part.get("function_response") or part.get("functionResponse")
    if isinstance(answer, Mapping):
        tool = get_text(answer, "name")
        call_id = calls.answered(tool, get_text(answer, "id"))
        return tool_result(call_id, answer.get("response"))
    result = part.get("toolResult")
    if isinstance(result, Mapping):
        call_id = calls.answered(None, get_text(result, "toolUseId"))
        error = result.get("status") == "error"
        return tool_result(call_id, list(blocks(get_array(result, "content"), calls)), error=error)
    reasoning = get_object(get_object(part, "reasoningContent"), "reasoningText")
    if reasoning:
        return _thinking(reasoning)
    if isinstance(part.get("text"), str):
        return _thinking(part) if part.get("thought") else {"type": "text", "text": part["text"]}
    if any(key in part for key in _MEDIA_KEYS) and "type" not in part:
        return {"type": "image", **part}
    return None


def _thinking(part: JsonObject) -> JsonObject:
    text = first_of(part, "thinking", "reasoning", "text", "content", "data")
    return {"type": "thinking", "thinking": text, "signature": part.get("signature")}


def _typed_output(content: Json) -> Json:
    """The AI SDK wraps a tool's output as {type, value}."""
    if isinstance(content, Mapping) and set(content) == {"type", "value"}:
        return content["value"]
    return content


def argument_object(arguments: Json) -> Json:
    """Arguments as an object: the same call is written as text in one place and not in another."""
    value, _ = decoded(arguments, 1)
    return value


def first_of(obj: JsonObject, *keys: str) -> Json:
    """The first of some keys whose value is not null."""
    return next((obj[key] for key in keys if obj.get(key) is not None), None)


def tool_result(call_id: str, content: Json, *, error: bool = False) -> JsonObject:
    """A tool result as a content block."""
    block: dict[str, Json] = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if error:
        block["is_error"] = True
    return block


def with_mark(block: JsonObject, origin: JsonObject) -> JsonObject:
    """Carry a cache mark over, from wherever the dialect puts it."""
    if isinstance(origin.get("cache_control"), Mapping):
        return _marked(block, get_object(origin, "cache_control"))
    for holder in _MARK_HOLDERS:
        for options in get_object(origin, holder).values():
            if isinstance(options, Mapping):
                mark = options.get("cacheControl") or options.get("cache_control")
                mark = mark or options.get("cachePoint")
                if isinstance(mark, Mapping):
                    return _marked(block, mark)
    return block


def _marked(block: JsonObject, mark: JsonObject) -> JsonObject:
    """The block (or the last block of a message) with a cache mark."""
    asked: JsonObject = {"type": "ephemeral", "ttl": mark.get("ttl")}
    content = block.get("content")
    if "role" in block and isinstance(content, list) and content:
        last = _as_block(content[-1]) if isinstance(content[-1], str | Mapping) else None
        if last is not None:
            return {**block, "content": [*content[:-1], {**last, "cache_control": asked}]}
    return {**block, "cache_control": asked}
