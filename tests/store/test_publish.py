"""One writer, many readers: locks, versions, and what a reader sees while somebody writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from analyzer.errors import StoreError
from analyzer.intake import ingest
from analyzer.store import Scope, Store
from analyzer.store.base import Database
from analyzer.store.publish import meta, migrate, newest_version, version_of
from tests.steplines import SOURCES, dump, line, write

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one session of one step."""
    made = write(tmp_path / "a.txt", line("s", "k0", 0))
    ingest([made], tmp_path / "s.duckdb", sources=SOURCES)
    return tmp_path / "s.duckdb"


def fail_after_removing_everything(path: Path) -> None:
    """A writer that commits, and then fails before it publishes."""
    with Store.open(path, "write") as writer:
        batch = writer.batch()
        batch.remove_files(writer.query("files", Scope.everything())["file_id"].to_list())
        batch.commit()
        raise StoreError("nope")


def steps(store: Store) -> int:
    return int(store.sessions(Scope.everything())["n_steps"].sum())


def test_a_reader_goes_on_with_the_old_state_and_learns_of_the_new_one(
    path: Path, tmp_path: Path
) -> None:
    more = write(tmp_path / "b.txt", line("s", "k1", 1), line("t", "k2", 2))
    with Store.open(path) as reader:
        before = reader.generation()
        assert not reader.stale
        ingest([more], path, sources=SOURCES)
        assert reader.stale
        assert steps(reader) == 1
        with Store.open(path) as newer:
            assert (steps(newer), newer.stale) == (3, False)
            assert newer.generation() != before
        assert steps(reader) == 1


def test_another_process_reads_while_a_writer_has_work_that_is_not_published(path: Path) -> None:
    script = (
        "import sys; from analyzer.store import Store, Scope\n"
        "with Store.open(sys.argv[1]) as s: sys.exit(s.sessions(Scope.everything()).height)"
    )
    with Store.open(path, "write") as writer:
        batch = writer.batch()
        batch.remove_files(writer.query("files", Scope.everything())["file_id"].to_list())
        batch.commit()
        writer.settle()
        seen = subprocess.run(
            [sys.executable, "-c", script, str(path)], cwd=CHECKOUT, check=False, timeout=60
        )
        assert seen.returncode == 1
        assert writer.sessions(Scope.everything()).is_empty()
    with Store.open(path) as reader:
        assert reader.sessions(Scope.everything()).is_empty()


def test_a_second_writer_waits_says_so_and_gives_up(path: Path) -> None:
    told: list[str] = []
    with (
        Store.open(path, "write"),
        pytest.raises(StoreError, match=f"process {os.getpid()} has been writing it"),
    ):
        Store.open(path, "write", timeout_s=0.2, waiting=told.append)
    assert told == [f"waiting for process {os.getpid()}, which is writing {path}"]
    with Store.open(path, "write", timeout_s=0.2):
        pass


def test_a_writer_that_fails_publishes_nothing_and_its_work_is_continued(
    path: Path, tmp_path: Path
) -> None:
    before = dump(path)
    with pytest.raises(StoreError, match="nope"):
        fail_after_removing_everything(path)
    assert dump(path) == before
    with Store.open(path, "write") as writer:
        assert writer.sessions(Scope.everything()).height == 1
        assert writer.settle() == 0
    with Store.open(path) as reader:
        assert reader.sessions(Scope.everything()).is_empty()


def test_a_working_copy_of_another_store_is_not_continued(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nope"):
        fail_after_removing_everything(path)
    other = tmp_path / "other.duckdb"
    ingest([write(tmp_path / "b.txt", line("t", "k9"))], other, sources=SOURCES)
    os.replace(other, path)
    ingest([write(tmp_path / "c.txt", line("u", "k8"))], path, sources=SOURCES)
    with Store.open(path) as reader:
        assert set(reader.sessions(Scope.everything())["session_id"]) == {"t", "u"}


def test_a_broken_working_copy_is_thrown_away(path: Path, tmp_path: Path) -> None:
    Path(f"{path}.next").write_bytes(b"half a copy")
    Path(f"{path}.next.wal").write_bytes(b"and its log")
    ingest([write(tmp_path / "b.txt", line("t", "k1"))], path, sources=SOURCES)
    with Store.open(path) as reader:
        assert steps(reader) == 2


def test_nothing_but_the_store_and_its_lock_stays_behind(path: Path) -> None:
    assert {p.name for p in path.parent.iterdir()} == {"a.txt", "s.duckdb", "s.duckdb.lock"}


def test_an_ingest_of_nothing_new_does_not_touch_the_store(path: Path) -> None:
    before = path.stat()
    ingest([path.parent / "a.txt"], path, sources=SOURCES)
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_reading_a_store_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="found no file; `analyzer ingest PATH` makes one"):
        Store.open(tmp_path / "none.duckdb")
    with Store.open(tmp_path / "none.duckdb", "write") as store:
        assert store.is_empty()
        with pytest.raises(StoreError, match="ingest something first"):
            store.sessions(Scope.everything())
    assert not (tmp_path / "none.duckdb").exists()


def test_a_reader_cannot_write(path: Path) -> None:
    with Store.open(path) as store, pytest.raises(StoreError, match="open it with mode='write'"):
        store.batch()


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_newer_store_is_refused(path: Path, mode: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(StoreError, match=rf"version {newest_version()} or older .* got version 99"):
        Store.open(path, mode)  # type: ignore[arg-type]
    Path(f"{path}.lock").unlink()


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "theirs.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"another DuckDB database \(tables: invoices\)"):
        Store.open(path, mode)  # type: ignore[arg-type]
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n" * 1000)
    with pytest.raises(StoreError, match="expected a DuckDB store at"):
        Store.open(path, mode)  # type: ignore[arg-type]
    assert path.read_text() == "buy milk\n" * 1000


def test_an_empty_database_is_version_0_and_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CHECKPOINT")
    with pytest.raises(StoreError, match=r"got version 0; `analyzer ingest` .* up to date"):
        Store.open(path)
    ingest([write(tmp_path / "a.txt", line("s", "k"))], path, sources=SOURCES)
    with Store.open(path) as store:
        assert steps(store) == 1


def test_migrations_run_in_order_and_once(tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    folder.mkdir()
    database = Database(tmp_path / "s.duckdb", read_only=False)
    assert migrate(database, folder)
    assert not migrate(database, folder)
    newer = newest_version() + 1
    (folder / f"{newer:04}_more.sql").write_text("UPDATE extra SET n = n + 1;")
    (folder / "0002_extra.sql").write_text(
        "CREATE TABLE extra (n INTEGER); INSERT INTO extra VALUES (1);"
    )
    assert newest_version(folder) == newer
    assert version_of(database, folder) == 1
    assert migrate(database, folder)
    assert not migrate(database, folder)
    with database.cursor() as cursor:
        assert cursor.execute("SELECT n FROM extra").fetchall() == [(2,)]
    assert meta(database)["schema_version"] == str(newer)
    with pytest.raises(StoreError, match=rf"version {newer - 1} or older .* got version {newer}"):
        version_of(database)
    database.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    folder.mkdir()
    database = Database(tmp_path / "s.duckdb", read_only=False)
    migrate(database, folder)
    (folder / "0002_bad.sql").write_text("CREATE TABLE extra (n INTEGER); SELECT nonsense;")
    with pytest.raises(duckdb.Error):
        migrate(database, folder)
    assert version_of(database, folder) == 1
    with database.cursor() as cursor:
        names = cursor.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert ("extra",) not in names
    database.close()
