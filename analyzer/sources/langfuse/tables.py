"""Langfuse exports in CSV and Parquet as objects with the columns' names.

Sources: langfuse.com/docs/api-and-data-platform/features/export-to-blob-storage (2026-11).
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from analyzer.model import Problem
from analyzer.sources.base import Head, open_bytes
from analyzer.sources.decode import Json, JsonObject

PARQUET_MAGIC = b"PAR1"
BATCH_ROWS = 256
_COLUMNS = (frozenset({"id", "trace_id", "start_time"}), frozenset({"id", "traceId", "startTime"}))
_LARGEST_FIELD = (1 << 31) - 1
_DAMAGED = (OSError, EOFError, zlib.error, zstandard.ZstdError, csv.Error)


def is_csv_head(data: bytes) -> bool:
    """Whether the first line names the columns of an export of observations."""
    first = data.lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0]
    if first[:1] in (b"{", b"[") or len(first) > 16_384:
        return False
    try:
        names = next(csv.reader([first.decode("utf-8", "replace").rstrip("\r")]), [])
    except csv.Error:
        return False
    return _known(names)


def is_table(head: Head) -> bool:
    """Whether a file is an export of observations as CSV or Parquet."""
    if not head.data.startswith(PARQUET_MAGIC):
        return is_csv_head(head.data)
    try:
        return _known(pq.read_schema(head.path).names)
    except (OSError, ValueError, pa.ArrowException):
        return False


def _known(names: Sequence[str]) -> bool:
    return any(columns <= set(names) for columns in _COLUMNS)


def read_csv(path: Path) -> Iterator[tuple[int, JsonObject] | Problem]:
    """Rows of a CSV export, numbered from 1 without the header; null is an empty field."""
    number = 0
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_FIELD))
    try:
        with open_bytes(path) as raw:
            stream = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="")
            for record in csv.DictReader(stream, restkey="", strict=True):
                number += 1
                missing = [name for name, value in record.items() if value is None]
                if missing or "" in record:
                    message = f"expected as many fields as the header has, got {len(record)}"
                    yield Problem(str(path), number, "$", message)
                else:
                    yield number, dict(record)
    except _DAMAGED as error:
        message = f"the file is damaged or cut off: {error}; {number} rows before it were read"
        yield Problem(str(path), number + 1, "$", message)


def read_parquet(path: Path) -> Iterator[tuple[int, JsonObject] | Problem]:
    """Rows of a Parquet export, numbered from 1."""
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                for record in batch.to_pylist(maps_as_pydicts="lossy"):
                    number += 1
                    yield number, {name: _plain(value) for name, value in record.items()}
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
        message = f"the file is damaged or cut off: {error}; {number} rows before it were read"
        yield Problem(str(path), number + 1, "$", message)


def _plain(value: object) -> Json:
    """A column's value as JSON: times and decimals come as objects."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return float(value)
        case bytes():
            return value.decode("utf-8", "replace")
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items()}
        case list():
            return [_plain(entry) for entry in value]
        case _:
            return str(value)
