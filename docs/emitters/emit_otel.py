"""Write one OpenTelemetry span after each model call. Standard library only; copy it as it is.

Each line is one OTLP/JSON request, as the file exporter of a collector writes it. The attributes are
those of the GenAI conventions, and those by which a Langfuse server knows a generation.
"""

import json
import secrets
import time


def emit_call(path, session, request, response, began, trace, parent=None, provider=None, **more):
    """`request` and `response`: the JSON bodies; `began`: `time.time()` when the call started.

    `trace` is one id for all calls of a turn (`secrets.token_hex(16)`), `more` are attributes.
    """
    whole, read, write, output = tokens(response.get("usage") or {})
    choice = (response.get("choices") or [{}])[0]
    stopped = response.get("stop_reason") or choice.get("finish_reason")
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.conversation.id": session,
        "gen_ai.request.model": request.get("model"),
        "gen_ai.response.model": response.get("model"),
        "gen_ai.response.id": response.get("id"),
        "gen_ai.response.finish_reasons": [stopped] if stopped else None,
        "gen_ai.usage.input_tokens": whole,
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_creation.input_tokens": write,
        "gen_ai.usage.output_tokens": output,
        "langfuse.session.id": session,
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": json.dumps(request),
        "langfuse.observation.output": json.dumps(response),
        "langfuse.observation.usage_details": details(response.get("usage") or {}),
    }
    name = f"chat {request.get('model')}"
    return emit_span(path, name, attributes | more, began, trace, parent)


def emit_agent(path, session, name, began, trace, parent=None, span=None):
    """The run of an agent. Its calls have its id as `parent`: make that first, write this last."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        "gen_ai.conversation.id": session,
        "langfuse.session.id": session,
        "langfuse.observation.type": "agent",
    }
    return emit_span(path, f"invoke_agent {name}", attributes, began, trace, parent, span)


def emit_span(path, name, attributes, began, trace, parent=None, span=None):
    """Append one span that ends now, and give back its id. What is None is unknown and left out."""
    span = span or secrets.token_hex(8)
    pairs = [{"key": k, "value": value(v)} for k, v in attributes.items() if v is not None]
    written = {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent or "",
        "name": name,
        "kind": 3,
    }
    written |= {
        "startTimeUnixNano": str(round(began * 1e6) * 1000),
        "endTimeUnixNano": str(time.time_ns()),
    }
    written |= {"attributes": pairs, "status": {}}
    scoped = {"scope": {"name": "emit_otel", "version": "1"}, "spans": [written]}
    resource = {"attributes": [{"key": "service.name", "value": value("my-agent")}]}
    line = {"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return span


def value(given):
    """A value as OTLP types it; 64-bit numbers are texts there."""
    if isinstance(given, bool):
        return {"boolValue": given}
    if isinstance(given, int):
        return {"intValue": str(given)}
    if isinstance(given, float):
        return {"doubleValue": given}
    if isinstance(given, list):
        return {"arrayValue": {"values": [value(entry) for entry in given]}}
    return {"stringValue": given if isinstance(given, str) else json.dumps(given)}


def tokens(usage):
    """Whole input, read, written, output. Input includes the cached tokens in the conventions."""
    parts = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    read = usage.get("cache_read_input_tokens", parts.get("cached_tokens"))
    write = usage.get("cache_creation_input_tokens", parts.get("cache_write_tokens"))
    whole = usage.get("input_tokens", usage.get("prompt_tokens"))
    if whole is not None and "cache_read_input_tokens" in usage:  # Anthropic leaves them out
        whole += (read or 0) + (write or 0)
    return whole, read, write, usage.get("output_tokens", usage.get("completion_tokens"))


def details(usage):
    """The counts as Langfuse wants them: none is a part of another, writes by their lifetime."""
    whole, read, write, output = tokens(usage)
    if whole is None:
        return None
    kept = {"input": whole - (read or 0) - (write or 0), "output": output}
    kept |= {"cache_read_input_tokens": read, "cache_creation_input_tokens": write}
    split = usage.get("cache_creation") or {}
    for ttl in ("5m", "1h"):
        kept[f"input_cache_creation_{ttl}"] = split.get(f"ephemeral_{ttl}_input_tokens")
    if split:
        del kept["cache_creation_input_tokens"]
    return {key: count for key, count in kept.items() if count is not None}
