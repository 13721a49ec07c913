"""What the members of the store share: scope, values handed in, connections, SQL files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import duckdb
import polars as pl

from analyzer.errors import StoreError
from analyzer.model import SessionKey

HERE = Path(__file__).resolve().parent
MEMORY_LIMIT = "160MB"
"""What the database of a writer may hold in memory; larger transactions go to disk."""
READER_MEMORY_LIMIT = "1GB"
CATALOG = "store"


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose sessions a query may see; None stands for all projects, or all users."""

    project: str | None
    user: str | None = None

    @classmethod
    def everything(cls) -> Scope:
        """No restriction: for the owner of the store, never for a page that a team shares."""
        return cls(None, None)


class FindingRow(NamedTuple):
    """A finding as it is stored; tokens, and USD."""

    kind: str
    lane: str
    first_step: int
    last_step: int
    n_steps: int
    tokens: int | None
    wasted_usd: float | None
    avoidable: bool
    inferred: bool
    evidence: str
    """JSON text."""
    remedy: str


class SessionFacts(NamedTuple):
    """What an analysis says of one session."""

    key: SessionKey
    steps: pl.DataFrame
    """One row a counted step, columns `STEP_FACT_COLUMNS`."""
    findings: Sequence[FindingRow]


STEP_FACT_COLUMNS: dict[str, pl.DataType] = {
    "lane": pl.String(),
    "step": pl.Int32(),
    "prompt_tokens": pl.Int64(),
    "n_messages": pl.Int32(),
    "n_stubs": pl.Int32(),
    "last_stub_index": pl.Int32(),
    "cost_usd": pl.Float64(),
    "gap_s": pl.Float64(),
    "window_used": pl.Float64(),
    "shared_prefix_tokens": pl.Int64(),
    "divergence_index": pl.Int32(),
    "expected_read": pl.Int64(),
    "lost_tokens": pl.Int64(),
    "verdict": pl.String(),
    "inferred": pl.Boolean(),
    "wasted_usd": pl.Float64(),
    "expected": pl.Boolean(),
}


@cache
def script(name: str) -> str:
    """The text of an SQL file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


class Database:
    """One open DuckDB file. Every use takes a cursor of its own: a connection is not thread-safe.

    The file is attached to a private instance, since DuckDB hands out a shared instance for equal
    paths, and so would show a replaced file's old content to whoever opens it anew.
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        spill = Path(tempfile.gettempdir()) / f"analyzer-{os.getpid()}"
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": READER_MEMORY_LIMIT if read_only else MEMORY_LIMIT,
                "temp_directory": str(spill if read_only else f"{path}.spill"),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "preserve_insertion_order": "false",
                # Fewer, later checkpoints: each leaves holes that a small store does not refill.
                "checkpoint_threshold": "64MB",
            },
        )
        quoted = str(path).replace("'", "''")
        options = " (READ_ONLY)" if read_only else ""
        try:
            # ATTACH takes no bound parameter; the path is the caller's own and is quoted.
            self._connection.execute(f"ATTACH '{quoted}' AS {CATALOG}{options}")
        except duckdb.Error as error:
            self._connection.close()
            raise StoreError(
                f"expected a DuckDB store at {path}, and could not open it: {error}"
            ) from error

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A new cursor on the attached file; close it after use."""
        cursor = self._connection.cursor()
        cursor.execute(f"USE {CATALOG}")
        return cursor

    def copy_to(self, path: Path) -> None:
        """Write all that there is into a new file, and nothing of what was deleted."""
        quoted = str(path).replace("'", "''")
        with self._connection.cursor() as cursor:
            cursor.execute(f"ATTACH '{quoted}' AS fresh")
            cursor.execute(f"COPY FROM DATABASE {CATALOG} TO fresh")
            cursor.execute("DETACH fresh")

    def close(self) -> None:
        """Write what is pending into the file and let go of it."""
        self._connection.execute("USE memory")
        self._connection.execute(f"DETACH {CATALOG}")
        self._connection.close()

    def abandon(self) -> None:
        """Let go of the file without waiting for open transactions; they are rolled back."""
        self._connection.close()


def frame(
    cursor: duckdb.DuckDBPyConnection, text: str, values: Mapping[str, object] | None = None
) -> pl.DataFrame:
    """The rows of a statement; times come out as aware UTC."""
    result = pl.from_arrow(cursor.sql(text, params=dict(values or {})).to_arrow_table())
    assert isinstance(result, pl.DataFrame)
    times = [name for name, kind in result.schema.items() if isinstance(kind, pl.Datetime)]
    return result.with_columns(pl.col(times).dt.replace_time_zone("UTC")) if times else result
