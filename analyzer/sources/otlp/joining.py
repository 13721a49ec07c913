"""What the spans and log records of one trace tell of each other, once all files were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import xxhash

from analyzer.sources.decode import Json, JsonObject, encode
from analyzer.sources.otlp.content import content_of
from analyzer.sources.otlp.span import Event, LogEvent
from analyzer.sources.spans.keys import Bucket, bucket_of
from analyzer.sources.spans.rows import Complaints, Row, nested
from analyzer.sources.spans.sessions import Gathered

Key = tuple[str, str]
"""Trace id and span id."""


@dataclass(slots=True)
class Logged:
    """Log records by the span they belong to, each once."""

    events: dict[Key, dict[bytes, Event]] = field(default_factory=dict)
    _bodies: dict[bytes, Json] = field(default_factory=dict)
    """Every request logs the messages before it again; equal ones are kept once."""

    def add(self, log: LogEvent) -> None:
        """Take a record; the same one may lie in two files."""
        event = log.event
        digest = xxhash.xxh3_128_digest(encode([event.attributes, event.body]))
        body = self._bodies.setdefault(digest, event.body)
        known = self.events.setdefault((log.trace_id, log.span_id), {})
        key = event.at.to_bytes(12, "big", signed=True) + event.name.encode() + digest
        known.setdefault(key, replace(event, body=body))


def join(gathered: Gathered, logged: Logged) -> None:
    """Give spans what was said of them elsewhere."""
    _add_messages(gathered, logged)
    for inner, outer in list(_pairs(gathered.rows)):
        gathered.rows[inner] = _completed(gathered.rows[inner], gathered.rows[outer])
    _mark_nested_runs(gathered.rows)
    for key, row in list(gathered.rows.items()):
        if row.is_call and (agent := _agent_of(row)):
            gathered.rows[key[0], agent.id] = agent
            gathered.rows[key] = replace(row, parent_id=agent.id)


def _add_messages(gathered: Gathered, logged: Logged) -> None:
    """Content that was logged beside a span without any."""
    for (trace_id, span_id), known in logged.events.items():
        row = gathered.rows.get((trace_id, span_id))
        if row is None or not row.is_call or row.content is not None:
            continue
        # By time alone: records of one instant keep the order in which they were written.
        events = [known[key] for key in sorted(known, key=lambda key: key[:12])]
        sent, answer = content_of({}, events)
        if sent is not None or answer is not None:
            row = replace(row, input=sent, output=answer, fullness=row.fullness + 1)
            gathered.add(trace_id, row, Complaints())


# -- one request as two spans -----------------------------------------------------------------


def _pairs(rows: Mapping[Key, Row]) -> Iterator[tuple[Key, Key]]:
    """A call and the call around it, where nothing else is inside: one request, seen twice.

    A framework and the client that it uses are often both recorded.
    """
    inside: dict[Key, list[Key]] = {}
    for key, row in rows.items():
        above = next(_above(key, rows), None) if row.is_call else None
        if above is not None and rows[above].is_call:
            inside.setdefault(above, []).append(key)
    for outer, inner in inside.items():
        if len(inner) == 1:
            yield inner[0], outer


def _above(key: Key, rows: Mapping[Key, Row]) -> Iterator[Key]:
    """The spans around one, the nearest first, without those that say nothing of themselves."""
    seen = {key}
    parent = (key[0], rows[key].parent_id or "")
    while parent in rows and parent not in seen:
        if rows[parent].type != "SPAN":
            yield parent
        seen.add(parent)
        parent = (key[0], rows[parent].parent_id or "")


def _completed(inner: Row, outer: Row) -> Row:
    """A call with the content and the counts that only the call around it shows."""
    if inner.content is None and outer.content is not None:
        inner = replace(inner, content=outer.content, input_size=outer.input_size)
    mine, theirs = _buckets(inner.usage), _buckets(outer.usage)
    same = bool(mine) and mine.get("input") == theirs.get("input")
    if same and theirs.keys() > mine.keys():
        usage = outer.usage
        inner = replace(inner, usage=usage, sender=outer.sender, promised=outer.promised)
    return inner


def _buckets(usage: JsonObject | None) -> dict[Bucket, Json]:
    found = {bucket_of(key): value for key, value in (usage or {}).items()}
    return {bucket: value for bucket, value in found.items() if bucket}


# -- lanes ------------------------------------------------------------------------------------


def _mark_nested_runs(rows: dict[Key, Row]) -> None:
    """A run of the AI SDK that a tool started is an agent, although no attribute says so."""
    for key, row in rows.items():
        is_run = row.type == "CHAIN" and (row.name or "").startswith("ai.")
        if is_run and any(rows[above].type == "TOOL" for above in _above(key, rows)):
            rows[key] = replace(row, type="AGENT")


def _agent_of(row: Row) -> Row | None:
    """The sub-agent whose id Claude Code writes on a request; also what asks beside the main loop.

    No span stands for it, so one is made.
    """
    agent, source = nested(row, "agent_id"), nested(row, "query_source")
    if isinstance(source, str) and (source == "sdk" or source.startswith("repl_main_thread")):
        source = None
    who = agent or source
    if not isinstance(who, str):
        return None
    return replace(
        Row(f"agent:{who}", row.place, trace_id=row.trace_id, parent_id=row.parent_id),
        type="AGENT",
        name=f"subagent {who}",
        start=row.start,
    )
