"""Raw request logs of OpenAI's chat and Responses APIs, one JSON object a line.

A line is `{request, response}` under any of the usual names, or flat with `messages` or `input`
beside `usage`. Usage is read by its own shape: proxies put Anthropic's beside chat messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import xxhash

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey
from analyzer.sources.base import Context, Head, read_records
from analyzer.sources.decode import (
    JsonObject,
    as_object,
    dump,
    get_object,
    get_text,
    parse,
    to_time,
)
from analyzer.sources.documents import run_name, stem_of
from analyzer.sources.exchanges import Exchange, exchange_key, exchange_of, record
from analyzer.sources.history import Call, HistoryLane, opening, reads_like_summary
from analyzer.sources.openai_shapes import is_openai
from analyzer.sources.openai_stream import response_of
from analyzer.sources.wrappers import (
    LANE,
    SESSION,
    counts_only,
    ended,
    request_in,
    response_in,
    started,
)


class OpenAILogSource:
    """Reads lines that hold a chat or Responses request."""

    name: ClassVar[str] = "openai-log"
    title: ClassVar[str] = "raw OpenAI chat and Responses requests, one JSON object a line"

    def detect(self, head: Head) -> bool:
        """A first line whose request is of OpenAI's form, by its messages or by its usage."""
        return is_openai(head)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        return _Reader(path, context).run()


class _Reader:
    def __init__(self, path: Path, context: Context) -> None:
        self.path = path
        self.context = context
        self.unnamed: str | None = None
        """Session of the records that name none: the file's name, set apart by how it begins."""
        self.lanes: dict[tuple[str, str], HistoryLane] = {}
        self.firsts: dict[tuple[str, bytes], str] = {}
        self.latest: dict[str, HistoryLane] = {}
        """The lane whose last response has this id."""

    def run(self) -> Iterator[LaneSteps | Problem]:
        for lane in read_records(self.path, self._line):
            if isinstance(lane, Problem):
                yield lane
            elif lane is not None:
                yield from lane.ready()
        for lane in self.lanes.values():
            if len(lane):
                yield lane.take()

    def _line(self, line: bytes, number: int) -> HistoryLane | None:
        row = as_object(parse(line))
        request, sent = _request_of(row)
        response = _response_of(row)
        if counts_only(response):
            return None
        usage = get_object(row, "usage")
        exchange = exchange_of(request, response, usage)
        lane = self._lane(row, request, response, exchange)
        digest = xxhash.xxh3_128_hexdigest(line)
        at = started(row, sent)
        call = self._call(row, request, response, exchange, at, digest, number)
        continued = exchange.previous is not None and exchange.previous in self.latest
        lane.recorded = exchange.previous is None or continued
        record(lane, call, exchange, continued=continued)
        self.latest = {k: v for k, v in self.latest.items() if v is not lane}
        identity = get_text(response, "id")
        if identity is not None:
            self.latest[identity] = lane
        return lane

    def _lane(
        self, row: JsonObject, request: JsonObject, response: JsonObject, exchange: Exchange
    ) -> HistoryLane:
        if exchange.previous is not None and exchange.previous in self.latest:
            return self.latest[exchange.previous]
        inner = get_object(request, "metadata")
        session = get_text(row, *SESSION) or get_text(inner, *SESSION)
        name = get_text(row, *LANE)
        if session is None and self.unnamed is None:
            first = opening(exchange.messages)
            body = None if first is None else first.body
            self.unnamed = run_name(stem_of(self.path), body, response)
        session_id = session or str(self.unnamed)
        if name is None:
            name = "main" if session else self._by_content(session_id, exchange)
        if (session_id, name) not in self.lanes:
            key = SessionKey(self.context.project, self.context.user, session_id)
            parent = None if name == "main" else "main"
            self.lanes[session_id, name] = HistoryLane(key, name, parent)
        return self.lanes[session_id, name]

    def _by_content(self, session: str, exchange: Exchange) -> str:
        """Without ids, conversations in one log are told apart by how they begin."""
        first = opening(exchange.messages)
        key = (session, b"" if first is None else first.digest)
        if key not in self.firsts:
            known = [name for (s, _), name in self.firsts.items() if s == session]
            names = len(set(known))
            if known and reads_like_summary(None if first is None else first.body):
                # A summary took the place of the history: the conversation goes on.
                self.firsts[key] = known[-1]
            else:
                self.firsts[key] = "main" if not names else f"main-{names + 1}"
        return self.firsts[key]

    @staticmethod
    def _call(
        row: JsonObject,
        request: JsonObject,
        response: JsonObject,
        exchange: Exchange,
        at: datetime | None,
        digest: str,
        number: int,
    ) -> Call:
        created = response.get("created") or response.get("created_at")
        error = response.get("error") or row.get("error")
        return Call(
            key=f"{exchange.origin}:{exchange_key(exchange, response) or digest}",
            model=get_text(response, "model") or get_text(request, "model"),
            at=at or to_time(created, "$.response.created"),
            ended_at=ended(row, at),
            error=dump(error) if error else None,
            line=number,
            settings=request,
        )


def _request_of(row: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The request's body, in the record or being it, and what is around it. Raises `DecodeError`."""
    if isinstance(row.get("messages"), list):
        return row, {}
    found = request_in(row, "messages", "input")
    if found is not None:
        return found
    if "input" in row:
        return row, {}
    raise DecodeError("expected a request with messages or input, got neither", "$.request")


def _response_of(row: JsonObject) -> JsonObject:
    if "choices" in row or isinstance(row.get("output"), list):
        return row
    return response_in(row, response_of)
