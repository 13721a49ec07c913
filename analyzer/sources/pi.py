"""Sessions of pi and of OpenClaw, which writes the same journal.

Newer files are trees (`id`, `parentId`); a branched session begins with a copy of its parent's
rows, with their times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from analyzer.model import Compaction, LaneSteps, Problem, SessionKey
from analyzer.sources.base import Context, Head
from analyzer.sources.decode import (
    JsonObject,
    as_object,
    get_count,
    get_text,
    to_time,
)
from analyzer.sources.documents import outline, run_name, stem_of
from analyzer.sources.journal import read_journal, soft_time
from analyzer.sources.pi_messages import MessageReader, summary_part
from analyzer.sources.transcript import LaneBuilder

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class PiSource:
    """Reads one session of pi or OpenClaw."""

    name: ClassVar[str] = "pi"
    title: ClassVar[str] = "pi and OpenClaw sessions (~/.pi/agent/sessions/**.jsonl)"

    def detect(self, head: Head) -> bool:
        """A session header with a working directory, or a stamped message."""
        return any(_is_row(line) for line in head.lines[:20])

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        return read_journal(path, _Session(path, context))


def _is_row(line: bytes) -> bool:
    """Whether a line is a session's header, or a message of a file whose beginning is elsewhere."""
    if b'"timestamp"' not in line:
        return False
    keys = outline(line)
    match keys.get("type"):
        case "session":
            return "cwd" in keys and "timestamp" in keys
        case "message":
            return "message.role" in keys and "message.timestamp" in keys and "timestamp" in keys
        case _:
            return False


class _Session:
    def __init__(self, path: Path, context: Context) -> None:
        self.context = context
        found = _UUID.findall(path.name)
        self.stem = stem_of(path)
        self.id = found[-1] if found else None
        self.begun: datetime | None = None
        self.branched_from: str | None = None
        self.title: str | None = None
        self.rows = 0
        self.reader: MessageReader | None = None

    def builders(self) -> Iterable[LaneBuilder]:
        return () if self.reader is None else (self.reader.lane,)

    def end(self) -> str | None:
        return self.title

    def row(self, row: JsonObject, number: int) -> None:
        index, self.rows = self.rows, self.rows + 1
        if row.get("type") == "session":
            self._header(row)
            return
        self.id = self.id or run_name(self.stem, row)
        reader = self._reader()
        lane = reader.lane
        name = get_text(row, "id") or f"row {index}"
        at = to_time(row.get("timestamp"), "$.timestamp")
        kind = row.get("type")
        if kind in ("message", "custom_message", "compaction", "branch_summary"):
            lane.follow(get_text(row, "parentId"))
        lane.place(_before(name))
        match kind:
            case "message":
                self._message(as_object(row.get("message"), "$.message"), at, number)
            case "custom_message":
                lane.say(reader.texts("user", row), at, human=False)
            case "branch_summary":
                lane.say([summary_part(get_text(row, "summary") or "")], at, human=False)
            case "compaction":
                self._compaction(row)
            case "session_info":
                self.title = get_text(row, "name") or self.title
        lane.place(name)

    def _header(self, row: JsonObject) -> None:
        if self.reader is not None:
            return
        self.id = get_text(row, "id") or self.id
        self.begun = soft_time(row.get("timestamp"))
        parent = get_text(row, "branchedFrom", "parentSession")
        if parent is not None:
            stem = re.split(r"[/\\]", parent)[-1].removesuffix(".jsonl")
            found = _UUID.findall(stem)
            self.branched_from = found[-1] if found else stem

    def _reader(self) -> MessageReader:
        if self.reader is None:
            key = SessionKey(self.context.project, self.context.user, str(self.id))
            self.reader = MessageReader(LaneBuilder(key, "main"))
        return self.reader

    def _message(self, message: JsonObject, at: datetime | None, number: int) -> None:
        is_copy = self.begun is not None and at is not None and at < self.begun
        self._reader().take(message, at, number, self.branched_from if is_copy else None)

    def _compaction(self, row: JsonObject) -> None:
        kept = get_text(row, "firstKeptEntryId")
        index = get_count(row, "firstKeptEntryIndex")
        if kept is None and index is not None:
            kept = f"row {index}"
        done = Compaction(
            kind="summary", pre_tokens=get_count(row, "tokensBefore"), summary_called=True
        )
        summary = summary_part(get_text(row, "summary") or "")
        self._reader().lane.compact(done, [summary], None if kept is None else _before(kept))


def _before(name: str) -> str:
    return f"before {name}"
