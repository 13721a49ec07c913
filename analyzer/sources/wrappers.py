"""What stands around a request and its response in a line of a log, which is nobody's standard.

The usual names for its fields are all known. A request or a response is the body itself, or an HTTP
message that holds one; a body is JSON, JSON in a string, an event stream, or a list of its events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from analyzer.errors import DecodeError
from analyzer.sources.decode import Json, JsonObject, as_object, get_object, parse, to_time

REQUEST = ("request", "req", "body", "request_body", "requestBody", "input", "json")
RESPONSE = ("response", "resp", "res", "response_body", "responseBody", "output")
BODY = ("body", "json", "body_raw", "events")
"""Where an HTTP message keeps its body."""
START = (
    "ts",
    "timestamp",
    "time",
    "at",
    "started_at",
    "start_time",
    "startTime",
    "created_at",
    "request_created_at",
)
END = (
    "ended_at",
    "end_time",
    "endTime",
    "completed_at",
    "finished_at",
    "response_created_at",
    "logged_at",
)
SESSION = ("session_id", "session", "sessionId", "conversation_id", "thread_id")
LANE = ("lane", "agent_id", "agent", "agentId")
_STATUS = ("status_code", "statusCode", "status", "response_status")
_DURATIONS = (("duration_ms", 1000), ("latency_ms", 1000), ("duration_s", 1))
_ANSWERS = frozenset({"choices", "content", "output", "usage"})
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_BODY_IN_TEXT = re.compile(rb'"\s*:\s*"\s*\{\s*\\"')

Body = str | Sequence[JsonObject]
"""A body that is not JSON yet: text, or the events of a stream."""


def first(record: JsonObject, names: Iterable[str]) -> Json:
    """The first of some fields that is there; None where none is."""
    return next((record[n] for n in names if record.get(n) is not None), None)


def opened(value: Json) -> Json:
    """A body, parsed where it is JSON in a string. Raises `DecodeError`."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        return parse(value.encode("utf-8", "surrogatepass"))
    return value


def request_in(record: JsonObject, *asks: str) -> tuple[JsonObject, JsonObject] | None:
    """The body of a record's request, and the HTTP message around it (empty where there is none).

    A request has one of the fields `asks`; None where the record holds no such. Raises `DecodeError`.
    """
    for name in REQUEST:
        message = opened(record.get(name))
        if not isinstance(message, Mapping):
            continue
        if any(ask in message for ask in asks):
            return message, {}
        for inner in BODY[:2]:
            body = opened(message.get(inner))
            if isinstance(body, Mapping) and any(ask in body for ask in asks):
                return body, message
    return None


def response_in(record: JsonObject, read: Callable[[Body], JsonObject]) -> JsonObject:
    """The body of a record's response; `read` puts together what is not JSON.

    What a gateway says of a failure in words of its own is its error. Raises `DecodeError`.
    """
    found = first(record, RESPONSE)
    message: JsonObject = found if isinstance(found, Mapping) else {}
    inner = first(message, BODY)
    body = opened(found if inner is None else inner)
    if isinstance(body, Mapping):
        return body
    if isinstance(body, str):
        status = first(message, _STATUS) or first(record, _STATUS)
        try:
            return read(body)
        except DecodeError:
            if isinstance(status, int) and status >= 400:
                return {"error": {"type": f"http_{status}", "message": body[:200]}}
            raise
    if isinstance(body, Sequence):
        return read([_event(e) for e in body if isinstance(e, Mapping)])
    return {}


def _event(entry: JsonObject) -> JsonObject:
    """An event, which may stand in an envelope with its name and time."""
    return get_object(entry, "data") or entry


def events_of(text: str) -> list[JsonObject]:
    """The JSON objects of an event stream, in order; other lines are left out."""
    events = []
    for line in _LINE_END.split(text):
        if not line.startswith("data:"):
            continue
        try:
            events.append(as_object(parse(line[5:].strip().encode("utf-8", "surrogatepass"))))
        except DecodeError:
            continue
    return events


def counts_only(response: JsonObject) -> bool:
    """Whether a response only says how many tokens a request would have: no model was run."""
    return "input_tokens" in response and response.keys().isdisjoint(_ANSWERS)


def started(record: JsonObject, message: JsonObject) -> datetime | None:
    """When a request was sent. Raises `DecodeError`."""
    value = first(message, START)
    return to_time(first(record, START) if value is None else value, "$.time")


def ended(record: JsonObject, start: datetime | None) -> datetime | None:
    """When its response was there. Raises `DecodeError`."""
    value = first(record, END[:-1])
    response = first(record, RESPONSE)
    if value is None and isinstance(response, Mapping) and first(response, BODY) is not None:
        value = first(response, (*END, *START))
    end = to_time(first(record, END) if value is None else value, "$.ended_at")
    if end is not None or start is None:
        return end
    for name, scale in _DURATIONS:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
            with suppress(OverflowError):
                return start + timedelta(seconds=value / scale)
    return None


def unquoted(data: bytes) -> bytes:
    """The beginning of a line, cut off anywhere, with its first body in a string opened up."""
    found = _BODY_IN_TEXT.search(data)
    if found is None:
        return data
    at = data.index(b"{", found.start())
    begin = data.rindex(b'"', 0, at)
    return data[:begin] + _ESCAPED.sub(_unescaped, data[at:])


def _unescaped(found: re.Match[bytes]) -> bytes:
    return b" " if found[1] in b"nrt" else found[1]
