"""A span as a row: what it is, what it spent, what it says.

Sources: as in `kinds`; for `langfuse.*` the attributes that Langfuse's server understands
(langfuse.com/integrations/native/opentelemetry, 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from analyzer.sources.decode import Json
from analyzer.sources.otlp.content import content_of
from analyzer.sources.otlp.kinds import kind_of_span
from analyzer.sources.otlp.span import Span
from analyzer.sources.otlp.usage import SpanUsage, usage_of
from analyzer.sources.otlp.values import Attributes, below, instant, is_list, text_at
from analyzer.sources.spans.blocks import decoded
from analyzer.sources.spans.rows import Row
from analyzer.sources.spans.shapes import SETTINGS
from analyzer.sources.spans.steps import provider_of

_MODEL = (
    "langfuse.observation.model.name",
    "gen_ai.response.model",
    "ai.response.model",
    "gen_ai.request.model",
    "llm.model_name",
    "ai.model.id",
    "model_name",
    "model",
)
_PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
_PROVIDERS = {"gcp": "google", "vertex_ai": "google", "vertexai": "google"}
_TIER = (
    "openai.response.service_tier",
    "gen_ai.openai.response.service_tier",
    "gen_ai.request.service_tier",
)
_ENVIRONMENT = (
    "langfuse.environment",
    "deployment.environment.name",
    "deployment.environment",
)
_COSTS = ("gen_ai.usage.cost", "llm.cost.total", "gen_ai.cost.total")
_STOPS = (
    "gen_ai.response.finish_reasons",
    "ai.response.finishReason",
    "llm.finish_reason",
    "stop_reason",
)
_METADATA = (
    "langfuse.observation.metadata.",
    "ai.telemetry.metadata.",
    "traceloop.association.properties.",
    "metadata.",
)
_PARAMETERS = ("gen_ai.request.", "ai.settings.", "llm.request.", "llm.invocation_parameters.")
_LONGEST = 200
"""Characters of a metadata value that is kept: numbers and names, and no content."""


def row_of(span: Span, given: Attributes) -> Row:
    """One span as a row; `given` are its attributes with JSON objects spread out.

    A span that asked no model and sums up nothing only has its place in the tree.
    """
    usage = usage_of(given)
    spends = usage is not None and any(isinstance(n, int) and n > 0 for n in usage.counts.values())
    kind = kind_of_span(given, spends=spends)
    failure = span.error or _stated_failure(given)
    row = Row(
        id=span.id,
        place=span.place,
        key=f"otlp:{span.trace_id}:{span.id}",
        trace_id=span.trace_id,
        type=kind,
        parent_id=span.parent_id,
        name=span.name,
        start=instant(span.start),
        subtick=(span.start or 0) % 1000,
        end=instant(span.end),
        updated=instant(span.end),
        fullness=len(given) + len(span.events),
        level="ERROR" if failure else None,
        status=failure,
    )
    return _spending(row, span, given, usage) if spends or row.is_call else row


def _spending(row: Row, span: Span, given: Attributes, usage: SpanUsage | None) -> Row:
    """The row with what was asked and answered, and what that took."""
    resource = span.origins.resource
    provider = text_at(given, *_PROVIDER, "ai.model.provider")
    sent, answer = content_of(given, span.events) if row.is_call else (None, None)
    row = replace(
        row,
        model=text_at(given, *_MODEL),
        input=sent,
        output=answer,
        metadata=_metadata(given, span, provider),
        parameters=_parameters(given),
        usage=usage.counts if usage else None,
        sums=usage is not None and not row.is_call,
        promised=usage.promised if usage else None,
        total_cost=_cost(given),
        costs=_costs(given),
        tier=text_at(given, *_TIER),
        environment=text_at(given, *_ENVIRONMENT) or text_at(resource, *_ENVIRONMENT),
        version=text_at(given, "langfuse.version"),
        release=text_at(given, "langfuse.release") or text_at(resource, "langfuse.release"),
        prompt_name=text_at(given, "langfuse.observation.prompt.name", "gen_ai.prompt.name"),
        tags=_tags(given),
        labels=_labels(given, resource),
    )
    return replace(row, sender=_sender(row, span, usage)) if usage else row


def _stated_failure(given: Attributes) -> str | None:
    if given.get("span.type") == "llm_request" and given.get("success") in (False, "false"):
        return text_at(given, "error", "status_code") or "ERROR"
    if text_at(given, "langfuse.observation.level") != "ERROR":
        return None
    return text_at(given, "langfuse.observation.status_message") or "ERROR"


def with_json_objects(given: Attributes) -> Attributes:
    """Attributes with the objects spread out that some conventions write as JSON texts."""
    out = dict(given)
    for name in ("metadata", "llm.invocation_parameters"):
        value, _ = decoded(given.get(name))
        for key, inner in value.items() if isinstance(value, Mapping) else ():
            out.setdefault(f"{name}.{key}", inner)
    return out


def _sender(row: Row, span: Span, usage: SpanUsage) -> str:
    """Spans that were counted by the same code: what one of them proves holds for the others."""
    origins = span.origins
    stated = text_at(span.attributes, *_PROVIDER, "ai.model.provider") or ""
    vendor = provider_of(row) or row.model or ""
    return "\0".join((origins.scope, origins.scope_version, stated, vendor, usage.family))


def _metadata(given: Attributes, span: Span, provider: str | None) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for prefix in reversed(_METADATA):
        out |= {
            key: value
            for key, value in below(given, prefix).items()
            if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _LONGEST)
        }
    for name, value in given.items():
        if name.endswith(("cache_miss_reason", "cache_miss_reason.type")):
            out["cache_miss_reason"] = value
    for name in ("agent_id", "query_source"):
        if text_at(given, name):
            out[name] = text_at(given, name)
    stop = _stop_reason(given)
    if stop:
        out["stop_reason"] = stop
    if provider:
        first = provider.lower().split(".", 1)[0]
        out["attributes"] = {"gen_ai.system": _PROVIDERS.get(first, provider)}
    return out | {"scope": {"name": span.origins.scope, "version": span.origins.scope_version}}


def _stop_reason(given: Attributes) -> str | None:
    for name in _STOPS:
        value, _ = decoded(given.get(name))
        if is_list(value):
            value = value[0] if value else None
        if isinstance(value, str) and value:
            return value
    return None


def _parameters(given: Attributes) -> dict[str, Json]:
    """The settings that belong to the cache key, under their names in the request."""
    stated, _ = decoded(given.get("langfuse.observation.model.parameters"))
    out: dict[str, Json] = dict(stated) if isinstance(stated, Mapping) else {}
    for prefix in _PARAMETERS:
        for key, value in below(given, prefix).items():
            out.setdefault(key.rsplit(".", 1)[-1], value)
    choice = given.get("ai.prompt.toolChoice")
    if choice is not None:
        out.setdefault("tool_choice", choice)
    return {key: value for key, value in out.items() if key in SETTINGS and value is not None}


def _cost(given: Attributes) -> float | None:
    for name in _COSTS:
        value = given.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
    return None


def _costs(given: Attributes) -> dict[str, Json] | None:
    stated, _ = decoded(given.get("langfuse.observation.cost_details"))
    return dict(stated) if isinstance(stated, Mapping) else None


def _tags(given: Attributes) -> tuple[str, ...] | None:
    for name in ("langfuse.trace.tags", "tag.tags"):
        value, _ = decoded(given.get(name))
        if is_list(value):
            return tuple(tag for tag in value if isinstance(tag, str)) or None
    return None


def _labels(given: Attributes, resource: Attributes) -> tuple[tuple[str, str], ...]:
    labels = {
        "agent": text_at(given, "gen_ai.agent.name", "agent_name", "graph.node.id"),
        "otlp.response": text_at(given, "gen_ai.response.id", "ai.response.id"),
        "service": text_at(resource, "service.name"),
    }
    return tuple((name, value) for name, value in labels.items() if value)
