"""A followed file: after each growth the store is what a whole reading of the file would make it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any

import polars as pl
import pytest

from analyzer.errors import InputError
from analyzer.intake import IngestReport, follow, ingest
from analyzer.intake import following as module
from analyzer.model import Session, SessionKey
from analyzer.sources import SOURCES as ALL_SOURCES
from analyzer.sources.base import open_bytes
from analyzer.store import Scope, Store
from analyzer.workspace import analyse
from tests.builders import anthropic_records, write_lines
from tests.steplines import JOINT, MARK, SOURCES, line, write

CHECKOUT = Path(__file__).resolve().parent.parent
ALL = Scope.everything()
PATIENCE_S = 30.0
"""How long a test waits for what should take a second: CI machines may be busy."""


class Followed:
    """`follow` in a thread, its reports in a queue."""

    def __init__(self, store: Path, *paths: Path, **options: Any) -> None:
        self.store = store
        self._stop = Event()
        self._reports: Queue[IngestReport | BaseException | None] = Queue()
        given = {"sources": SOURCES, **options}
        self._stream = follow(list(paths), store, stop=self._stop, **given)
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for report in self._stream:
                self._reports.put(report)
            self._reports.put(None)
        except InputError as error:
            self._reports.put(error)

    def report(self) -> IngestReport:
        """The next report."""
        found = self._reports.get(timeout=PATIENCE_S)
        if isinstance(found, BaseException):
            raise found
        assert found is not None
        return found

    def until(self, steps: int) -> list[IngestReport]:
        """Reports until so many new steps were told."""
        reports = [self.report()]
        while sum(report.steps for report in reports) < steps:
            reports.append(self.report())
        return reports

    def is_quiet(self, seconds: float = 1.5) -> bool:
        """Whether nothing is told for some time."""
        try:
            self._reports.get(timeout=seconds)
        except Empty:
            return True
        return False

    def __enter__(self) -> Followed:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store" / "s.duckdb"


def append(path: Path, *rows: str) -> None:
    with path.open("a") as stream:
        stream.write("".join(rows))


def sessions(store: Path) -> dict[SessionKey, Session]:
    """Everything that a store says of its sessions."""
    with Store.open(store) as opened:
        keys = [SessionKey(*k) for k in opened.sessions(ALL)[:, :3].iter_rows()]
        return {key: opened.load_session(key, content=True) for key in keys}


def rows(store: Path, name: str) -> pl.DataFrame:
    ids = ["file_id", "owner", "ingested_at"]
    with Store.open(store) as opened:
        return opened.query(name, ALL).drop(ids, strict=False)


def assert_as_if_read_whole(store: Path, path: Path, **options: Any) -> None:
    fresh = store.with_name("fresh.duckdb")
    fresh.unlink(missing_ok=True)
    ingest([path], fresh, **{"sources": SOURCES, **options})
    if rows(store, "sessions")["cost_usd"].null_count() == 0:
        analyse(fresh)
    assert sessions(store) == sessions(fresh)
    for name in ("files", "problems", "sessions"):
        assert rows(store, name).equals(rows(fresh, name)), name


def test_what_is_appended_comes_in_piece_by_piece(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"), line("s", "k1"))
    with Followed(store, path) as followed:
        assert followed.report().steps == 2
        append(path, line("s", "k2"), line("t", "k3"))
        report = followed.report()
        assert (report.files, report.steps, report.duplicates) == (1, 2, 0)
        assert_as_if_read_whole(store, path)
        append(path, line("s", "k4"), line("s", "k1"))
        report = followed.report()
        assert (report.steps, report.duplicates) == (1, 1)
        assert_as_if_read_whole(store, path)


def test_half_a_line_counts_when_its_end_comes(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"))
    late = line("s", "k1")
    with Followed(store, path) as followed:
        followed.report()
        append(path, late[:15])
        assert followed.is_quiet()
        append(path, late[15:])
        assert followed.report().steps == 1
        assert_as_if_read_whole(store, path)


def test_a_bad_line_is_told_and_kept_once(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"))
    with Followed(store, path) as followed:
        followed.report()
        append(path, "{oops\n")
        (problem,) = followed.report().problems
        assert problem.line == 3
        append(path, line("s", "k1"))
        report = followed.report()
        assert (report.steps, report.problems) == (1, [])
        append(path, "{again\n", line("s", "k2"))
        assert len(followed.report().problems) == 1
        assert_as_if_read_whole(store, path)


def test_with_strict_a_bad_line_ends_it(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"))
    with Followed(store, path, strict=True) as followed:
        followed.report()
        append(path, line("s", "k1"), "{oops\n")
        with pytest.raises(InputError, match=r"a\.txt:4: expected JSON"):
            followed.report()
    assert rows(store, "sessions")["n_steps"].to_list() == [1]


def test_a_file_rotated_away_keeps_its_steps_and_the_new_one_is_read(
    tmp_path: Path, store: Path
) -> None:
    path = write(tmp_path / "in" / "a.txt", line("s", "k0"))
    with Followed(store, tmp_path / "in") as followed:
        followed.report()
        append(path, line("s", "k1"))
        followed.until(1)
        path.rename(tmp_path / "in" / "a.txt.1")
        append(tmp_path / "in" / "a.txt.1", line("s", "last words"))
        write(path, line("t", "k2"))
        followed.until(2)
        append(path, line("t", "k3"))
        followed.until(1)
    assert rows(store, "sessions")["n_steps"].sort().to_list() == [2, 3]


def test_a_single_file_rotated_out_of_sight_is_followed_under_its_name(
    tmp_path: Path, store: Path
) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"))
    with Followed(store, path) as followed:
        followed.report()
        os.replace(path, tmp_path / "elsewhere")
        write(path, line("t", "k1"), line("t", "k2"))
        followed.until(2)
        append(path, line("t", "k3"))
        followed.until(1)
    assert rows(store, "sessions")["n_steps"].sort().to_list() == [1, 3]


@pytest.mark.parametrize("more", [0, 40])
def test_a_truncated_file_is_a_new_one(tmp_path: Path, store: Path, more: int) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"), line("s", "k1"))
    with Followed(store, path) as followed:
        followed.report()
        # With `more` the file is larger again before anyone looks.
        write(path, line("t", "k2"), *[line("t", f"m{i}") for i in range(more)])
        followed.until(1 + more)
        append(path, line("t", "k3"))
        followed.until(1)
    assert sorted(rows(store, "sessions")["n_steps"]) == [2, 2 + more]


def test_a_file_rewritten_in_the_same_size_is_read_anew(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"))
    with Followed(store, path) as followed:
        followed.report()
        write(path, line("s", "k9"))
        followed.until(1)
    with Store.open(store) as opened:
        session = opened.load_session(SessionKey("default", "", "s"))
    assert {step.key for lane in session.lanes for step in lane.steps} == {"k0", "k9"}


def test_new_files_come_in_and_foreign_ones_are_left_alone(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.txt", line("s", "k0"))
    with Followed(store, folder) as followed:
        followed.report()
        (folder / "notes.md").write_text("# notes")
        (folder / ".git").mkdir()
        write(folder / ".git" / "b.txt", line("u", "k9"))
        assert followed.is_quiet()
        write(folder / "deep" / "er" / "b.txt", line("t", "k1"))
        assert followed.until(1)[0].sessions == 1
        append(folder / "deep" / "er" / "b.txt", line("t", "k2"))
        followed.until(1)
    assert rows(store, "sessions")["session_id"].sort().to_list() == ["s", "t"]


def test_an_empty_file_is_recognised_when_it_has_something(tmp_path: Path, store: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    with Followed(store, tmp_path) as followed:
        assert followed.report().steps == 0
        path.write_text(MARK.decode())
        append(path, ": 1}\n", line("s", "k0"))
        followed.until(1)
        assert_as_if_read_whole(store, path)


def test_more_files_than_readers_are_followed_all_the_same(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIVE_FILES", 2)
    folder = tmp_path / "in"
    paths = [write(folder / f"{i}.txt", line(f"s{i}", f"first of {i}")) for i in range(4)]
    with Followed(store, folder) as followed:
        followed.report()
        for n in range(1, 3):
            for path in paths:
                append(path, line(f"s{path.stem}", f"{path.stem} {n}"))
            followed.until(4)
    assert rows(store, "sessions")["n_steps"].to_list() == [3, 3, 3, 3]
    assert rows(store, "files").height == 4


def test_a_file_that_another_run_read_meanwhile_is_not_doubled(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"))
    with Followed(store, path) as followed:
        followed.report()
        append(path, line("s", "k1"))
        followed.until(1)
        whole = path.read_text() + line("s", "k2")
        # The other run sees the file grown before the follower does.
        other = tmp_path / "other" / "a.txt"
        other.parent.mkdir()
        other.write_text(whole)
        ingest([other], store, sources=SOURCES)
        append(path, line("s", "k2"), line("s", "k3"))
        followed.until(1)
    assert rows(store, "sessions")["n_steps"].to_list() == [4]


def test_jointly_read_files_are_read_together_again(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "JOINT_SHARE", 1)
    folder = tmp_path / "in"
    first = write(folder / "1.txt", line("s", "k0"))
    with Followed(store, folder, sources=JOINT) as followed:
        followed.report()
        write(folder / "2.txt", line("s", "k1"))
        followed.until(1)
        append(first, line("s", "k2"))
        followed.until(1)
    assert rows(store, "sessions")["n_steps"].to_list() == [3]
    assert_as_if_read_whole(store, folder, sources=JOINT)


def test_growth_is_kept_as_the_store_keeps_content(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0", new=["ask jane.doe@corp.example"]))
    with Followed(store, path, content="redacted") as followed:
        assert followed.report().content == "redacted"
        append(path, line("s", "k1", new=["ask jane.doe@corp.example"]))
        assert followed.report().content == "redacted"
    with Store.open(store) as opened:
        first, later = opened.part_bodies(SessionKey("default", "", "s"), "main", [0, 1])
    assert first == later
    assert first is not None
    assert first.startswith("ask <EMAIL:")


def test_a_reader_that_dies_costs_nothing(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"))
    with Followed(store, path) as followed:
        followed.report()
        for pid in _children(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        append(path, line("s", "k1"))
        followed.until(1)
        append(path, line("s", "k2"))
        followed.until(1)
        assert_as_if_read_whole(store, path)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        # Threads that watch may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return sorted(found)


def _bytes_read(pid: int) -> int:
    text = Path(f"/proc/{pid}/io").read_text()
    return int(text.split("rchar:")[1].split()[0])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts reads by /proc")
def test_old_bytes_are_not_read_again(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", *[line("s", f"k{i}", new=["x" * 900]) for i in range(3000)])
    with Followed(store, path) as followed:
        followed.report()
        (reader,) = _children(os.getpid())
        before = _bytes_read(reader), _bytes_read(os.getpid())
        for n in range(3):
            append(path, line("s", f"late {n}", new=["y" * 900]))
            followed.until(1)
        assert _bytes_read(reader) - before[0] < 50_000
    assert path.stat().st_size > 2_500_000


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds readers by /proc")
def test_what_changes_nothing_costs_no_new_reader(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path / "a.txt", line("s", "k0"))
    late = line("s", "k1")
    with Followed(store, path) as followed:
        followed.report()
        readers = _children(os.getpid())
        append(path, late[:15])
        assert followed.is_quiet()
        append(path, late[15:])
        followed.until(1)
        assert _children(os.getpid()) == readers


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds readers by /proc")
def test_a_chain_of_rotations_keeps_every_reader_with_its_file(tmp_path: Path, store: Path) -> None:
    newest, older = tmp_path / "in" / "a.txt", tmp_path / "in" / "a.txt.1"
    write(newest, line("s", "k0"))
    write(older, line("t", "k1"))
    with Followed(store, tmp_path / "in") as followed:
        followed.report()
        readers = _children(os.getpid())
        assert len(readers) == 2
        older.rename(older.with_name("a.txt.2"))
        newest.rename(older)
        append(older, line("s", "k2"))
        append(older.with_name("a.txt.2"), line("t", "k3"))
        followed.until(2)
        assert _children(os.getpid()) == readers
    assert _children(os.getpid()) == []
    assert rows(store, "sessions")["n_steps"].to_list() == [2, 2]


SAMPLES = CHECKOUT / "sample_traces"
TRANSCRIPT = "claude-code/FSM1__cipher-box/12f1f541-2a05-4a60-a551-14b836a1ad82.jsonl.gz"


@pytest.mark.parametrize("sample", [TRANSCRIPT, "steps/timestamp-in-system.jsonl"])
def test_every_growth_of_a_real_recording_is_a_whole_reading(
    tmp_path: Path, store: Path, sample: str
) -> None:
    """Streamed rows, open answers and packed bodies: what is provisional is replaced each time."""
    with open_bytes(SAMPLES / sample) as stream:
        whole = stream.read()
    path = tmp_path / "log.jsonl"
    path.write_bytes(whole[: len(whole) // 3])
    with Followed(store, path, sources=ALL_SOURCES) as followed:
        followed.report()
        for share in (0.5, 0.51, 0.8, 1.0):
            with path.open("ab") as stream:
                stream.write(whole[path.stat().st_size : int(len(whole) * share)])
            fresh = tmp_path / f"{share}.duckdb"
            ingest([path], fresh)
            until = time.monotonic() + PATIENCE_S
            while sessions(store) != sessions(fresh):
                assert time.monotonic() < until
                time.sleep(0.2)
    assert_as_if_read_whole(store, path, sources=ALL_SOURCES)


def managed_agents(n: int) -> dict[str, Any]:
    kind = "span.model_request_end" if n % 2 else "span.model_request_start"
    usage = {"input_tokens": n, "output_tokens": 1}
    at = f"2026-07-06T14:00:{n:02d}Z"
    body = {"type": kind, "id": f"sevt_{n}", "processed_at": at, "session_id": "sesn_1"}
    return body | {"model_request_start_id": f"sevt_{n - n % 2}", "model_usage": usage}


def langsmith(n: int) -> dict[str, Any]:
    body = {"id": f"r{n}", "run_type": "llm", "trace_id": "t", "start_time": 1_780_000_000 - n}
    said = {"messages": [{"role": "user", "content": "Hi"}]}
    return body | {"inputs": said, "outputs": {"usage_metadata": {"input_tokens": n}}}


def telemetry(n: int) -> dict[str, Any]:
    usage = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}
    said = [
        {"role": role, "content": f"{role} {k}", "usage": usage, "timestamp": 1_780_000_000_000 + k}
        for k in range(n + 1)
        for role in ("user", "assistant")
    ]
    return {"type": "agent.end", "sessionKey": "agent:main:main", "messages": said, "ts": n}


@pytest.mark.parametrize("make", [managed_agents, langsmith, telemetry])
def test_formats_that_are_understood_only_at_their_end_are_followed_too(
    make: Callable[[int], dict[str, Any]], tmp_path: Path, store: Path
) -> None:
    path = write_lines(tmp_path / "log.jsonl", [make(n) for n in range(2)])
    with Followed(store, path, sources=ALL_SOURCES) as followed:
        followed.report()
        for n in range(2, 6):
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(make(n)) + "\n")
            followed.report()
    assert_as_if_read_whole(store, path, sources=ALL_SOURCES)


COMMAND = [sys.executable, "-m", "analyzer"]


@pytest.fixture
def form() -> str:
    return "text"


@pytest.fixture
def command(tmp_path: Path, store: Path, form: str) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "in").mkdir()
    asked = ["ingest", str(tmp_path / "in"), "--follow", "--format", form]
    process = subprocess.Popen(
        [*COMMAND, "--db", str(store), *asked],
        stdout=subprocess.PIPE,
        text=True,
        # A shell that starts a job in the background lets it ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    yield process
    process.kill()
    process.communicate()


def test_the_command_tells_each_growth_and_ends_with_an_interrupt(
    tmp_path: Path, store: Path, command: subprocess.Popen[str]
) -> None:
    assert command.stdout is not None
    assert "0 new steps" in command.stdout.readline()
    command.stdout.readline()
    command.stdout.readline()
    records = anthropic_records(4)
    write_lines(tmp_path / "in" / "log.jsonl", records[:2])
    assert "2 new steps in 1 session" in command.stdout.readline()
    with Store.open(store) as opened:
        assert opened.query("stale", ALL, analysis_version="").height == 1
        assert opened.sessions(ALL)["cost_usd"].null_count() == 0
    command.send_signal(signal.SIGINT)
    assert command.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("form", ["json"])
def test_as_json_every_report_is_one_line(
    tmp_path: Path, command: subprocess.Popen[str], form: str
) -> None:
    assert command.stdout is not None
    assert json.loads(command.stdout.readline())["steps"] == 0
    write_lines(tmp_path / "in" / "log.jsonl", anthropic_records(2))
    assert json.loads(command.stdout.readline())["steps"] == 2


@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.6])
def test_killed_at_any_moment_it_loses_and_doubles_nothing(
    tmp_path: Path, store: Path, command: subprocess.Popen[str], after_s: float
) -> None:
    path = tmp_path / "in" / "log.jsonl"
    records = anthropic_records(8)
    assert command.stdout is not None
    command.stdout.readline()
    write_lines(path, records[:2])
    while "2 new steps" not in command.stdout.readline():
        pass
    with path.open("a") as stream:
        stream.writelines(json.dumps(r) + "\n" for r in records[2:])
    time.sleep(after_s)
    command.kill()
    command.wait()
    ingest([tmp_path / "in"], store)
    analyse(store)
    assert_as_if_read_whole(store, path, sources=ALL_SOURCES)
