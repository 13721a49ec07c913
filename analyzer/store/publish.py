"""How one writer and many readers share a store: a working copy, published by a rename.

A reader opens PATH. A writer holds a lock on PATH.lock, works on PATH.next, and publishes by
`os.replace`, so PATH is a whole store at every moment and readers of the old file go on. A killed
writer leaves PATH.next; the next one goes on with it if it descends from the PATH of then.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import duckdb

from analyzer.errors import StoreError
from analyzer.store.base import HERE, Database, script

MIGRATIONS = HERE / "migrations"
LOCK_POLL_S = 0.1
REWRITE_NOTE = "rewrite"
"""Noted in `meta` where something was taken out that must not be found in the file's free places."""


def migrations(folder: Path = MIGRATIONS) -> list[tuple[int, Path]]:
    """(version that it leads to, file) of each migration, in order."""
    return [(int(path.name.split("_")[0]), path) for path in sorted(folder.glob("*.sql"))]


def newest_version(folder: Path = MIGRATIONS) -> int:
    """The version of the schema that this code reads and writes."""
    return max([1, *(version for version, _ in migrations(folder))])


class Lock:
    """The right to write a store, held until `release`; it ends with the process at the latest."""

    def __init__(
        self, path: Path, timeout_s: float, waiting: Callable[[str], None] | None = None
    ) -> None:
        # The open file is the lock: it has to outlive this block, and `release` closes it.
        self._file = open(f"{path}.lock", "a+", encoding="ascii")  # noqa: SIM115
        until = time.monotonic() + timeout_s
        told = False
        while not self._try():
            holder = self._holder()
            if time.monotonic() >= until:
                self._file.close()
                raise StoreError(
                    f"expected to write {path}, but {holder} has been writing it for "
                    f"{timeout_s:.0f} s; wait for it or stop it"
                )
            if waiting is not None and not told:
                waiting(f"waiting for {holder}, which is writing {path}")
                told = True
            time.sleep(LOCK_POLL_S)
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self) -> str:
        self._file.seek(0)
        return f"process {self._file.read(20).strip() or '?'}"

    def release(self) -> None:
        """Let the next writer in."""
        self._file.close()


def meta(database: Database) -> dict[str, str]:
    """The rows of `meta`; none in an empty file. Raises `StoreError` for a foreign database."""
    with database.cursor() as cursor:
        tables = cursor.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
        ).fetchall()
        if ("meta",) in tables and ("recordings",) in tables:
            return dict(cursor.execute("SELECT key, value FROM meta").fetchall())
    if tables:
        raise StoreError(
            f"expected a store at {database.path}, found another DuckDB database "
            f"(tables: {', '.join(sorted(name for (name,) in tables)[:5])}); name another file"
        )
    return {}


def version_of(database: Database, folder: Path = MIGRATIONS) -> int:
    """Version of a store's schema, 0 for an empty file. Raises `StoreError` if it is newer."""
    version = int(meta(database).get("schema_version", 0))
    if version > (known := newest_version(folder)):
        raise StoreError(
            f"expected a store of version {known} or older at {database.path}, got version "
            f"{version}; it was written by a newer release, so upgrade this one"
        )
    return version


def migrate(database: Database, folder: Path = MIGRATIONS) -> bool:
    """Bring a schema up to date in one transaction; whether there was anything to do."""
    version = version_of(database, folder)
    newest = newest_version(folder)
    if version == newest:
        return False
    with database.cursor() as cursor:
        cursor.execute("BEGIN")
        if version == 0:
            cursor.execute(script("schema.sql"))
        for leads_to, path in migrations(folder):
            if leads_to > version:
                cursor.execute(path.read_text(encoding="utf-8"))
        set_meta(cursor, "schema_version", str(newest))
        cursor.execute("COMMIT")
    return True


def set_meta(cursor: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    """Write one row of `meta`."""
    cursor.execute("DELETE FROM meta WHERE key = $key", {"key": key})
    cursor.execute("INSERT INTO meta VALUES ($key, $value)", {"key": key, "value": value})


class WorkingCopy:
    """PATH.next: made when first written to, continued after a kill, published by a rename."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next = Path(f"{path}.next")
        self._wal = Path(f"{path}.next.wal")
        self._making = Path(f"{path}.next.making")
        self.database = self._leftover()

    def _leftover(self) -> Database | None:
        """What a killed writer left, if it descends from the present store."""
        if self.next.exists():
            database = None
            try:
                database = Database(self.next, read_only=False)
                if meta(database).get("base") == self._generation():
                    migrate(database)
                    return database
            except (StoreError, duckdb.Error):
                # A half-made or foreign file: everything that was published is in PATH.
                pass
            if database is not None:
                database.abandon()
        self._clear()
        return None

    def _generation(self) -> str:
        if not self.path.exists():
            return ""
        database = Database(self.path, read_only=True)
        try:
            return meta(database).get("generation", "")
        finally:
            database.close()

    def _clear(self) -> None:
        # The log goes first: a fresh copy must never meet the log of an older one.
        for path in (self._wal, self.next):
            path.unlink(missing_ok=True)

    def begin(self) -> Database:
        """The database to write to; copies PATH if there is no working copy yet."""
        if self.database is not None:
            return self.database
        base = self._generation()
        making = self._making
        _remove(making)
        if self.path.exists():
            shutil.copyfile(self.path, making)
        database = Database(making, read_only=False)
        migrate(database)
        with database.cursor() as cursor:
            set_meta(cursor, "base", base)
        database.close()
        self._clear()
        os.replace(making, self.next)
        self.database = Database(self.next, read_only=False)
        return self.database

    def publish(self) -> None:
        """Make what was committed the store that readers open. Without a working copy: nothing."""
        if self.database is None:
            return
        rewrite = REWRITE_NOTE in meta(self.database)
        with self.database.cursor() as cursor:
            set_meta(cursor, "generation", uuid.uuid4().hex)
            cursor.execute("CHECKPOINT")
        if rewrite:
            _rewrite(self.database, self._making)
        self.database.close()
        self.database = None
        if self._wal.exists() and self._wal.stat().st_size:
            raise StoreError(
                f"expected {self.next} to be whole after a checkpoint, but {self._wal} remains; "
                "nothing is lost, run the command again"
            )
        self._wal.unlink(missing_ok=True)
        if rewrite:
            os.replace(self._making, self.next)
        _sync(self.next)
        os.replace(self.next, self.path)
        _sync(self.path.parent)

    def abandon(self) -> None:
        """Close without publishing; what was committed is continued by the next writer."""
        if self.database is not None:
            self.database.abandon()
            self.database = None


def _rewrite(database: Database, path: Path) -> None:
    """A copy without the free places of deleted rows; its note that this is due goes last."""
    _remove(path)
    database.copy_to(path)
    copy = Database(path, read_only=False)
    with copy.cursor() as cursor:
        cursor.execute("DELETE FROM meta WHERE key = $key", {"key": REWRITE_NOTE})
        cursor.execute("CHECKPOINT")
    copy.close()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    Path(f"{path}.wal").unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
