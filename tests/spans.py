"""The same requests as spans of each convention, for tests of what reads spans.

Each writer takes a record of `builders.anthropic_records` (a request and its response) and gives the
attributes, and perhaps the events, that instrumentations of that convention write.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

Attributes = dict[str, Any]
Written = tuple[Attributes, list[tuple[str, Attributes]]]
Record = dict[str, Any]
TRACE = "0af7651916cd43dd8448eb211c80319c"


def value(given: Any) -> dict[str, Any]:
    """An OTLP `AnyValue`."""
    match given:
        case bool():
            return {"boolValue": given}
        case int():
            return {"intValue": str(given)}
        case float():
            return {"doubleValue": given}
        case list():
            return {"arrayValue": {"values": [value(entry) for entry in given]}}
        case dict():
            return {"kvlistValue": {"values": pairs(given)}}
        case _:
            return {} if given is None else {"stringValue": given}


def pairs(given: Attributes) -> list[dict[str, Any]]:
    """Attributes as OTLP's list."""
    return [{"key": key, "value": value(v)} for key, v in given.items()]


def nanos(at: datetime | float) -> int:
    """An instant in nanoseconds."""
    seconds = at.timestamp() if isinstance(at, datetime) else at
    return round(seconds * 1_000_000) * 1000


def span(
    number: int,
    at: datetime | float,
    given: Attributes,
    *,
    parent: int | None = None,
    name: str = "chat",
    trace: str = TRACE,
    seconds: float = 4.0,
    events: list[tuple[str, Attributes]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One OTLP/JSON span; `number` makes its id."""
    start = nanos(at)
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": "" if parent is None else f"{parent:016x}",
        "name": name,
        "kind": 3,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + int(seconds * 1e9)),
        "attributes": pairs(given),
        "events": [
            {"name": name, "timeUnixNano": str(start + i), "attributes": pairs(attributes)}
            for i, (name, attributes) in enumerate(events or [])
        ],
        "status": {},
        **more,
    }


def request(
    spans: list[dict[str, Any]], scope: str = "test", resource: Attributes | None = None
) -> dict[str, Any]:
    """An export request."""
    group = {"scope": {"name": scope, "version": "1.0"}, "spans": spans}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": pairs(resource or {"service.name": "s"})},
                "scopeSpans": [group],
            }
        ]
    }


# -- conventions ------------------------------------------------------------------------------


def _usage(record: Record) -> tuple[int, int, int, int]:
    """Whole input, read, written, output."""
    usage = record["response"]["usage"]
    read, write = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return usage["input_tokens"] + read + write, read, write, usage["output_tokens"]


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for block in message["content"]:
        match block["type"]:
            case "text":
                out.append({"type": "text", "content": block["text"]})
            case "tool_use":
                call = {"id": block["id"], "name": block["name"], "arguments": block["input"]}
                out.append({"type": "tool_call", **call})
            case "tool_result":
                result = {"id": block["tool_use_id"], "response": block["content"]}
                out.append({"type": "tool_call_response", **result})
    return out


def _definitions(record: Record) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["input_schema"],
        }
        for tool in record["request"]["tools"]
    ]


def _dump(given: Any) -> str:
    return json.dumps(given, separators=(",", ":"))


def _common(record: Record) -> Attributes:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": record["request"]["model"],
        "gen_ai.response.model": record["response"]["model"],
        "gen_ai.response.id": record["response"]["id"],
        "gen_ai.response.finish_reasons": ["tool_use"],
    }


def counts(record: Record, *, inclusive: bool = True) -> Attributes:
    """Token counts in the names of the GenAI conventions."""
    whole, read, write, output = _usage(record)
    return {
        "gen_ai.usage.input_tokens": whole if inclusive else whole - read - write,
        "gen_ai.usage.output_tokens": output,
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_creation.input_tokens": write,
    }


def genai(record: Record) -> Written:
    """The GenAI conventions, with structured attributes."""
    sent = record["request"]
    messages = [{"role": m["role"], "parts": _parts(m)} for m in sent["messages"]]
    answer = {"role": "assistant", "parts": _parts(record["response"]), "finish_reason": "tool_use"}
    return {
        **_common(record),
        **counts(record),
        "gen_ai.system_instructions": [{"type": "text", "content": sent["system"][0]["text"]}],
        "gen_ai.tool.definitions": _definitions(record),
        "gen_ai.input.messages": messages,
        "gen_ai.output.messages": [answer],
    }, []


def genai_text(record: Record) -> Written:
    """The GenAI conventions as most SDKs write them: JSON texts."""
    given, _ = genai(record)
    texts = ("system_instructions", "tool.definitions", "input.messages", "output.messages")
    return {
        k: _dump(v) if k.removeprefix("gen_ai.").startswith(texts) else v for k, v in given.items()
    }, []


def genai_details(record: Record) -> Written:
    """The GenAI conventions with the content in one event."""
    given, _ = genai(record)
    content = {k: v for k, v in given.items() if k.endswith((".messages", "instructions"))}
    rest = {k: v for k, v in given.items() if k not in content}
    return rest, [("gen_ai.client.inference.operation.details", content)]


def _chat(record: Record) -> list[dict[str, Any]]:
    """The messages as OpenAI's chat form."""
    out: list[dict[str, Any]] = [
        {"role": "system", "content": record["request"]["system"][0]["text"]}
    ]
    for message in record["request"]["messages"]:
        out.extend(_chat_messages(message))
    return out


def _chat_messages(message: dict[str, Any]) -> list[dict[str, Any]]:
    texts = [b["text"] for b in message["content"] if b["type"] == "text"]
    calls = [
        {"id": b["id"], "function": {"name": b["name"], "arguments": _dump(b["input"])}}
        for b in message["content"]
        if b["type"] == "tool_use"
    ]
    out: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": b["tool_use_id"], "content": b["content"]}
        for b in message["content"]
        if b["type"] == "tool_result"
    ]
    if texts or calls:
        entry: dict[str, Any] = {"role": message["role"], "content": "".join(texts)}
        out.append({**entry, "tool_calls": calls} if calls else entry)
    return out


def genai_events(record: Record) -> Written:
    """The GenAI conventions until 1.36: one event a message."""
    events = []
    for message in _chat(record):
        name = f"gen_ai.{message['role']}.message"
        body = {k: v for k, v in message.items() if k != "tool_call_id"}
        if "tool_call_id" in message:
            body["id"] = message["tool_call_id"]
        events.append((name, body))
    (answer,) = _chat_messages(record["response"])
    events.append(("gen_ai.choice", {"index": 0, "finish_reason": "tool_use", "message": answer}))
    return {**_common(record), **counts(record)}, events


def traceloop(record: Record) -> Written:
    """OpenLLMetry: numbered names."""
    whole, read, write, output = _usage(record)
    given: Attributes = {
        "gen_ai.system": "Anthropic",
        "llm.request.type": "chat",
        "gen_ai.request.model": record["request"]["model"],
        "gen_ai.response.model": record["response"]["model"],
        "gen_ai.usage.prompt_tokens": whole,
        "gen_ai.usage.completion_tokens": output,
        "llm.usage.total_tokens": whole + output,
        "gen_ai.usage.cache_read_input_tokens": read,
        "gen_ai.usage.cache_creation_input_tokens": write,
    }
    for i, tool in enumerate(_definitions(record)):
        for key in ("name", "description"):
            given[f"llm.request.functions.{i}.{key}"] = tool[key]
        given[f"llm.request.functions.{i}.parameters"] = _dump(tool["parameters"])
    answers = _chat_messages(record["response"])
    for name, messages in (("gen_ai.prompt", _chat(record)), ("gen_ai.completion", answers)):
        for i, message in enumerate(messages):
            for key in ("role", "content", "tool_call_id"):
                if key in message:
                    given[f"{name}.{i}.{key}"] = message[key]
            for j, call in enumerate(message.get("tool_calls", ())):
                place = f"{name}.{i}.tool_calls.{j}"
                given[f"{place}.id"] = call["id"]
                given[f"{place}.name"] = call["function"]["name"]
                given[f"{place}.arguments"] = call["function"]["arguments"]
    return given, []


def openinference(record: Record) -> Written:
    """OpenInference: numbered names, in deeper trees."""
    whole, read, write, output = _usage(record)
    given: Attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": record["response"]["model"],
        "llm.provider": "anthropic",
        "llm.token_count.prompt": whole,
        "llm.token_count.completion": output,
        "llm.token_count.total": whole + output,
        "llm.token_count.prompt_details.cache_read": read,
        "llm.token_count.prompt_details.cache_write": write,
        "llm.finish_reason": "tool_use",
        "input.value": _dump(record["request"]),
        "input.mime_type": "application/json",
    }
    for i, tool in enumerate(record["request"]["tools"]):
        given[f"llm.tools.{i}.tool.json_schema"] = _dump(tool)
    answers = _chat_messages(record["response"])
    for name, messages in (
        ("llm.input_messages", _chat(record)),
        ("llm.output_messages", answers),
    ):
        for i, message in enumerate(messages):
            place = f"{name}.{i}.message"
            given[f"{place}.role"] = message["role"]
            if "tool_call_id" in message:
                given[f"{place}.tool_call_id"] = message["tool_call_id"]
            if message["role"] == "user":
                given[f"{place}.contents.0.message_content.type"] = "text"
                given[f"{place}.contents.0.message_content.text"] = message["content"]
            else:
                given[f"{place}.content"] = message["content"]
            for j, call in enumerate(message.get("tool_calls", ())):
                inner = f"{place}.tool_calls.{j}.tool_call"
                given[f"{inner}.id"] = call["id"]
                given[f"{inner}.function.name"] = call["function"]["name"]
                given[f"{inner}.function.arguments"] = call["function"]["arguments"]
    return given, []


def ai_sdk(record: Record) -> Written:
    """The AI SDK from 5 on: JSON texts of its own messages."""
    whole, read, write, output = _usage(record)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": record["request"]["system"][0]["text"]}
    ]
    calls = []
    for message in record["request"]["messages"]:
        blocks: list[dict[str, Any]] = []
        for block in message["content"]:
            match block["type"]:
                case "text":
                    blocks.append({"type": "text", "text": block["text"]})
                case "tool_use":
                    call = {"toolCallId": block["id"], "toolName": block["name"]}
                    blocks.append({"type": "tool-call", **call, "input": block["input"]})
                case "tool_result":
                    result = {"toolCallId": block["tool_use_id"], "toolName": "read"}
                    told = {"type": "text", "value": block["content"]}
                    blocks.append({"type": "tool-result", **result, "output": told})
        role = "tool" if blocks[0]["type"] == "tool-result" else message["role"]
        messages.append({"role": role, "content": blocks})
    for block in record["response"]["content"][1:]:
        call = {"toolCallId": block["id"], "toolName": block["name"]}
        calls.append({**call, "input": _dump(block["input"])})
    return {
        "operation.name": "ai.generateText.doGenerate",
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.id": record["request"]["model"],
        "ai.model.provider": "anthropic.messages",
        "ai.response.model": record["response"]["model"],
        "ai.response.id": record["response"]["id"],
        "ai.response.finishReason": "tool-calls",
        "ai.response.text": record["response"]["content"][0]["text"],
        "ai.response.toolCalls": _dump(calls),
        "ai.prompt.messages": _dump(messages),
        "ai.prompt.tools": [_dump(tool) for tool in _definitions(record)],
        "ai.usage.inputTokens": whole,
        "ai.usage.outputTokens": output,
        "ai.usage.totalTokens": whole + output,
        "ai.usage.cachedInputTokens": read,
        "ai.usage.inputTokenDetails.noCacheTokens": whole - read - write,
        "ai.usage.inputTokenDetails.cacheReadTokens": read,
        "ai.usage.inputTokenDetails.cacheWriteTokens": write,
        "gen_ai.usage.input_tokens": whole,
        "gen_ai.usage.output_tokens": output,
    }, []


def langfuse(record: Record) -> Written:
    """The attributes that Langfuse's own SDKs write."""
    whole, read, write, output = _usage(record)
    usage = {"input": whole - read - write, "output": output}
    usage |= {"cache_read_input_tokens": read, "cache_creation_input_tokens": write}
    return {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": record["response"]["model"],
        "langfuse.observation.input": _dump(record["request"]),
        "langfuse.observation.output": _dump(record["response"]),
        "langfuse.observation.usage_details": _dump(usage),
        "langfuse.observation.metadata.tool": "none",
    }, []


CONVENTIONS: dict[str, Callable[[Record], Written]] = {
    writer.__name__: writer
    for writer in (
        genai,
        genai_text,
        genai_details,
        genai_events,
        traceloop,
        openinference,
        ai_sdk,
        langfuse,
    )
}


def run(
    records: list[Record], writer: Callable[[Record], Written], session: str = "run"
) -> list[dict[str, Any]]:
    """A run as an agent's span with one span a request in it."""
    start = datetime.fromisoformat(records[0]["ts"]).timestamp() - 1
    root = {"gen_ai.operation.name": "invoke_agent", "session.id": session}
    spans = [span(1, start, root, name="invoke_agent coder", seconds=3600)]
    for number, record in enumerate(records):
        given, events = writer(record)
        at = datetime.fromisoformat(record["ts"])
        spans.append(span(number + 2, at, given, parent=1, events=events))
    return spans
