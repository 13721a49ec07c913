"""OTLP/JSON: what OpenTelemetry collectors, SDKs and Phoenix write, read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import xxhash

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem
from analyzer.sources.base import Context, Head
from analyzer.sources.decode import Json, encode
from analyzer.sources.documents import outline
from analyzer.sources.otlp.content import content_of
from analyzer.sources.otlp.files import GROUPS, IGNORED, WRAPPERS, Found, problem_of, read_objects
from analyzer.sources.otlp.rows import row_of, trace_of
from analyzer.sources.otlp.span import Event, read_log, read_span
from analyzer.sources.spans.rows import Complaints
from analyzer.sources.spans.sessions import Gathered
from analyzer.sources.spans.steps import Origin

_ORIGIN = Origin("otlp", "span", "$.attributes", "$.attributes")
_GROUP_NAMES = frozenset({*GROUPS, "resource_spans", "resource_logs"})
_SPAN_NAMES = (
    frozenset({"context.trace_id", "context.span_id"}),
    frozenset({"traceId", "spanId", "attributes"}),
    frozenset({"trace_id", "span_id", "attributes"}),
    frozenset({"traceId", "timestamp", "duration", "attributes"}),
)
_FOREIGN = frozenset({"projectId", "run_type", "span_data"})


@dataclass(slots=True)
class _Read:
    """Everything that some files hold."""

    gathered: Gathered = field(default_factory=lambda: Gathered(_ORIGIN))
    events: dict[tuple[str, str], dict[bytes, Event]] = field(default_factory=dict)
    """Log records by the span they belong to, each once."""
    bodies: dict[bytes, Json] = field(default_factory=dict)
    """Every prompt repeats the messages before it; equal ones are kept once."""


class OtlpSource:
    """Spans of model calls in OTLP/JSON and in the dumps of SDKs."""

    name: ClassVar[str] = "otlp"
    title: ClassVar[str] = (
        "OpenTelemetry spans as OTLP/JSON, SDK dumps and Phoenix exports "
        "(GenAI conventions, OpenInference, OpenLLMetry, AI SDK)"
    )
    joint: ClassVar[bool] = True
    """Files belong together: `read_many` is to be called with all of them at once."""

    def detect(self, head: Head) -> bool:
        """By the names at the beginning of the first document."""
        names = {_unwrapped(path) for path in outline(head.data)}
        if names & _GROUP_NAMES:
            return True
        if names & set(IGNORED):
            return b'"resourceSpans"' in head.data
        return not names & _FOREIGN and any(keys <= names for keys in _SPAN_NAMES)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """Read one file; see `read_many`."""
        yield from self.read_many([path], context)

    def read_many(self, paths: Sequence[Path], context: Context) -> Iterator[LaneSteps | Problem]:
        """Read files that may hold parts of the same traces.

        Yields problems first, then one batch for each lane, a session's main lane first. All spans
        of the files are in memory until then, with the distinct content of model calls only.
        """
        read = _Read()
        for path in paths:
            for found in read_objects(path):
                if isinstance(found, Problem):
                    yield found
                else:
                    yield from _gather(found, read)
        _join_events(read)
        _mark_nested_runs(read.gathered)
        yield from read.gathered.steps(context)


def _unwrapped(path: str) -> str:
    """The path of a name without the arrays and objects that wrap a document."""
    parts = path.split(".")
    while len(parts) > 1 and (parts[0] == "[]" or parts[0] in WRAPPERS):
        parts.pop(0)
    return ".".join(parts)


def _gather(found: Found, read: _Read) -> Iterator[Problem]:
    complaints = Complaints()
    try:
        if found.log:
            _gather_log(found, read)
            return
        span = read_span(found.value, found.origins, found.place, complaints)
        trace = trace_of(span)
        if trace is not None:
            read.gathered.traces.setdefault(trace.id, trace)
        read.gathered.add(span.trace_id, row_of(span), complaints)
    except DecodeError as error:
        complaints.add(error.pointer, error.message)
    except RecursionError:
        complaints.add("$", "expected a span of sane depth, got deeper nesting than can be read")
    for pointer, message in complaints.found:
        yield problem_of(found.value, found.place, message, pointer)


# -- events that are log records --------------------------------------------------------------


def _gather_log(found: Found, read: _Read) -> None:
    log = read_log(found.value)
    if log is None or not log.event.name.startswith("gen_ai."):
        return
    event = log.event
    digest = xxhash.xxh3_128_digest(encode([event.attributes, event.body]))
    body = read.bodies.setdefault(digest, event.body)
    known = read.events.setdefault((log.trace_id, log.span_id), {})
    # The same record may lie in two files.
    key = event.at.to_bytes(12, "big", signed=True) + event.name.encode() + digest
    known.setdefault(key, replace(event, body=body))


def _join_events(read: _Read) -> None:
    """Give spans the messages that were logged beside them."""
    for (trace_id, span_id), known in read.events.items():
        row = read.gathered.rows.get((trace_id, span_id))
        if row is None or not row.is_call or row.content is not None:
            continue
        sent, answer = content_of({}, sorted(known.values(), key=lambda event: event.at))
        if sent is not None or answer is not None:
            row = replace(row, input=sent, output=answer, fullness=row.fullness + 1)
            read.gathered.add(trace_id, row, Complaints())


def _mark_nested_runs(gathered: Gathered) -> None:
    """A run of requests that a tool started is an agent, although no convention says so."""
    for (trace_id, span_id), row in gathered.rows.items():
        if row.type != "CHAIN" or not (row.name or "").startswith("ai."):
            continue
        above, seen = gathered.rows.get((trace_id, row.parent_id or "")), {span_id}
        while above is not None and above.id not in seen and above.type != "TOOL":
            seen.add(above.id)
            above = gathered.rows.get((trace_id, above.parent_id or ""))
        if above is not None and above.type == "TOOL":
            gathered.rows[trace_id, span_id] = replace(row, type="AGENT")
