"""Events that OpenClaw's telemetry plug-ins write: what agents were asked, did and ended with.

Only the end of an agent's run may show its requests: it repeats the messages of the session, in the
form that OpenClaw's own transcripts have, so a request found in both is known to be one. Events of
usage (`llm.usage`) add up the requests of a run and are no steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import xxhash

from analyzer.model import Compaction, LaneSteps, Problem, SessionKey
from analyzer.sources.base import HEAD_BYTES, Context, Head, read_records
from analyzer.sources.decode import (
    JsonObject,
    as_object,
    encode,
    get_array,
    get_object,
    get_text,
    parse_many,
    to_time,
)
from analyzer.sources.documents import outline, run_name
from analyzer.sources.pi_messages import MessageReader
from analyzer.sources.transcript import LaneBuilder

_TYPES = ("agent.start", "agent.end", "tool.start", "tool.end", "message.in", "message.out")
_SUMS = "llm.usage"
_SUBAGENT = ":subagent:"
_SUMMARIES = ("compactionSummary", "branchSummary")


class OpenClawTelemetrySource:
    """Reads a file of telemetry, which may hold many sessions."""

    name: ClassVar[str] = "openclaw-telemetry"
    title: ClassVar[str] = "OpenClaw telemetry: events of agents, tools and messages"

    def detect(self, head: Head) -> bool:
        """An event of a known type first, with the time in milliseconds that it is stamped with."""
        keys = outline(head.data.lstrip().split(b"\n", 1)[0])
        if keys.get("type") not in (*_TYPES, _SUMS):
            return False
        # Of a line that is longer than the head, its end is not seen.
        return "ts" in keys or (len(head.data) >= HEAD_BYTES and "agentId" in keys)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        reader = _Reader(context)
        for problem in read_records(path, reader.line):
            if problem is not None:
                yield problem
        found = list(reader.finish())
        yield from found
        if reader.summed and not found:
            yield Problem(
                str(path),
                None,
                "$",
                f"expected requests to models, got {reader.summed} sums over whole runs; have the "
                "plug-in write the messages of `agent.end`, or ingest the sessions themselves",
            )


class _Session:
    """One conversation of one agent, from the ends of its runs."""

    def __init__(self, key: str, session: SessionKey, lane: str) -> None:
        self.key = key
        """The session's key in OpenClaw."""
        self.builder = LaneBuilder(session, lane)
        self.messages = MessageReader(self.builder)
        self.seen: set[int] = set()
        self._last: list[int] = []
        self.spawned: list[str] = []
        """Keys of the sessions that its agent started."""

    def goes_on_in(self, messages: Sequence[JsonObject]) -> bool:
        """Whether a run with these messages belongs to this conversation, and not to a new one."""
        known = any(_digest(m) in self.seen for m in messages)
        return known or any(m.get("role") in _SUMMARIES for m in messages)

    def feed(self, messages: Sequence[JsonObject], number: int) -> None:
        """All messages of the session at the end of a run. Raises `DecodeError`."""
        digests = [_digest(m) for m in messages]
        start = len(self._last)
        if digests[:start] != self._last:
            summed = any(m.get("role") in _SUMMARIES for m in messages)
            self.builder.compact(Compaction(kind="summary" if summed else "other"))
            start = 0
        self._last = digests
        for message, digest in zip(messages[start:], digests[start:], strict=True):
            if digest in self.seen:
                self.builder.say(self.messages.parts(message), None, human=False)
                continue
            self.seen.add(digest)
            child = get_text(get_object(message, "details"), "childSessionKey")
            self.spawned += [child] if child else []
            # An answer is stamped when it was asked for; when it ended is not said.
            answer = message.get("role") == "assistant"
            at = None if answer else to_time(message.get("timestamp"), "$.messages[].timestamp")
            self.messages.take(message, at, number)


class _Reader:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.summed = 0
        """Events of usage, each of a whole run."""
        self._open: dict[str, _Session] = {}
        """The latest conversation under each key of OpenClaw's."""
        self._all: list[_Session] = []

    def line(self, raw: bytes, number: int) -> None:
        """One line. Raises `DecodeError`."""
        for value in parse_many(raw):
            row = as_object(value)
            self.summed += row.get("type") == _SUMS
            messages = [m for m in get_array(row, "messages") if isinstance(m, dict)]
            if row.get("type") == "agent.end" and messages:
                self._session(row, messages).feed(messages, number)

    def finish(self) -> Iterator[LaneSteps]:
        """The steps of each conversation; one that an agent started is a lane beside it."""
        above = {key: parent for parent in self._all for key in parent.spawned}
        for session in self._all:
            root = _root(session, above)
            if root is not session:
                session.builder.session = root.builder.session
                session.builder.parent = root.builder.lane
            steps = session.builder.finish()
            if steps is not None:
                yield steps

    def _session(self, row: JsonObject, messages: Sequence[JsonObject]) -> _Session:
        key = get_text(row, "sessionKey", "agentId") or "openclaw"
        session = self._open.get(key)
        if session is None or not session.goes_on_in(messages):
            # Every installation calls its first session the same.
            name = run_name(key, messages[0])
            _, _, child = key.rpartition(_SUBAGENT)
            lane = f"subagent-{child[:8]}" if _SUBAGENT in key else "main"
            own = SessionKey(self.context.project, self.context.user, name)
            session = self._open[key] = _Session(key, own, lane)
            self._all.append(session)
        return session


def _root(session: _Session, above: Mapping[str, _Session]) -> _Session:
    """The conversation in which a chain of agents that start agents begins."""
    root, seen = session, {session.key}
    while (parent := above.get(root.key)) is not None and parent.key not in seen:
        root = parent
        seen.add(root.key)
    return root


def _digest(message: JsonObject) -> int:
    return xxhash.xxh3_64_intdigest(encode(message))
