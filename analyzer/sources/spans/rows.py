"""One typed row for a span, whichever tool recorded it and however it was written down.

Langfuse calls such a row an observation, OpenTelemetry a span: something that took time inside a
trace, some of them requests to a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime

from analyzer.errors import DecodeError
from analyzer.sources.decode import Json, JsonObject, parse
from analyzer.sources.spans.shapes import Request

MODEL_CALLS = frozenset({"GENERATION", "EMBEDDING"})
TYPES = MODEL_CALLS | {
    "SPAN",
    "EVENT",
    "AGENT",
    "TOOL",
    "CHAIN",
    "RETRIEVER",
    "EVALUATOR",
    "GUARDRAIL",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands: file, array index or line (from 1), pointer."""

    path: str
    line: int
    pointer: str = "$"


@dataclass(frozen=True, slots=True)
class Row:
    """One span. None is "not given" throughout, since field groups may be left out."""

    id: str
    place: Place
    trace_id: str | None = None
    type: str | None = None
    parent_id: str | None = None
    name: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    project_id: str | None = None
    start: datetime | None = None
    subtick: int = 0
    """Nanoseconds of the start beyond its microsecond."""
    end: datetime | None = None
    updated: datetime | None = None
    """Of two copies of a span, the one with the later time holds."""
    fullness: int = 0
    """How much a copy says; decides where two have the same time."""
    model: str | None = None
    level: str | None = None
    status: str | None = None
    input: Json = None
    """Kept for model calls only; the content of other spans is in their prompts again."""
    output: Json = None
    parsed_io: bool = False
    """Input and output came as parsed JSON, so a JSON text in them was encoded by the sender."""
    content: Request | None = None
    """What input and output say, once they were read; the two are dropped then."""
    input_size: int | None = None
    """Estimated tokens of the input as text."""
    key: str = ""
    """Identity of the step at its origin."""
    metadata: JsonObject | None = None
    parameters: JsonObject | None = None
    usage: JsonObject | None = None
    usage_is_legacy: bool = False
    """Only the sums of old servers are there: `input` holds every cached token."""
    sums: bool = False
    """The usage of a span around requests; it counts only where nothing inside has any."""
    sender: str | None = None
    """Who wrote the usage, where that is more than the name of the scope."""
    promised: bool | None = None
    """Whether `input` holds the cached tokens, by the convention that the usage is written in."""
    total_cost: float | None = None
    costs: JsonObject | None = None
    tool_definitions: Json = None
    trace_name: str | None = None
    tier: str | None = None
    environment: str | None = None
    version: str | None = None
    release: str | None = None
    prompt_name: str | None = None
    tags: tuple[str, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the step that only some sources know."""

    @property
    def is_call(self) -> bool:
        """Whether this is a request to a model, and not a span around some."""
        return self.type in MODEL_CALLS


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A trace object: what old servers keep there and not on the observation."""

    id: str
    session_id: str | None = None
    user_id: str | None = None
    project_id: str | None = None
    name: str | None = None
    release: str | None = None
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A score: the label of an arm, or the outcome of a task."""

    name: str
    value: str
    trace_id: str | None = None
    observation_id: str | None = None
    session_id: str | None = None


@dataclass(slots=True)
class Complaints:
    """What could not be read of one row, as (pointer, message)."""

    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, pointer: str, message: str) -> None:
        """Note one complaint."""
        self.found.append((pointer, message))


_OLDEST = datetime.min.replace(tzinfo=UTC)


def merge(first: Row, second: Row) -> Row:
    """Two copies of one span: the later one, with the gaps filled from the other.

    Of two as late it is the fuller one, so that the order of the files does not matter.
    A page that was fetched without content and one with it are both copies.
    """
    newer, older = second, first
    if _standing(first) > _standing(second):
        newer, older = first, second
    gaps = {
        f.name: getattr(older, f.name)
        for f in fields(Row)
        if getattr(newer, f.name) is None and getattr(older, f.name) is not None
    }
    if not newer.usage and older.usage:
        names = ("usage", "usage_is_legacy", "sums", "sender", "promised")
        gaps |= {name: getattr(older, name) for name in names}
    return replace(newer, **gaps)


def _standing(row: Row) -> tuple[datetime, int]:
    return row.updated or _OLDEST, row.fullness


def nested(row: Row, *path: str) -> Json:
    """A metadata value by its path, whether the server kept objects, dotted keys or JSON texts."""
    value: Json = row.metadata or {}
    for i, key in enumerate(path):
        if not isinstance(value, Mapping):
            return None
        rest = ".".join(path[i:])
        if rest in value:
            return value[rest]
        value = value.get(key)
        if isinstance(value, str) and value[:1] in "{[":
            try:
                value = parse(value.encode("utf-8", "surrogatepass"))
            except DecodeError:
                return value
    return value


def scope_of(row: Row) -> str:
    """Name of the instrumentation that sent a row; "" where it does not say."""
    name = nested(row, "scope", "name")
    return name if isinstance(name, str) else ""
