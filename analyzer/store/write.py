"""Rows into tables: one batch is one transaction, and a file is always whole in one batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import duckdb
import polars as pl

from analyzer.model import Problem
from analyzer.records import TABLES, Chunk, Columns, columns
from analyzer.store.base import STEP_FACT_COLUMNS, Database, SessionFacts, script
from analyzer.store.publish import REWRITE_NOTE, set_meta

_KINDS: dict[str, pl.DataType] = {
    "int": pl.Int64(),
    "time": pl.Int64(),
    "float": pl.Float64(),
    "flag": pl.Boolean(),
    "bytes": pl.Binary(),
    "text": pl.String(),
    "ints": pl.String(),
}
SEGMENT_BYTES = 32 << 20
"""Compressed bytes after which a table of packs is full."""
SESSION_KEY = ["project", "user_id", "session_id"]


class FileRow(NamedTuple):
    """A file as the store knows it."""

    file_id: int
    owner: int
    source: str
    project: str
    user_id: str
    path: str
    size: int
    digest: bytes
    content: str
    n_steps: int = 0
    n_parts: int = 0
    n_problems: int = 0


FILE_COLUMNS = columns(
    "file_id:int owner:int source:text project:text user_id:text path:text size:int digest:bytes "
    "content:text n_steps:int n_parts:int n_problems:int"
)


class Tail(NamedTuple):
    """Where in a recording begins what the next growth of its file may change."""

    rec: int
    seq: int
    idx: int
    pack: int


def _frame(kinds: Mapping[str, str], pieces: Sequence[Columns]) -> pl.DataFrame:
    """Columns in chunks as one frame."""
    frames = [
        pl.DataFrame(
            [
                pl.Series(name, values, dtype=_KINDS[kind])
                for (name, kind), values in zip(kinds.items(), piece, strict=True)
            ]
        )
        for piece in pieces
    ]
    times = [name for name, kind in kinds.items() if kind == "time"]
    return pl.concat(frames).with_columns(pl.col(times).cast(pl.Datetime("us")))


def insert(
    cursor: duckdb.DuckDBPyConnection,
    table: str,
    rows: pl.DataFrame,
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Append a frame to the table of its name, by column names."""
    if rows.is_empty():
        return
    cursor.register("incoming", rows)
    # The names come from this package's own constants, never from a trace.
    into = ", ".join(f'"{name}"' for name in rows.columns)
    out = ", ".join(
        f'"{name}"::INTEGER[]' if kinds and kinds.get(name) == "ints" else f'"{name}"'
        for name in rows.columns
    )
    cursor.execute(f"INSERT INTO {table} ({into}) SELECT {out} FROM incoming")  # noqa: S608
    cursor.unregister("incoming")


class Batch:
    """One transaction: add chunks and files, then commit or roll back."""

    def __init__(self, database: Database) -> None:
        self._cursor = database.cursor()
        self._cursor.execute("BEGIN")

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Append the rows of some chunks."""
        pieces: dict[str, list[Columns]] = {}
        for chunk in chunks:
            for table, piece in chunk.columns.items():
                pieces.setdefault(table, []).append(piece)
        for table, collected in pieces.items():
            rows = _frame(TABLES[table], collected)
            if table == "packs":
                self._add_packs(rows)
                continue
            insert(self._cursor, table, rows, TABLES[table])
            if table == "recordings":
                insert(self._cursor, "touched_sessions", rows.select(SESSION_KEY))

    def _add_packs(self, rows: pl.DataFrame) -> None:
        last = self._cursor.execute(
            "SELECT segment, sum(stored_bytes) FROM pack_index GROUP BY segment "
            "ORDER BY segment DESC LIMIT 1"
        ).fetchone()
        segment, used = last or (0, 0)
        if used >= SEGMENT_BYTES:
            segment += 1
        self._cursor.execute(
            f"CREATE TABLE IF NOT EXISTS packs_{segment:d} (rec BIGINT, pack INTEGER, body BLOB)"
        )
        insert(self._cursor, f"packs_{segment:d}", rows.select("rec", "pack", "body"))
        places = rows.with_columns(
            segment=pl.lit(segment, pl.Int32), stored_bytes=pl.col("body").bin.size()
        )
        insert(self._cursor, "pack_index", places.drop("body"))

    def begin_pieces(self, file_id: int) -> None:
        """Note that a file comes in several transactions; `add_files` ends it."""
        self._cursor.execute("INSERT INTO unfinished VALUES ($id)", {"id": file_id})

    def add_files(self, files: Sequence[FileRow]) -> None:
        """Append rows to `files`, which makes them whole; `ingested_at` is now."""
        now = datetime.now(UTC).replace(tzinfo=None)
        rows = _frame(FILE_COLUMNS, [[list(column) for column in zip(*files, strict=True)]])
        rows = rows.with_columns(ingested_at=pl.lit(now, dtype=pl.Datetime("us")))
        insert(self._cursor, "files", rows)
        self._cursor.execute(
            "DELETE FROM unfinished WHERE list_contains($ids, file_id)",
            {"ids": [file.file_id for file in files]},
        )

    def remove_files(self, owners: Sequence[int], *, forget: bool = False) -> None:
        """Take out files with everything read from them; their keys are counted anew later.

        With `forget` nothing that was said of their sessions stays either, and the next publication
        writes the whole file anew, since a deleted row only frees its place.
        """
        if not owners:
            return
        values = {"owners": list(owners)}
        if forget:
            self._run("forget_findings.sql", values)
            set_meta(self._cursor, REWRITE_NOTE, "yes")
        recs = self._cursor.execute(
            "SELECT rec FROM recordings WHERE list_contains($owners, file_id)", values
        ).fetchall()
        self._run("remove_files.sql", values)
        self._remove_rows([rec for (rec,) in recs])

    def cut(self, file: FileRow, tails: Sequence[Tail], problems: Sequence[Problem]) -> bool:
        """Take out the provisional end of a file, before its growth is added.

        `problems` are those of that end. False, and nothing changed, if the file is no longer
        stored as `file` says.
        """
        known = self._cursor.execute(
            "SELECT size, digest FROM files WHERE file_id = $id", {"id": file.file_id}
        ).fetchall()
        if known != [(file.size, file.digest)]:
            return False
        self._cursor.register(
            "tails", pl.DataFrame(tails, dict.fromkeys(Tail._fields, pl.Int64), orient="row")
        )
        self._cursor.execute(script("cut_tail.sql"))
        # Table names are this package's own and integers.
        for (segment,) in self._cursor.execute(
            "SELECT DISTINCT segment FROM pack_index"
        ).fetchall():
            table = f"packs_{segment:d}"
            self._cursor.execute(
                f"DELETE FROM {table} USING tails t "  # noqa: S608 - named by an integer, see above
                f"WHERE {table}.rec = t.rec AND {table}.pack >= t.pack"
            )
        self._cursor.unregister("tails")
        for found in problems:
            self._cursor.execute(
                "DELETE FROM problems WHERE file_id = $id AND line IS NOT DISTINCT FROM $line "
                "AND pointer = $pointer AND message = $message",
                {
                    "id": file.file_id,
                    "line": found.line,
                    "pointer": found.pointer,
                    "message": found.message,
                },
            )
        own = {"id": file.file_id}
        self._cursor.execute("DELETE FROM recordings WHERE file_id = $id", own)
        self._cursor.execute("DELETE FROM files WHERE file_id = $id", own)
        return True

    def _run(self, name: str, values: Mapping[str, list[int]]) -> None:
        """The statements of a script, each with the one parameter that all of them take."""
        for statement in script(name).split(";"):
            if statement.strip():
                self._cursor.execute(statement, dict(values))

    def remove_leftovers(self) -> None:
        """Take out rows of files that were never finished."""
        recs = self._cursor.execute(
            "SELECT rec FROM (SELECT rec FROM steps UNION SELECT rec FROM parts "
            "UNION SELECT rec FROM pack_index) ANTI JOIN recordings USING (rec)"
        ).fetchall()
        self._remove_rows([rec for (rec,) in recs])
        self._cursor.execute("DELETE FROM problems WHERE file_id IN (FROM unfinished)")
        self._cursor.execute("DELETE FROM unfinished")

    def _remove_rows(self, recs: list[int]) -> None:
        values = {"recs": recs}
        # Table names are this package's own, segments are integers; values are bound.
        of_recs = "WHERE list_contains($recs, rec)"
        segments = self._cursor.execute(
            f"SELECT DISTINCT segment FROM pack_index {of_recs}",  # noqa: S608
            values,
        ).fetchall()
        tables = [f"packs_{segment:d}" for (segment,) in segments]
        for table in ("steps", "parts", "pack_index", *tables):
            self._cursor.execute(f"DELETE FROM {table} {of_recs}", values)  # noqa: S608

    def commit(self) -> None:
        """Make it durable."""
        self._cursor.execute("COMMIT")
        self._cursor.close()

    def rollback(self) -> None:
        """Leave no trace."""
        self._cursor.execute("ROLLBACK")
        self._cursor.close()


def settle(database: Database) -> bool:
    """Count and number what was touched since the last time; whether there was anything."""
    with database.cursor() as cursor:
        if not touched(cursor):
            return False
        cursor.execute("BEGIN")
        cursor.execute(script("settle.sql"))
        cursor.execute("COMMIT")
    return True


def unfinished(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Whether a writer was stopped in the middle of a file that comes in pieces."""
    return cursor.execute("SELECT file_id FROM unfinished LIMIT 1").fetchone() is not None


def touched(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Whether sessions or keys wait to be counted."""
    row = cursor.execute(
        "SELECT (SELECT count(*) FROM touched_sessions) + (SELECT count(*) FROM touched_keys)"
    ).fetchone()
    return row is not None and row[0] > 0


def counted_steps(database: Database) -> int:
    """Steps of the whole store, each counted once."""
    with database.cursor() as cursor:
        row = cursor.execute("SELECT count(*) FROM steps WHERE counted").fetchone()
    return int(row[0]) if row else 0


def put_facts(database: Database, facts: Sequence[SessionFacts], analysis_version: str) -> None:
    """Replace the facts of some sessions in one transaction."""
    keys = pl.DataFrame(
        [f.key for f in facts], schema=dict.fromkeys(SESSION_KEY, pl.String), orient="row"
    )
    steps = pl.concat(
        [
            f.steps.select(pl.col(n).cast(t) for n, t in STEP_FACT_COLUMNS.items()).with_columns(
                project=pl.lit(f.key.project),
                user_id=pl.lit(f.key.user),
                session_id=pl.lit(f.key.session_id),
            )
            for f in facts
        ]
    )
    with database.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.register("given", keys)
        # A table's name cannot be bound; these three are all there are.
        for table in ("facts", "step_facts", "findings"):
            cursor.execute(
                f"DELETE FROM {table} USING given g WHERE {table}.project = g.project "  # noqa: S608
                f"AND {table}.user_id = g.user_id AND {table}.session_id = g.session_id"
            )
        cursor.execute(
            "INSERT INTO facts SELECT g.*, $version, s.fingerprint "
            "FROM given g JOIN sessions s USING (project, user_id, session_id)",
            {"version": analysis_version},
        )
        insert(cursor, "step_facts", steps)
        insert(cursor, "findings", _findings(facts))
        cursor.unregister("given")
        cursor.execute("COMMIT")


def _findings(facts: Sequence[SessionFacts]) -> pl.DataFrame:
    rows = [(*f.key, i, *finding) for f in facts for i, finding in enumerate(f.findings)]
    kinds: dict[str, pl.DataType] = {
        **dict.fromkeys(SESSION_KEY, pl.String()),
        "ordinal": pl.Int32(),
        "kind": pl.String(),
        "lane": pl.String(),
        "first_step": pl.Int32(),
        "last_step": pl.Int32(),
        "n_steps": pl.Int32(),
        "tokens": pl.Int64(),
        "wasted_usd": pl.Float64(),
        "avoidable": pl.Boolean(),
        "inferred": pl.Boolean(),
        "evidence": pl.String(),
        "remedy": pl.String(),
    }
    return pl.DataFrame(rows, schema=kinds, orient="row")
