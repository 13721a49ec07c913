"""The threads of one Managed Agents session as lanes, event by event.

Owns what an event means for a thread's prompt. The service shows neither its own instructions nor
the definitions of its built-in tools, so every prompt is rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from analyzer.model import Compaction, LaneSteps, Part, SessionKey, Usage
from analyzer.sources.anthropic_usage import anthropic_usage
from analyzer.sources.blocks import make_part, message_parts, system_parts, text_of, tool_parts
from analyzer.sources.decode import Json, JsonObject, get_array, get_count, get_object, get_text
from analyzer.sources.journal import labels_of, new_answer
from analyzer.sources.transcript import LaneBuilder

MAIN = "main"
GRADER = "grader"
"""Lane of the requests that judge an outcome; they have a context of their own."""
_CALLS = ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")
_RESULTS = {
    "agent.tool_result": "tool_use_id",
    "agent.mcp_tool_result": "mcp_tool_use_id",
    "user.tool_result": "tool_use_id",
    "user.custom_tool_result": "custom_tool_use_id",
}
"""Events that carry a result, and the field that names its call."""
_CREATED = "session.thread_created"
_SAID = ("user.message", "system.message", "agent.thread_message_received", "user.define_outcome")


class Event(NamedTuple):
    """One event and where it was recorded."""

    body: JsonObject
    at: datetime | None
    line: int
    session: str | None = None
    thread: str | None = None

    @property
    def kind(self) -> str:
        """The type of the event."""
        return get_text(self.body, "type") or ""


@dataclass(slots=True)
class _Request:
    """A model request from its start to what comes after its end."""

    key: str
    line: int
    at: datetime | None
    blocks: list[Json] = field(default_factory=list)
    waiting: list[Event] = field(default_factory=list)
    """What was said before it ended: the next request sends it."""
    ended: bool = False
    ended_at: datetime | None = None
    usage: Usage | None = None
    model: str | None = None
    speed: str | None = None
    error: str | None = None


class Threads:
    """Feed the events of one session in order, then call `finish`."""

    def __init__(
        self, key: SessionKey, objects: Sequence[JsonObject], events: Sequence[Event]
    ) -> None:
        """`objects` are the session and its threads as the API describes them."""
        self._key = key
        self._title: str | None = None
        self._names = _thread_names(objects, events)
        self._lanes: dict[str, _Thread] = {}
        self._unechoed = _unechoed(events)
        for described in objects:
            self._title = get_text(described, "title") or self._title
            parent = get_text(described, "parent_thread_id")
            lane = self._lane(get_text(described, "id") if parent else None)
            lane.runs(get_object(described, "agent"))

    def take(self, event: Event) -> None:
        """One event; unknown ones are passed by. Raises `DecodeError`."""
        if event.kind == "span.outcome_evaluation_end":
            self._thread(GRADER).judge(event)
        elif event.kind == "session.updated":
            self._lane(event.thread).runs(get_object(event.body, "agent"))
        elif get_text(event.body, "id") or id(event.body) in self._unechoed:
            self._lane(event.thread).take(event)

    def finish(self) -> Iterator[LaneSteps]:
        """The steps of each lane."""
        for thread in self._lanes.values():
            thread.flush()
            steps = thread.builder.finish(self._title)
            if steps is not None:
                yield steps

    def _lane(self, thread: str | None) -> _Thread:
        return self._thread(self._names.get(thread or "", MAIN))

    def _thread(self, name: str) -> _Thread:
        if name not in self._lanes:
            parent = None if name == MAIN else MAIN
            self._lanes[name] = _Thread(LaneBuilder(self._key, name, parent))
        return self._lanes[name]


def _thread_names(objects: Iterable[JsonObject], events: Sequence[Event]) -> dict[str, str]:
    """A lane's name for each thread that another one started; the session's own is `main`."""
    made = [
        (get_text(o, "id"), get_text(get_object(o, "agent"), "name"))
        for o in objects
        if get_text(o, "parent_thread_id")
    ]
    made += [(e.thread, get_text(e.body, "agent_name")) for e in events if e.kind == _CREATED]
    names: dict[str, str] = {}
    for thread, agent in made:
        if thread is not None and thread not in names:
            free = agent and agent not in (MAIN, GRADER, *names.values())
            names[thread] = agent if agent and free else thread
    return names | {thread: thread for thread in _strangers(names, events)}


def _strangers(names: Mapping[str, str], events: Sequence[Event]) -> list[str]:
    """Threads that nothing recorded says the start of, without the session's own."""
    shown = [e.thread for e in events if not e.kind.startswith("session.")]
    own = [e.thread for e in events if e.kind.startswith("session.") and e.kind != _CREATED]
    primary = [t for t in own if t is not None and t not in names][:1]
    found = [t for t in dict.fromkeys(shown) if t is not None and t not in (*names, *primary)]
    # Events of the session's own stream name no thread; where all name one, the first is its own.
    return found if primary or None in shown else found[1:]


def _unechoed(events: Iterable[Event]) -> set[int]:
    """Events that a client sent and no stream shows; the others come again with an id."""
    echoes: list[tuple[str, Json]] = []
    sent: list[Event] = []
    for event in events:
        if get_text(event.body, "id"):
            echoes.append((event.kind, _content(event)))
        else:
            sent.append(event)
    lost = set()
    for event in sent:
        shown = (event.kind, _content(event))
        if shown in echoes:
            echoes.remove(shown)
        else:
            lost.add(id(event.body))
    return lost


def _content(event: Event) -> Json:
    name = _RESULTS.get(event.kind)
    content = event.body.get("content", event.body.get("description"))
    return [event.body.get(name) if name else None, text_of(content)]


class _Thread:
    """One thread's view of what its requests send."""

    def __init__(self, builder: LaneBuilder) -> None:
        self.builder = builder
        self._request: _Request | None = None
        self._tools: dict[str, str] = {}
        self._model: str | None = None
        self._speed: str | None = None
        self._trouble: str | None = None

    def runs(self, agent: JsonObject) -> None:
        """The agent that the thread runs from here on, as far as it is described."""
        model = agent.get("model")
        if isinstance(model, Mapping):
            self._speed = get_text(model, "speed") or self._speed
            model = model.get("id")
        self._model = model if isinstance(model, str) else self._model
        # Toolsets only name tools that the service defines; their text is not known.
        own = [
            t for t in get_array(agent, "tools") if isinstance(t, Mapping) and "input_schema" in t
        ]
        head = [marked.part for marked in (*tool_parts(own), *system_parts(agent.get("system")))]
        if head:
            self.flush()
            self.builder.lead(head)

    def take(self, event: Event) -> None:
        """One event of the thread. Raises `DecodeError`."""
        match event.kind:
            case "span.model_request_start":
                self.flush()
                self._request = _Request(_key(event.body), event.line, event.at)
            case "span.model_request_end":
                self._end(event)
            case "agent.message" | "agent.thread_message_sent":
                self._answer(event, get_array(event.body, "content"))
            case "agent.thinking":
                self._answer(event, [_thought(event.body)])
            case kind if kind in _CALLS:
                self._answer(event, [_call(event.body)])
            case kind if kind in _RESULTS or kind in _SAID:
                self._hear(event)
            case "agent.thread_context_compacted":
                self._compact(event)
            case "session.error":
                self._trouble = get_text(get_object(event.body, "error"), "message", "type")

    def judge(self, event: Event) -> None:
        """A request that judged an outcome; of it only the counts are shown. Raises `DecodeError`."""
        counts = get_object(event.body, "usage")
        usage = anthropic_usage(counts).usage if counts else None
        key = f"managed-agents:{get_text(event.body, 'id')}"
        answer = new_answer(key, event.at, get_text(counts, "model"), usage, event.line)
        answer.provider = "anthropic"
        self.builder.answer(answer, ())

    def flush(self) -> None:
        """The open request is over: its step is made, and what waited follows it."""
        request, self._request = self._request, None
        if request is None:
            return
        model = request.model or self._model
        answer = new_answer(request.key, request.ended_at, model, request.usage, request.line)
        answer.started_at = request.at
        answer.provider = "anthropic"
        answer.error = request.error
        answer.labels = labels_of(speed=request.speed or self._speed)
        blocks: JsonObject = {"role": "assistant", "content": request.blocks}
        parts = [m.part for m in message_parts(blocks, self._tools)] if request.blocks else []
        self.builder.answer(answer, parts)
        self.builder.close()
        for event in request.waiting:
            self._hear(event)

    def _end(self, event: Event) -> None:
        key = _key(event.body)
        if self._request is None or self._request.key != key:
            # The recording began in the middle of this request.
            self.flush()
            self._request = _Request(key, event.line, None)
        request = self._request
        counts = get_object(event.body, "model_usage") or get_object(event.body, "usage")
        usage = anthropic_usage(counts, "$.model_usage").usage if counts else None
        request.ended, request.ended_at = True, event.at
        request.model = get_text(counts, "model") or get_text(event.body, "model")
        request.speed = get_text(counts, "speed")
        if event.body.get("is_error") is True:
            request.error = self._trouble or "the model request ended in an error"
            # An error is reported with zeros, which say that nothing is known.
            usage = usage if usage is not None and (usage.prompt or usage.output) else None
        request.usage, self._trouble = usage, None
        if request.waiting:
            self.flush()

    def _answer(self, event: Event, blocks: Sequence[Json]) -> None:
        if self._request is not None:
            self._request.blocks.extend(blocks)
            return
        entry: JsonObject = {"role": "assistant", "content": blocks}
        parts = [marked.part for marked in message_parts(entry, self._tools)]
        self.builder.say(parts, event.at, human=False)

    def _hear(self, event: Event) -> None:
        """A message or a result that the next request sends."""
        if self._request is not None and not self._request.ended:
            self._request.waiting.append(event)
            return
        self.flush()
        human = event.kind in ("user.message", "user.define_outcome")
        self.builder.say(self._parts(event), event.at, human=human)

    def _parts(self, event: Event) -> list[Part]:
        content = event.body.get("content", event.body.get("description"))
        if event.kind in _RESULTS:
            return [self._result(event, content)]
        role = "system" if event.kind == "system.message" else "user"
        return [m.part for m in message_parts({"role": role, "content": content}, self._tools)]

    def _result(self, event: Event, content: Json) -> Part:
        call = get_text(event.body, _RESULTS[event.kind])
        return make_part(
            "messages",
            "user",
            "tool_result",
            text_of(content),
            tool=self._tools.get(call or ""),
            call_id=call,
            starts_message=self.builder.last_role() != "user",
            salt="error" if event.body.get("is_error") else "",
        )

    def _compact(self, event: Event) -> None:
        self.flush()
        done = Compaction(
            kind="summary",
            pre_tokens=get_count(event.body, "pre_compaction_tokens"),
            post_tokens=get_count(event.body, "post_compaction_tokens"),
            summary_called=True,
        )
        self.builder.compact(done)


def _key(body: JsonObject) -> str:
    """Equal for the start and the end of a request."""
    return f"managed-agents:{get_text(body, 'model_request_start_id') or get_text(body, 'id')}"


def _call(body: JsonObject) -> JsonObject:
    return {
        "type": "tool_use",
        "id": get_text(body, "id"),
        "name": get_text(body, "name"),
        "input": body.get("input"),
    }


def _thought(body: JsonObject) -> JsonObject:
    """Thinking, whose text is kept back: only that there was some is known."""
    shown = text_of(body.get("content") or body.get("thinking"))
    return {"type": "thinking", "thinking": shown, "signature": get_text(body, "id")}
