"""OTLP/JSON: what OpenTelemetry collectors, SDKs and Phoenix write, read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem
from analyzer.sources.base import Context, Head
from analyzer.sources.documents import outline
from analyzer.sources.otlp.files import (
    GROUPS,
    IGNORED,
    SCOPED,
    WRAPPERS,
    Found,
    problem_of,
    read_objects,
)
from analyzer.sources.otlp.joining import Logged, join
from analyzer.sources.otlp.owners import Owners
from analyzer.sources.otlp.rows import row_of, with_json_objects
from analyzer.sources.otlp.span import read_log, read_span
from analyzer.sources.spans.rows import Complaints
from analyzer.sources.spans.sessions import Gathered
from analyzer.sources.spans.steps import Origin

_ORIGIN = Origin("otlp", "span", "$.attributes", "$.attributes")
_GROUP_NAMES = frozenset({*GROUPS, *SCOPED, "resource_spans", "resource_logs", "scope_spans"})
_SPAN_NAMES = (
    frozenset({"context.trace_id", "context.span_id"}),
    frozenset({"_spanContext.traceId", "_spanContext.spanId"}),
    frozenset({"traceId", "spanId", "attributes"}),
    frozenset({"trace_id", "span_id", "attributes"}),
    frozenset({"traceId", "timestamp", "duration", "attributes"}),
)
_FOREIGN = frozenset({"projectId", "run_type", "span_data"})


@dataclass(slots=True)
class _Read:
    """Everything that some files hold."""

    gathered: Gathered = field(default_factory=lambda: Gathered(_ORIGIN))
    logged: Logged = field(default_factory=Logged)
    owners: Owners = field(default_factory=Owners)


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
        read.gathered.traces |= {trace.id: trace for trace in read.owners.traces()}
        join(read.gathered, read.logged)
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
            log = read_log(found.value)
            if log is not None and log.event.name.startswith("gen_ai."):
                read.logged.add(log)
            return
        span = read_span(found.value, found.origins, found.place, complaints)
        given = with_json_objects(span.attributes)
        read.owners.add(span, given)
        read.gathered.add(span.trace_id, row_of(span, given), complaints)
    except DecodeError as error:
        complaints.add(error.pointer, error.message)
    except RecursionError:
        complaints.add("$", "expected a span of sane depth, got deeper nesting than can be read")
    for pointer, message in complaints.found:
        yield problem_of(found.value, found.place, message, pointer)
