"""Sessions back from their rows: recordings of one lane put together, bodies out of their packs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import polars as pl
import zstandard

from analyzer.errors import StoreError, UsageError
from analyzer.model import (
    Compaction,
    Doubt,
    Lane,
    Part,
    Prompt,
    Range,
    Session,
    SessionKey,
    Step,
    Usage,
)
from analyzer.records import CODEC, to_breakpoints
from analyzer.store.base import Scope


class Reader(Protocol):
    """The one thing that loading needs of a store."""

    def query(self, name: str, scope: Scope | None = None, **values: object) -> pl.DataFrame:
        """Run a query file."""
        ...


class _Place(NamedTuple):
    """Where a body lies; all None where it was not kept."""

    rec: int
    pack: int | None
    offset: int | None
    length: int | None


@dataclass(frozen=True)
class _Pool:
    """The merged pool of a lane, and where each recording's own indices went."""

    parts: list[Part]
    places: list[_Place]
    moved: Mapping[int, list[int] | None]
    """Recording -> merged index of each of its parts; None where nothing moved."""


def load_session(reader: Reader, key: SessionKey, *, content: bool) -> Session:
    """See `Store.load_session`."""
    scope = Scope(key.project, key.user)
    own = reader.query("session", scope, session_id=key.session_id)
    if own.is_empty():
        raise UsageError(
            f"there is no session {key.session_id!r} in project {key.project!r} of user "
            f"{key.user!r}; `analyzer sessions` lists those that there are"
        )
    source, title, _ = own.row(0)
    lanes = _lanes_of(reader, key)
    recs = [rec for rows in lanes.values() for rec in rows["rec"]]
    steps = reader.query("lane_steps", scope, session_id=key.session_id).partition_by(
        "lane", as_dict=True
    )
    pools = _part_rows(reader, key, recs)
    built = []
    for lane, rows in lanes.items():
        pool = _merge([(rec, pools.get(rec, [])) for rec in rows["rec"]])
        if content:
            pool = _with_bodies(reader, key, pool)
        built.append(_lane(key, lane, rows, pool, steps.get((lane,))))
    return Session(key, tuple(built), source or "", title)


def part_bodies(
    reader: Reader, key: SessionKey, lane: str, indices: Sequence[int]
) -> list[str | None]:
    """See `Store.part_bodies`."""
    lanes = _lanes_of(reader, key)
    if lane not in lanes:
        raise UsageError.unknown("lane", lane, lanes)
    recs = list(lanes[lane]["rec"])
    pools = _part_rows(reader, key, recs)
    pool = _merge([(rec, pools.get(rec, [])) for rec in recs])
    wrong = [i for i in indices if not 0 <= i < len(pool.places)]
    if wrong:
        raise UsageError(
            f"expected part indices from 0 to {len(pool.places) - 1} in lane {lane!r}, got {wrong}"
        )
    return _bodies(reader, key, [pool.places[i] for i in indices])


def _lanes_of(reader: Reader, key: SessionKey) -> dict[str, pl.DataFrame]:
    """Per lane the recordings that its steps come from; a lane of nothing but copies is left out.

    A lane without any step is one whose first request was never sent; it keeps its parts.
    """
    rows = reader.query("lane_recordings", Scope(key.project, key.user), session_id=key.session_id)
    lanes = {}
    for (lane,), group in rows.partition_by("lane", as_dict=True, maintain_order=True).items():
        counted = group.filter(pl.col("n_counted") > 0)
        if counted.is_empty() and group["n_steps"].sum() == 0:
            counted = group.head(1)
        if not counted.is_empty():
            lanes[str(lane)] = counted
    return lanes


def _part_rows(
    reader: Reader, key: SessionKey, recs: Sequence[int]
) -> dict[int, list[tuple[Any, ...]]]:
    rows = reader.query(
        "lane_parts", Scope(key.project, key.user), session_id=key.session_id, recs=list(recs)
    )
    return {
        int(rec): group.drop("rec", "idx").rows()
        for (rec,), group in rows.partition_by("rec", as_dict=True, maintain_order=True).items()
    }


def _merge(recordings: Sequence[tuple[int, list[tuple[Any, ...]]]]) -> _Pool:
    """One pool for some recordings: the n-th part of a digest in each is the same part."""
    parts: list[Part] = []
    places: list[_Place] = []
    moved: dict[int, list[int] | None] = {}
    known: dict[tuple[bytes, int], int] = {}
    several = len(recordings) > 1
    for rec, rows in recordings:
        seen: dict[bytes, int] = {}
        mapping: list[int] = []
        for row in rows:
            if several:
                digest = row[3]
                nth = seen[digest] = seen.get(digest, -1) + 1
                index = known.setdefault((digest, nth), len(parts))
                mapping.append(index)
                if index < len(parts):
                    if places[index].pack is None:
                        places[index] = _Place(rec, *row[-3:])
                    continue
            parts.append(_part(row))
            places.append(_Place(rec, *row[-3:]))
        moved[rec] = mapping if several else None
    return _Pool(parts, places, moved)


def _part(row: tuple[Any, ...]) -> Part:
    (
        section,
        role,
        kind,
        digest,
        chars,
        estimate,
        tool,
        call_id,
        starts,
        placeholder,
        envelope,
        summary,
        markup,
        *_,
    ) = row
    return Part(
        section,
        role,
        kind,
        digest,
        chars,
        estimate,
        None,
        tool,
        call_id,
        starts,
        placeholder,
        envelope,
        summary,
        markup,
    )


def _with_bodies(reader: Reader, key: SessionKey, pool: _Pool) -> _Pool:
    bodies = _bodies(reader, key, pool.places)
    parts = [
        part if body is None else replace(part, body=body)
        for part, body in zip(pool.parts, bodies, strict=True)
    ]
    return replace(pool, parts=parts)


def _bodies(reader: Reader, key: SessionKey, places: Sequence[_Place]) -> list[str | None]:
    wanted: dict[int, set[int]] = {}
    for place in places:
        if place.pack is not None and place.length:
            wanted.setdefault(place.rec, set()).add(place.pack)
    bodies = [None if place.pack is None else "" for place in places]
    for rec, packs in wanted.items():
        raw = _packs(reader, key, rec, packs)
        for i, place in enumerate(places):
            if place.rec == rec and place.pack is not None and place.length:
                start = place.offset or 0
                body = raw[place.pack][start : start + place.length]
                bodies[i] = body.decode("utf-8", "surrogatepass")
    return bodies


def _packs(reader: Reader, key: SessionKey, rec: int, packs: Iterable[int]) -> dict[int, bytes]:
    """Some packs of one recording, uncompressed."""
    scope = Scope(key.project, key.user)
    wanted = set(packs)
    segments: dict[int, list[int]] = {}
    places = reader.query("pack_places", scope, session_id=key.session_id, rec=rec)
    for pack, segment, codec in places.rows():
        if codec != CODEC:
            raise StoreError(f"expected packs compressed with {CODEC}, got {codec!r} in {key}")
        if pack in wanted:
            segments.setdefault(segment, []).append(pack)
    unpack = zstandard.ZstdDecompressor().decompress
    return {
        pack: unpack(body)
        for segment, numbers in segments.items()
        for pack, body in reader.query(
            "pack_bodies",
            scope,
            session_id=key.session_id,
            rec=rec,
            segment=segment,
            packs=numbers,
        ).rows()
    }


def _lane(
    key: SessionKey, name: str, recordings: pl.DataFrame, pool: _Pool, rows: pl.DataFrame | None
) -> Lane:
    steps: list[Step] = []
    previous: Step | None = None
    uncounted: dict[int, Mapping[str, Any]] = {}
    first: Mapping[str, Any] | None = None
    for row in rows.iter_rows(named=True) if rows is not None else ():
        if not row["counted"]:
            uncounted[row["rec"]] = row
            continue
        first = first or row
        steps.append(_step(row, pool.moved[row["rec"]]))
    if first is not None and first["rec"] in uncounted:
        before = uncounted[first["rec"]]
        # Only of the recording that the lane begins in; the others begin in the middle of it.
        if before["seq"] == first["seq"] - 1:
            previous = _step(before, pool.moved[first["rec"]])
    parent, source = recordings.row(0, named=True)["parent"], recordings["source"][0]
    return Lane(key, name, tuple(steps), tuple(pool.parts), parent, source or "", previous)


def _step(row: Mapping[str, Any], moved: list[int] | None) -> Step:
    usage = None
    if row["has_usage"]:
        usage = Usage(
            row["input"],
            row["cache_read"],
            row["cache_write"],
            row["cache_write_5m"],
            row["cache_write_1h"],
            row["output"],
            row["reasoning"],
            tuple(_listed(row["terms"])),
            tuple((name, count) for name, count in _listed(row["apart"])),
            tuple(Doubt(*doubt) for doubt in _listed(row["doubts"])),
        )
    compaction = row["compaction"]
    return Step(
        key=row["key"],
        lane=row["lane"],
        at=row["at"],
        ended_at=row["ended_at"],
        model=row["model"],
        usage=usage,
        prompt=_prompt(row, moved),
        response=_ranges(row["response_ranges"], moved),
        provider=row["provider"],
        human=row["human"],
        compaction=Compaction(**json.loads(compaction)) if compaction else None,
        miss_reason=row["miss_reason"],
        stop_reason=row["stop_reason"],
        error=row["error"],
        labels=_pairs(row["labels"]),
        copied_from=row["copied_from"],
        line=row["line"],
        reported_cost=row["reported_cost"],
    )


def _prompt(row: Mapping[str, Any], moved: list[int] | None) -> Prompt | None:
    if row["prompt_ranges"] is None:
        return None
    return Prompt(
        _ranges(row["prompt_ranges"], moved),
        to_breakpoints(row["breakpoints"]),
        _pairs(row["settings"]),
        row["recorded"],
    )


def _pairs(text: str | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in json.loads(text)) if text else ()


def _listed(text: str | None) -> Sequence[Any]:
    return json.loads(text) if text else ()


def _ranges(flat: Sequence[int] | None, moved: list[int] | None) -> tuple[Range, ...]:
    """Ranges of a recording's pool as ranges of the merged pool."""
    bounds = [Range(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)] if flat else []
    if moved is None:
        return tuple(bounds)
    out: list[Range] = []
    for r in bounds:
        for index in moved[r.start : r.stop]:
            if out and out[-1].stop == index:
                out[-1] = Range(out[-1].start, index + 1)
            else:
                out.append(Range(index, index + 1))
    return tuple(out)
