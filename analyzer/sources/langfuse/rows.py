"""One typed row for an observation, whichever way Langfuse gave it out.

The APIs, the exports and the downloads name the same columns in camel or snake case, leave out what
was not asked for, and write null, "" or nothing for "none". All of them become `Row` here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from analyzer.errors import DecodeError
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_object,
    dump,
    finite,
    kind_of,
    parse,
    to_time,
)
from analyzer.sources.spans.rows import (
    MODEL_CALLS,
    TYPES,
    Complaints,
    Place,
    Row,
    ScoreRow,
    TraceRow,
)

_LEGACY_USAGE = (
    ("input", "promptTokens"),
    ("output", "completionTokens"),
    ("total", "totalTokens"),
)
_COMPUTED_USAGE = (("input", "inputUsage"), ("output", "outputUsage"), ("total", "totalUsage"))
"""Sums that some servers add beside the details, and some exports hold alone."""


def is_observation(obj: JsonObject) -> bool:
    """Whether an object looks like a Langfuse observation, in camel or snake case."""
    if not isinstance(obj.get("id"), str) or not obj.get("id"):
        return False
    if _has(obj, "dataType") or "scoreId" in obj:
        return False
    return _has(obj, "traceId") and _has(obj, "startTime")


def is_trace(obj: JsonObject) -> bool:
    """Whether an object looks like a Langfuse trace."""
    return (
        isinstance(obj.get("id"), str)
        and "timestamp" in obj
        and not _has(obj, "traceId")
        and (_has(obj, "sessionId") or _has(obj, "projectId"))
    )


def is_score(obj: JsonObject) -> bool:
    """Whether an object looks like a Langfuse score."""
    return isinstance(obj.get("name"), str) and _has(obj, "dataType") and "value" in obj


def read_row(obj: JsonObject, place: Place, complaints: Complaints) -> Row:
    """An observation as a row.

    Raises `DecodeError` where nothing can be done with it (no id, no readable start); lesser faults
    go to `complaints` and leave their field unknown.
    """
    row_id = _text(obj, "id")
    if row_id is None:
        raise DecodeError(f"expected an observation id, got {kind_of(obj.get('id'))}", "$.id")
    kind = (_text(obj, "type") or "SPAN").upper()
    if kind not in TYPES:
        complaints.add("$.type", f"expected one of {', '.join(sorted(TYPES))}, got {kind[:40]!r}")
    call = kind in MODEL_CALLS
    usage, legacy = _usage(obj, complaints)
    io = _get(obj, "input") if call else None
    return Row(
        id=row_id,
        place=place,
        key=f"langfuse:{row_id}",
        trace_id=_text(obj, "traceId"),
        type=kind,
        parent_id=_text(obj, "parentObservationId"),
        name=_text(obj, "name"),
        session_id=_text(obj, "sessionId"),
        user_id=_text(obj, "userId"),
        project_id=_text(obj, "projectId"),
        start=to_time(_get(obj, "startTime"), "$.startTime"),
        end=_time(obj, "endTime", complaints),
        updated=_time(obj, "updatedAt", complaints),
        model=_text(obj, "model") or _text(obj, "providedModelName"),
        level=_text(obj, "level"),
        status=_text(obj, "statusMessage"),
        input=None if io == "" else io,
        output=(_get(obj, "output") or None) if call else None,
        parsed_io="promptTokens" in obj or "traceTimestamp" in obj,
        metadata=_mapping(obj, "metadata", complaints),
        parameters=_mapping(obj, "modelParameters", complaints),
        usage=usage,
        usage_is_legacy=legacy,
        total_cost=_number(obj, "totalCost", "calculatedTotalCost"),
        costs=_mapping(obj, "costDetails", complaints),
        tool_definitions=_mapping(obj, "toolDefinitions", complaints) or None,
        trace_name=_text(obj, "traceName"),
        tier=_text(obj, "usagePricingTierName"),
        environment=_text(obj, "environment"),
        version=_text(obj, "version"),
        release=_text(obj, "release"),
        prompt_name=_text(obj, "promptName"),
        tags=_tags(obj),
    )


def read_trace(obj: JsonObject) -> TraceRow:
    """A trace object as a row."""
    return TraceRow(
        id=_text(obj, "id") or "",
        session_id=_text(obj, "sessionId"),
        user_id=_text(obj, "userId"),
        project_id=_text(obj, "projectId"),
        name=_text(obj, "name"),
        release=_text(obj, "release"),
        tags=_tags(obj),
    )


def read_score(obj: JsonObject) -> ScoreRow:
    """A score, in the shape of any version of the scores API or of a trace's `scores`."""
    subject = obj.get("subject")
    at: JsonObject = subject if isinstance(subject, Mapping) else {}
    kind, target = _text(at, "kind") or "", _text(at, "id")
    stated = _get(obj, "stringValue") or obj.get("value")
    return ScoreRow(
        name=_text(obj, "name") or "",
        value=stated if isinstance(stated, str) else dump(stated),
        trace_id=_text(obj, "traceId")
        or _text(at, "traceId")
        or (target if kind.lower() == "trace" else None),
        observation_id=_text(obj, "observationId")
        or (target if kind.lower() == "observation" else None),
        session_id=_text(obj, "sessionId") or (target if kind.lower() == "session" else None),
    )


def _snake(key: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in key)


_CAMEL = (
    "completionStartTime",
    "costDetails",
    "dataType",
    "endTime",
    "modelParameters",
    "observationId",
    "parentObservationId",
    "projectId",
    "promptName",
    "providedModelName",
    "sessionId",
    "startTime",
    "statusMessage",
    "stringValue",
    "totalCost",
    "toolDefinitions",
    "traceId",
    "traceName",
    "updatedAt",
    "usageDetails",
    "usagePricingTierName",
    "userId",
)
_SNAKE = {key: _snake(key) for key in _CAMEL}


def _has(obj: JsonObject, key: str) -> bool:
    return key in obj or _SNAKE.get(key, key) in obj


def _get(obj: JsonObject, key: str) -> Json:
    value = obj.get(key)
    return obj.get(_SNAKE.get(key, key)) if value is None else value


def _text(obj: JsonObject, key: str) -> str | None:
    value = _get(obj, key)
    return value if isinstance(value, str) and value else None


def _number(obj: JsonObject, *keys: str) -> float | None:
    for key in keys:
        value = _get(obj, key)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                continue
        # The server's sentinel for a group that was not asked for is -1.
        number = finite(value)
        if number is not None and number >= 0:
            return number
    return None


def _time(obj: JsonObject, key: str, complaints: Complaints) -> datetime | None:
    try:
        return to_time(_get(obj, key), f"$.{key}")
    except DecodeError as error:
        complaints.add(error.pointer, error.message)
        return None


def _tags(obj: JsonObject) -> tuple[str, ...] | None:
    value = obj.get("tags") or obj.get("traceTags")
    if isinstance(value, str) and value[:1] == "[":
        try:
            value = parse(value.encode("utf-8", "surrogatepass"))
        except DecodeError:
            return None
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    return tuple(tag for tag in value if isinstance(tag, str)) or None


def _mapping(obj: JsonObject, key: str, complaints: Complaints) -> JsonObject | None:
    value = _get(obj, key)
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            value = parse(value.encode("utf-8", "surrogatepass"))
        except DecodeError:
            return None
    if isinstance(value, Mapping):
        return value
    if value is not None and value != "" and key == "usageDetails":
        complaints.add(f"$.{key}", f"expected an object of token counts, got {kind_of(value)}")
    return None


def _usage(obj: JsonObject, complaints: Complaints) -> tuple[JsonObject | None, bool]:
    details = _mapping(obj, "usageDetails", complaints)
    if details:
        return details, False
    old = obj.get("usage")
    sums: dict[str, Json] = {}
    for key, flat in _LEGACY_USAGE:
        value = obj.get(flat) or (as_object(old).get(key) if isinstance(old, Mapping) else None)
        if value:
            sums[key] = value
    if not sums:
        sums = {key: obj[name] for key, name in _COMPUTED_USAGE if obj.get(name)}
    return (sums, True) if sums else (details, False)
