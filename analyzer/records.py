"""The flat form of steps and parts: what travels from a reader to the store.

Owns the order of the columns, the packing of bodies, and the encoding of a chunk as bytes. It
loads neither the database nor a frame library, so that a reading process starts quickly and stays
small.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeAlias

import msgspec
import xxhash
import zstandard

from analyzer.model import (
    TTL_SECONDS,
    Breakpoint,
    LaneSteps,
    Part,
    Problem,
    Prompt,
    Range,
    SessionKey,
    Step,
    Usage,
)

Scalar: TypeAlias = object
Columns: TypeAlias = list[list[Scalar]]
Row: TypeAlias = tuple[Scalar, ...]

PACK_BYTES = 1 << 20
"""Bodies are joined to about this many bytes before they are compressed."""
OPEN_BYTES = 12 << 20
"""Bodies held back in all lanes of a file together before every pack is closed early."""
CHUNK_BYTES = 2 << 20
CHUNK_ROWS = 8_000
RAW_LIMIT = 1 << 20
"""Bytes of an unreadable record that are kept."""
CODEC = "zstd"
LEVEL = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns(spec: str) -> dict[str, str]:
    """Names and kinds (int, text, flag, time, float, bytes, ints) of the columns of a table."""
    return dict(word.split(":", 1) for word in spec.split())


TABLES = {
    "steps": columns(
        "rec:int seq:int key:text at:time ended_at:time model:text provider:text has_usage:flag "
        "input:int cache_read:int cache_write:int cache_write_5m:int cache_write_1h:int "
        "output:int reasoning:int prompt_ranges:ints breakpoints:ints settings:text "
        "recorded:flag response_ranges:ints human:flag compaction:text miss_reason:text "
        "stop_reason:text error:text labels:text copied_from:text line:int reported_cost:float "
        "counted:flag step:int terms:text apart:text doubts:text"
    ),
    "parts": columns(
        "rec:int idx:int section:text role:text kind:text tool:text call_id:text digest:bytes "
        "chars:int estimate:int envelope:int starts_message:flag placeholder:flag summary:flag "
        "markup:flag pack:int body_offset:int body_length:int"
    ),
    "packs": columns("rec:int pack:int codec:text raw_bytes:int body:bytes"),
    "recordings": columns(
        "rec:int file_id:int project:text user_id:text session_id:text lane:text parent:text "
        "title:text n_steps:int n_parts:int first_at:time last_at:time"
    ),
    "problems": columns("file_id:int path:text line:int pointer:text message:text raw:bytes"),
}
"""The tables that a reader fills; the order of the columns is that of a chunk. Times travel as
microseconds since 1970, `ints` as the text of a list."""


class Chunk(msgspec.Struct, array_like=True):
    """A bounded piece of one file: columns in the order of `TABLES`, empty where it has no rows."""

    columns: dict[str, Columns]
    tail: bool = False
    """Of a growing file: what its present end makes final, and its next growth may not."""
    read: tuple[int, bytes] | None = None
    """Of a growing file, with its last chunk: number and xxh3-128 digest of the bytes read."""
    last: bool = False
    """Nothing follows: the file is whole. The last field, since `reading.frames` looks there."""

    def rows(self, table: str) -> int:
        """Number of rows for a table."""
        columns = self.columns.get(table)
        return len(columns[0]) if columns else 0

    def size(self) -> int:
        """Rough bytes of the chunk in memory."""
        packs = self.columns.get("packs")
        bodies = sum(len(b) for b in packs[4] if isinstance(b, bytes)) if packs else 0
        return bodies + 400 * (self.rows("parts") + self.rows("steps"))


def identity(*names: str | bytes) -> int:
    """A stable positive 63-bit id from some names."""
    hasher = xxhash.xxh3_64()
    for name in names:
        raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass")
        hasher.update(len(raw).to_bytes(8, "little"))
        hasher.update(raw)
    return hasher.intdigest() >> 1


def plain(text: str) -> str:
    """A name that any UTF-8 column takes: lone surrogates become visible escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def micros(at: datetime | None) -> int | None:
    """An aware instant as microseconds since 1970."""
    if at is None:
        return None
    d = at - _EPOCH
    return (d.days * 86_400 + d.seconds) * 1_000_000 + d.microseconds


def flat_ranges(ranges: Sequence[Range]) -> str:
    """Ranges as the text of a list: start, stop, start, stop …"""
    return str([bound for r in ranges for bound in r])


@lru_cache(maxsize=1024)
def pairs_text(pairs: tuple[tuple[str, str], ...]) -> str | None:
    """Sorted pairs as JSON text; None where there are none."""
    return json.dumps(pairs, separators=(",", ":")) if pairs else None


class _Recording:
    """One lane while its file is being read."""

    __slots__ = (
        "bodies",
        "first_at",
        "key",
        "last_at",
        "n_parts",
        "n_steps",
        "pack",
        "parent",
        "rec",
        "title",
    )

    def __init__(self, file_id: int, session: SessionKey, lane: str) -> None:
        self.key = (session, lane)
        self.rec = identity(str(file_id), *session, lane)
        self.parent: str | None = None
        self.title: str | None = None
        self.n_steps = self.n_parts = self.pack = 0
        self.first_at: int | None = None
        self.last_at: int | None = None
        self.bodies = bytearray()

    def saw(self, start: int | None, end: int | None) -> None:
        """Widen the time that the recording spans."""
        for at in (start, end):
            if at is not None:
                self.first_at = at if self.first_at is None else min(self.first_at, at)
                self.last_at = at if self.last_at is None else max(self.last_at, at)


class Flattener:
    """Turns the batches of one file into chunks; memory stays bounded by the constants above."""

    def __init__(self, file_id: int, *, keep_bodies: bool) -> None:
        self._file_id = file_id
        self._keep = keep_bodies
        self._compress = zstandard.ZstdCompressor(level=LEVEL).compress
        self._recordings: dict[tuple[SessionKey, str], _Recording] = {}
        self._rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._open = 0
        self._packed = 0

    def add(self, batch: LaneSteps) -> None:
        """Take the steps and parts of one batch."""
        key = (batch.session, batch.lane)
        rec = self._recordings.get(key)
        if rec is None:
            rec = self._recordings[key] = _Recording(self._file_id, batch.session, batch.lane)
        rec.parent = batch.parent if batch.parent is not None else rec.parent
        rec.title = batch.title if batch.title is not None else rec.title
        for step in batch.steps:
            for part in step.new_parts:
                self._part(rec, part)
            self._step(rec, step)
        for part in batch.tail_parts:
            self._part(rec, part)

    def problem(self, problem: Problem) -> None:
        """Take a record that could not be read."""
        self._rows["problems"].append(
            (
                self._file_id,
                problem.path,
                problem.line,
                problem.pointer,
                problem.message,
                problem.raw[:RAW_LIMIT],
            )
        )

    def ready(self) -> bool:
        """Whether enough has come together for a chunk."""
        rows = self._rows
        return self._packed >= CHUNK_BYTES or (
            len(rows["parts"]) + len(rows["steps"]) + 100 * len(rows["problems"]) >= CHUNK_ROWS
        )

    def take(self, *, last: bool = False) -> Chunk:
        """What has come together since the last call; with `last`, everything that is left."""
        if last:
            self._close_packs()
            self._rows["recordings"] = [self._recording(r) for r in self._recordings.values()]
        columns: dict[str, Columns] = {
            table: [list(column) for column in zip(*rows, strict=True)]
            for table, rows in self._rows.items()
            if rows
        }
        for rows in self._rows.values():
            rows.clear()
        self._packed = 0
        return Chunk(columns, last=last)

    def _part(self, rec: _Recording, part: Part) -> None:
        pack = offset = length = None
        if self._keep and part.body is not None:
            raw = part.body.encode("utf-8", "surrogatepass")
            pack, offset, length = rec.pack, len(rec.bodies), len(raw)
            rec.bodies += raw
            self._open += length
        self._rows["parts"].append(
            (
                rec.rec,
                rec.n_parts,
                part.section,
                part.role,
                part.kind,
                part.tool,
                part.call_id,
                part.digest,
                part.chars,
                part.estimate,
                part.envelope,
                part.starts_message,
                part.placeholder,
                part.summary,
                part.markup,
                pack,
                offset,
                length,
            )
        )
        rec.n_parts += 1
        if len(rec.bodies) >= PACK_BYTES:
            self._close_pack(rec)
        elif self._open >= OPEN_BYTES:
            self._close_packs()

    def _close_packs(self) -> None:
        for rec in self._recordings.values():
            if rec.bodies:
                self._close_pack(rec)

    def _close_pack(self, rec: _Recording) -> None:
        body = self._compress(bytes(rec.bodies))
        self._rows["packs"].append((rec.rec, rec.pack, CODEC, len(rec.bodies), body))
        self._packed += len(body)
        self._open -= len(rec.bodies)
        rec.bodies.clear()
        rec.pack += 1

    def _step(self, rec: _Recording, step: Step) -> None:
        usage = step.usage or Usage()
        start, end = micros(step.at), micros(step.ended_at)
        rec.saw(start, end)
        compaction = json.dumps(asdict(step.compaction)) if step.compaction else None
        self._rows["steps"].append(
            (
                rec.rec,
                rec.n_steps,
                step.key,
                start,
                end,
                step.model,
                step.provider,
                step.usage is not None,
                usage.input,
                usage.cache_read,
                usage.cache_write,
                usage.cache_write_5m,
                usage.cache_write_1h,
                usage.output,
                usage.reasoning,
                *_prompt_columns(step.prompt),
                flat_ranges(step.response),
                step.human,
                compaction,
                step.miss_reason,
                step.stop_reason,
                step.error,
                pairs_text(step.labels),
                step.copied_from,
                step.line,
                step.reported_cost,
                True,
                rec.n_steps,
                *_usage_texts(usage),
            )
        )
        rec.n_steps += 1

    def _recording(self, rec: _Recording) -> Row:
        session, lane = rec.key
        return (
            rec.rec,
            self._file_id,
            *session,
            lane,
            rec.parent,
            rec.title,
            rec.n_steps,
            rec.n_parts,
            rec.first_at,
            rec.last_at,
        )


def _usage_texts(usage: Usage) -> tuple[Scalar, Scalar, Scalar]:
    """Terms, counts priced apart and doubts as JSON text; None where there are none."""
    if not (usage.terms or usage.apart or usage.doubts):
        return None, None, None
    found = (usage.terms, usage.apart, usage.doubts)
    terms, apart, doubts = (json.dumps(f, separators=(",", ":")) if f else None for f in found)
    return terms, apart, doubts


def _prompt_columns(prompt: Prompt | None) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Ranges, breakpoints, settings, recorded; all None for an unknown prompt."""
    if prompt is None:
        return None, None, None, None
    marks = [n for mark in prompt.breakpoints for n in (mark.position, TTL_SECONDS[mark.ttl])]
    return (
        flat_ranges(prompt.ranges),
        str(marks) if marks else None,
        pairs_text(prompt.settings),
        prompt.recorded,
    )


def to_breakpoints(flat: list[int] | None) -> tuple[Breakpoint, ...]:
    """The inverse of the breakpoints column."""
    pairs = zip(flat[::2], flat[1::2], strict=True) if flat else ()
    return tuple(
        Breakpoint(position, "1h" if ttl == TTL_SECONDS["1h"] else "5m") for position, ttl in pairs
    )


def to_bytes(chunk: Chunk) -> bytes:
    """Encode a chunk; names that are not valid Unicode become visible escapes."""
    try:
        return msgspec.msgpack.encode(chunk)
    except UnicodeEncodeError:
        for columns in chunk.columns.values():
            for column in columns:
                column[:] = [plain(v) if isinstance(v, str) else v for v in column]
        return msgspec.msgpack.encode(chunk)


_decoder = msgspec.msgpack.Decoder(Chunk)


def from_bytes(raw: bytes) -> Chunk:
    """Decode a chunk."""
    return _decoder.decode(raw)
