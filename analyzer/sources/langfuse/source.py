"""Saved Langfuse data: API pages, trace downloads, blob and UI exports.

Observations of one session lie spread over pages and files, so all rows are gathered, freed of
copies, and only then grouped into traces, sessions and lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem
from analyzer.sources.base import Context, Head
from analyzer.sources.langfuse.files import Found, problem_of, read_objects
from analyzer.sources.langfuse.rows import (
    is_observation,
    is_score,
    is_trace,
    read_row,
    read_score,
    read_trace,
)
from analyzer.sources.langfuse.tables import is_table
from analyzer.sources.spans.rows import Complaints
from analyzer.sources.spans.sessions import Gathered
from analyzer.sources.spans.steps import Origin

_ORIGIN = Origin("langfuse", "observation", "$.usageDetails", "$.input")
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
        gathered = Gathered(_ORIGIN)
        for path in paths:
            for found in read_objects(path):
                if isinstance(found, Problem):
                    yield found
                else:
                    yield from _gather(found, gathered)
        yield from gathered.steps(context)


def _gather(found: Found, gathered: Gathered) -> Iterator[Problem]:
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


def _gather_row(found: Found, gathered: Gathered) -> Iterator[Problem]:
    value, place = found.value, found.place
    complaints = Complaints()
    try:
        row = read_row(value, place, complaints)
    except DecodeError as error:
        yield problem_of(place, value, error.message, place.pointer + error.pointer[1:])
        return
    gathered.add(row.project_id or "", row, complaints)
    for pointer, message in complaints.found:
        yield problem_of(place, value, message, place.pointer + pointer[1:])


def _is_wrapper(value: Mapping[str, object]) -> bool:
    return any(isinstance(value.get(key), list) for key in ("observations", "traces", "data"))
