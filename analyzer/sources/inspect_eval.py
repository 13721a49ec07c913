"""Logs of Inspect: `.eval` archives and `.json` documents.

Each model event has its whole input, with long texts put away as `attachment://` ids and, in newer
logs, with messages as ranges into a pool.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head, read_up_to
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
from analyzer.sources.documents import (
    outline,
    problem,
    read_document,
    run_name,
    stem_of,
)
from analyzer.sources.elements import HELD_LIMIT, read_large
from analyzer.sources.history import Call, HistoryLane, beginning, to_raw

_ZIP = b"PK\x03\x04"
_ENTRIES = (b"_journal/start.json", b"header.json", b"samples/")
_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})")
_HEADERS = ("header.json", "_journal/start.json")
_MAIN = "main"


class InspectSource:
    """Reads one log, in either format."""

    name: ClassVar[str] = "inspect"
    title: ClassVar[str] = "Inspect logs (.eval archives and .json)"

    def detect(self, head: Head) -> bool:
        """An archive that begins with a log's entries, or a document with `eval` and a task."""
        if head.data.startswith(_ZIP):
            return any(name in head.data[:4096] for name in _ENTRIES)
        if head.data.lstrip()[:1] != b"{":
            return False
        keys = outline(head.data)
        return all(key in keys for key in ("version", "status", "eval.task", "eval.model"))

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        with path.open("rb") as raw:
            packed = raw.read(len(_ZIP)) == _ZIP
        yield from _archive(path, context) if packed else _document(path, context)


def _document(path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
    document, failed = read_document(path)
    if failed is not None:
        yield failed
        return
    try:
        whole = as_object(document)
        samples = as_array(whole.get("samples") or (), "$.samples")
    except DecodeError as error:
        yield problem(path, None, error)
        return
    for index, sample in enumerate(samples):
        try:
            yield from _Sample(as_object(sample), whole, path, context, index).read()
        except DecodeError as error:
            yield problem(path, index + 1, error, sample)


def _archive(path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            header: JsonObject = {}
            for name in _HEADERS:
                if name in names and not header:
                    header = as_object(_member(archive, name))
            samples = sorted(n for n in names if n.startswith("samples/") and n.endswith(".json"))
            for index, name in enumerate(samples):
                try:
                    sample = as_object(_member(archive, name))
                    yield from _Sample(sample, header, path, context, index).read()
                except DecodeError as error:
                    message = f"{name}: {error.message}"
                    yield Problem(str(path), index + 1, error.pointer, message)
    # `zipfile` raises ValueError for names and times that no archive can have.
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError, DecodeError) as error:
        yield Problem(str(path), None, "$", f"the archive is damaged or cut off: {error}")


def _member(archive: zipfile.ZipFile, name: str) -> Json:
    """One document of an archive. Raises `DecodeError`, also where it cannot be unpacked."""
    try:
        with archive.open(name) as stream:
            raw = read_up_to(stream, HELD_LIMIT + 1)
            if len(raw) > HELD_LIMIT:
                return read_large(lambda: archive.open(name), stream, raw)
        return parse(raw)
    # `zipfile` raises RuntimeError for an encrypted entry, NotImplementedError for a compression
    # that it does not know.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DecodeError(f"the entry {name} cannot be unpacked: {error}") from error


class _Sample:
    """One sample at one epoch: a session, with a lane for each conversation in it."""

    def __init__(
        self, sample: JsonObject, header: JsonObject, path: Path, context: Context, index: int
    ) -> None:
        self.sample = sample
        self.path = path
        self.index = index
        task = get_object(header, "eval")
        run = get_text(task, "eval_id", "run_id") or run_name(stem_of(path), task)
        name = f"{run}/{_plain(sample.get('id'))}/{_plain(sample.get('epoch', 1))}"
        self.title = get_text(task, "task")
        self.session = SessionKey(context.project, context.user, name)
        self.attachments = get_object(sample, "attachments")
        pool = get_array(sample, "message_pool")
        self.pool = list(pool or get_array(get_object(sample, "events_data"), "messages"))
        self.lanes: dict[int, HistoryLane] = {}

    def read(self) -> Iterator[LaneSteps | Problem]:
        for number, event in enumerate(as_array(self.sample.get("events") or (), "$.events")):
            if not isinstance(event, Mapping) or event.get("event") != "model":
                continue
            # A log that is still open has requests in flight; a local cache sends none.
            if event.get("pending") or event.get("cache") == "read":
                continue
            try:
                self._model(event, f"$.events[{number}]", number)
            except DecodeError as error:
                yield problem(self.path, self.index + 1, error, event)
            for lane in self.lanes.values():
                yield from lane.ready()
        for lane in self.lanes.values():
            if len(lane):
                yield lane.take(self.title if lane.parent is None else None)

    def _model(self, event: JsonObject, pointer: str, number: int) -> None:
        sent = [
            _chat(as_object(self._resolved(m), f"{pointer}.input"))
            for m in self._input(event, pointer)
        ]
        call = self._call(event, pointer, number)
        lane = self._lane(beginning(sent))
        lane.open(tools=self._resolved(get_array(event, "tools")) or None)
        choices = get_array(get_object(event, "output"), "choices")
        answers = [get_object(c, "message") for c in choices[:1] if isinstance(c, Mapping)]
        replies = [_chat(as_object(self._resolved(a), f"{pointer}.output")) for a in answers]
        lane.answer(call, lane.ask(call, [to_raw(m) for m in sent]), replies)

    def _input(self, event: JsonObject, pointer: str) -> list[Json]:
        messages = list(get_array(event, "input"))
        for ref in get_array(event, "input_refs"):
            bounds = as_array(ref, f"{pointer}.input_refs")
            if len(bounds) != 2 or not all(isinstance(b, int) for b in bounds):
                raise DecodeError("expected a range of messages", f"{pointer}.input_refs")
            start, stop = (b if isinstance(b, int) else 0 for b in bounds)
            if not 0 <= start <= stop <= len(self.pool):
                raise DecodeError(
                    f"expected a range into {len(self.pool)} messages, got {start} to {stop}",
                    f"{pointer}.input_refs",
                )
            messages.extend(self.pool[start:stop])
        return messages

    def _resolved(self, value: Json) -> Json:
        """A value with the texts that were put away as attachments."""
        text = dump(value)
        if "attachment://" not in text:
            return value
        full = _ATTACHMENT.sub(self._attached, text)
        return parse(full.encode("utf-8", "surrogatepass"))

    def _attached(self, match: re.Match[str]) -> str:
        body = self.attachments.get(match.group(1))
        return dump(body)[1:-1] if isinstance(body, str) else match.group()

    def _lane(self, digest: int) -> HistoryLane:
        """Conversations of one sample (agents, graders) are told apart by how they begin."""
        if digest not in self.lanes:
            count = len(self.lanes)
            name = _MAIN if not count else f"{_MAIN}-{count + 1}"
            self.lanes[digest] = HistoryLane(self.session, name, _MAIN if count else None)
        return self.lanes[digest]

    def _call(self, event: JsonObject, pointer: str, number: int) -> Call:
        output = get_object(event, "output")
        at = to_time(event.get("timestamp"), f"{pointer}.timestamp")
        ended = to_time(event.get("completed"), f"{pointer}.completed")
        seconds = output.get("time")
        if ended is None and at is not None and isinstance(seconds, int | float) and seconds < 1e7:
            ended = at + timedelta(seconds=seconds)
        choices = get_array(output, "choices")
        choice = choices[0] if choices and isinstance(choices[0], Mapping) else {}
        provider, _, name = (get_text(event, "model") or "").partition("/")
        identity = get_text(event, "uuid") or f"{self.session.session_id}#{number}"
        usage = get_object(output, "usage")
        return Call(
            key=f"inspect:{identity}",
            usage=_usage(usage, f"{pointer}.output.usage") if usage else None,
            model=get_text(output, "model") or name or None,
            at=at,
            ended_at=ended,
            provider=provider if name else None,
            stop_reason=get_text(choice, "stop_reason"),
            error=get_text(event, "error") or get_text(output, "error"),
            line=self.index + 1,
            settings={
                "tool_choice": event.get("tool_choice"),
                **get_object(event, "config"),
            },
        )


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else dump(value)


def _chat(message: JsonObject) -> dict[str, Json]:
    """A message of Inspect in the chat form: calls are flat there, and results name their call."""
    out = dict(message)
    calls = [
        {
            "id": get_text(c, "id"),
            "type": "function",
            "function": {"name": get_text(c, "function"), "arguments": c.get("arguments")},
        }
        for c in get_array(message, "tool_calls")
        if isinstance(c, Mapping)
    ]
    if calls:
        out["tool_calls"] = calls
    content = message.get("content")
    if isinstance(content, list):
        out["content"] = [_block(b) for b in content]
    return out


def _block(block: Json) -> Json:
    if isinstance(block, dict) and block.get("type") == "reasoning":
        return {
            "type": "thinking",
            "thinking": block.get("reasoning"),
            "signature": block.get("signature"),
        }
    return block


def _usage(obj: JsonObject, pointer: str) -> Usage:
    """Inspect's counts; its input normally leaves the cache out, and the total tells."""
    whole = get_count(obj, "input_tokens", pointer)
    read = get_count(obj, "input_tokens_cache_read", pointer)
    written = get_count(obj, "input_tokens_cache_write", pointer)
    output = get_count(obj, "output_tokens", pointer)
    total = get_count(obj, "total_tokens", pointer)
    cached = (read or 0) + (written or 0)
    inside = whole is not None and cached and total == whole + (output or 0) and cached <= whole
    return Usage(
        input=whole - cached if whole is not None and inside else whole,
        cache_read=read,
        cache_write=written,
        output=output,
        reasoning=get_count(obj, "reasoning_tokens", pointer),
    )
