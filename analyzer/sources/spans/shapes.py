"""The shapes of `input` and `output`: which part of them are tools, system prompt and messages.

Nothing here fails: what cannot be understood is kept as text, and `flags` says what was odd.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analyzer.sources.blocks import Marked
from analyzer.sources.decode import Json, JsonObject, dump, get_array, get_object, get_text
from analyzer.sources.spans.blocks import Calls, decoded
from analyzer.sources.spans.memory import Memory
from analyzer.sources.spans.messages import canonical, is_message, is_tool_definition
from analyzer.sources.spans.tools import first_set, read_system, read_tools

MEDIA = "@@@langfuseMedia:"
_MASKS = (
    "<fully masked due to failed mask function>",
    "redacted-by-litellm",
    "<secret>",
    "[REDACTED]",
    "__REDACTED__",
)
_CUTS = (
    "[TRUNCATED: Field exceeded size limit]",
    "<truncated due to size exceeding limit>",
    "...[truncated",
    "…[truncated",
)
_HISTORY_KEYS = (
    "messages",
    "contents",
    "input",
    "prompt",
    "history",
    "input_messages",
    "chat_history",
    "all_messages_events",
    "kwargs",
)
_OUTPUT_KEYS = ("message", "content", "output", "completion", "text", "messages", "generations")
_TEXT_KEYS = frozenset({"content", "completion", "text"})
_MAX_NESTING = 4


@dataclass(frozen=True, slots=True)
class Request:
    """What one observation shows of a request and its response."""

    tools: tuple[Marked, ...] = ()
    system: tuple[Marked, ...] = ()
    messages: tuple[Marked, ...] = ()
    response: tuple[Marked, ...] = ()
    known: bool = False
    """Whether the messages could be read at all."""
    delta: bool = False
    """The messages are only what is new since the request before."""
    plain: bool = False
    """The input was a bare text, which some senders use for a delta too."""
    flags: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    stop_reason: str | None = None

    @property
    def whole(self) -> bool:
        """Whether this is the prompt as it was sent."""
        return self.known and not self.delta

    def parts(self) -> tuple[Marked, ...]:
        """Tools, system, messages: the order in which the provider renders them."""
        return (*self.tools, *self.system, *self.messages)


@dataclass(slots=True)
class _Split:
    """A request taken apart, before its messages are translated."""

    messages: Sequence[Json] | None = None
    tools: Json = None
    system: Json = None
    settings: JsonObject | None = None
    delta: bool = False


def read_request(
    given: Json,
    output: Json,
    metadata: JsonObject,
    *,
    parsed: bool = False,
    tool_definitions: Json = None,
    memory: Memory | None = None,
) -> Request:
    """Read the input and output of one observation.

    `parsed` says that the server had decoded the values, so that a JSON text in them was the
    sender's own. `tool_definitions` is the exports' column of that name. `memory` is shared by the
    requests of a reading. Raises `RecursionError` for content nested absurdly deep.
    """
    memory = memory or Memory()
    flags: set[str] = set()
    value = _decode(given, parsed, flags, "input")
    _note_metadata(metadata, flags)
    split = _Split()
    if value is not None:
        split = _split(value, given)
    definitions = [m for m in split.messages or () if is_tool_definition(m)]
    messages = [m for m in split.messages or () if not is_tool_definition(m)]
    hidden = None if split.tools or definitions else metadata
    tools = memory.section(
        "tools",
        (split.tools, definitions, hidden, tool_definitions),
        lambda: read_tools(split.tools, definitions, metadata, tool_definitions),
    )
    system = memory.section("system", (split.system,), lambda: read_system(split.system))
    if split.delta:
        flags.add("delta_only")
    calls = Calls()
    parts = tuple(m for message in messages for m in memory.message(message, calls, None))
    answer = _decode(output, parsed, flags, "output")
    answers = [] if answer is None else _answers(answer, output)
    response = tuple(m for a in answers for m in memory.message(a, calls, "assistant"))
    return Request(
        tools=tools,
        system=system,
        messages=parts,
        response=response,
        known=split.messages is not None,
        delta=split.delta,
        plain=isinstance(value, str),
        flags=tuple(sorted(flags)),
        settings=_settings(split.settings or {}),
        stop_reason=_stop_reason(answer) or get_text(metadata, "stop_reason"),
    )


SETTINGS = frozenset(
    {
        "disable_parallel_tool_use",
        "effort",
        "output_config",
        "parallel_tool_calls",
        "reasoning",
        "reasoning_effort",
        "response_format",
        "thinking",
        "tool_choice",
        "verbosity",
    }
)
"""Request parameters that providers put into the cache key."""


def _settings(obj: JsonObject) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted((k, v if isinstance(v, str) else dump(v)) for k, v in obj.items() if k in SETTINGS)
    )


# -- decoding ---------------------------------------------------------------------------------


def _decode(value: Json, parsed: bool, flags: set[str], side: str) -> Json:
    """A value freed of JSON texts; None where nothing is left of it."""
    if value is None or value == "":
        flags.add(f"no_{side}")
        return None
    text = value if isinstance(value, str) else dump(value)
    _note_markers(text, flags)
    if not isinstance(value, str):
        return value
    if value.strip() in _MASKS:
        return None
    result, rounds = decoded(value)
    if rounds > (0 if parsed else 1) and not isinstance(result, str):
        flags.add("double_encoded")
    if side == "input" and isinstance(result, str) and result.lstrip()[:2] in ("[{", '{"', "[["):
        flags.add("unparseable")
        return None
    return result


def _note_markers(text: str, flags: set[str]) -> None:
    if MEDIA in text:
        flags.add("media")
    if any(mark in text for mark in _MASKS):
        flags.add("masked")
    if any(mark in text for mark in _CUTS):
        flags.add("truncated")


def _note_metadata(metadata: JsonObject, flags: set[str]) -> None:
    for key in ("input_meta", "output_meta"):
        if get_object(metadata, key).get("truncated"):
            flags.add("truncated")


# -- requests ---------------------------------------------------------------------------------


def _split(value: Json, original: Json, depth: int = 0) -> _Split:
    if isinstance(value, Mapping):
        return _split_object(value, original, depth)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _split_list(value)
    text = value if isinstance(value, str) else dump(value)
    return _Split(messages=[{"role": "user", "content": text}])


def _split_list(value: Sequence[Json]) -> _Split:
    rows: list[Json] = []
    for entry in value:
        # LangGraph logs one list per batch of messages.
        if isinstance(entry, Sequence) and not isinstance(entry, str):
            rows.extend(entry)
        else:
            rows.append(entry)
    if rows and all(_is_tool_output(row) for row in rows):
        return _Split(messages=[_hook_message(rows)], delta=True)
    return _Split(messages=rows)


def _is_tool_output(row: Json) -> bool:
    """The Codex plugin's delta: what the tools said since the last request."""
    return (
        isinstance(row, Mapping)
        and "output" in row
        and "name" in row
        and "role" not in row
        and "type" not in row
    )


def _hook_message(rows: Iterable[Json]) -> JsonObject:
    results: list[Json] = [
        {**row, "tool_name": row.get("name")} for row in rows if isinstance(row, Mapping)
    ]
    return {"role": "tool", "tool_results": results}


def _split_object(value: JsonObject, original: Json, depth: int) -> _Split:
    if is_message(value):
        return _Split(messages=[value], delta=True)
    config = {**get_object(value, "config"), **get_object(value, "generationConfig")}
    split = _Split(
        tools=first_set(value, "tools", "functions")
        or get_object(value, "toolConfig").get("tools"),
        system=first_set(value, "system", "system_instruction", "systemInstruction"),
        settings={**config, **value},
        delta=bool(value.get("previous_response_id")),
    )
    split.tools = split.tools or config.get("tools")
    split.system = split.system or first_set(config, "system_instruction", "systemInstruction")
    found = next((key for key in _HISTORY_KEYS if value.get(key) is not None), None)
    if found is None:
        if split.tools is None and split.system is None:
            text = original if isinstance(original, str) else dump(value)
            split.messages = [{"role": "user", "content": text}]
        return split
    inner, _ = decoded(value[found])
    if isinstance(inner, Mapping) and not is_message(inner) and depth < _MAX_NESTING:
        deeper = _split_object(inner, value[found], depth + 1)
        split.messages, split.delta = deeper.messages, split.delta or deeper.delta
        split.tools, split.system = split.tools or deeper.tools, split.system or deeper.system
    elif isinstance(inner, Mapping):
        split.messages = [inner]
    else:
        split.messages = _split(inner, value[found]).messages
    instructions = get_text(value, "instructions")
    if instructions and split.messages is not None:
        # The Python wrapper logs them as a leading system message; one form for both.
        split.messages = [{"role": "system", "content": instructions}, *split.messages]
    return split


# -- messages ---------------------------------------------------------------------------------


def _answers(value: Json, original: Json, depth: int = 0) -> list[Json]:
    """The assistant messages in an output."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _listed_answers(value, depth)
    if not isinstance(value, Mapping):
        return [{"role": "assistant", "content": value if isinstance(value, str) else dump(value)}]
    options = get_array(value, "choices") or get_array(value, "candidates")
    if options and depth < _MAX_NESTING:
        return _answers(options[0], options[0], depth + 1)
    if is_message(value):
        return [value]
    found = _inner_answers(value, depth)
    if found:
        return found
    if value.get("tool_calls") or value.get("parts"):
        return [{"role": "assistant", **value}]
    text = original if isinstance(original, str) else dump(value)
    return [{"role": "assistant", "content": text}]


def _inner_answers(value: JsonObject, depth: int) -> list[Json]:
    """The answer inside an object that is no message itself."""
    for key in _OUTPUT_KEYS:
        inner = value.get(key)
        if key == "content" and isinstance(inner, Sequence) and not isinstance(inner, str):
            return [{"role": "assistant", "content": inner}]
        if isinstance(inner, str) and key in _TEXT_KEYS and inner:
            made: list[Json] = [{"role": "assistant", "content": inner}]
        elif isinstance(inner, Mapping | Sequence) and inner and depth < _MAX_NESTING:
            made = _answers(inner, inner, depth + 1)
        else:
            continue
        calls = value.get("tool_calls") or value.get("toolCalls")
        if calls and len(made) == 1 and isinstance(made[0], Mapping):
            return [{**made[0], "tool_calls": calls}]
        return made
    return []


def _listed_answers(value: Sequence[Json], depth: int) -> list[Json]:
    rows = list(value)
    if rows and depth < _MAX_NESTING:
        first = rows[0]
        if isinstance(first, Sequence) and not isinstance(first, str):
            return _answers(first, first, depth + 1)
        if isinstance(first, Mapping) and not is_message(first) and "type" not in first:
            return _answers(first, first, depth + 1)
    if rows and all(isinstance(r, Mapping) and "type" in r and not is_message(r) for r in rows):
        return [{"role": "assistant", "content": rows}]
    # Some senders log the whole conversation; the response is what follows the last request.
    start = len(rows)
    while start and _is_answer(rows[start - 1]):
        start -= 1
    return rows[start:]


def _is_answer(row: Json) -> bool:
    if not isinstance(row, Mapping):
        return True
    role = canonical(row, Calls(), "assistant").get("role")
    return role == "assistant"


def _stop_reason(value: Json) -> str | None:
    """Why the model stopped, from the response itself."""
    for _ in range(_MAX_NESTING):
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            value = value[-1]
        if not isinstance(value, Mapping):
            return None
        found = get_text(value, "stop_reason", "finish_reason", "finishReason", "stopReason")
        if found:
            return found
        value = value.get("choices") or value.get("candidates") or value.get("message")
    return None
