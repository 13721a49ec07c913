"""What a span says was sent and answered, as an input and an output that `spans.shapes` reads.

Each convention has its own place and form for messages. Every reader below gives the messages of
one, or None; the first that has any is taken, for the request and for the answer on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from analyzer.sources.decode import Json, JsonObject, get_array, get_object, get_text
from analyzer.sources.otlp.span import Event
from analyzer.sources.otlp.values import Attributes, below, is_list, tree_at, unfold
from analyzer.sources.spans.blocks import decoded

DETAILS = "gen_ai.client.inference.operation.details"
_MESSAGE_EVENTS = frozenset(
    {f"gen_ai.{role}.message" for role in ("system", "user", "assistant", "tool")}
)
_CHOICE = "gen_ai.choice"
_Reader = Callable[[Attributes, Sequence[Event]], Json]


def content_of(given: Attributes, events: Sequence[Event]) -> tuple[Json, Json]:
    """Input and output of a model call; None where the span does not show them."""
    for event in events:
        if event.name == DETAILS:
            body = event.body if isinstance(event.body, Mapping) else {}
            given = {**body, **event.attributes, **given}
    sent = next((v for read in _INPUTS if (v := read(given, events)) is not None), None)
    answer = next((v for read in _OUTPUTS if (v := read(given, events)) is not None), None)
    return _whole_request(sent, given), answer


def _whole_request(sent: Json, given: Attributes) -> Json:
    """The messages with the tools and the system prompt that stand in attributes of their own."""
    value, _ = decoded(sent)
    more: dict[str, Json] = {}
    for name, beside in (("system", _system(given)), ("tools", _tools(given))):
        if beside:
            more[name] = beside
    if isinstance(value, Mapping):
        return {**more, **value}
    if is_list(value):
        return {**more, "messages": value, **_continued(given)}
    if isinstance(value, str) and more and not value.lstrip().startswith(("{", "[")):
        return {**more, "prompt": value}
    return sent


def _continued(given: Attributes) -> JsonObject:
    """A request that continues one kept by the provider shows only what it adds."""
    found = next((v for k, v in given.items() if k.endswith("previous_response_id") and v), None)
    return {"previous_response_id": found} if found else {}


def _system(given: Attributes) -> Json:
    return decoded(given.get("gen_ai.system_instructions"))[0]


def _tools(given: Attributes) -> Json:
    for name in ("gen_ai.tool.definitions", "ai.prompt.tools", "llm.invocation_parameters.tools"):
        listed, _ = decoded(given.get(name))
        if listed:
            return listed
    schemas = tree_at(given, "llm.tools")
    if isinstance(schemas, list):
        return [
            decoded(get_object(tool, "tool").get("json_schema", tool.get("json_schema")))[0]
            for tool in schemas
            if isinstance(tool, Mapping)
        ]
    functions = tree_at(given, "llm.request.functions")
    if isinstance(functions, list):
        return [
            {**function, "parameters": decoded(function.get("parameters"))[0]}
            for function in functions
            if isinstance(function, Mapping)
        ]
    parameters, _ = decoded(given.get("model_request_parameters"))
    if isinstance(parameters, Mapping):
        return parameters.get("function_tools")
    return None


# -- readers ----------------------------------------------------------------------------------


def _value(*names: str) -> _Reader:
    """The first of some attributes that holds anything."""

    def read(given: Attributes, _: Sequence[Event]) -> Json:
        return next((given[name] for name in names if given.get(name) not in (None, "")), None)

    return read


def _listed(name: str) -> _Reader:
    """Messages of OpenInference, spread over numbered names."""

    def read(given: Attributes, _: Sequence[Event]) -> Json:
        return tree_at(given, name) or None

    return read


def _numbered(name: str) -> _Reader:
    """Messages of OpenLLMetry, spread over numbered names; blocks are JSON texts there."""

    def read(given: Attributes, _: Sequence[Event]) -> Json:
        messages = tree_at(given, name)
        if not isinstance(messages, list):
            return None
        return [_with_blocks(m) if isinstance(m, Mapping) else m for m in messages]

    return read


def _with_blocks(message: JsonObject) -> JsonObject:
    """A message whose content is blocks and not the JSON text of blocks."""
    content, _ = decoded(message.get("content"), 1)
    is_blocks = isinstance(content, list) and all(isinstance(b, Mapping) for b in content)
    return {**message, "content": content} if is_blocks and content else message


def _ai_prompt(given: Attributes, _: Sequence[Event]) -> Json:
    return given.get("ai.prompt.messages") or given.get("ai.prompt")


def _ai_answer(given: Attributes, _: Sequence[Event]) -> Json:
    """The AI SDK's answer in the form in which its next request repeats it."""
    response = below(given, "ai.response.")
    blocks: list[Json] = []
    for key, kind in (("reasoning", "reasoning"), ("text", "text"), ("object", "text")):
        text = response.get(key)
        if isinstance(text, str) and text:
            blocks.append({"type": kind, "text": text})
    calls, _rounds = decoded(response.get("toolCalls"))
    if isinstance(calls, list):
        blocks.extend({"type": "tool-call", **c} for c in calls if isinstance(c, Mapping))
    return {"role": "assistant", "content": blocks} if blocks else None


def _message_events(given: Attributes, events: Sequence[Event]) -> Json:
    """Messages that are events of their own, in order."""
    rows = [_event_message(event) for event in events if event.name in _MESSAGE_EVENTS]
    rows = rows or [m for m in _logged(given) if not _is_choice(m)]
    return rows if any(map(_has_content, rows)) else None


def _choice_events(given: Attributes, events: Sequence[Event]) -> Json:
    rows = [_event_message(event) for event in events if event.name == _CHOICE]
    rows = rows or [m for m in _logged(given) if _is_choice(m)]
    return rows if any(map(_has_content, rows)) else None


def _has_content(message: JsonObject) -> bool:
    """Whether an event says what was said, and not only that something was, with content off."""
    inner = get_object(message, "message") or message
    if inner.get("content") or inner.get("parts"):
        return True
    return any(
        "arguments" in get_object(call, "function")
        for call in get_array(inner, "tool_calls")
        if isinstance(call, Mapping)
    )


def _event_message(event: Event) -> JsonObject:
    beside, body = unfold(event.attributes), event.body
    told = {
        **(beside if isinstance(beside, Mapping) else {}),
        **(body if isinstance(body, Mapping) else {}),
        "event.name": event.name,
    }
    inner, _ = decoded(told.get("message"))
    if isinstance(inner, list | str):
        inner = {"role": "assistant", "content": inner}
    if isinstance(inner, Mapping):
        return {**told, "message": {"role": "assistant", **_with_blocks(inner)}}
    return _with_blocks(told)


def _logged(given: Attributes) -> Iterable[JsonObject]:
    """Pydantic AI writes the list of events into one attribute."""
    rows, _ = decoded(given.get("events") or given.get("all_messages_events"))
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping):
            yield row


def _is_choice(message: JsonObject) -> bool:
    return get_text(message, "event.name") == _CHOICE


def _event_text(event_name: str, attribute: str) -> _Reader:
    """A text that older instrumentations put into an attribute of an event."""

    def read(_: Attributes, events: Sequence[Event]) -> Json:
        found = [e.attributes.get(attribute) for e in events if e.name == event_name]
        return next((text for text in found if text not in (None, "")), None)

    return read


def _prompts(given: Attributes, _: Sequence[Event]) -> Json:
    """Texts for completion, in OpenInference's numbered names."""
    rows = tree_at(given, "llm.prompts")
    if not isinstance(rows, list):
        return None
    texts = [get_text(get_object(r, "prompt"), "text") for r in rows if isinstance(r, Mapping)]
    return "\n".join(text for text in texts if text) or None


_INPUTS: tuple[_Reader, ...] = (
    _value("langfuse.observation.input"),
    _value("gen_ai.input.messages"),
    _listed("llm.input_messages"),
    _ai_prompt,
    _value("gcp.vertex.agent.llm_request"),
    _numbered("gen_ai.prompt"),
    _message_events,
    _value("pydantic_ai.all_messages", "request_data"),
    _event_text("gen_ai.content.prompt", "gen_ai.prompt"),
    _prompts,
    _value("gen_ai.prompt", "input.value", "traceloop.entity.input"),
)
_OUTPUTS: tuple[_Reader, ...] = (
    _value("langfuse.observation.output"),
    _value("gen_ai.output.messages"),
    _listed("llm.output_messages"),
    _ai_answer,
    _value("gcp.vertex.agent.llm_response"),
    _numbered("gen_ai.completion"),
    _choice_events,
    _value("response_data"),
    _event_text("gen_ai.content.completion", "gen_ai.completion"),
    _value("gen_ai.completion", "output.value", "traceloop.entity.output"),
)
