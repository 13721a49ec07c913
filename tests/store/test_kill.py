"""Killed at any moment, an ingest loses nothing that it reported and doubles nothing later."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.intake import ingest
from analyzer.store import Scope, Store
from tests.steplines import SOURCES, dump, line, write

CHECKOUT = Path(__file__).resolve().parents[2]
N_FILES = 6

# A file comes in several pieces, and each file is published; the process kills itself at the n-th
# event of a kind.
SCRIPT = """
import os, signal, sys
from importlib import import_module
ingest = import_module('analyzer.intake.sink')
from analyzer.store import publish
from tests.steplines import SOURCES
folder, event, n, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ingest.BATCH_BYTES = ingest.PUBLISH_SHARE = 0
import_module("analyzer.records").CHUNK_ROWS = 3
ingest.PUBLISH_SECONDS = 0 if event not in ("commit", "piece") else 1e9
left = [n]
def die():
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def progress(state):
    print(state.files, flush=True)
    if event == "commit":
        die()
commit = ingest.Batch.commit
def committing(batch):
    commit(batch)
    if event.startswith("piece"):
        die()
ingest.Batch.commit = committing
replace = os.replace
def replacing(source, target):
    if event == "before " + os.path.basename(target):
        die()
    replace(source, target)
    if event == "after " + os.path.basename(target):
        die()
os.replace = replacing
copyfile = publish.shutil.copyfile
def copying(source, target):
    if event == "copy":
        left[0] -= 1
        if left[0] == 0:
            with open(source, "rb") as a, open(target, "wb") as b:
                b.write(a.read(5000))
                b.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    return copyfile(source, target)
publish.shutil.copyfile = copying
whole = import_module('analyzer.intake').ingest
whole([folder], folder + ".duckdb", sources=SOURCES, progress=progress, workers=workers)
"""

EVENTS = [
    ("commit", 1, 0),
    ("commit", 4, 0),
    ("commit", 3, 2),
    ("before traces.duckdb", 1, 0),
    ("before traces.duckdb", 3, 0),
    ("after traces.duckdb", 2, 0),
    ("before traces.duckdb.next", 2, 0),
    ("after traces.duckdb.next", 2, 0),
    ("copy", 2, 0),
    ("piece", 2, 0),
    ("piece", 7, 0),
    ("piece, published", 9, 0),
]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with sessions of their own, and copies of each other's steps."""
    folder = tmp_path_factory.mktemp("kill") / "traces"
    for i in range(N_FILES):
        own = [line(f"s{i}", f"k{i}.{j}", 10 * i + j) for j in range(5)]
        copied = [line(f"s{i}", f"k{i - 1}.{j}", 10 * i - 10 + j) for j in range(5 if i else 0)]
        write(folder / f"f{i}.txt", *copied, *own)
    return folder


@pytest.fixture(scope="module")
def undisturbed(traces: Path) -> dict[str, list[tuple[object, ...]]]:
    """What a run that nobody killed makes of the files."""
    path = traces.parent / "undisturbed.duckdb"
    report = ingest([traces], path, sources=SOURCES)
    assert (report.files, report.steps, report.duplicates) == (6, 30, 25)
    return dump(path)


@pytest.mark.parametrize(("event", "n", "workers"), EVENTS)
def test_a_killed_ingest_is_completed_by_the_next(
    traces: Path,
    undisturbed: dict[str, list[tuple[object, ...]]],
    event: str,
    n: int,
    workers: int,
) -> None:
    path = Path(f"{traces}.duckdb")
    for leftover in path.parent.glob("traces.duckdb*"):
        leftover.unlink()
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(traces), event, str(n), str(workers)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    reported = int((killed.stdout.split() or ["0"])[-1])
    if path.exists():
        with Store.open(path) as store:
            whole = store.query("files", Scope.everything())
            for name, steps in whole.select("path", "n_steps").rows():
                assert steps == Path(name).read_text().count("\n") - 1
    report = ingest([traces], path, sources=SOURCES)
    assert report.unchanged >= reported
    assert report.files + report.unchanged == N_FILES
    assert dump(path) == undisturbed


def test_killed_readers_do_not_outlive_their_parent(traces: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    for i in range(8):
        write(slow / f"f{i}.txt", *[line(f"s{i}", f"k{i}.{j}", j) for j in range(300)])
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(slow), "commit", "1", "2"],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
        timeout=120,
    )
    # Its readers inherit the captured stderr, so `run` comes back only when they are gone too.
    assert killed.returncode == -signal.SIGKILL
