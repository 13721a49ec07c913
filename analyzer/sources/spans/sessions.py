"""Spans gathered from any number of files, grouped into traces, sessions, lanes and steps.

What one session did lies spread over files, pages and lines in any order, so all rows are gathered
and freed of copies first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from analyzer.model import LaneSteps, SessionKey
from analyzer.sources.base import DEFAULT_PROJECT, Context
from analyzer.sources.spans.content import UNREADABLE, with_content
from analyzer.sources.spans.lanes import Call, in_order, lanes
from analyzer.sources.spans.memory import Memory
from analyzer.sources.spans.rows import Complaints, Row, ScoreRow, TraceRow, merge, scope_of
from analyzer.sources.spans.senders import judge
from analyzer.sources.spans.shapes import Request
from analyzer.sources.spans.steps import LaneWriter, Origin
from analyzer.sources.spans.tree import Trace, leaves
from analyzer.sources.spans.usage import NormalisedUsage, Sender, normalise_usage

_NO_CONTENT = Request(flags=("no_input", "no_output"))
_SenderKey = tuple[str, str, str]
_Records = list[tuple[NormalisedUsage, int | None]]


@dataclass(slots=True)
class Gathered:
    """Everything that some files hold, before it is grouped."""

    origin: Origin
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    traces: dict[str, TraceRow] = field(default_factory=dict)
    scores: dict[tuple[str, ...], ScoreRow] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    def add(self, within: str, row: Row, complaints: Complaints) -> None:
        """Take a row, or fill the gaps of the copy that is known; its id is unique `within`."""
        for key in normalise_usage(row.usage or {}).bad_keys if row.is_call or row.sums else ():
            message = f"expected a whole token count from 0 to 2^53, got {str(row.usage)[:80]}"
            complaints.add(f"{self.origin.usage_pointer}.{key}", message)
        try:
            row = with_content(row, self.memory)
        except RecursionError:
            row = replace(row, content=UNREADABLE, input=None, output=None)
            message = "expected content of sane depth, got deeper nesting than can be read"
            complaints.add(self.origin.content_pointer, message)
        known = self.rows.get((within, row.id))
        self.rows[within, row.id] = merge(known, row) if known else row

    def steps(self, context: Context) -> Iterator[LaneSteps]:
        """One batch for each lane, sessions by their first step, a session's main lane first."""
        senders = _judge_senders(self.rows.values())
        for session in _sessions(self, context):
            yield from _read_session(session, senders, self, context)


# -- usage ------------------------------------------------------------------------------------


def _sender_key(row: Row) -> _SenderKey:
    sender = scope_of(row) if row.sender is None else row.sender
    return row.project_id or "", sender, row.model or ""


def _judge_senders(rows: Iterable[Row]) -> dict[_SenderKey, Sender]:
    groups: dict[_SenderKey, _Records] = {}
    promises: dict[tuple[str, str], bool] = {}
    for row in rows:
        if row.usage and (row.is_call or row.sums):
            key = _sender_key(row)
            groups.setdefault(key, []).append((_usage(row, None), row.input_size))
            if row.promised is not None:
                promises[key[:2]] = row.promised
    # A convention is kept or broken by a sender's code, so all its models tell; a server's scope
    # without a convention may stand for several applications, and there each model stands alone.
    for sender, promise in promises.items():
        together = [record for key in groups if key[:2] == sender for record in groups[key]]
        promises[sender] = bool(judge(together, promise).inclusive)
    return {key: judge(records, promises.get(key[:2])) for key, records in groups.items()}


def _usage(row: Row, sender: Sender | None) -> NormalisedUsage:
    if not row.usage_is_legacy:
        return normalise_usage(row.usage or {}, sender, aggregate=row.sums)
    # Sums alone: what the sender says of the cache elsewhere tells nothing of this row.
    reading = normalise_usage(row.usage or {}, None, aggregate=row.sums)
    flags = tuple(sorted({*reading.flags, "legacy_usage"}))
    return replace(reading, flags=flags)


# -- sessions ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _SessionTraces:
    key: SessionKey
    traces: list[Trace] = field(default_factory=list)


def _sessions(gathered: Gathered, context: Context) -> list[_SessionTraces]:
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
    gathered: Gathered,
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
        steps = LaneWriter(lane, scores, context.keep_content, gathered.origin).steps(session.key)
        yield LaneSteps(session.key, lane.name, steps, lane.parent, title)
