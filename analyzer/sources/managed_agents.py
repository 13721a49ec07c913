"""Event streams of Anthropic's Managed Agents: the model requests of a session's threads.

Reads events one a line, saved streams of server-sent events, pages of lists, and the calls of a
client recorded as `[method, arguments or answer]`. Source: platform.claude.com, Managed Agents
(session events, session threads, outcomes), read 2026-12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey
from analyzer.sources.base import Context, Head, read_records
from analyzer.sources.decode import (
    Json,
    JsonObject,
    get_text,
    is_array,
    kind_of,
    parse,
    to_time,
)
from analyzer.sources.documents import (
    holds_lines,
    outline,
    problem,
    read_document,
    run_name,
    stem_of,
)
from analyzer.sources.managed_threads import Event, Threads

_METHOD = "client.beta.sessions."
_FAMILIES = ("agent.", "session.", "span.", "system.", "user.")
_PLACES = ("", "[].", "data.[].", "events.[].", "event.", "data.")
"""Where in the first value of a file an event may stand."""
_NO_DATA = (b"event:", b"id:", b"retry:", b":")
"""Lines of a stream of server-sent events that carry none."""
_LOOKED_AT = 20


class ManagedAgentsSource:
    """Reads the recorded events of one or more sessions."""

    name: ClassVar[str] = "managed-agents"
    title: ClassVar[str] = "Claude Managed Agents: recorded session events"

    def detect(self, head: Head) -> bool:
        """Events with the time they were processed, or calls of the client's session methods."""
        if b'"processed_at"' not in head.data and _METHOD.encode() not in head.data:
            return False
        rows = (row.removeprefix(b"data:") for row in head.lines[:_LOOKED_AT])
        return _shows_events(head.data) or any(_shows_events(row) for row in rows)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`. A list may be in any order and is held until the file's end."""
        recording = _Recording()
        if holds_lines(path):
            for found in read_records(path, recording.line):
                if found is not None:
                    yield found
        else:
            document, failed = read_document(path)
            if failed is not None:
                yield failed
            else:
                recording.take(document, 1)
        for name, sightings in recording.sessions(stem_of(path)):
            key = SessionKey(context.project, context.user, name)
            threads = Threads(key, recording.objects.get(name, ()), sightings)
            for event in sightings:
                try:
                    threads.take(event)
                except DecodeError as error:
                    yield problem(path, event.line, error, event.body)
            yield from threads.finish()


def _shows_events(data: bytes) -> bool:
    keys = outline(data)
    if keys.get("[]", "").startswith(_METHOD):
        return True
    return any(
        keys.get(f"{at}type", "").startswith(_FAMILIES) and f"{at}processed_at" in keys
        for at in _PLACES
    )


@dataclass(slots=True)
class _Recording:
    """Everything that a file shows: events once each, and the objects that describe sessions."""

    events: dict[str, Event] = field(default_factory=dict)
    session: str | None = None
    """The session that the last line spoke of."""
    objects: dict[str, list[JsonObject]] = field(default_factory=dict)
    """Sessions and threads as the API describes them, by session."""

    def line(self, raw: bytes, number: int) -> None:
        """One line. Raises `DecodeError`."""
        if raw.startswith(_NO_DATA):
            return
        self.take(parse(raw.removeprefix(b"data:")), number)

    def take(self, value: Json, number: int, thread: str | None = None) -> None:
        """Whatever a line or document holds. Raises `DecodeError`."""
        if isinstance(value, Mapping):
            self._object(value, number, thread)
        elif is_array(value):
            self._array(value, number, thread)
        else:
            raise DecodeError(f"expected events of a session, got {kind_of(value)}")

    def _array(self, values: Sequence[Json], number: int, thread: str | None) -> None:
        """A list of events, or a call: its method, the ids it was given, and what it got."""
        for value in values:
            if not isinstance(value, str):
                self.take(value, number, thread)
            elif value.startswith("sesn_"):
                self.session = value
            elif value.startswith("sthr_"):
                thread = value

    def _object(self, value: JsonObject, number: int, thread: str | None) -> None:
        kind = get_text(value, "type") or ""
        self.session = get_text(value, "session_id") or self.session
        thread = get_text(value, "session_thread_id", "thread_id") or thread
        if kind in ("session", "session_thread"):
            if kind == "session":
                self.session = get_text(value, "id") or self.session
            self.objects.setdefault(self.session or "", []).append(value)
        elif kind.startswith(_FAMILIES):
            self._event(value, number, thread)
        else:
            for name in ("data", "events", "event", "session"):
                inner = value.get(name)
                if isinstance(inner, Mapping) or is_array(inner):
                    self.take(inner, number, thread)

    def _event(self, body: JsonObject, number: int, thread: str | None) -> None:
        # A stream repeats an event after a reconnection, and says later when it was processed.
        identity = get_text(body, "id") or f"sent {len(self.events)}"
        earlier = self.events.get(identity)
        at = to_time(body.get("processed_at"), "$.processed_at")
        if earlier is None or (earlier.at is None and at is not None):
            self.events.pop(identity, None)
            self.events[identity] = Event(body, at, number, self.session, thread)

    def sessions(self, stem: str) -> Iterator[tuple[str, list[Event]]]:
        """The events of each session, in the order in which they were processed."""
        known = {e.session for e in self.events.values() if e.session} | self.objects.keys() - {""}
        first = next((e.body.get("id") for e in self.events.values()), None)
        alone = known.pop() if len(known) == 1 else run_name(stem, first)
        if "" in self.objects:
            self.objects.setdefault(alone, []).extend(self.objects.pop(""))
        found: dict[str, list[Event]] = {}
        for event in self.events.values():
            found.setdefault(event.session or alone, []).append(event)
        for name, events in found.items():
            yield name, _in_order(events)


def _in_order(events: list[Event]) -> list[Event]:
    """Sorted by time; what has none stays behind what it was recorded after."""
    keyed: list[tuple[float, int, Event]] = []
    last: datetime | None = None
    for place, event in enumerate(events):
        last = event.at or last
        keyed.append((last.timestamp() if last else 0.0, place, event))
    return [event for _, _, event in sorted(keyed, key=lambda k: k[:2])]
