"""Claude Code transcripts: `~/.claude/projects/<dir>/<session>.jsonl` and their sub-agents.

One response is several rows that repeat its usage; a resumed session copies another file's rows;
sub-agents stand in their own files, in marked rows of the same file, or inside progress rows. The
system prompt, the tools, and the summarising call of a compaction are not in the transcript.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from analyzer.errors import DecodeError
from analyzer.model import Compaction, LaneSteps, Part, Problem, Prompt, SessionKey
from analyzer.sources.anthropic_usage import anthropic_usage, clearing, miss_reason
from analyzer.sources.base import Context, Head, read_records
from analyzer.sources.claude_code_rows import (
    ContentReader,
    Message,
    Row,
    decode_progress,
    decode_rows,
)
from analyzer.sources.decode import get_count, to_time
from analyzer.sources.documents import outline, run_name
from analyzer.sources.transcript import Answer, LaneBuilder

_USAGE_POINTER = "$.message.usage"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ROW_TYPES = (b'"user"', b'"assistant"', b'"system"', b'"progress"', b'"summary"')
_UNCHAINED = (
    b'{"type":"file-history-snapshot","messageId"',
    b'{"type":"summary","summary"',
    b'{"type":"queue-operation","operation"',
)
_UNCHAINED_TYPES = (
    "file-history-snapshot",
    "queue-operation",
    "last-prompt",
    "custom-title",
    "ai-title",
    "agent-name",
    "permission-mode",
    "mode",
    "pr-link",
    "bridge-session",
    "frame-link",
)
_ASKING_TOOLS = ("AskUserQuestion", "ExitPlanMode")
_REFUSED = ("The user doesn't want to", "[Request interrupted by user")
"""What a tool result says when a permission prompt was answered with no."""
_NOT_A_PERSON = (
    "<command-name>",
    "<command-message>",
    "<local-command",
    "<task-notification>",
    "<system-reminder>",
    "<bash-",
    "Caveat:",
)


class ClaudeCodeSource:
    """Reads one transcript file; a session may be several files."""

    name: ClassVar[str] = "claude-code"
    title: ClassVar[str] = (
        "Claude Code transcripts (~/.claude/projects/**.jsonl), sub-agents included"
    )

    def detect(self, head: Head) -> bool:
        """A row with a session id and one of the chained row types, or a row with a leaf title."""
        lines = head.lines[:50]
        return any(_is_row(line) for line in lines) or any(_begins_row(line) for line in lines[:5])

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        return _Reader(path, context).run()


class _Reader:
    def __init__(self, path: Path, context: Context) -> None:
        self.path = path
        self.context = context
        self.stem = path.name.split(".", 1)[0]
        self.session: SessionKey | None = None
        self.lanes: dict[str, LaneBuilder] = {}
        self.side_of: dict[str, str] = {}
        self.content = ContentReader()
        self.title: str | None = None

    def run(self) -> Iterator[LaneSteps | Problem]:
        for problem in read_records(self.path, self._line):
            if problem is not None:
                yield problem
            for builder in self.lanes.values():
                batch = builder.take()
                if batch is not None:
                    yield batch
        for builder in self.lanes.values():
            rest = builder.finish(self.title)
            if rest is not None:
                yield rest

    def _line(self, line: bytes, number: int) -> None:
        for row in decode_rows(line):
            self._row(row, number)

    def _row(self, row: Row, number: int) -> None:
        match row.type:
            case "assistant" | "user":
                self._chained(row, number, self._lane_of(row))
            case "system":
                self._system(row)
            case "progress":
                self._agent_progress(row, number)
            case "summary":
                self.title = self.title or row.summary
            case "custom-title" | "ai-title":
                self.title = row.customTitle or row.aiTitle or self.title
            case "attachment":
                self._lane_of(row).place(row.uuid)

    # -- which lane ---------------------------------------------------------------------------

    def _key(self, row: Row) -> SessionKey:
        if self.session is None:
            named = self.stem if _UUID.fullmatch(self.stem) else row.sessionId
            own = named or run_name(self.stem, row.uuid, row.timestamp)
            self.session = SessionKey(self.context.project, self.context.user, own)
        return self.session

    def _builder(self, row: Row, lane: str) -> LaneBuilder:
        builder = self.lanes.get(lane)
        if builder is None:
            parent = None if lane == "main" else "main"
            builder = self.lanes[lane] = LaneBuilder(self._key(row), lane, parent)
        return builder

    def _lane_of(self, row: Row) -> LaneBuilder:
        if row.agentId and (row.isSidechain or self.stem.startswith("agent-")):
            return self._builder(row, row.agentId)
        if not row.isSidechain:
            return self._builder(row, "main")
        # Before agents had ids, a sub-agent was a chain of marked rows with a root of its own.
        lane = self.side_of.get(row.parentUuid or "") or f"side-{(row.uuid or '?')[:8]}"
        if row.uuid:
            self.side_of[row.uuid] = lane
        return self._builder(row, lane)

    # -- rows ---------------------------------------------------------------------------------

    def _chained(self, row: Row, number: int, lane: LaneBuilder) -> None:
        message = row.message
        if message is None or lane.knows(row.uuid):
            return
        at = to_time(row.timestamp, "$.timestamp")
        if row.type == "assistant":
            self._assistant(row, message, at, number, lane)
        else:
            self._user(row, message, at, lane)
        lane.place(row.uuid)

    def _assistant(
        self, row: Row, message: Message, at: datetime | None, number: int, lane: LaneBuilder
    ) -> None:
        if message.model == "<synthetic>" or row.isApiErrorMessage:
            if row.isApiErrorMessage:
                lane.note("api_error", row.reason or "unknown")
            return
        identity = message.id or row.uuid or f"line{number}"
        if row.requestId:
            key = f"{identity}:{row.requestId}"
        else:
            # Gateways reuse message ids, so an id alone is one response only together with its
            # time; later rows of the open response have the same id and another time.
            key = self._open_key(lane, identity) or f"{identity}@{row.timestamp}"
        counts = None if message.usage is None else anthropic_usage(message.usage, _USAGE_POINTER)
        continues = lane.is_open(key)
        first = not continues and lane.last_role() != "assistant"
        parts = list(self.content.parts(message.content, "assistant", first))
        if not continues:
            lane.follow(row.parentUuid)
        copied = (
            row.sessionId if row.sessionId and row.sessionId != self._key(row).session_id else None
        )
        lane.answer(
            Answer(
                key=key,
                first_at=at,
                last_at=at,
                model=message.model,
                usage=counts.usage if counts else None,
                line=number,
                prompt=Prompt((), recorded=False),
                stop_reason=message.stop_reason,
                miss_reason=miss_reason(message.diagnostics),
                copied_from=copied,
                labels=_labels(row, message.usage),
                earlier=counts.earlier if counts else (),
                cleared=clearing(message.context_management),
            ),
            parts,
        )

    @staticmethod
    def _open_key(lane: LaneBuilder, identity: str) -> str | None:
        key = lane.open_key
        return key if key is not None and key.startswith(f"{identity}@") else None

    def _user(self, row: Row, message: Message, at: datetime | None, lane: LaneBuilder) -> None:
        parts = list(self.content.parts(message.content, "user", lane.last_role() != "user"))
        results = any(p.kind == "tool_result" for p in parts)
        if row.isCompactSummary:
            parts = [_as_summary(p) for p in parts]
        elif not results:
            lane.follow(row.parentUuid)
        human = not (row.isMeta or row.isCompactSummary or row.isSidechain or row.agentId)
        human = human and any(_is_person(p) for p in parts)
        lane.say(parts, at, human=human)

    def _system(self, row: Row) -> None:
        lane = self._lane_of(row)
        meta = row.compactMetadata or row.microcompactMetadata or {}
        if row.subtype == "compact_boundary":
            lane.compact(
                Compaction(
                    kind="summary",
                    trigger=_text(meta, "trigger"),
                    pre_tokens=_count(meta, "preTokens"),
                    post_tokens=_count(meta, "postTokens"),
                    summary_called=True,
                )
            )
        elif row.subtype == "microcompact_boundary":
            ids = meta.get("compactedToolIds")
            lane.clear_results(
                {str(i) for i in ids} if isinstance(ids, list) else set(),
                Compaction(
                    kind="clear",
                    trigger=_text(meta, "trigger"),
                    pre_tokens=_count(meta, "preTokens"),
                    tokens_saved=_count(meta, "tokensSaved"),
                    pruned=len(ids) if isinstance(ids, list) else None,
                    summary_called=False,
                ),
            )
        elif row.subtype == "api_error":
            lane.retry(row.reason)
        lane.place(row.uuid)

    def _agent_progress(self, row: Row, number: int) -> None:
        self._lane_of(row).place(row.uuid)
        progress = decode_progress(bytes(row.data))
        inner = progress.message if progress else None
        if progress is None or inner is None:
            return
        if progress.type != "agent_progress" or not progress.agentId:
            return
        inner.isSidechain = True
        inner.agentId = progress.agentId
        inner.sessionId = inner.sessionId or row.sessionId
        if inner.type in ("assistant", "user"):
            self._chained(inner, number, self._builder(inner, progress.agentId))


def _is_row(line: bytes) -> bool:
    if line.startswith(_UNCHAINED):
        return True
    keys = (b'"sessionId"', b'"uuid"', b'"parentUuid"')
    return all(key in line for key in keys) and any(kind in line for kind in _ROW_TYPES)


def _begins_row(line: bytes) -> bool:
    """Whether a line is a row by its keys, however it was written and wherever it is cut off."""
    if not any(key in line for key in (b'"sessionId"', b'"messageId"', b'"leafUuid"')):
        return False
    keys = outline(line)
    kind = keys.get("type")
    if kind == "summary":
        return "leafUuid" in keys
    chained = "isSidechain" in keys and ("parentUuid" in keys or "uuid" in keys)
    return kind is not None and (chained or kind in _UNCHAINED_TYPES)


def _as_summary(part: Part) -> Part:
    return replace(part, kind="summary") if part.kind == "text" else part


def _is_person(part: Part) -> bool:
    """Whether a person stands behind a part: a prompt, an interruption, an answered question."""
    body = part.body or ""
    if part.kind == "tool_result":
        return part.tool in _ASKING_TOOLS or body.startswith(_REFUSED)
    return part.kind in ("text", "image") and not body.startswith(_NOT_A_PERSON)


def _text(meta: dict[str, Any], key: str) -> str | None:
    value = meta.get(key)
    return value if isinstance(value, str) else None


def _count(meta: dict[str, Any], key: str) -> int | None:
    """A count that only informs: one that cannot be read is unknown, and no reason to lose a row."""
    try:
        return get_count(meta, key)
    except DecodeError:
        return None


def _labels(row: Row, usage: dict[str, Any] | None) -> tuple[tuple[str, str], ...]:
    labels = {"version": row.version}
    for key in ("service_tier", "speed", "inference_geo"):
        value = (usage or {}).get(key)
        labels[key] = value if isinstance(value, str) else None
    return tuple(sorted((k, v) for k, v in labels.items() if v))
