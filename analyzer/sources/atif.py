"""Trajectories in ATIF, the Agent Trajectory Interchange Format (v1.0 to v1.7).

Steps of the source `agent` are model requests; the messages before one are what it sent.
`prompt_tokens` includes the cached ones. Source of the fields: Harbor's trajectory format, 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_array,
    as_object,
    dump,
    get_array,
    get_count,
    get_object,
    get_text,
    to_cost,
    to_time,
)
from analyzer.sources.documents import outline, problem, read_document, run_name, stem_of
from analyzer.sources.history import Call, HistoryLane
from analyzer.sources.openai_usage import disjoint

_VERSION = "ATIF-"
_SUBAGENTS = "subagent_trajectories"
_MAX_DEPTH = 8
"""Subagents inside subagents that are followed."""


class AtifSource:
    """Reads one trajectory document."""

    name: ClassVar[str] = "atif"
    title: ClassVar[str] = "Agent Trajectory Interchange Format, one JSON document"

    def detect(self, head: Head) -> bool:
        """The name of the format in `schema_version`, or its steps beside an agent."""
        if head.data.lstrip()[:1] != b"{":
            return False
        keys = outline(head.data)
        if keys.get("schema_version", "").startswith(_VERSION):
            return True
        return all(k in keys for k in ("steps.[].step_id", "steps.[].source", "agent.name"))

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        document, failed = read_document(path)
        if failed is not None:
            yield failed
            return
        try:
            whole = as_object(document)
            name = get_text(whole, "session_id", "trajectory_id")
            run = run_name(name or stem_of(path), *_beginning(whole))
            key = SessionKey(context.project, context.user, name or run)
            yield from _lane(whole, HistoryLane(key), path, run, 0)
        except DecodeError as error:
            yield problem(path, None, error)


def _beginning(whole: JsonObject) -> list[Json]:
    """The steps up to the first of the agent: they stay while a run grows."""
    steps = as_array(whole.get("steps"), "$.steps")
    first = next(
        (i for i, s in enumerate(steps) if isinstance(s, dict) and s.get("source") == "agent"),
        len(steps),
    )
    return list(steps[: first + 1])


def _lane(
    whole: JsonObject, lane: HistoryLane, path: Path, run: str, depth: int
) -> Iterator[LaneSteps | Problem]:
    agent = get_object(whole, "agent")
    tools = get_array(agent, "tool_definitions")
    lane.open(tools=tools or None)
    # The steps show what the agent kept; whatever else it sent is not in the format.
    lane.recorded = False
    for index, entry in enumerate(as_array(whole.get("steps"), "$.steps")):
        try:
            _step(lane, as_object(entry, f"$.steps[{index}]"), index, agent, run)
        except DecodeError as error:
            yield problem(path, index + 1, error, entry)
        yield from lane.ready()
    if len(lane):
        yield lane.take()
    if depth >= _MAX_DEPTH:
        return
    for number, inner in enumerate(get_array(whole, _SUBAGENTS)):
        sub = as_object(inner, f"$.{_SUBAGENTS}[{number}]")
        name = get_text(sub, "trajectory_id", "session_id") or f"{lane.lane}-{number + 1}"
        yield from _lane(sub, HistoryLane(lane.session, name, lane.lane), path, run, depth + 1)


def _step(lane: HistoryLane, step: JsonObject, index: int, agent: JsonObject, run: str) -> None:
    message: dict[str, Json] = {"role": "user", "content": step.get("message")}
    match step.get("source"):
        case "agent":
            message = {"role": "assistant", "content": step.get("message"), **_calls(step)}
            if _was_requested(step):
                lane.step(_call(lane, step, index, agent, run), message)
            else:
                lane.say(message)
        case "system":
            lane.say({**message, "role": "system"})
        case "user":
            lane.say(message)
        case other:
            raise DecodeError(
                f"expected a source of system, user or agent, got {dump(other)[:40]!r}",
                f"$.steps[{index}].source",
            )
    for result in get_array(get_object(step, "observation"), "results"):
        if isinstance(result, dict):
            lane.say(_result(result))


def _was_requested(step: JsonObject) -> bool:
    """Steps copied from before a summary, and steps made without a model, are no requests."""
    return not step.get("is_copied_context") and step.get("llm_call_count") != 0


def _calls(step: JsonObject) -> dict[str, Json]:
    calls = [
        {
            "id": get_text(c, "tool_call_id"),
            "type": "function",
            "function": {"name": get_text(c, "function_name"), "arguments": c.get("arguments")},
        }
        for c in get_array(step, "tool_calls")
        if isinstance(c, dict)
    ]
    return {"tool_calls": calls} if calls else {}


def _result(result: JsonObject) -> dict[str, Json]:
    content = result.get("content")
    if content is None:
        content = dump(result.get("subagent_trajectory_ref") or "")
    call = get_text(result, "source_call_id")
    if call is None:
        return {"role": "user", "content": content}
    return {"role": "tool", "tool_call_id": call, "content": content}


def _call(lane: HistoryLane, step: JsonObject, index: int, agent: JsonObject, run: str) -> Call:
    metrics = get_object(step, "metrics")
    cost = metrics.get("cost_usd")
    return Call(
        key=f"{run}/{lane.lane}#{dump(step.get('step_id', index))}",
        usage=_usage(metrics, f"$.steps[{index}].metrics") if metrics else None,
        model=get_text(step, "model_name") or get_text(agent, "model_name"),
        at=to_time(step.get("timestamp"), f"$.steps[{index}].timestamp"),
        line=index + 1,
        reported_cost=to_cost(cost, f"$.steps[{index}].metrics.cost_usd"),
    )


def _usage(metrics: JsonObject, pointer: str) -> Usage:
    whole = get_count(metrics, "prompt_tokens", pointer)
    read = get_count(metrics, "cached_tokens", pointer)
    extra = get_object(metrics, "extra")
    written = get_count(extra, "cache_creation_input_tokens", f"{pointer}.extra")
    output = get_count(metrics, "completion_tokens", pointer)
    uncached, written = disjoint(whole, read, written)
    return Usage(
        input=uncached,
        cache_read=read,
        cache_write=written,
        output=output,
        reasoning=get_count(extra, "reasoning_tokens", f"{pointer}.extra"),
    )
