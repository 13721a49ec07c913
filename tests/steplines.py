"""A tiny source for tests of the store: one JSON object a line, one step an object.

It has the manners of the real ones: streaming, problems instead of errors, and a last line without
an end that does not parse is a file still being written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import xxhash

from analyzer.model import LaneSteps, Part, Problem, Prompt, Range, SessionKey, Step, Usage
from analyzer.sources.base import Context, Head, read_lines

MARK = b'{"steplines"'
START = datetime(2026, 11, 1, tzinfo=UTC)


def text_part(body: str, *, keep: bool = True) -> Part:
    """A user text whose digest is that of its body."""
    raw = body.encode("utf-8", "surrogatepass")
    return Part(
        "messages",
        "user",
        "text",
        xxhash.xxh3_128(raw).digest(),
        len(body),
        len(body) // 4,
        body if keep else None,
        starts_message=True,
    )


class StepLines:
    """`{"s": session, "l": lane, "k": key, "t": seconds, "new": [text …], "from": session}`."""

    name: ClassVar[str] = "steplines"
    title: ClassVar[str] = "a tiny format for tests"

    def detect(self, head: Head) -> bool:
        """By the first line."""
        return head.data.startswith(MARK)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        sizes: dict[tuple[str, str], int] = {}
        for entry in read_lines(path):
            if isinstance(entry, Problem):
                yield entry
                continue
            number, line = entry
            try:
                row = json.loads(line)
            except ValueError as error:
                if path.read_bytes().endswith(b"\n") or b"\n" in line:
                    yield Problem(str(path), number, "$", f"expected JSON: {error}", line)
                continue
            if "exit" in row:
                os._exit(row["exit"])
            if "s" in row:
                yield _batch(row, number, context, sizes)


class JointLines(StepLines):
    """The same format, all files of a run read together."""

    name: ClassVar[str] = "jointlines"
    joint: ClassVar[bool] = True

    def read_many(self, paths: Sequence[Path], context: Context) -> Iterator[LaneSteps | Problem]:
        """All files, one after the other, their lanes shared."""
        sizes: dict[tuple[str, str], int] = {}
        for path in paths:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                row = json.loads(line)
                if "s" in row:
                    yield _batch(row, number, context, sizes)


def _batch(
    row: dict[str, Any], number: int, context: Context, sizes: dict[tuple[str, str], int]
) -> LaneSteps:
    lane = row.get("l", "main")
    new = tuple(text_part(body, keep=context.keep_content) for body in row.get("new", ()))
    size = sizes[row["s"], lane] = sizes.get((row["s"], lane), 0) + len(new)
    at = None if row.get("t") is None else START + timedelta(seconds=row["t"])
    step = Step(
        key=row["k"],
        lane=lane,
        at=at,
        ended_at=at,
        model="m",
        usage=Usage(input=3, cache_read=size, output=1),
        prompt=Prompt((Range(0, size),)),
        new_parts=new,
        copied_from=row.get("from"),
        line=number,
    )
    key = SessionKey(context.project, context.user, row["s"])
    return LaneSteps(key, lane, (step,), None if lane == "main" else "main", row.get("title"))


SOURCES = {"steplines": StepLines()}
JOINT = {"jointlines": JointLines()}


def line(session: str, key: str, at: int | None = 0, **more: object) -> str:
    """One row of the format."""
    row = {"s": session, "k": key, "t": at, "new": [f"text of {key}"], **more}
    return json.dumps(row) + "\n"


def write(path: Path, *rows: str) -> Path:
    """A file of the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MARK.decode() + ": 1}\n" + "".join(rows))
    return path


def dump(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in a store but times of ingest and names of states, in an order of its own."""
    tables: dict[str, list[tuple[Any, ...]]] = {"packs": []}
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH '{path}' AS s (READ_ONLY)")
        connection.execute("USE s")
        names = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 's'"
        ).fetchall()
        for (name,) in names:
            if name == "meta":
                continue
            columns = {"files": "* EXCLUDE (ingested_at)", "pack_index": "* EXCLUDE (segment)"}
            rows = connection.execute(f"SELECT {columns.get(name, '*')} FROM {name}").fetchall()
            # Which segment a pack is in depends on what came before it, and means nothing.
            kind = "packs" if name.startswith("packs_") else name
            tables[kind] = sorted([*tables.get(kind, []), *rows], key=repr)
    return tables
