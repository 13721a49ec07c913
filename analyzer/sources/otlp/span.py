"""One span or log record, whichever tool dumped it.

OTLP/JSON in either case of names, `span.to_json()` of the SDKs, rows of Phoenix: they differ in
where ids, times, attributes, status and scope stand, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from analyzer.errors import DecodeError
from analyzer.sources.decode import Json, JsonObject, get_array, get_object
from analyzer.sources.otlp.values import (
    Attributes,
    any_value,
    attributes,
    below,
    hex_id,
    nanoseconds,
    text_at,
)
from analyzer.sources.spans.rows import Complaints, Place

_ERRORS = frozenset({"2", "STATUS_CODE_ERROR", "ERROR", "StatusCode.ERROR"})
_FLAT_IDS = ("context.trace_id", "context.span_id")
_SCOPES = (
    "scope",
    "instrumentationScope",
    "instrumentation_scope",
    "instrumentationLibrary",
    "instrumentation_library",
    "instrumentation_info",
)


@dataclass(frozen=True, slots=True)
class Origins:
    """What stands once for many spans: who ran, and what recorded it."""

    resource: Attributes = field(default_factory=dict)
    scope: str = ""
    scope_version: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a span; a log record that names the span is one too."""

    name: str
    at: int
    """Nanoseconds since 1970; 0 where unknown."""
    attributes: Attributes
    body: Json = None


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are nanoseconds since 1970."""

    trace_id: str
    id: str
    parent_id: str | None
    name: str | None
    start: int | None
    end: int | None
    attributes: Attributes
    events: tuple[Event, ...]
    error: str | None
    """Why it failed; None where it did not."""
    origins: Origins
    place: Place


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A log record that belongs to a span."""

    trace_id: str
    span_id: str
    event: Event


def field_of(obj: JsonObject, *names: str) -> Json:
    """The first of some fields that is there, each in camel or in snake case."""
    for name in names:
        value = obj.get(name)
        if value is None:
            value = obj.get(_snake(name))
        if value is not None:
            return value
    return None


@cache
def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


def origins_of(resource: Json, holder: JsonObject) -> Origins:
    """What a group of spans, or a span with its own resource and scope, says about where it is from."""
    scope = next((get_object(holder, key) for key in _SCOPES if key in holder), {})
    given = resource if isinstance(resource, Mapping) else {}
    return Origins(
        attributes(given.get("attributes", given)),
        text_at(scope, "name") or "",
        text_at(scope, "version") or "",
    )


def is_span(obj: JsonObject) -> bool:
    """Whether an object is a span by itself."""
    return _ids(obj) != (None, None) and not is_log(obj)


def is_log(obj: JsonObject) -> bool:
    """Whether an object is a log record by itself."""
    return "body" in obj and "name" not in obj and ("trace_id" in obj or "traceId" in obj)


def _ids(obj: JsonObject) -> tuple[Json, Json]:
    context = field_of(obj, "context", "spanContext", "_spanContext")
    holder = context if isinstance(context, Mapping) else obj
    trace_id = field_of(holder, "traceId") or obj.get("context.trace_id")
    span_id = field_of(holder, "spanId") or obj.get("context.span_id")
    if span_id is None and "traceId" in obj and ("timestamp" in obj or "duration" in obj):
        span_id = obj.get("id")  # the console exporter of the JavaScript SDK
    return (trace_id, span_id) if trace_id and span_id else (None, None)


def read_span(obj: JsonObject, origins: Origins, place: Place, complaints: Complaints) -> Span:
    """A span in any of the forms. `origins` are those of its group.

    Raises `DecodeError` where nothing can be done with it (no ids, no readable start); lesser faults
    go to `complaints`.
    """
    trace_id, span_id = (hex_id(v, n) for v, n in zip(_ids(obj), (16, 8), strict=True))
    if not trace_id or not span_id:
        raise DecodeError("expected a trace id and a span id that are not zero, got none")
    if "resource" in obj or not obj.keys().isdisjoint(_SCOPES):
        own = origins_of(obj.get("resource"), obj)
        origins = Origins(
            own.resource or origins.resource,
            own.scope or origins.scope,
            own.scope_version or origins.scope_version,
        )
    given = attributes(obj.get("attributes"))
    if not obj.keys().isdisjoint(_FLAT_IDS):
        given |= attributes(below(obj, "attributes."))
    kind = obj.get("span_kind")
    if isinstance(kind, str) and kind:
        given.setdefault("openinference.span.kind", kind)
    start = field_of(obj, "startTimeUnixNano", "startTime", "timestamp")
    events = get_array(obj, "events")
    return Span(
        trace_id=trace_id,
        id=span_id,
        parent_id=_parent(obj),
        name=text_at(obj, "name"),
        start=nanoseconds(start, "$.startTimeUnixNano"),
        end=_end(obj, start, complaints),
        attributes=given,
        events=tuple(_event(event) for event in events if isinstance(event, Mapping)),
        error=_error(obj, given, events),
        origins=origins,
        place=place,
    )


def _parent(obj: JsonObject) -> str | None:
    given = field_of(obj, "parentSpanId", "parentId")
    if given is None:
        given = field_of(get_object(obj, "parentSpanContext"), "spanId")
    return hex_id(given, 8)


def _end(obj: JsonObject, start: Json, complaints: Complaints) -> int | None:
    value = field_of(obj, "endTimeUnixNano", "endTime")
    duration = obj.get("duration")
    if value is None and isinstance(start, int | float) and isinstance(duration, int | float):
        value = start + duration
    try:
        return nanoseconds(value, "$.endTimeUnixNano")
    except DecodeError as error:
        complaints.add(error.pointer, error.message)
        return None


def _event(obj: JsonObject) -> Event:
    return Event(text_at(obj, "name") or "", _at(obj), attributes(obj.get("attributes")))


def _at(obj: JsonObject) -> int:
    try:
        value = field_of(obj, "timeUnixNano", "timestamp", "time", "observedTimeUnixNano")
        return nanoseconds(value, "$.timeUnixNano") or 0
    except DecodeError:
        # Only the order of the events is taken from it, and they are written in order.
        return 0


def _error(obj: JsonObject, given: Attributes, events: Sequence[Json]) -> str | None:
    status = get_object(obj, "status")
    code = text_at(status, "code", "status_code") or text_at(obj, "status_code")
    if code not in _ERRORS and not given.get("error.type"):
        return None
    told = text_at(status, "message", "description") or text_at(obj, "status_message")
    for event in events if not told else ():
        if isinstance(event, Mapping):
            told = text_at(attributes(event.get("attributes")), "exception.message") or told
    return told or text_at(given, "error.message", "exception.message", "error.type") or "ERROR"


def read_log(obj: JsonObject) -> LogEvent | None:
    """A log record as an event of its span; None where it names no span."""
    trace_id = hex_id(field_of(obj, "traceId"), 16)
    span_id = hex_id(field_of(obj, "spanId"), 8)
    if not trace_id or not span_id:
        return None
    given = attributes(obj.get("attributes"))
    named = field_of(obj, "eventName")
    name = named if isinstance(named, str) else text_at(given, "event.name")
    return LogEvent(
        trace_id, span_id, Event(name or "", _at(obj), given, any_value(obj.get("body")))
    )
