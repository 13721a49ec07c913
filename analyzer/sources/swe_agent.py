"""Trajectories of SWE-agent (`.traj`): a history of messages and one entry for each step.

No usage is recorded per step, only sums for the run, so usage stays unknown. Newer versions write
what a step really sent as `query`; without it the prompt is the history before the answer.
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
)
from analyzer.sources.documents import outline, problem, read_document, run_name, stem_of
from analyzer.sources.history import Call, HistoryLane, to_raw

_STEP = ("trajectory.[].action", "trajectory.[].observation", "trajectory.[].response")
_MAIN = "main"


class SweAgentSource:
    """Reads one `.traj`."""

    name: ClassVar[str] = "swe-agent"
    title: ClassVar[str] = "SWE-agent trajectories (.traj), without usage per step"

    def detect(self, head: Head) -> bool:
        """A `trajectory` whose entries have an action, an observation and a response."""
        if head.data.lstrip()[:1] != b"{":
            return False
        keys = outline(head.data)
        return all(key in keys for key in _STEP)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        document, failed = read_document(path)
        if failed is not None:
            yield failed
            return
        try:
            whole = as_object(document)
            entries = as_array(whole.get("trajectory"), "$.trajectory")
            history = as_array(whole.get("history", ()), "$.history")
        except DecodeError as error:
            yield problem(path, None, error)
            return
        yield from _Reader(path, context, whole, entries, history).run()


class _Reader:
    def __init__(
        self,
        path: Path,
        context: Context,
        whole: JsonObject,
        entries: Sequence[Json],
        history: Sequence[Json],
    ) -> None:
        self.path = path
        self.entries = entries
        self.history = history
        first = next((i for i, m in enumerate(history) if _is_answer(m)), len(history))
        session = run_name(stem_of(path), *history[: first + 1], *entries[:1])
        self.key = SessionKey(context.project, context.user, session)
        self.lanes: dict[str, HistoryLane] = {}
        self.main = get_text(_at(history, first), "agent") or _MAIN
        self.steps = 0
        self.model = _model(whole)
        self.uses_tools = any(isinstance(m, dict) and m.get("tool_calls") for m in history)

    def run(self) -> Iterator[LaneSteps | Problem]:
        for index, message in enumerate(self.history):
            try:
                self._message(as_object(message, f"$.history[{index}]"))
            except DecodeError as error:
                yield problem(self.path, index + 1, error, message)
            for lane in self.lanes.values():
                yield from lane.ready()
        # A step that ended the run may have left no message behind.
        while self.steps < len(self.entries):
            index = self.steps
            try:
                self._unanswered(as_object(self.entries[index], f"$.trajectory[{index}]"))
            except DecodeError as error:
                self.steps += 1
                yield problem(self.path, index + 1, error, self.entries[index])
        for lane in self.lanes.values():
            if len(lane):
                yield lane.take()

    def _message(self, message: JsonObject) -> None:
        agent = get_text(message, "agent") or self.main
        lane = self._lane(agent)
        if not _is_answer(message):
            calls = get_array(message, "tool_call_ids")
            if get_text(message, "role") == "tool" and calls:
                message = {**message, "tool_call_id": calls[0]}
            lane.say(message)
            return
        self._step(lane, message)

    def _unanswered(self, entry: JsonObject) -> None:
        calls = get_array(entry, "tool_calls")
        answer = {"content": get_text(entry, "response") or "", "tool_calls": calls or None}
        self._step(self._lane(self.main), answer)

    def _step(self, lane: HistoryLane, answer: JsonObject) -> None:
        index = self.steps
        entry = _at(self.entries, index)
        query = get_array(entry, "query")
        call = Call(
            key=f"{self.key.session_id}#{index}",
            model=self.model,
            human=len(lane) == 0,
            line=index + 1,
            labels=_labels(entry),
        )
        sent = [to_raw(as_object(m, f"$.trajectory[{index}].query")) for m in query] or None
        lane.answer(call, lane.ask(call, sent), (answer,))
        self.steps += 1

    def _lane(self, agent: str) -> HistoryLane:
        name = _MAIN if agent == self.main else agent
        if name not in self.lanes:
            lane = HistoryLane(self.key, name, None if name == _MAIN else _MAIN)
            lane.recorded = not self.uses_tools
            self.lanes[name] = lane
        return self.lanes[name]


def _is_answer(message: Json) -> bool:
    """Whether a message is the model's own: demonstrations show answers that it never gave."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return False
    return not message.get("is_demo")


def _at(entries: Sequence[Json], index: int) -> JsonObject:
    entry = entries[index] if index < len(entries) else None
    return entry if isinstance(entry, dict) else {}


def _labels(entry: JsonObject) -> tuple[tuple[str, str], ...]:
    seconds = entry.get("execution_time")
    return (("tool_seconds", f"{seconds:.3f}"),) if isinstance(seconds, float) else ()


def _model(whole: JsonObject) -> str | None:
    config = whole.get("replay_config")
    agent = get_object(config, "agent") if isinstance(config, dict) else {}
    return get_text(get_object(agent, "model"), "name", "model_name")
