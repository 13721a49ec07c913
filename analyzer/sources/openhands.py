"""OpenHands' evaluation output (`output.jsonl`): one run a line, its history as events.

Several events share one model response (an action, its observation, parallel calls), so steps are
told apart by response id. Condensation drops events from the view: prompts follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey, Usage
from analyzer.sources.base import HEAD_BYTES, Context, Head, read_records
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
    parse,
    to_time,
)
from analyzer.sources.documents import outline, problem, run_name, stem_of
from analyzer.sources.exchanges import response_key
from analyzer.sources.history import Call, HistoryLane, to_raw
from analyzer.sources.openai_usage import disjoint, openai_usage

_RUN = ("instance_id", "history", "metadata")
_SUMMARY = "summary"
_CACHE = ("cache_read_tokens", "cache_write_tokens")
_NO_ANSWER = ("recall", "system", "condensation", "change_agent_state", "null")


class OpenHandsSource:
    """Reads one `output.jsonl`."""

    name: ClassVar[str] = "openhands"
    title: ClassVar[str] = "OpenHands evaluation output, one run a line"

    def detect(self, head: Head) -> bool:
        """A line with an instance, the run's metadata and its history or its patch."""
        line = head.data.lstrip()
        if line[:1] != b"{":
            return False
        keys = outline(line)
        if all(key in keys for key in _RUN):
            return True
        # The history may begin behind what can be seen of a long line.
        long = b"\n" not in line and len(head.data) >= HEAD_BYTES
        return long and "instance_id" in keys and "metadata.agent_class" in keys

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""

        def read(line: bytes, number: int) -> _Run:
            return _Run(as_object(parse(line)), number, path, context)

        for run in read_records(path, read):
            if isinstance(run, Problem):
                yield run
            else:
                yield from run.read()


class _Run:
    """One line: the events of one instance, and the view of them that the model had."""

    def __init__(self, row: JsonObject, number: int, path: Path, context: Context) -> None:
        self.path = path
        self.number = number
        self.events = _events(as_array(row.get("history"), "$.history"))
        metrics = get_object(row, "metrics")
        usages = [u for u in get_array(metrics, "token_usages") if isinstance(u, dict)]
        self.usages = {get_text(u, "response_id") or "": u for u in usages}
        # Absent counts are written as 0; a run that never shows another number has none at all.
        self.has_cache = any(u.get(name) for u in usages for name in _CACHE)
        known = {_response_id(e) for e in self.events}
        self.unseen = [key for key in self.usages if key and key not in known]
        config = get_object(get_object(row, "metadata"), "llm_config")
        self.model = get_text(config, "model")
        name = get_text(row, "instance_id") or f"{stem_of(path)}-{number}"
        self.session = run_name(name, *self.events[: _first_answer(self.events) + 1])
        self.lane = HistoryLane(SessionKey(context.project, context.user, self.session))
        # The events are what the agent kept; the messages it made of them are not recorded.
        self.lane.recorded = False
        self.view: list[tuple[Json, msgspec.Raw]] = []
        self.answered: set[str] = set()

    def read(self) -> Iterator[LaneSteps | Problem]:
        for index, event in enumerate(self.events):
            try:
                self._event(as_object(event, f"$.history[{index}]"), index)
            except DecodeError as error:
                yield problem(self.path, self.number, error, event)
            yield from self.lane.ready()
        if len(self.lane):
            yield self.lane.take()
        other = HistoryLane(self.lane.session, _SUMMARY, self.lane.lane)
        for identity in self.unseen:
            # Requests of the agent's own helpers (condensers): paid, and seen nowhere else.
            try:
                other.answer(self._call(identity, {}, None), None, ())
            except DecodeError as error:
                yield problem(self.path, self.number, error, self.usages[identity])
        if len(other):
            yield other.take()

    def _event(self, event: JsonObject, index: int) -> None:
        arguments = get_object(event, "args")
        action = get_text(event, "action")
        if action == "system":
            system = get_text(arguments, "content") or get_text(event, "message")
            self.lane.open(tools=get_array(arguments, "tools") or None, system=system)
        elif action == "condensation":
            self._forget(arguments)
        elif "observation" in event:
            self._observed(event)
        elif action is not None and event.get("source") == "agent":
            if action not in _NO_ANSWER:
                self._acted(event, action, index)
        elif action == "message":
            content = get_text(arguments, "content") or get_text(event, "message") or ""
            self._show(event, {"role": "user", "content": content})

    def _acted(self, event: JsonObject, action: str, index: int) -> None:
        identity = _response_id(event)
        if identity in self.answered:
            return
        metadata = get_object(event, "tool_call_metadata")
        response = get_object(metadata, "model_response")
        if identity is None:
            # An answer without a call does not name its response: it is the next one not named.
            identity = self.unseen.pop(0) if self.unseen else f"{self.session}#{index}"
        self.answered.add(identity)
        call = self._call(identity, response, event)
        prompt = self.lane.ask(call, [raw for _, raw in self.view])
        message = _message(response, event, action)
        self.lane.answer(call, prompt, (message,))
        self.view.append((event.get("id"), to_raw(message)))

    def _observed(self, event: JsonObject) -> None:
        content = get_text(event, "content") or get_text(event, "message") or ""
        if event.get("observation") == "recall":
            content = _recalled(get_object(event, "extras"))
            if not content:
                return
        call = get_text(get_object(event, "tool_call_metadata"), "tool_call_id")
        if call is None:
            self._show(event, {"role": "user", "content": content})
        else:
            self._show(event, {"role": "tool", "tool_call_id": call, "content": content})

    def _show(self, event: JsonObject, message: JsonObject) -> None:
        self.view.append((event.get("id"), to_raw(message)))

    def _forget(self, arguments: JsonObject) -> None:
        gone = {i for i in get_array(arguments, "forgotten_event_ids") if isinstance(i, int)}
        start, end = (
            arguments.get("forgotten_events_start_id"),
            arguments.get("forgotten_events_end_id"),
        )
        if isinstance(start, int) and isinstance(end, int):
            gone.update(range(start, end + 1) if end - start <= len(self.events) else ())
        self.view = [(i, raw) for i, raw in self.view if i not in gone]
        summary = get_text(arguments, "summary")
        if summary is not None:
            at = arguments.get("summary_offset")
            place = at if isinstance(at, int) and 0 <= at <= len(self.view) else len(self.view)
            self.view.insert(place, (None, to_raw({"role": "user", "content": summary})))

    def _call(self, identity: str, response: JsonObject, event: JsonObject | None) -> Call:
        counted = self.usages.get(identity)
        usage = None
        if get_object(response, "usage"):
            usage = openai_usage(get_object(response, "usage"), "$.model_response.usage")
        if counted is not None and (usage is None or (self.has_cache and not usage.knows_cache)):
            usage = self._counts(counted)
        choices = get_array(response, "choices")
        choice = choices[0] if choices and isinstance(choices[0], dict) else {}
        named = get_text(counted or {}, "model")
        ended = to_time((event or {}).get("timestamp"), "$.timestamp")
        return Call(
            key=f"openai:{response_key(identity, response)}",
            usage=usage,
            model=get_text(response, "model") or named or self.model,
            at=to_time(response.get("created"), "$.model_response.created") or ended,
            ended_at=ended,
            stop_reason=get_text(choice, "finish_reason"),
            line=self.number,
        )

    def _counts(self, counted: JsonObject) -> Usage:
        pointer = "$.metrics.token_usages"
        read = get_count(counted, _CACHE[0], pointer) if self.has_cache else None
        written = get_count(counted, _CACHE[1], pointer) if self.has_cache else None
        output = get_count(counted, "completion_tokens", pointer)
        whole = get_count(counted, "prompt_tokens", pointer)
        uncached, written = disjoint(whole, read, written)
        return Usage(
            input=uncached,
            cache_read=read,
            cache_write=written,
            output=output,
        )


def _events(history: Sequence[Json]) -> list[Json]:
    """The events in order; old files hold pairs of an action and its observation."""
    out: list[Json] = []
    for entry in history:
        if isinstance(entry, list):
            out.extend(entry)
        else:
            out.append(entry)
    return out


def _first_answer(events: Sequence[Json]) -> int:
    return next((i for i, e in enumerate(events) if _response_id(e)), len(events))


def _response_id(event: Json) -> str | None:
    if not isinstance(event, dict):
        return None
    metadata = get_object(event, "tool_call_metadata")
    return get_text(get_object(metadata, "model_response"), "id")


def _message(response: JsonObject, event: JsonObject, action: str) -> JsonObject:
    """The model's own message where it is recorded, else what the event tells of it."""
    choices = get_array(response, "choices")
    if choices and isinstance(choices[0], dict):
        message = get_object(choices[0], "message")
        if message:
            return message
    arguments = get_object(event, "args")
    said = get_text(arguments, "content", "thought") or get_text(event, "message") or ""
    if action in ("message", "think"):
        return {"content": said}
    call: Json = {"type": "function", "function": {"name": action, "arguments": dump(arguments)}}
    return {"content": get_text(arguments, "thought") or "", "tool_calls": [call]}


def _recalled(extras: JsonObject) -> str:
    """Instructions that the agent added to the conversation by itself."""
    pieces = [
        get_text(extras, "repo_instructions"),
        get_text(extras, "additional_agent_instructions"),
    ]
    for knowledge in get_array(extras, "microagent_knowledge"):
        if isinstance(knowledge, dict):
            pieces.append(get_text(knowledge, "content"))
    return "\n\n".join(piece for piece in pieces if piece)
