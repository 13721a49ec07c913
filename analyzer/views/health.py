"""What was read and what could not be: places and reasons, never content."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analyzer.views.table import Column, Row, Table

FILE_COLUMNS: tuple[Column, ...] = (
    Column("path", "path"),
    Column("source", "source"),
    Column("project", "project"),
    Column("user_id", "user"),
    Column("ingested_at", "ingested", "time"),
    Column("size", "bytes", "count"),
    Column("content", "content kept"),
    Column("n_steps", "steps", "count"),
    Column("n_parts", "parts", "count"),
    Column("n_problems", "problems", "count"),
)
SOURCE_COLUMNS: tuple[Column, ...] = (
    Column("source", "source"),
    Column("files", "files", "count"),
    Column("size", "bytes", "count"),
    Column("n_steps", "steps", "count"),
    Column("n_problems", "problems", "count"),
    Column("last", "last ingest", "time"),
)
PROBLEM_COLUMNS: tuple[Column, ...] = (
    Column("path", "path"),
    Column("line", "line", "count"),
    Column("pointer", "pointer"),
    Column("message", "reason"),
    Column("source", "source"),
    Column("size", "bytes", "count"),
)


@dataclass(frozen=True, slots=True)
class HealthSums:
    """Sums over what was ingested."""

    files: int
    bytes: int
    steps: int
    problems: int


def health_sums(files: pl.DataFrame) -> HealthSums:
    """Sums over the rows of the store's query `files`."""
    sums = _own_work(files).select(pl.col("size", "n_steps", "n_problems").sum()).row(0)
    return HealthSums(_single_files(files).height, *(int(value or 0) for value in sums))


def files_table(files: pl.DataFrame, rows: int) -> Table:
    """The newest files; of files that were read jointly, the set carries their counts."""
    shown = _rows(files.select([c.key for c in FILE_COLUMNS]).head(rows))
    return Table(f"{files.height:,} files and sets of files", FILE_COLUMNS, shown)


def sources_table(files: pl.DataFrame) -> Table:
    """Counts by source, most bytes first."""
    counted = (
        _own_work(files)
        .group_by("source")
        .agg(
            pl.col("size", "n_steps", "n_problems").sum(),
            pl.col("ingested_at").max().alias("last"),
        )
        .sort("size", descending=True)
    )
    singles = _single_files(files).group_by("source").agg(pl.len().alias("files"))
    joined = counted.join(singles, on="source", how="left", maintain_order="left")
    rows = _rows(joined)
    return Table(f"{len(rows):,} sources", SOURCE_COLUMNS, rows)


def problems_table(problems: pl.DataFrame, rows: int) -> Table:
    """Where records could not be read and why; `problems` must hold sizes and no bytes."""
    shown = _rows(problems.select([c.key for c in PROBLEM_COLUMNS]).head(rows))
    return Table(f"{problems.height:,} records could not be read", PROBLEM_COLUMNS, shown)


def places_only(problems: pl.DataFrame) -> pl.DataFrame:
    """The store's query `problems` with the size of each record in place of its bytes."""
    size = pl.col("raw").bin.size().alias("size")
    return problems.select("source", "path", "line", "pointer", "message", size)


def _single_files(files: pl.DataFrame) -> pl.DataFrame:
    """Real files: a row that others name as their owner is a set of files read jointly."""
    sets = files.filter(pl.col("owner") != pl.col("file_id"))["owner"].unique()
    return files.filter(~pl.col("file_id").is_in(sets.implode()))


def _own_work(files: pl.DataFrame) -> pl.DataFrame:
    """Rows whose counts are their own, each record once."""
    return files.filter(pl.col("owner").is_null() | (pl.col("owner") == pl.col("file_id")))


def _rows(frame: pl.DataFrame) -> list[Row]:
    return list(frame.iter_rows(named=True))
