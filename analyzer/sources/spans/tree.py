"""Which observations are steps, and which of them belong to one growing context.

Usage on a span that wraps others is their sum; a generation that wraps generations is one too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from analyzer.sources.spans.rows import Row, TraceRow

MAIN = "main"
_EMBEDDINGS = "embeddings"
_SUBAGENT = re.compile(r"\bsub[-_ ]?agents?\b", re.IGNORECASE)
_AGENT_RUN = re.compile(r"agent[ ._]run\b|\binvoke_agent\b", re.IGNORECASE)
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class Trace:
    """All observations of one trace, and what the trace object adds."""

    id: str
    project: str
    rows: dict[str, Row] = field(default_factory=dict)
    row: TraceRow | None = None

    @property
    def start(self) -> datetime:
        """Start of the first observation; the latest possible time where none has one."""
        return min((r.start for r in self.rows.values() if r.start), default=_LATEST)

    def roots_first(self) -> list[Row]:
        """Observations, those without a parent first, then by time."""
        return sorted(
            self.rows.values(), key=lambda r: (r.parent_id is not None, r.start or _LATEST, r.id)
        )

    def session(self) -> str | None:
        """The first session id of its rows, roots first, else the trace object's."""
        found = next((r.session_id for r in self.roots_first() if r.session_id), None)
        return found or (self.row.session_id if self.row else None)

    def user(self) -> str | None:
        """The first user id of its rows, roots first, else the trace object's."""
        found = next((r.user_id for r in self.roots_first() if r.user_id), None)
        return found or (self.row.user_id if self.row else None)


@dataclass(frozen=True, slots=True)
class LaneKey:
    """Identity of a lane inside a session."""

    label: str
    run: str = ""
    """Id of the observation that runs it, for a sub-agent: each run is a context of its own."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A request to a model, with the lane that the tree gives it."""

    row: Row
    trace: Trace
    lane: LaneKey
    parent: LaneKey | None = None


def leaves(trace: Trace) -> list[Leaf]:
    """The steps of a trace with their lanes, in no particular order."""
    steps = _calls(trace.rows)
    paths = {row.id: _path(row, trace.rows) for row in steps}
    promoted = _promoted(steps, paths, trace.rows)
    return [_leaf(row, trace, paths[row.id], promoted) for row in steps]


def _calls(rows: Mapping[str, Row]) -> list[Row]:
    """Model calls without the aggregates among them; an aggregate where nothing inside has usage."""
    alone = _alone(rows)
    wraps: dict[str, list[Row]] = {}
    for row in rows.values():
        if row.is_call:
            for above in _ancestors(row, rows):
                if above.id not in alone and (_is_agent(above) or above.type == "TOOL"):
                    # What a tool or an agent below a generation spends is no part of that one.
                    break
                if above.is_call or above.id in alone:
                    wraps.setdefault(above.id, []).append(row)
    dropped: set[str] = set()
    for outer, inner in wraps.items():
        if _has_usage(rows[outer]) and not any(map(_has_usage, inner)):
            dropped.update(row.id for row in inner)
        else:
            dropped.add(outer)
    kept = (row for row in rows.values() if row.is_call or row.id in alone)
    return [row for row in kept if row.id not in dropped]


def _alone(rows: Mapping[str, Row]) -> set[str]:
    """Spans that sum up requests of which nothing inside tells the usage."""
    spending = [row for row in rows.values() if (row.is_call or row.sums) and _has_usage(row)]
    inside = {above.id for row in spending for above in _ancestors(row, rows)}
    return {row.id for row in spending if row.sums and row.id not in inside}


def _has_usage(row: Row) -> bool:
    return any(isinstance(v, int | float) and v > 0 for v in (row.usage or {}).values())


def _ancestors(row: Row, rows: Mapping[str, Row]) -> Iterator[Row]:
    seen = {row.id}
    parent = rows.get(row.parent_id or "")
    while parent is not None and parent.id not in seen:
        yield parent
        seen.add(parent.id)
        parent = rows.get(parent.parent_id or "")


def _is_subagent(row: Row) -> bool:
    return _SUBAGENT.search(row.name or "") is not None


def _is_agent(row: Row) -> bool:
    if row.type == "AGENT" or _is_subagent(row):
        return True
    return not row.is_call and _AGENT_RUN.search(row.name or "") is not None


def _path(row: Row, rows: Mapping[str, Row]) -> tuple[Row, ...]:
    """The agents that a step belongs to; a run that was summed up is one by itself."""
    above = _agents_above(row, rows)
    return tuple(above) if row.is_call or _is_root(row, rows) else (row, *above)


def _agents_above(row: Row, rows: Mapping[str, Row]) -> list[Row]:
    """Agents around a step, the nearest first, without the trace's root."""
    return [
        above
        for above in _ancestors(row, rows)
        if _is_agent(above) and not above.is_call and not _is_root(above, rows)
    ]


def _is_root(row: Row, rows: Mapping[str, Row]) -> bool:
    if row.parent_id is None:
        return True
    # The parent may have been left out of a sample or a page; a sub-agent stays one without it.
    return row.parent_id not in rows and not _is_subagent(row)


def _is_separate_run(agent: Row, above: Sequence[Row], rows: Mapping[str, Row]) -> bool:
    """Whether each run of an agent begins with an empty context: it was started by a step."""
    if _is_subagent(agent) or above:
        return True
    return any(a.type == "TOOL" or a.is_call for a in _ancestors(agent, rows))


def _promoted(
    steps: Sequence[Row], paths: Mapping[str, Sequence[Row]], rows: Mapping[str, Row]
) -> str | None:
    """Name of the one agent that is the whole trace although it stands below a root span."""
    names: set[str | None] = set()
    for row in steps:
        path = paths[row.id]
        if not path:
            return None
        top = path[-1]
        if not _is_separate_run(top, (), rows):
            names.add(top.name)
    return names.pop() if len(names) == 1 else None


def _leaf(row: Row, trace: Trace, path: Sequence[Row], promoted: str | None) -> Leaf:
    keys = [_key(agent, path[i + 1 :], trace.rows, promoted) for i, agent in enumerate(path)]
    keys.append(LaneKey(MAIN))
    if row.type == "EMBEDDING":
        return Leaf(row, trace, LaneKey(_EMBEDDINGS), keys[0])
    if not path and _is_subagent(row):
        # Only model calls were fetched; the name still tells.
        return Leaf(row, trace, LaneKey(row.name or "", row.parent_id or trace.id), LaneKey(MAIN))
    lane = keys[0]
    parent = next((key for key in keys[1:] if key != lane), None)
    return Leaf(row, trace, lane, parent)


def _key(
    agent: Row, above: Sequence[Row], rows: Mapping[str, Row], promoted: str | None
) -> LaneKey:
    label = agent.name or "agent"
    if _is_separate_run(agent, above, rows):
        return LaneKey(label, agent.id)
    return LaneKey(MAIN if agent.name == promoted else label)
