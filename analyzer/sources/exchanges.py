"""One request to a model and its response, whatever API it went to, in one form.

Knows OpenAI's chat completions and Responses, Anthropic's Messages and Bedrock's Converse by the
shape of the bodies. Messages come out as `blocks.message_parts` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import xxhash

from analyzer.errors import DecodeError
from analyzer.model import Compaction, Ttl, Usage
from analyzer.sources.anthropic_usage import (
    Round,
    anthropic_usage,
    clearing,
    miss_reason,
)
from analyzer.sources.bedrock import (
    bedrock_message,
    bedrock_system,
    bedrock_tools,
    bedrock_usage,
    is_bedrock,
)
from analyzer.sources.blocks import mark_of, message_parts, response_message
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_array,
    as_object,
    get_array,
    get_object,
    get_text,
    kind_of,
)
from analyzer.sources.history import Call, HistoryLane, opening, to_raw
from analyzer.sources.openai_usage import openai_miss_reason, reported_rounds, reported_usage
from analyzer.sources.terms import terms_of

_SYSTEM_ROLES = ("system", "developer")


class Exchange(NamedTuple):
    """What one request sent and got."""

    messages: Sequence[JsonObject]
    tools: Json = None
    system: Json = None
    replies: Sequence[JsonObject] = ()
    usage: Usage | None = None
    stop_reason: str | None = None
    previous: str | None = None
    """Id of the response whose conversation this request continues without sending it again."""
    auto: Ttl | None = None
    origin: str = "openai"
    earlier: Sequence[Round] = ()
    """Requests inside this one that came before its answer."""
    miss_reason: str | None = None
    compaction: Compaction | None = None
    tier: str | None = None
    """The provider's word for how it served the request."""


def response_key(identity: str | None, response: JsonObject) -> str | None:
    """Identity of a response of OpenAI's APIs, equal in a proxy's log and an agent's recording.

    Gateways reuse ids, so the id counts together with the second in which the response was made.
    The usage does not: a recording that was cut off has none. None without an id.
    """
    made = response.get("created") or response.get("created_at")
    if identity is None or isinstance(made, bool) or not isinstance(made, int | float):
        return identity
    return f"{identity}@{made:.0f}"


def exchange_key(exchange: Exchange, response: JsonObject) -> str | None:
    """Identity of a request and its response: that of the response, which may say no time.

    Then the same id counts as the same only for the same request. None without an id. Raises
    `DecodeError`.
    """
    own = get_text(response, "id")
    identity = response_key(own, response)
    if identity is None or identity != own:
        return identity
    first = opening(exchange.messages)
    last = [m.part for message in exchange.messages[-1:] for m in message_parts(message, {})]
    ends = [part.digest for part in (first, *last) if part is not None]
    asked = xxhash.xxh3_64_hexdigest(b"".join(ends))
    return f"{identity}:{len(exchange.messages)}:{asked}"


def record(lane: HistoryLane, call: Call, exchange: Exchange, *, continued: bool = False) -> None:
    """Add an exchange to its lane. `continued`: its messages follow those the lane has.

    Raises `DecodeError`.
    """
    tier = [("service_tier", exchange.tier)] if exchange.tier else []
    call = replace(
        call,
        usage=exchange.usage,
        stop_reason=exchange.stop_reason,
        auto=exchange.auto,
        miss_reason=exchange.miss_reason,
        compaction=exchange.compaction,
        earlier=exchange.earlier,
        labels=tuple(sorted([*call.labels, *tier])),
    )
    lane.open(tools=exchange.tools, system=exchange.system)
    if continued:
        for message in exchange.messages:
            lane.say(message)
        prompt = lane.ask(call)
    else:
        prompt = lane.ask(call, [to_raw(m) for m in exchange.messages])
    lane.answer(call, prompt, exchange.replies)


def exchange_of(request: JsonObject, response: JsonObject, usage: JsonObject) -> Exchange:
    """Read a request and its response; `usage` is that of the record where they have none.

    Raises `DecodeError`.
    """
    counted = get_object(response, "usage") or usage
    tier = get_text(response, "service_tier") or get_text(counted, "service_tier")
    tier = tier or get_text(get_object(response, "serviceTier"), "type")
    found = _exchange(request, response, counted)
    cleared = clearing(response.get("context_management"))
    reason = found.miss_reason or miss_reason(response.get("diagnostics"))
    found = found._replace(tier=tier, compaction=cleared, miss_reason=reason)
    if found.usage is None or found.usage.terms or not terms_of(tier):
        return found
    return found._replace(usage=replace(found.usage, terms=terms_of(tier)))


def _exchange(request: JsonObject, response: JsonObject, counted: JsonObject) -> Exchange:
    if is_bedrock(request, response):
        return _bedrock(request, response, counted)
    if isinstance(request.get("messages"), Sequence) and not isinstance(request["messages"], str):
        if is_chat(request, response, counted):
            return _chat(request, response, counted)
        return _anthropic(request, response, counted)
    if "input" in request:
        return _responses(request, response, counted)
    if isinstance(request.get("prompt"), str):
        return _completion(request, response, counted)
    raise DecodeError("expected a request with messages or input, got neither", "$.request")


def is_chat(request: JsonObject, response: JsonObject, usage: JsonObject) -> bool:
    """Whether a request with messages is of the chat form and not of Anthropic's."""
    if "choices" in response or "prompt_tokens" in usage or "messages" not in request:
        return "messages" in request
    if "system" in request or response.get("type") == "message":
        return False
    if any("function" in t for t in get_array(request, "tools") if isinstance(t, Mapping)):
        return True
    messages = [m for m in get_array(request, "messages") if isinstance(m, Mapping)]
    if any(m.get("role") in (*_SYSTEM_ROLES, "tool") or m.get("tool_calls") for m in messages):
        return True
    return not (get_text(request, "model") or "claude").startswith("claude")


def _chat(request: JsonObject, response: JsonObject, usage: JsonObject) -> Exchange:
    choices = [c for c in get_array(response, "choices") if isinstance(c, Mapping)]
    choice = choices[0] if choices else {}
    message = get_object(choice, "message")
    counted = reported_rounds(usage, "$.response.usage", get_text(request, "model"))
    return Exchange(
        messages=_objects(get_array(request, "messages"), "$.request.messages"),
        tools=get_array(request, "tools") or get_array(request, "functions") or None,
        system=request.get("system"),
        replies=[message] if message else [],
        usage=counted.usage if counted else None,
        earlier=counted.earlier if counted else (),
        stop_reason=get_text(choice, "finish_reason"),
        auto=mark_of(request),
    )


def _anthropic(request: JsonObject, response: JsonObject, usage: JsonObject) -> Exchange:
    content = response.get("content")
    asked = get_text(request, "model")
    counted = anthropic_usage(usage, "$.response.usage", asked) if usage else None
    return Exchange(
        messages=_objects(get_array(request, "messages"), "$.request.messages"),
        tools=get_array(request, "tools") or None,
        system=request.get("system"),
        replies=[{"role": "assistant", "content": content}] if content else [],
        usage=counted.usage if counted else None,
        earlier=counted.earlier if counted else (),
        stop_reason=get_text(response, "stop_reason"),
        auto=mark_of(request),
        origin="anthropic",
    )


def _bedrock(request: JsonObject, response: JsonObject, usage: JsonObject) -> Exchange:
    message = get_object(get_object(response, "output"), "message")
    messages = _objects(get_array(request, "messages"), "$.request.messages")
    return Exchange(
        messages=[bedrock_message(m) for m in messages],
        tools=bedrock_tools(get_object(request, "toolConfig")) or None,
        system=bedrock_system(get_array(request, "system")) or None,
        replies=[bedrock_message(message)] if message else [],
        usage=bedrock_usage(usage, "$.response.usage") if usage else None,
        stop_reason=get_text(response, "stopReason"),
        origin="bedrock",
    )


def _responses(request: JsonObject, response: JsonObject, usage: JsonObject) -> Exchange:
    given = request.get("input")
    entries: Sequence[Json] = (
        [{"role": "user", "content": given}]
        if isinstance(given, str)
        else as_array(given, "$.request.input")
    )
    return Exchange(
        messages=[
            response_message(as_object(e, f"$.request.input[{i}]")) for i, e in enumerate(entries)
        ],
        tools=get_array(request, "tools") or None,
        system=request.get("instructions"),
        replies=[
            response_message(e) for e in get_array(response, "output") if isinstance(e, Mapping)
        ],
        usage=reported_usage(usage, "$.response.usage"),
        stop_reason=get_text(get_object(response, "incomplete_details"), "reason")
        or get_text(response, "status"),
        previous=get_text(request, "previous_response_id"),
        miss_reason=openai_miss_reason(response.get("prompt_cache_diagnostics")),
    )


def _completion(request: JsonObject, response: JsonObject, usage: JsonObject) -> Exchange:
    """The completions that came before chat: one text in, one text out."""
    choices = [c for c in get_array(response, "choices") if isinstance(c, Mapping)]
    text = get_text(response, "completion") or get_text(choices[0] if choices else {}, "text")
    return Exchange(
        messages=[{"role": "user", "content": request.get("prompt")}],
        replies=[{"role": "assistant", "content": text}] if text else [],
        usage=reported_usage(usage, "$.response.usage"),
        stop_reason=get_text(response, "stop_reason"),
    )


def _objects(entries: Sequence[Json], pointer: str) -> list[JsonObject]:
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise DecodeError(f"expected a message, got {kind_of(entry)}", f"{pointer}[{index}]")
    return [entry for entry in entries if isinstance(entry, Mapping)]
