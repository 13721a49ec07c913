"""Codex CLI rollouts: `~/.codex/sessions/**/rollout-*.jsonl`.

A request shows only as a `token_count` event whose running total changed; what the model said since
the last one is its response. Sub-agents and forks are files of their own, and a fork begins with a
copy of its parent's rows, with new times on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple

from analyzer.model import Compaction, Doubt, LaneSteps, Part, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head
from analyzer.sources.blocks import make_part
from analyzer.sources.codex_items import Items, as_summary, by_model
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_object,
    get_array,
    get_count,
    get_object,
    get_text,
    to_time,
)
from analyzer.sources.documents import outline, run_name, stem_of
from analyzer.sources.journal import labels_of, new_answer, read_journal, usage_within
from analyzer.sources.transcript import LaneBuilder

_ROW_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TOTALS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "total_tokens",
)
COPY_BURST = timedelta(seconds=1)
"""A fork's copied rows are all written at once; no model answers in less."""


class CodexSource:
    """Reads one rollout; a session and each of its sub-agents are files of their own."""

    name: ClassVar[str] = "codex"
    title: ClassVar[str] = "Codex CLI rollouts (~/.codex/sessions/**.jsonl), sub-agents included"

    def detect(self, head: Head) -> bool:
        """A row of one of the five types around a payload."""
        return any(b'"payload"' in line and _is_row(line) for line in head.lines[:5])

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        return read_journal(path, _Rollout(path, context))


def _is_row(line: bytes) -> bool:
    keys = outline(line)
    return "payload" in keys and keys.get("type") in _ROW_TYPES


class _Thread(NamedTuple):
    """A thread that rows of this file may come from."""

    id: str
    created: datetime | None


class _Waiting(NamedTuple):
    """What was recorded since the response began, in order."""

    parts: list[Part]
    at: datetime | None
    by_model: bool
    human: bool = False


class _Rollout:
    def __init__(self, path: Path, context: Context) -> None:
        self.context = context
        found = _UUID.findall(path.name)
        self.stem = stem_of(path)
        self.own = _Thread(found[-1] if found else "", None)
        self.session: str | None = None
        self.spawned_by: str | None = None
        self.ancestors: list[_Thread] = []
        self.meta_seen = False
        self.replaying = False
        self.first_at: datetime | None = None
        self.turn: datetime | None = None
        self.model: str | None = None
        self.effort: str | None = None
        self.version: str | None = None
        self.provider: str | None = None
        self.title: str | None = None
        self.totals: JsonObject | None = None
        self.waiting: list[_Waiting] = []
        self.items = Items()
        self.lane: LaneBuilder | None = None
        self.used_keys: dict[str, int] = {}

    def builders(self) -> Iterable[LaneBuilder]:
        return () if self.lane is None else (self.lane,)

    def end(self) -> str | None:
        self._let_go()
        return self.title

    def row(self, row: JsonObject, number: int) -> None:
        if not self.own.id:
            self.own = _Thread(run_name(self.stem, row), None)
        at = to_time(row.get("timestamp"), "$.timestamp")
        self.first_at = self.first_at or at
        payload = row.get("payload")
        match row.get("type"):
            case "session_meta":
                self._meta(as_object(payload, "$.payload"))
            case "turn_context":
                self._turn_context(as_object(payload, "$.payload"))
            case "response_item":
                self._item(as_object(payload, "$.payload"), at)
            case "compacted":
                self._compacted(as_object(payload, "$.payload"))
            case "event_msg":
                self._event(as_object(payload, "$.payload"), at, number)

    # -- who is speaking ----------------------------------------------------------------------

    def _meta(self, meta: JsonObject) -> None:
        # A sub-agent's `session_id` is its parent's; `id` is always the thread's own.
        name = get_text(meta, "id", "session_id")
        created = _minted(name) or to_time(meta.get("timestamp"), "$.payload.timestamp")
        if name is not None and self.meta_seen:
            if name != self.own.id:
                self._descends_from(_Thread(name, created))
            return
        self.meta_seen = True
        self.own = _Thread(name or self.own.id, created)
        self.version = get_text(meta, "cli_version")
        self.provider = get_text(meta, "model_provider")
        spawn = get_object(get_object(get_object(meta, "source"), "subagent"), "thread_spawn")
        self.spawned_by = get_text(spawn, "parent_thread_id") or get_text(meta, "parent_thread_id")
        if self.spawned_by is not None:
            # The root of nested sub-agents, where the version tells it.
            root = get_text(meta, "session_id")
            self.session = root if root and root != self.own.id else self.spawned_by
        for parent in (get_text(meta, "forked_from_id"), self.spawned_by):
            if parent is not None and parent != self.own.id:
                self._descends_from(_Thread(parent, _minted(parent)))
        self.replaying = bool(self.ancestors)
        given = meta.get("base_instructions", meta.get("instructions"))
        text = (
            given
            if isinstance(given, str)
            else get_text(get_object(meta, "base_instructions"), "text")
        )
        if text:
            self._lane().lead([make_part("system", "system", "text", text)])

    def _descends_from(self, thread: _Thread) -> None:
        known = [t.id for t in self.ancestors]
        if thread.id in known:
            if thread.created is not None:
                self.ancestors[known.index(thread.id)] = thread
        else:
            self.ancestors.append(thread)

    def _lane(self) -> LaneBuilder:
        if self.lane is None:
            session = self.session or self.own.id
            key = SessionKey(self.context.project, self.context.user, session)
            if self.spawned_by is None:
                self.lane = LaneBuilder(key, "main")
            else:
                parent = "main" if self.spawned_by == session else self.spawned_by
                self.lane = LaneBuilder(key, self.own.id, parent)
        return self.lane

    def _owner(self, at: datetime | None) -> str:
        """The thread that made the request being counted: this one, or one that it copies."""
        if not self.replaying:
            return self.own.id
        if not self._is_copy(at):
            self.replaying = False
            return self.own.id
        when = self.turn
        if when is None and at is not None and self.own.created is not None:
            when = at if at < self.own.created else None
        # Of the threads that existed when the turn began, the youngest made it.
        for thread in sorted(self.ancestors, key=_age, reverse=True):
            if thread.created is None or when is None or thread.created <= when:
                return thread.id
        return min(self.ancestors, key=_age).id

    def _is_copy(self, at: datetime | None) -> bool:
        if not any(w.by_model for w in self.waiting):
            return True
        created = self.own.created
        if self.turn is not None and created is not None:
            return self.turn < created
        if at is None or self.first_at is None:
            return False
        return at <= self.first_at + COPY_BURST or (created is not None and at < created)

    # -- rows ---------------------------------------------------------------------------------

    def _turn_context(self, payload: JsonObject) -> None:
        self.model = get_text(payload, "model") or self.model
        self.effort = get_text(payload, "effort")
        self._turn_of(payload)

    def _turn_of(self, payload: JsonObject) -> None:
        turn = get_text(payload, "turn_id")
        if turn is not None:
            self.turn = _minted(turn)

    def _item(self, item: JsonObject, at: datetime | None) -> None:
        self._add(_Waiting(self.items.parts(item), at, by_model(item)))

    def _add(self, entry: _Waiting) -> None:
        if self.waiting or entry.by_model:
            self.waiting.append(entry)
        else:
            self._lane().say(entry.parts, entry.at, human=entry.human)

    def _let_go(self) -> None:
        """What was waiting for a count that never came is history all the same."""
        waiting, self.waiting = self.waiting, []
        for entry in waiting:
            self._lane().say(entry.parts, entry.at, human=entry.human)

    def _compacted(self, payload: JsonObject) -> None:
        self._let_go()
        history = get_array(payload, "replacement_history")
        parts = [
            part
            for i, item in enumerate(history)
            for part in self.items.parts(as_object(item, f"$.payload.replacement_history[{i}]"))
        ]
        message = get_text(payload, "message")
        if not history and message:
            parts = as_summary([_user_text(message)])
        self._lane().compact(Compaction(kind="summary", summary_called=True), parts)

    def _event(self, event: JsonObject, at: datetime | None, number: int) -> None:
        match event.get("type"):
            case "token_count":
                self._count(event.get("info"), at, number)
            case "user_message":
                self._add(_Waiting([], at, by_model=False, human=self.spawned_by is None))
            case "task_started" | "turn_started":
                self._let_go()
                self._turn_of(event)
            case "turn_aborted":
                self._let_go()
                self._lane().note("aborted", get_text(event, "reason") or "unknown")
            case "stream_error":
                self._lane().retry(None)
            case "thread_name_updated":
                self.title = get_text(event, "thread_name") or self.title

    def _count(self, found: Json, at: datetime | None, number: int) -> None:
        if not isinstance(found, Mapping):
            return
        total = found.get("total_token_usage")
        before = self.totals
        if isinstance(total, Mapping):
            # Shown again with the rate limits; a real request changes some field.
            if total and total == before:
                return
            self.totals = total
        last = found.get("last_token_usage")
        if isinstance(last, Mapping):
            usage = _usage(last, "$.payload.info.last_token_usage")
            if isinstance(total, Mapping) and before is not None:
                usage = replace(usage, doubts=_doubts(usage, total, before))
        elif isinstance(total, Mapping):
            usage = _usage(_difference(total, before), "$.payload.info.total_token_usage")
        else:
            return
        self._step(usage, total, at, number)

    def _step(self, usage: Usage, total: Json, at: datetime | None, number: int) -> None:
        owner = self._owner(at)
        lane = self._lane()
        waiting, self.waiting = self.waiting, []
        times: list[datetime | None] = [w.at for w in waiting if w.by_model and w.at is not None]
        times = times or [at]
        answer = new_answer(self._key(owner, total, at), times[0], self.model, usage, number)
        answer.last_at = times[-1]
        answer.provider = self.provider
        answer.copied_from = None if owner == self.own.id else owner
        answer.labels = labels_of(version=self.version, effort=self.effort)
        lane.answer(answer, [part for w in waiting if w.by_model for part in w.parts])
        lane.close()
        for entry in waiting:
            if not entry.by_model:
                lane.say(entry.parts, entry.at, human=entry.human)

    def _key(self, owner: str, total: Json, at: datetime | None) -> str:
        """Running totals name a request inside its thread, also where a fork copied the row."""
        if isinstance(total, Mapping):
            name = f"{owner}:" + "-".join(str(total.get(field, "")) for field in _TOTALS)
        else:
            name = f"{owner}@{at.isoformat() if at else ''}"
        seen = self.used_keys[name] = self.used_keys.get(name, 0) + 1
        return name if seen == 1 else f"{name}~{seen}"


def _usage(counts: JsonObject, pointer: str) -> Usage:
    """Cached and written tokens are part of the input, reasoning tokens part of the output."""
    return usage_within(
        get_count(counts, "input_tokens", pointer),
        get_count(counts, "cached_input_tokens", pointer),
        get_count(counts, "cache_write_input_tokens", pointer),
        get_count(counts, "output_tokens", pointer),
        get_count(counts, "reasoning_output_tokens", pointer),
        pointer,
    )


def _difference(total: JsonObject, before: JsonObject | None) -> JsonObject:
    pointer = "$.payload.info.total_token_usage"
    out: dict[str, Json] = {}
    for field in _TOTALS:
        now = get_count(total, field, pointer)
        was = get_count(before or {}, field, pointer)
        out[field] = None if now is None else now - (was or 0)
    return out


def _doubts(usage: Usage, total: JsonObject, before: JsonObject) -> tuple[Doubt, ...]:
    """A doubt where the running total grew by another number than the request is said to have.

    A total that fell was started anew, with a compaction or in a resumed process.
    """
    pointer, fields = "$.payload.info.total_token_usage", ("input_tokens", "output_tokens")
    grown = [
        (get_count(total, field, pointer) or 0) - (get_count(before, field, pointer) or 0)
        for field in fields
    ]
    if min(grown) < 0:
        return ()
    said = sum(grown)
    right = (usage.prompt or 0) + (usage.output or 0)
    return (Doubt("total_delta", said, right),) if said != right else ()


def _minted(name: str | None) -> datetime | None:
    """When an id was made, as UUIDs of version 7 tell; None for any other id."""
    if name is None or not _UUID.fullmatch(name) or name[14] != "7":
        return None
    return datetime.fromtimestamp(int(name[:8] + name[9:13], 16) / 1000, UTC)


def _age(thread: _Thread) -> float:
    return thread.created.timestamp() if thread.created else 0.0


def _user_text(text: str) -> Part:
    return make_part("messages", "user", "text", text, starts_message=True)
