"""The same spans in every form of file that collectors, SDKs and servers write."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from analyzer.sources.otlp.values import EPOCH, any_value
from tests import spans as otel
from tests.builders import anthropic_records

RECORDS = anthropic_records(4)
SPANS = otel.run(RECORDS, otel.genai_text)
Json = Any


def lines(documents: list[Json]) -> bytes:
    return b"".join(json.dumps(d).encode() + b"\n" for d in documents)


def plain(span: Json) -> dict[str, Json]:
    """A span's attributes as the SDKs hold them."""
    return {pair["key"]: any_value(pair["value"]) for pair in span["attributes"]}


def iso(nanos: str) -> str:
    at = EPOCH + timedelta(microseconds=int(nanos) // 1000)
    return at.isoformat().replace("+00:00", "Z")


def collector() -> bytes:
    """The file exporter: a request a line, here with one span each."""
    return lines([otel.request([span]) for span in SPANS])


def document() -> bytes:
    return json.dumps(otel.request(SPANS)).encode()


def pretty() -> bytes:
    return json.dumps(otel.request(SPANS), indent=2).encode()


def array() -> bytes:
    return json.dumps([otel.request(SPANS[:2]), otel.request(SPANS[2:])]).encode()


def libraries() -> bytes:
    text = json.dumps(otel.request(SPANS))
    text = text.replace('"scopeSpans"', '"instrumentationLibrarySpans"')
    return text.replace('"scope"', '"instrumentationLibrary"').encode()


def tempo() -> bytes:
    return json.dumps({"batches": otel.request(SPANS)["resourceSpans"]}).encode()


def protobuf() -> bytes:
    """`MessageToDict` with the field names kept: snake case, ids as base64."""
    request = json.dumps(snake(otel.request(SPANS)))
    return f"\ufeff{request}".encode()


def snake(given: Json) -> Json:
    if isinstance(given, list):
        return [snake(entry) for entry in given]
    if not isinstance(given, dict):
        return given
    out = {}
    for key, inner in given.items():
        is_id = key in ("traceId", "spanId", "parentSpanId")
        value = base64.b64encode(bytes.fromhex(inner)).decode() if is_id else snake(inner)
        out["".join("_" + c.lower() if c.isupper() else c for c in key)] = value
    return out


def python_span(span: Json) -> Json:
    """`span.to_json()` of the Python SDK."""
    context = {"trace_id": f"0x{span['traceId']}", "span_id": f"0x{span['spanId']}"}
    return {
        "name": span["name"],
        "context": {**context, "trace_state": "[]"},
        "kind": "SpanKind.CLIENT",
        "parent_id": f"0x{span['parentSpanId']}" if span["parentSpanId"] else None,
        "start_time": iso(span["startTimeUnixNano"]),
        "end_time": iso(span["endTimeUnixNano"]),
        "status": {"status_code": "UNSET"},
        "attributes": plain(span),
        "events": [],
        "links": [],
        "resource": {"attributes": {"service.name": "s"}, "schema_url": ""},
    }


def python_console() -> bytes:
    """The console exporter: one pretty document after another."""
    return b"".join(json.dumps(python_span(s), indent=4).encode() + b"\n" for s in SPANS)


def python_lines() -> bytes:
    return lines([python_span(span) for span in SPANS])


def javascript() -> bytes:
    """What the console exporter of the JavaScript SDK gives out, as JSON."""
    return json.dumps(
        [
            {
                "resource": {"attributes": {"service.name": "s"}},
                "instrumentationScope": {"name": "test", "version": "1.0"},
                "traceId": span["traceId"],
                "parentSpanContext": {"traceId": span["traceId"], "spanId": span["parentSpanId"]},
                "name": span["name"],
                "id": span["spanId"],
                "kind": 2,
                "timestamp": int(span["startTimeUnixNano"]) / 1000,
                "duration": 4_000_000.5,
                "attributes": plain(span),
                "status": {"code": 0},
                "events": [],
                "links": [],
            }
            for span in SPANS
        ],
        indent=2,
    ).encode()


def java() -> bytes:
    """The logging exporter of the Java SDK: a resource a line."""
    return lines([group for span in SPANS for group in otel.request([span])["resourceSpans"]])


def readable_spans() -> bytes:
    """Spans of the JavaScript SDK as `JSON.stringify` writes them."""
    rows = []
    for span in SPANS:
        ids = {"traceId": span["traceId"], "spanId": span["spanId"], "traceFlags": 1}
        start, end = (
            list(divmod(int(span[f"{name}TimeUnixNano"]), 10**9)) for name in ("start", "end")
        )
        row = {"name": span["name"], "_spanContext": ids, "attributes": plain(span)}
        row |= {"parentSpanContext": {"spanId": span["parentSpanId"]}, "status": {"code": 0}}
        rows.append({**row, "startTime": start, "endTime": end, "events": []})
    return lines(rows)


def phoenix_span(span: Json, given: dict[str, Json]) -> Json:
    return {
        "id": "U3BhbjoxMg==",
        "name": span["name"],
        "context": {"trace_id": span["traceId"], "span_id": span["spanId"]},
        "span_kind": "AGENT" if not span["parentSpanId"] else "LLM",
        "parent_id": span["parentSpanId"] or None,
        "start_time": iso(span["startTimeUnixNano"]),
        "end_time": iso(span["endTimeUnixNano"]),
        "status_code": "OK",
        "status_message": "",
        "attributes": given,
        "events": [],
    }


def nested(given: dict[str, Json]) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for name, value in given.items():
        *path, last = name.split(".")
        place = out
        for key in path:
            place = place.setdefault(key, {})
        place[last] = value
    return out


def phoenix() -> bytes:
    """The REST interface and its clients."""
    rows = [phoenix_span(span, plain(span)) for span in SPANS]
    return json.dumps({"data": rows, "next_cursor": None}).encode()


def phoenix_nested() -> bytes:
    return lines([phoenix_span(span, nested(plain(span))) for span in SPANS])


def phoenix_frame() -> bytes:
    """Rows of a data frame: names of columns are whole paths, times are milliseconds."""
    rows = []
    for span in SPANS:
        row = phoenix_span(span, {})
        del row["attributes"]
        context = row.pop("context")
        row |= {f"context.{key}": value for key, value in context.items()}
        row |= {f"attributes.{key}": value for key, value in plain(span).items()}
        rows.append(row)
    return lines(rows)


FORMS: dict[str, Callable[[], bytes]] = {
    form.__name__: form
    for form in (
        collector,
        document,
        pretty,
        array,
        libraries,
        tempo,
        protobuf,
        python_console,
        python_lines,
        javascript,
        java,
        readable_spans,
        phoenix,
        phoenix_nested,
        phoenix_frame,
    )
}
