"""Runs of LangSmith: bodies of its batch ingestion, and exported runs.

Runs of the type `llm` are steps; the counts of the runs around them are sums of theirs. A run that
is posted and patched is one run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, NamedTuple

import zstandard

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey
from analyzer.sources.base import Context, Head
from analyzer.sources.decode import (
    JsonObject,
    as_object,
    dump,
    encode,
    get_array,
    get_object,
    get_text,
    parse,
    to_time,
)
from analyzer.sources.documents import problem, run_name, stem_of
from analyzer.sources.exchanges import Exchange, record
from analyzer.sources.history import Call, HistoryLane, beginning, opening
from analyzer.sources.langsmith_files import FoundRun, read_runs, shows_runs
from analyzer.sources.langsmith_messages import RunBodies, bodies_of
from analyzer.sources.langsmith_usage import RunUsage, cost_of_run, run_usage

MAIN = "main"
_SESSION = ("session_id", "thread_id", "conversation_id")
"""Names in a run's metadata; the `session_id` of the run itself is that of its project."""
_GRAPH = ("langgraph_checkpoint_ns", "checkpoint_ns")
_INTERNAL = ("ls_", "lc_", "langgraph_", "LANGSMITH_", "checkpoint_", *_SESSION)
"""How names of metadata begin that say nothing about the run to people."""
_LABEL_CHARS = 200
_HEAVY = ("child_runs", "events", "manifest", "serialized")
_BODIES = ("inputs", "outputs")
_NEVER = datetime.max.replace(tzinfo=UTC)


class LangSmithSource:
    """Reads a file of runs, which may be in any order."""

    name: ClassVar[str] = "langsmith"
    title: ClassVar[str] = "LangSmith runs: ingestion batches and exports (JSON, Parquet)"

    def detect(self, head: Head) -> bool:
        """Runs with a type, a body and the place in a trace that LangSmith gives them."""
        return shows_runs(head)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        runs = _Runs()
        for found in read_runs(path):
            if isinstance(found, Problem):
                yield found
                continue
            try:
                runs.add(found)
            except DecodeError as error:
                yield problem(path, found.line, error, found.run)
        reader = _Reader(path, context, runs)
        for node in runs.requests():
            run = node.run()
            try:
                lane = reader.add(run, node)
            except DecodeError as error:
                yield problem(path, node.line, error, run)
                continue
            yield from lane.ready()
        for lane in dict.fromkeys(reader.lanes.values()):
            if len(lane):
                yield lane.take()


@dataclass(slots=True)
class _Node:
    """A run in its trace. Its bodies are kept packed: a file may be larger than memory."""

    identity: str
    line: int | None
    packed: bytes = b""
    kind: str | None = None
    name: str | None = None
    parent: str | None = None
    trace: str | None = None
    session: str | None = None
    agent: str | None = None
    at: datetime | None = None

    def run(self) -> JsonObject:
        """The run as it was recorded, after its patches."""
        return as_object(parse(zstandard.decompress(self.packed))) if self.packed else {}


@dataclass(slots=True)
class _Runs:
    """Every run of a file by its id."""

    nodes: dict[str, _Node] = field(default_factory=dict)

    def add(self, found: FoundRun) -> None:
        """A run, or what changes of one. Raises `DecodeError`."""
        order = get_text(found.run, "dotted_order") or ""
        # A patch may show its id only at the end of its order (`<time>Z<id>`).
        identity = get_text(found.run, "id", "run_id") or order.rpartition("Z")[2] or found.pointer
        node = self.nodes.setdefault(identity, _Node(identity, found.line))
        run = _merged(node.run(), found.run)
        at = to_time(run.get("start_time"), "$.start_time")
        kind, metadata = get_text(run, "run_type"), _metadata(run)
        above = order.rpartition(".")[0].rpartition("Z")[2]
        parents = [p for p in get_array(run, "parent_run_ids") if isinstance(p, str)]
        dropped = _HEAVY if kind in ("llm", None) else (*_HEAVY, *_BODIES)
        node.packed = zstandard.compress(
            encode({k: v for k, v in run.items() if k not in dropped}), 1
        )
        node.kind, node.name, node.at = kind, get_text(run, "name"), at
        node.parent = get_text(run, "parent_run_id") or above or (parents[-1] if parents else None)
        node.trace = get_text(run, "trace_id") or (order.split(".")[0].rpartition("Z")[2] or None)
        node.session = get_text(metadata, *_SESSION) or get_text(run, "thread_id")
        node.agent = _agent(metadata)

    def requests(self) -> list[_Node]:
        """The runs that are steps, in order of time.

        A client wrapped twice gives a run inside a run for one request: the inner ones count, if
        they hold counts at all.
        """
        models = [node for node in self.nodes.values() if node.kind == "llm"]
        around = {n.identity: [a for a in self.above(n) if a.kind == "llm"] for n in models}
        nested = [n for n in models if around[n.identity]]
        counted = {
            n.identity: _is_counted(n.run())
            for n in {m.identity: m for i in nested for m in (i, *around[i.identity])}.values()
        }
        gone: set[str] = set()
        for node in sorted(nested, key=lambda n: not counted[n.identity]):
            rivals = [a.identity for a in around[node.identity] if a.identity not in gone]
            if counted[node.identity] or not any(counted[r] for r in rivals):
                gone.update(rivals)
            else:
                gone.add(node.identity)
        kept = [node for node in models if node.identity not in gone]
        return sorted(kept, key=lambda n: n.at or _NEVER)

    def above(self, node: _Node) -> Iterator[_Node]:
        """The runs around a run, from the inside."""
        seen = {node.identity}
        while node.parent in self.nodes and node.parent not in seen:
            seen.add(node.parent)
            node = self.nodes[node.parent]
            yield node

    def session(self, node: _Node) -> str | None:
        """The conversation that a run or the nearest run around it names, or else its trace."""
        chain = [node, *self.above(node)]
        named = next((n.session for n in chain if n.session), None)
        whole = chain[-1] if len(chain) > 1 else None
        return named or node.trace or (whole.identity if whole else None)

    def agent(self, node: _Node) -> str:
        """What tells agents of one session apart: where in a graph they are, or their tools' runs."""
        tools = [n.name or "tool" for n in self.above(node) if n.kind == "tool"]
        return node.agent or "/".join(reversed(tools))


def _merged(posted: JsonObject, patched: JsonObject) -> JsonObject:
    """A run as it stands after a patch; what a patch leaves empty stays."""
    kept = {k: v for k, v in patched.items() if v not in (None, {}, [], "")}
    return {**posted, **{k: v for k, v in kept.items() if k != "child_runs"}}


def _metadata(run: JsonObject) -> JsonObject:
    return get_object(get_object(run, "extra"), "metadata") or get_object(run, "metadata")


def _is_counted(run: JsonObject) -> bool:
    """Whether a run holds counts, well or badly formed."""
    try:
        bodies = bodies_of(run, None)
        return run_usage(run, bodies.outputs, bodies.answer) != RunUsage(None)
    except DecodeError:
        return True


def _labels(metadata: JsonObject) -> dict[str, str]:
    """What people wrote beside a run: the arm of an experiment, a task, an environment."""
    return {
        name: value if isinstance(value, str) else dump(value)
        for name, value in metadata.items()
        if isinstance(value, str | int | float)
        and not name.startswith(_INTERNAL)
        and len(str(value)) <= _LABEL_CHARS
    }


def _agent(metadata: JsonObject) -> str | None:
    """The agent that a framework names, or the nodes of a graph without the ids of their runs."""
    path = (get_text(metadata, *_GRAPH) or "").split("|")
    nodes = [piece.split(":")[0] for piece in path if piece]
    return get_text(metadata, "lc_agent_name") or "/".join(nodes) or None


class _LaneKey(NamedTuple):
    session: str
    agent: str
    beginning: int


class _Reader:
    def __init__(self, path: Path, context: Context, runs: _Runs) -> None:
        self.path = path
        self.context = context
        self.runs = runs
        self.unnamed: str | None = None
        """Session of the runs that name none: the file's name, set apart by how it begins."""
        self.lanes: dict[_LaneKey, HistoryLane] = {}

    def add(self, run: JsonObject, node: _Node) -> HistoryLane:
        """One model request. Raises `DecodeError`."""
        metadata = _metadata(run)
        provider = get_text(metadata, "ls_provider")
        bodies = bodies_of(run, provider)
        counted = run_usage(run, bodies.outputs, bodies.answer)
        exchange = bodies.exchange._replace(usage=counted.usage)
        error = run.get("error")
        labels = _labels(metadata)
        if counted.merged is not None:
            labels["cache_tokens_read_or_written"] = str(counted.merged)
        call = Call(
            key=f"langsmith:{node.identity}",
            model=_model(bodies, metadata),
            at=node.at,
            ended_at=to_time(run.get("end_time"), "$.end_time"),
            provider=provider,
            error=error if isinstance(error, str) or error is None else dump(error),
            labels=tuple(sorted(labels.items())),
            line=node.line,
            reported_cost=cost_of_run(run),
            settings=bodies.request,
        )
        lane = self._lane(node, exchange)
        lane.recorded = bodies.known and exchange.previous is None
        record(lane, call, exchange)
        return lane

    def _lane(self, node: _Node, exchange: Exchange) -> HistoryLane:
        """Conversations of one session are told apart by their agent and by how they begin."""
        session = self.runs.session(node)
        if session is None:
            if self.unnamed is None:
                first = opening(exchange.messages)
                body = None if first is None else first.body
                self.unnamed = run_name(stem_of(self.path), body, list(exchange.replies))
            session = self.unnamed
        key = _LaneKey(session, self.runs.agent(node), beginning(exchange.messages))
        if key not in self.lanes:
            siblings = {k: v for k, v in self.lanes.items() if k.session == session}
            same = [v for k, v in siblings.items() if k.agent == key.agent]
            goes_on = next(
                (v for v in reversed(same) if v.is_continued_by(exchange.messages)), None
            )
            self.lanes[key] = goes_on or self._new_lane(key, {v.lane for v in siblings.values()})
        return self.lanes[key]

    def _new_lane(self, key: _LaneKey, taken: set[str]) -> HistoryLane:
        session = SessionKey(self.context.project, self.context.user, key.session)
        name = _free_name(key.agent, taken)
        return HistoryLane(session, name, None if name == MAIN else MAIN)


def _free_name(agent: str, taken: set[str]) -> str:
    """The first conversation of a session is its main one; the others are named by their agent."""
    if not taken:
        return MAIN
    name = agent or MAIN
    if name not in taken:
        return name
    return next(n for i in range(2, len(taken) + 3) if (n := f"{name}-{i}") not in taken)


def _model(bodies: RunBodies, metadata: JsonObject) -> str | None:
    """The model as the response names it, or else as the request does."""
    made = get_object(bodies.answer, "response_metadata")
    overall = get_object(bodies.outputs, "llm_output")
    inner = get_object(bodies.outputs, "message")
    for place in (bodies.outputs, inner, made, overall, bodies.request):
        name = get_text(place, "model", "model_name", "model_id")
        if name is not None:
            return name
    return get_text(metadata, "ls_model_name")
