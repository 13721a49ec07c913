"""Recordings as journals (a JSON object a line) and as documents (one JSON object a file).

Owns the loop that every agent's recording needs: problems with their place, glued objects, a last
line that is still being written, and batches of steps as they become ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from analyzer.errors import DecodeError
from analyzer.model import Doubt, LaneSteps, Problem, Prompt, Usage
from analyzer.sources.base import read_records
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_object,
    get_array,
    get_count,
    parse_many,
    to_time,
)
from analyzer.sources.documents import problem, read_document
from analyzer.sources.transcript import Answer, LaneBuilder

NOT_SENT = Prompt((), recorded=False)
"""Stands in an `Answer` until the lane puts the prompt there."""
Labels = tuple[tuple[str, str], ...]


class Journal(Protocol):
    """What the loop needs of a format's reader."""

    def row(self, row: JsonObject, number: int) -> None:
        """Take one record, numbered from 1. Raises `DecodeError`."""
        ...

    def builders(self) -> Iterable[LaneBuilder]:
        """The lanes so far."""
        ...

    def end(self) -> str | None:
        """The last record was read; the session's title, if the recording has one."""
        ...


def read_journal(path: Path, journal: Journal) -> Iterator[LaneSteps | Problem]:
    """Feed a file to a reader, line by line, and yield what is ready."""

    def read(line: bytes, number: int) -> None:
        for value in parse_many(line):
            journal.row(as_object(value), number)

    for failed in read_records(path, read):
        if failed is not None:
            yield failed
        for builder in journal.builders():
            batch = builder.take()
            if batch is not None:
                yield batch
    yield from finished(journal.builders(), journal.end())


def read_object(path: Path) -> JsonObject | Problem:
    """The one JSON object of a file; a problem where it cannot be read."""
    document, failed = read_document(path)
    if failed is not None:
        return failed
    try:
        return as_object(document)
    except DecodeError as error:
        return problem(path, None, error)


def document_lanes(
    path: Path,
    document: JsonObject,
    take: Callable[[JsonObject, int], None],
    lane: LaneBuilder,
    title: str | None,
) -> Iterator[LaneSteps | Problem]:
    """Feed the `messages` of a document to a reader of one lane, and yield what is ready."""
    for index, message in enumerate(get_array(document, "messages")):
        try:
            take(as_object(message), index)
        except DecodeError as error:
            place = f"$.messages[{index}]" + error.pointer.removeprefix("$")
            yield problem(path, index + 1, DecodeError(error.message, place), message)
        batch = lane.take()
        if batch is not None:
            yield batch
    yield from finished((lane,), title)


def finished(lanes: Iterable[LaneBuilder], title: str | None) -> Iterator[LaneSteps]:
    """The rest of each lane."""
    for builder in list(lanes):
        rest = builder.finish(title)
        if rest is not None:
            yield rest


def new_answer(
    key: str, at: datetime | None, model: str | None, usage: Usage | None, line: int
) -> Answer:
    """A response that one record tells in full."""
    return Answer(
        key=key, first_at=at, last_at=at, model=model, usage=usage, line=line, prompt=NOT_SENT
    )


def usage_within(
    total: int | None,
    read: int | None,
    write: int | None,
    output: int | None,
    reasoning: int | None,
    pointer: str,
) -> Usage:
    """Disjoint usage of counts whose input includes what the cache read and wrote.

    Raises `DecodeError` where the parts are more than the whole.
    """
    rest = None if total is None else total - (read or 0) - (write or 0)
    if rest is not None and rest < 0:
        raise DecodeError(
            f"expected at most {total} cached tokens in an input of {total}, "
            f"got {(read or 0) + (write or 0)}",
            pointer,
        )
    return Usage(input=rest, cache_read=read, cache_write=write, output=output, reasoning=reasoning)


def with_total(usage: Usage | None, total: int | None) -> Usage | None:
    """Usage with a doubt where the sender's own total is another than prompt and output."""
    if usage is None or not total or usage.prompt is None:
        return usage
    whole = usage.prompt + (usage.output or 0)
    if total == whole:
        return usage
    return replace(usage, doubts=(*usage.doubts, Doubt("total_mismatch", total, whole)))


def soft_time(value: Json) -> datetime | None:
    """An instant, or None where it cannot be read: a bad time does not make a record worthless."""
    try:
        return to_time(value)
    except DecodeError:
        return None


def labels_of(**values: str | int | None) -> Labels:
    """Labels of a step, sorted, without those that are not known."""
    return tuple(sorted((k, str(v)) for k, v in values.items() if v is not None and v != ""))


def counts_of(source: JsonObject, pointer: str, *keys: str) -> tuple[int | None, ...]:
    """Several token counts of one object, None where absent. Raises `DecodeError`."""
    return tuple(get_count(source, key, pointer) for key in keys)
