"""Trajectories of mini-swe-agent, formats 1 to 1.1 and the bare lists before them.

The history is linear: each request sent all messages before its answer. An answer carries the whole
LiteLLM response in `extra.response`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey
from analyzer.sources.base import Context, Head
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_array,
    as_object,
    get_array,
    get_object,
    get_text,
    is_object,
    to_cost,
    to_time,
)
from analyzer.sources.documents import outline, problem, read_document, run_name, stem_of
from analyzer.sources.exchanges import response_key
from analyzer.sources.history import Call, HistoryLane
from analyzer.sources.openai_usage import reported_usage

_OWN = ("mini_version", "info.mini_version")
_FORMAT = "mini-swe-agent"


class MiniSweAgentSource:
    """Reads one `.traj.json`."""

    name: ClassVar[str] = "mini-swe-agent"
    title: ClassVar[str] = "mini-swe-agent trajectories (.traj.json)"

    def detect(self, head: Head) -> bool:
        """The version among the run's figures, or a bare list of messages named as a trajectory."""
        if head.data.lstrip()[:1] not in (b"{", b"["):
            return False
        keys = outline(head.data)
        if keys.get("trajectory_format", "").startswith(_FORMAT) or any(k in keys for k in _OWN):
            return True
        bare = "[].role" in keys and "[].content" in keys
        return bare and ".traj" in head.path.suffixes

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        document, failed = read_document(path)
        if failed is not None:
            yield failed
            return
        try:
            whole: JsonObject = (
                as_object(document) if is_object(document) else {"messages": document}
            )
            messages = as_array(whole.get("messages"), "$.messages")
        except DecodeError as error:
            yield problem(path, None, error)
            return
        yield from _read(whole, messages, path, context)


def _read(
    whole: JsonObject, entries: Sequence[Json], path: Path, context: Context
) -> Iterator[LaneSteps | Problem]:
    first = next((i for i, m in enumerate(entries) if _role(m) == "assistant"), len(entries))
    name = get_text(whole, "instance_id") or stem_of(path)
    session = run_name(name, *entries[: first + 1])
    lane = HistoryLane(SessionKey(context.project, context.user, session))
    # Newer versions offer a tool that the file does not list.
    lane.recorded = not any(isinstance(m, dict) and m.get("tool_calls") for m in entries)
    model = get_text(
        get_object(get_object(get_object(whole, "info"), "config"), "model"), "model_name"
    )
    for index, entry in enumerate(entries):
        try:
            _message(lane, as_object(entry, f"$.messages[{index}]"), index, model)
        except DecodeError as error:
            yield problem(path, index + 1, error, entry)
        yield from lane.ready()
    if len(lane):
        yield lane.take()


def _role(entry: Json) -> str | None:
    return get_text(entry, "role") if isinstance(entry, dict) else None


def _message(lane: HistoryLane, message: JsonObject, index: int, model: str | None) -> None:
    pointer = f"$.messages[{index}]"
    role = get_text(message, "role")
    if role is None:
        raise DecodeError("expected a role, got none", f"{pointer}.role")
    if role == "exit":
        return  # The submission; no request sends it.
    if role != "assistant":
        lane.say(message)
        return
    extra = get_object(message, "extra")
    response = get_object(extra, "response")
    lane.step(_call(lane, extra, response, index, model), message)


def _call(
    lane: HistoryLane, extra: JsonObject, response: JsonObject, index: int, model: str | None
) -> Call:
    pointer = f"$.messages[{index}].extra"
    at = to_time(response.get("created"), f"{pointer}.response.created")
    ended = to_time(extra.get("timestamp"), f"{pointer}.timestamp")
    identity = response_key(get_text(response, "id"), response)
    cost = extra.get("cost")
    choices = get_array(response, "choices")
    choice = choices[0] if choices and isinstance(choices[0], dict) else {}
    return Call(
        key=f"openai:{identity}" if identity else f"{lane.session.session_id}#{index}",
        usage=reported_usage(get_object(response, "usage"), f"{pointer}.response.usage"),
        model=get_text(response, "model") or model,
        at=at or ended,
        ended_at=ended,
        human=len(lane) == 0,
        stop_reason=get_text(choice, "finish_reason"),
        line=index + 1,
        reported_cost=to_cost(cost, f"{pointer}.cost"),
    )
