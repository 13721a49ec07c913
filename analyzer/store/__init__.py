"""The store: one DuckDB file that many processes read and one at a time writes.

Rows and content come out through `query`, by files of `queries/`, always within a `Scope`; whole
sessions through `load_session`. A writer's work becomes visible when it publishes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import duckdb
import polars as pl

from analyzer.errors import StoreError, UsageError
from analyzer.model import Session, SessionKey
from analyzer.store import load
from analyzer.store.base import (
    HERE,
    STEP_FACT_COLUMNS,
    Database,
    FindingRow,
    Scope,
    SessionFacts,
    frame,
    script,
)
from analyzer.store.publish import (
    Lock,
    WorkingCopy,
    meta,
    newest_version,
    set_meta,
    version_of,
)
from analyzer.store.write import Batch, FileRow, Tail, counted_steps, put_facts, settle, unfinished

__all__ = [
    "SCOPED_TABLES",
    "STEP_FACT_COLUMNS",
    "Batch",
    "FileRow",
    "FindingRow",
    "Scope",
    "SessionFacts",
    "Store",
    "Tail",
    "query_names",
]

SCOPED_TABLES = (
    "facts",
    "files",
    "findings",
    "pack_index",
    "parts",
    "problems",
    "recordings",
    "sessions",
    "step_facts",
    "steps",
)
"""Tables whose rows belong to somebody; a query that names one must take a scope."""
_NAMES_ROWS = re.compile(rf"\b(?:FROM|JOIN)\s+(?:{'|'.join(SCOPED_TABLES)})\b", re.IGNORECASE)
_PARAMETER = re.compile(r"\$([a-z_]+)")
_FACTS_AT_ONCE = 200


@cache
def query_names() -> tuple[str, ...]:
    """The questions that a store answers: the files of `queries/`."""
    return tuple(sorted(path.stem for path in (HERE / "queries").glob("*.sql")))


@cache
def _query(name: str) -> tuple[str, frozenset[str]]:
    """Text and parameters of a query file."""
    if name not in query_names():
        raise UsageError.unknown("query", name, query_names())
    text = script(f"queries/{name}.sql")
    parameters = frozenset(_PARAMETER.findall(text))
    if _NAMES_ROWS.search(text) and not {"project", "user"} <= parameters:
        raise StoreError(f"queries/{name}.sql reads rows of sessions without $project and $user")
    return text, parameters


class Store:
    """An open store; use it as a context manager.

    Safe to use from several threads: every call takes a cursor of its own.
    """

    def __init__(self, path: Path, lock: Lock | None, database: Database | None) -> None:
        """Use `Store.open`."""
        self.path = path
        self._lock = lock
        self._reading = database
        self._copy = WorkingCopy(path) if lock is not None else None
        self._opened = _mark(path)

    @classmethod
    def open(
        cls,
        path: Path | str,
        mode: Literal["read", "write"] = "read",
        *,
        timeout_s: float = 600,
        waiting: Callable[[str], None] | None = None,
    ) -> Store:
        """Open a store.

        A writer waits up to `timeout_s` seconds for another one, and says so once to `waiting`.
        Raises `StoreError`: there is no store, it is newer than this version, or it is busy.
        """
        path = Path(path).absolute()
        if mode == "read":
            return cls(path, None, _open_published(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(path, timeout_s, waiting)
        try:
            published = Database(path, read_only=True) if path.exists() else None
            old = published is not None and version_of(published) < newest_version()
            if old and published is not None:
                published.close()
                published = None
            store = cls(path, lock, published)
            if old:
                store.begin()
            store.purge()
        except StoreError:
            lock.release()
            raise
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # -- reading --------------------------------------------------------------------------------

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection | None]:
        """A cursor on what this store sees; None where there is nothing yet."""
        working = self._copy.database if self._copy is not None else None
        database = working or self._reading
        if database is None:
            yield None
            return
        cursor = database.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def query(self, name: str, scope: Scope | None = None, **values: object) -> pl.DataFrame:
        """Rows of one of the files of `queries/`, times as aware UTC.

        Raises `UsageError`: no such query, no scope given, or parameters that do not fit.
        """
        text, parameters = _query(name)
        given = dict(values)
        if {"project", "user"} <= parameters:
            if scope is None:
                raise UsageError(
                    f"query {name!r} returns rows of sessions: pass scope=Scope(project, user), "
                    "or Scope.everything() to see all of them"
                )
            given |= {"project": scope.project, "user": scope.user}
        if given.keys() != parameters:
            raise UsageError(
                f"query {name!r} takes {', '.join(sorted(parameters))}; "
                f"got {', '.join(sorted(given)) or 'nothing'}"
            )
        if "segment" in given:
            # Part of a table's name, which takes no bound parameter; `int` lets nothing else by.
            text = text.replace("$segment", str(int(str(given.pop("segment")))))
        with self._cursor() as cursor:
            if cursor is None:
                raise StoreError(f"there is no store at {self.path} yet; ingest something first")
            return frame(cursor, text, given)

    def sessions(self, scope: Scope) -> pl.DataFrame:
        """The sessions of a scope, newest first; columns of `queries/sessions.sql`."""
        return self.query("sessions", scope)

    def load_session(self, key: SessionKey, content: bool = False) -> Session:
        """A session with its lanes: counted steps only, recordings of one lane put together.

        `Step.new_parts` is empty, since the pool holds them all; `Part.body` is None without
        `content`, and where it was not kept. Raises `UsageError`: there is no such session.
        """
        return load.load_session(self, key, content=content)

    def part_bodies(self, key: SessionKey, lane: str, indices: Sequence[int]) -> list[str | None]:
        """Bodies of some parts, by their indices in the pool of `load_session`; None if not kept.

        Raises `UsageError`: no such lane or index.
        """
        return load.part_bodies(self, key, lane, indices)

    def stale_sessions(self, analysis_version: str, scope: Scope | None = None) -> list[SessionKey]:
        """Sessions that were touched since their facts were made, or never had any."""
        rows = self.query("stale", scope or Scope.everything(), analysis_version=analysis_version)
        return [SessionKey(*row) for row in rows.rows()]

    def is_empty(self) -> bool:
        """Whether nothing was ever written."""
        with self._cursor() as cursor:
            return cursor is None

    def generation(self) -> str:
        """Name of the published state that this store reads; it changes with each publication."""
        database = self._reading
        return meta(database).get("generation", "") if database is not None else ""

    def noted(self, name: str) -> str | None:
        """What was noted under a name; None if nothing was."""
        database = (self._copy.database if self._copy is not None else None) or self._reading
        return meta(database).get(name) if database is not None else None

    @property
    def stale(self) -> bool:
        """Whether a newer state was published since this store was opened: open it again."""
        return _mark(self.path) != self._opened

    # -- writing --------------------------------------------------------------------------------

    def begin(self) -> Database:
        """The working copy, made now if there is none. Raises `StoreError` on a reader."""
        if self._copy is None:
            raise StoreError(f"{self.path} is open for reading; open it with mode='write'")
        if self._copy.database is None:
            database = self._copy.begin()
            if self._reading is not None:
                self._reading.close()
                self._reading = None
            return database
        return self._copy.database

    def batch(self) -> Batch:
        """A new transaction; end it before the next one."""
        return Batch(self.begin())

    def note(self, notes: Mapping[str, str]) -> None:
        """Remember some texts by name; what is remembered already is no reason to write."""
        fresh = {name: text for name, text in notes.items() if self.noted(name) != text}
        if fresh:
            with self.begin().cursor() as cursor:
                for name, text in fresh.items():
                    set_meta(cursor, name, text)

    def purge(self) -> None:
        """Take out what is left of files that were written in pieces and never finished."""
        with self._cursor() as cursor:
            if cursor is None or not unfinished(cursor):
                return
        batch = self.batch()
        batch.remove_leftovers()
        batch.commit()

    def put_facts(
        self,
        key: SessionKey,
        steps: pl.DataFrame,
        findings: Iterable[FindingRow],
        analysis_version: str,
    ) -> None:
        """Replace what an analysis said of one session, in one transaction.

        `steps` has one row a counted step and the columns of `STEP_FACT_COLUMNS`. Raises
        `StoreError` where columns are missing.
        """
        self.put_all_facts([SessionFacts(key, steps, tuple(findings))], analysis_version)

    def put_all_facts(self, facts: Iterable[SessionFacts], analysis_version: str) -> None:
        """`put_facts` for many sessions, some hundred in a transaction."""
        waiting: list[SessionFacts] = []
        for one in facts:
            missing = STEP_FACT_COLUMNS.keys() - set(one.steps.columns)
            if missing:
                raise StoreError(
                    f"expected the columns {', '.join(STEP_FACT_COLUMNS)} in the facts of "
                    f"{one.key.session_id!r}; missing: {', '.join(sorted(missing))}"
                )
            waiting.append(one)
            if len(waiting) == _FACTS_AT_ONCE:
                put_facts(self.begin(), waiting, analysis_version)
                waiting = []
        if waiting:
            put_facts(self.begin(), waiting, analysis_version)

    def settle(self) -> int:
        """Count and number what was touched; the counted steps of the whole store."""
        working = self._copy.database if self._copy is not None else None
        if working is not None:
            settle(working)
        database = working or self._reading
        return counted_steps(database) if database is not None else 0

    def publish(self) -> None:
        """Settle, and let readers see it; this store then reads the published state."""
        if self._copy is None or self._copy.database is None:
            return
        settle(self._copy.database)
        self._copy.publish()
        self._reading = Database(self.path, read_only=True)
        self._opened = _mark(self.path)

    def close(self) -> None:
        """Publish what was written, and let go of the file and the lock."""
        try:
            self.publish()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go without publishing; the next writer goes on with what was committed."""
        if self._copy is not None:
            self._copy.abandon()
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _open_published(path: Path) -> Database:
    if not path.exists():
        raise StoreError(
            f"expected a store at {path}, found no file; `analyzer ingest PATH` makes one"
        )
    database = Database(path, read_only=True)
    try:
        version = version_of(database)
        if version < newest_version():
            raise StoreError(
                f"expected a store of version {newest_version()} at {path}, got version {version}; "
                "`analyzer ingest` with any path brings it up to date"
            )
    except StoreError:
        database.close()
        raise
    return database
