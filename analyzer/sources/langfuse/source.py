"""Saved Langfuse data: API pages, trace downloads, blob and UI exports.

Observations of one session lie spread over pages and files, so all rows are gathered, freed of
copies, and only then grouped into traces, sessions and lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey
from analyzer.sources.base import DEFAULT_PROJECT, Context, Head
from analyzer.sources.langfuse.content import UNREADABLE, with_content
from analyzer.sources.langfuse.files import Found, problem_of, read_objects
from analyzer.sources.langfuse.lanes import Call, in_order, lanes
from analyzer.sources.langfuse.memory import Memory
from analyzer.sources.langfuse.rows import (
    Complaints,
    Row,
    ScoreRow,
    TraceRow,
    is_observation,
    is_score,
    is_trace,
    merge,
    read_row,
    read_score,
    read_trace,
    scope_of,
)
from analyzer.sources.langfuse.shapes import Request
from analyzer.sources.langfuse.steps import LaneWriter
from analyzer.sources.langfuse.tables import is_table
from analyzer.sources.langfuse.tree import Trace, leaves
from analyzer.sources.langfuse.usage import NormalisedUsage, Sender, judge, normalise_usage

_SIGNATURES: tuple[tuple[bytes, ...], ...] = (
    (b'"traceId"', b'"startTime"', b'"projectId"'),
    (b'"trace_id"', b'"start_time"', b'"parent_observation_id"'),
    (b'"trace_id"', b'"start_time"', b'"usage_details"'),
    (b'"projectId"', b'"timestamp"', b'"bookmarked"'),
    (b'"trace"', b'"timestamp"', b'"bookmarked"'),
    (b'"timestamp"', b'"sessionId"', b'"userId"', b'"bookmarked"'),
    (b'"projectId"', b'"dataType"', b'"value"', b'"traceId"'),
)
_FOREIGN = re.compile(rb'"(resourceSpans|scopeSpans|run_type|sessionKind)"')


@dataclass(slots=True)
class _Gathered:
    """Everything that some files hold, before it is grouped."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    traces: dict[str, TraceRow] = field(default_factory=dict)
    scores: dict[tuple[str, ...], ScoreRow] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)


@dataclass(slots=True)
class _SessionTraces:
    key: SessionKey
    traces: list[Trace] = field(default_factory=list)


class LangfuseSource:
    """Langfuse pages, downloads and exports, read together."""

    name: ClassVar[str] = "langfuse"
    title: ClassVar[str] = (
        "Langfuse API pages, trace downloads, blob and UI exports (JSON, JSONL, CSV, Parquet)"
    )
    joint: ClassVar[bool] = True
    """Files belong together: `read_many` is to be called with all of them at once."""

    def detect(self, head: Head) -> bool:
        """By the names of the columns, in camel or snake case."""
        if is_table(head):
            return True
        start = head.data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if start not in (b"{", b"[") or _FOREIGN.search(head.data[:4096]):
            return False
        return any(all(key in head.data for key in keys) for keys in _SIGNATURES)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """Read one file; see `read_many`."""
        yield from self.read_many([path], context)

    def read_many(self, paths: Sequence[Path], context: Context) -> Iterator[LaneSteps | Problem]:
        """Read files that may hold parts of the same sessions.

        Yields problems first, then one batch for each lane, a session's main lane first. All rows
        of the files are in memory until then, with the content of model calls only.
        """
        gathered = _Gathered()
        for path in paths:
            for found in read_objects(path):
                if isinstance(found, Problem):
                    yield found
                else:
                    yield from _gather(found, gathered)
        senders = _judge_senders(gathered.rows.values())
        for session in _sessions(gathered, context):
            yield from _read_session(session, senders, gathered, context)


def _gather(found: Found, gathered: _Gathered) -> Iterator[Problem]:
    value, place = found.value, found.place
    if is_score(value):
        score = read_score(value)
        identity = (score.name, score.trace_id or "", score.observation_id or "")
        gathered.scores[(*identity, score.session_id or "")] = score
    elif is_observation(value):
        yield from _gather_row(found, gathered)
    elif is_trace(value):
        trace = read_trace(value)
        gathered.traces[trace.id] = trace
    elif place.pointer != "$" or not _is_wrapper(value):
        expected = "an observation (id, traceId, startTime), a trace or a score"
        got = ", ".join(list(value)[:8]) or "no key"
        yield problem_of(place, value, f"expected {expected}, got {got}", place.pointer)


def _gather_row(found: Found, gathered: _Gathered) -> Iterator[Problem]:
    value, place = found.value, found.place
    complaints = Complaints()
    try:
        row = read_row(value, place, complaints)
    except DecodeError as error:
        yield problem_of(place, value, error.message, place.pointer + error.pointer[1:])
        return
    for pointer, message in complaints.found:
        yield problem_of(place, value, message, place.pointer + pointer[1:])
    for key in normalise_usage(row.usage or {}).bad_keys if row.is_call else ():
        message = f"expected a whole token count from 0 to 2^53, got {str(row.usage)[:80]}"
        yield problem_of(place, value, message, f"{place.pointer}.usageDetails.{key}")
    try:
        row = with_content(row, gathered.memory)
    except RecursionError:
        row = replace(row, key=f"langfuse:{row.id}", content=UNREADABLE, input=None, output=None)
        message = "expected content of sane depth, got deeper nesting than can be read"
        yield problem_of(place, value, message, f"{place.pointer}.input")
    identity = (row.project_id or "", row.id)
    known = gathered.rows.get(identity)
    gathered.rows[identity] = merge(known, row) if known else row


def _is_wrapper(value: Mapping[str, object]) -> bool:
    return any(isinstance(value.get(key), list) for key in ("observations", "traces", "data"))


# -- usage ------------------------------------------------------------------------------------

_SenderKey = tuple[str, str, str]
_NO_CONTENT = Request(flags=("no_input", "no_output"))


def _sender_key(row: Row) -> _SenderKey:
    return row.project_id or "", scope_of(row), row.model or ""


def _judge_senders(rows: Iterable[Row]) -> dict[_SenderKey, Sender]:
    groups: dict[_SenderKey, list[tuple[NormalisedUsage, int | None]]] = {}
    for row in rows:
        if row.is_call and row.usage:
            reading = _usage(row, None)
            groups.setdefault(_sender_key(row), []).append((reading, row.input_size))
    return {key: judge(records) for key, records in groups.items()}


def _usage(row: Row, sender: Sender | None) -> NormalisedUsage:
    if not row.usage_is_legacy:
        return normalise_usage(row.usage or {}, sender)
    # Sums alone: what the sender says of the cache elsewhere tells nothing of this row.
    reading = normalise_usage(row.usage or {}, None)
    flags = tuple(sorted({*reading.flags, "legacy_usage"}))
    return replace(reading, flags=flags)


# -- sessions ---------------------------------------------------------------------------------


def _sessions(gathered: _Gathered, context: Context) -> list[_SessionTraces]:
    """Traces grouped into sessions, those in the order of their first step."""
    traces: dict[tuple[str, str], Trace] = {}
    for row in gathered.rows.values():
        trace_id = row.trace_id or row.id
        key = (row.project_id or "", trace_id)
        if key not in traces:
            traces[key] = Trace(trace_id, key[0], row=gathered.traces.get(trace_id))
        traces[key].rows[row.id] = row
    ordered = sorted(traces.values(), key=lambda t: (t.start, t.id))
    users: dict[tuple[str, str], set[str]] = {}
    for trace in ordered:
        user = trace.user()
        if user:
            users.setdefault((trace.project, _session_id(trace)), set()).add(user)
    sessions: dict[SessionKey, _SessionTraces] = {}
    for trace in ordered:
        session_id = _session_id(trace)
        known = users.get((trace.project, session_id), set())
        user = trace.user() or (next(iter(known)) if len(known) == 1 else None)
        project = context.project
        if project == DEFAULT_PROJECT and trace.project:
            project = trace.project
        session = SessionKey(project, user or context.user, session_id)
        sessions.setdefault(session, _SessionTraces(session)).traces.append(trace)
    return list(sessions.values())


def _session_id(trace: Trace) -> str:
    return trace.session() or f"trace:{trace.id}"


def _read_session(
    session: _SessionTraces,
    senders: Mapping[_SenderKey, Sender],
    gathered: _Gathered,
    context: Context,
) -> Iterator[LaneSteps]:
    calls = [
        Call(
            leaf,
            leaf.row.content or _NO_CONTENT,
            _usage(leaf.row, senders.get(_sender_key(leaf.row))),
        )
        for trace in session.traces
        for leaf in leaves(trace)
    ]
    scores = [s for s in gathered.scores.values() if s.name]
    title = next((t.row.name for t in session.traces if t.row and t.row.name), None)
    title = title or next((c.leaf.row.trace_name for c in calls if c.leaf.row.trace_name), None)
    for lane in lanes(in_order(calls)):
        steps = LaneWriter(lane, scores, context.keep_content).steps(session.key)
        yield LaneSteps(session.key, lane.name, steps, lane.parent, title)
