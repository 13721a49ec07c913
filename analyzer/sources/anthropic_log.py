"""Raw request/response logs of Anthropic's Messages API, one JSON object a line.

Each step has its whole prompt. The wrapper around request and response is nobody's standard, so
the usual names for its fields are all known; bare request bodies are read too (without usage).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import msgspec
import xxhash

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, Prompt, SessionKey, Step, Ttl
from analyzer.sources.anthropic_stream import message_of
from analyzer.sources.anthropic_usage import (
    AnthropicUsage,
    anthropic_usage,
    clearing,
    miss_reason,
    with_rounds,
)
from analyzer.sources.base import (
    HEAD_BYTES,
    Context,
    Head,
    Pool,
    read_records,
)
from analyzer.sources.blocks import mark_of
from analyzer.sources.decode import (
    MALFORMED,
    Json,
    JsonObject,
    as_object,
    dump,
    encode,
    get_array,
    get_object,
    get_text,
    parse,
)
from analyzer.sources.documents import run_name, stem_of
from analyzer.sources.history import reads_like_summary
from analyzer.sources.journal import Labels, labels_of
from analyzer.sources.openai_shapes import is_openai
from analyzer.sources.prompts import PromptReader
from analyzer.sources.steps_rows import is_step_line
from analyzer.sources.wrappers import (
    BODY,
    LANE,
    REQUEST,
    RESPONSE,
    SESSION,
    START,
    counts_only,
    ended,
    first,
    request_in,
    response_in,
    started,
    unquoted,
)

BATCH_STEPS = 64
_Fields = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(_Fields)
_messages = msgspec.json.Decoder(list[msgspec.Raw])


class AnthropicLogSource:
    """Reads `{request, response, time}` lines, or lines that are request bodies."""

    name: ClassVar[str] = "anthropic-log"
    title: ClassVar[str] = "raw Anthropic Messages requests and responses, one JSON object a line"

    def detect(self, head: Head) -> bool:
        """A line whose request has messages in Anthropic's form, by its other fields."""
        text = head.data.lstrip()
        if b'"messages' not in text or text[:1] != b"{" or is_openai(head):
            return False
        if is_step_line(text.split(b"\n", 1)[0]):
            return False
        if b"\n" not in text and len(text) >= HEAD_BYTES:
            # The first line alone is longer than the head.
            text = unquoted(text)
            return b'"input_schema"' in text or b'"max_tokens"' in text
        try:
            record = as_object(parse(head.lines[0]))
            found = request_in(record, "messages")
            request = record if found is None or "messages" in record else found[0]
            return _is_anthropic(request, first(record, RESPONSE))
        except DecodeError:
            return False

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        return _Reader(path, context).run()


def _is_anthropic(request: JsonObject, response: Json) -> bool:
    if not isinstance(request.get("messages"), list):
        return False
    if isinstance(response, Mapping) and "usage" in response:
        return "input_tokens" in get_object(response, "usage")
    tools = get_array(request, "tools")
    schema = any(isinstance(t, Mapping) and "input_schema" in t for t in tools)
    return schema or "system" in request or str(request.get("model", "")).startswith("claude")


class _Lane:
    """One growing context while its file is read."""

    def __init__(self, key: SessionKey, name: str) -> None:
        self.key = key
        self.name = name
        self.pool = Pool()
        self.reader = PromptReader(self.pool)
        self.last: Prompt | None = None
        self.steps: list[Step] = []

    def take(self) -> LaneSteps:
        steps, self.steps = tuple(self.steps), []
        parent = None if self.name == "main" else "main"
        return LaneSteps(self.key, self.name, steps, parent)


class _Reader:
    def __init__(self, path: Path, context: Context) -> None:
        self.path = path
        self.context = context
        self.unnamed: str | None = None
        """Session of the records that name none: the file's name, set apart by how it begins."""
        self.lanes: dict[tuple[str, str], _Lane] = {}
        self.firsts: dict[tuple[str, int], str] = {}

    def run(self) -> Iterator[LaneSteps | Problem]:
        for lane in read_records(self.path, self._line):
            if isinstance(lane, Problem):
                yield lane
            elif lane is not None and len(lane.steps) >= BATCH_STEPS:
                yield lane.take()
        for lane in self.lanes.values():
            if lane.steps:
                yield lane.take()

    def _line(self, line: bytes, number: int) -> _Lane | None:
        record, request, sent = self._split(line)
        messages = _raw_list(request.get("messages"))
        body = {k: v for k, v in request.items() if k not in ("messages", "tools", "system")}
        settings = as_object(parse(msgspec.json.encode(body)))
        wrapper = {
            k: v for k, v in record.items() if k not in (*REQUEST, "messages", "tools", "system")
        }
        meta = as_object(parse(msgspec.json.encode(wrapper)))
        response = response_in(meta, message_of)
        if counts_only(response):
            return None
        at = started(meta, as_object(parse(msgspec.json.encode(sent))))
        lane = self._lane(meta, settings, messages, response)
        auto: Ttl | None = mark_of(settings)
        prompt = lane.reader.read(
            request.get("tools"), request.get("system"), messages, settings, auto=auto
        )
        # Everything is read before the lane gives its new parts away: a record counts whole or not.
        counted, labels = _counted(settings, meta, response)
        step = self._step(lane, prompt, messages, settings, meta, response, at, line, number)
        step = replace(step, usage=counted.usage if counted else None, labels=labels)
        lane.steps += with_rounds(step, counted.earlier if counted else ())
        lane.last = prompt
        return lane

    def _split(self, line: bytes) -> tuple[_Fields, _Fields, _Fields]:
        """The record's fields, its request's (messages undecoded), those of a message around it."""
        try:
            record = _fields.decode(line)
        except MALFORMED:
            # Lone surrogates and the like: decode leniently once, then go the usual way.
            text = dump(as_object(parse(line))).encode("utf-8", "replace")
            record = _object(text)
        if "messages" in record:
            return record, record, {}
        for name in REQUEST:
            message = _opened(record.get(name))
            if "messages" in message:
                return record, message, {}
            for inner in BODY[:2]:
                body = _opened(message.get(inner))
                if "messages" in body:
                    around = {k: v for k, v in message.items() if k in START}
                    return record, body, around
        raise DecodeError(
            "expected a request with messages, got a record without", "$.request.messages"
        )

    def _lane(
        self,
        meta: JsonObject,
        request: JsonObject,
        messages: list[msgspec.Raw],
        response: JsonObject,
    ) -> _Lane:
        session = get_text(meta, *SESSION) or get_text(
            get_object(request, "metadata"), "session_id"
        )
        name = get_text(meta, *LANE)
        if session is None and self.unnamed is None:
            first = _bare_text(messages[0]) if messages else None
            self.unnamed = run_name(stem_of(self.path), first, response.get("content"))
        session_id = session or str(self.unnamed)
        if name is None:
            name = "main" if session else self._by_content(session_id, messages)
        lane = self.lanes.get((session_id, name))
        if lane is None:
            key = SessionKey(self.context.project, self.context.user, session_id)
            lane = self.lanes[session_id, name] = _Lane(key, name)
        return lane

    def _by_content(self, session: str, messages: list[msgspec.Raw]) -> str:
        """Without ids, conversations in one log are told apart by their first message.

        One that begins with messages a conversation last sent is that conversation, cut at its front.
        """
        text = _bare_text(messages[0]) if messages else ""
        key = (session, _hash(text))
        if key not in self.firsts:
            newest = reversed([n for (s, _), n in self.firsts.items() if s == session])
            known = list(dict.fromkeys(newest))
            summary = reads_like_summary(text)
            cut = (n for n in known if self.lanes[session, n].reader.holds(messages[:2]))
            fresh = f"main-{len(known) + 1}" if known else "main"
            self.firsts[key] = next(cut, known[0] if summary and known else fresh)
        return self.firsts[key]

    def _step(
        self,
        lane: _Lane,
        prompt: Prompt,
        messages: list[msgspec.Raw],
        request: JsonObject,
        meta: JsonObject,
        response: JsonObject,
        at: datetime | None,
        line: bytes,
        number: int,
    ) -> Step:
        content = response.get("content")
        ranges = lane.reader.response(msgspec.Raw(encode(content))) if content else ()
        identity = get_text(response, "id")
        if identity is None:
            identity = xxhash.xxh3_128_hexdigest(line)
            if not response:
                # A request alone says no time: two runs of a task begin with the same one.
                identity = f"{lane.key.session_id}:{identity}"
        else:
            # Gateways reuse response ids: only the same id to the same request is the same call.
            # Not the response: a stream's partial record has the same request and other counts.
            ends = (*messages[:1], *messages[-1:])
            identity += f":{len(messages)}:{_hash(*map(_bare_text, ends)):x}"
        model = get_text(response, "model") or get_text(request, "model")
        error = response.get("error") or meta.get("error")
        compaction = clearing(response.get("context_management"))
        reason = miss_reason(response.get("diagnostics"))
        return Step(
            key=f"anthropic:{identity}",
            lane=lane.name,
            at=at,
            ended_at=ended(meta, at),
            model=model,
            provider="anthropic" if (model or "claude").startswith("claude") else None,
            usage=None,
            prompt=prompt,
            new_parts=lane.pool.take(),
            response=ranges,
            human=lane.reader.human_since(lane.last, prompt),
            miss_reason=reason,
            stop_reason=get_text(response, "stop_reason"),
            error=dump(error) if error else None,
            compaction=compaction,
            line=number,
        )


def _counted(
    request: JsonObject, meta: JsonObject, response: JsonObject
) -> tuple[AnthropicUsage | None, Labels]:
    """Usage with the requests inside, and the terms it was billed on. Raises `DecodeError`."""
    raw = get_object(response, "usage") or get_object(meta, "usage")
    if not raw:
        return None, ()
    labels = labels_of(
        service_tier=get_text(raw, "service_tier"),
        speed=get_text(raw, "speed"),
        inference_geo=get_text(raw, "inference_geo"),
    )
    return anthropic_usage(raw, "$.response.usage", get_text(request, "model")), labels


def _opened(raw: msgspec.Raw | None) -> _Fields:
    """The fields of an object, or of one in a string; none where it is neither."""
    text = bytes(raw or b"")
    if text[:1] == b'"':
        text = str(parse(text)).encode("utf-8", "replace")
    return _object(text) if text[:1] == b"{" else {}


def _object(raw: bytes) -> _Fields:
    try:
        return _fields.decode(raw)
    except MALFORMED as error:
        raise DecodeError(f"expected an object: {error}", "$.request") from error


def _raw_list(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    try:
        return _messages.decode(raw) if raw is not None else []
    except MALFORMED as error:
        raise DecodeError(f"expected an array: {error}", "$.request.messages") from error


def _hash(*texts: str) -> int:
    digest = xxhash.xxh3_64()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.intdigest()


def _bare_text(raw: msgspec.Raw) -> str:
    """A message without cache marks, whose place moves from request to request."""
    message = as_object(parse(bytes(raw)), "$.request.messages[]")
    content = message.get("content")
    if isinstance(content, list):
        content = [
            {k: v for k, v in b.items() if k != "cache_control"} if isinstance(b, Mapping) else b
            for b in content
        ]
    return dump({**message, "content": content})
