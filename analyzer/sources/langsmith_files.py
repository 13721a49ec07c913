"""Files of LangSmith runs as single runs: batches, arrays, pages, JSON lines and Parquet.

Bulk exports are Parquet with the fields of the run data format, JSON in text. Source:
docs.langchain.com/langsmith/data-export and /run-data-format, read 2026-12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from analyzer.errors import DecodeError
from analyzer.model import Problem
from analyzer.sources.base import Head, read_records
from analyzer.sources.decode import Json, JsonObject, as_object, get_array, is_array, kind_of, parse
from analyzer.sources.documents import holds_lines, outline, problem, read_document

PARQUET_MAGIC = b"PAR1"
BATCH_ROWS = 64
_PLACES = ("", "[].", "post.[].", "patch.[].", "runs.[].", "data.[].")
_ARRAYS = ("post", "patch", "runs", "data", "child_runs")
_BODIES = ("inputs", "outputs", "extra")
_JSON_COLUMNS = (*_BODIES, "prompt_token_details", "completion_token_details", "parent_run_ids")
_ORIGINS = ("dotted_order", "trace_id", "parent_run_id", "child_run_ids", "start_time")


class FoundRun(NamedTuple):
    """One run, and where it stands in its file."""

    run: JsonObject
    line: int | None
    pointer: str


def shows_runs(head: Head) -> bool:
    """Whether a file begins with runs: their type, a body, and a place in a trace."""
    if head.data.startswith(PARQUET_MAGIC):
        return _are_fields(_columns(head.path))
    if head.data.lstrip()[:1] not in (b"{", b"["):
        return False
    keys = outline(head.data)
    return any(
        _are_fields({k.removeprefix(at) for k in keys if k.startswith(at)}) for at in _PLACES
    )


def _are_fields(names: set[str]) -> bool:
    if "run_type" in names:
        return not names.isdisjoint(_BODIES) and not names.isdisjoint(_ORIGINS)
    # A patch does not repeat what its run is.
    return "dotted_order" in names and not names.isdisjoint(_BODIES)


def _columns(path: Path) -> set[str]:
    try:
        return set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return set()


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC


def read_runs(path: Path) -> Iterator[FoundRun | Problem]:
    """All runs of a file in its order, runs inside runs after those that hold them."""
    if _is_parquet(path):
        yield from _parquet(path)
    elif holds_lines(path):
        for found in read_records(path, _line):
            if isinstance(found, Problem):
                yield found
            else:
                yield from _checked(path, found)
    else:
        document, failed = read_document(path)
        if failed is not None:
            yield failed
        else:
            yield from _checked(path, _unpacked(document, None, "$"))


def _line(raw: bytes, number: int) -> list[tuple[Json, int | None, str]]:
    return list(_unpacked(parse(raw), number, "$"))


def _unpacked(
    value: Json, line: int | None, pointer: str
) -> Iterator[tuple[Json, int | None, str]]:
    """Runs in whatever holds them: an array, a batch, a page, another run."""
    if is_array(value):
        for index, entry in enumerate(value):
            yield from _unpacked(entry, line, f"{pointer}[{index}]")
        return
    if not isinstance(value, Mapping):
        yield value, line, pointer
        return
    held = [name for name in _ARRAYS if get_array(value, name)]
    if "run_type" in value or "dotted_order" in value or not held:
        yield value, line, pointer
        held = [name for name in held if name == "child_runs"]
    for name in held:
        yield from _unpacked(value[name], line, f"{pointer}.{name}")


def _checked(
    path: Path, found: Iterator[tuple[Json, int | None, str]] | list[tuple[Json, int | None, str]]
) -> Iterator[FoundRun | Problem]:
    for value, line, pointer in found:
        if isinstance(value, Mapping):
            yield FoundRun(value, line, pointer)
        else:
            error = DecodeError(f"expected a run, got {kind_of(value)}", pointer)
            yield problem(path, line, error, value)


def _parquet(path: Path) -> Iterator[FoundRun | Problem]:
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                for record in batch.to_pylist():
                    number += 1
                    try:
                        row = {name: _column(name, value) for name, value in record.items()}
                        yield FoundRun(as_object(row), number, "$")
                    except DecodeError as error:
                        yield problem(path, number, error)
    except (OSError, pa.ArrowException) as error:
        message = f"the file is damaged or cut off: {error}; {number} rows before it were read"
        yield Problem(str(path), number + 1, "$", message)


def _column(name: str, value: object) -> Json:
    """A column's value as JSON, opened where it is JSON in text. Raises `DecodeError`."""
    match value:
        case str() if name in _JSON_COLUMNS and value.lstrip()[:1] in ("{", "["):
            try:
                return parse(value.encode("utf-8", "surrogatepass"))
            except DecodeError as error:
                raise DecodeError(error.message, f"$.{name}") from error
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return str(value)
        case datetime():
            return value.isoformat()
        case bytes():
            return value.decode("utf-8", "replace")
        case Mapping():
            return {str(key): _column("", inner) for key, inner in value.items()}
        case Sequence():
            return [_column("", inner) for inner in value]
        case _:
            return str(value)
