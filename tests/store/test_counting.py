"""Every step counts once over all files, and the order in which files come decides nothing."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.intake import ingest
from analyzer.store import Scope, Store
from tests.steplines import SOURCES, dump, line, write

rows = st.builds(
    line,
    session=st.sampled_from(["a", "b", "c"]),
    key=st.sampled_from([f"k{i}" for i in range(8)]),
    at=st.none() | st.integers(0, 20),
    l=st.sampled_from(["main", "side"]),
    **{"from": st.sampled_from([None, "elsewhere"])},
)
files = st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=4)


def expected(texts: list[list[str]], digests: list[bytes]) -> dict[str, tuple[str, str, int]]:
    """Key -> (session, lane, line) of the occurrence that counts, by the words of the rule."""
    seen = []
    last: dict[str, float] = defaultdict(lambda: float("-inf"))
    sizes: dict[tuple[int, str, str], int] = defaultdict(int)
    for number, text in enumerate(texts):
        for at_line, raw in enumerate(text, 2):
            row = json.loads(raw)
            place = (number, row["s"], row["l"])
            seen.append((row, place, at_line))
            sizes[place] += 1
            if row["t"] is not None:
                last[row["s"]] = max(last[row["s"]], row["t"])
    owners = {}
    for row, place, at_line in seen:
        end = last[row["s"]]
        rank = (
            row["from"] is not None,
            float("inf") if end == float("-inf") else end,
            row["s"],
            -sizes[place],
            digests[place[0]],
            row["l"],
            at_line,
        )
        owners.setdefault(row["k"], []).append((rank, (row["s"], row["l"], at_line)))
    return {key: min(found)[1] for key, found in owners.items()}


@settings(max_examples=12, deadline=None)
@given(files, st.randoms(use_true_random=False))
def test_files_in_any_order_and_in_any_number_of_runs_give_equal_tables(made, random) -> None:  # type: ignore[no-untyped-def]
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(Path(folder, f"f{i}.txt"), *text) for i, text in enumerate(made)]
        together, apart = Path(folder, "1.duckdb"), Path(folder, "2.duckdb")
        whole = ingest(paths, together, sources=SOURCES)
        shuffled = random.sample(paths, len(paths))
        reports = [ingest([path], apart, sources=SOURCES) for path in shuffled]
        # Equal files are one, under the name that came first.
        one, two = dump(together), dump(apart)
        for tables in (one, two):
            tables["files"] = [row[:5] + row[6:] for row in tables["files"]]
        assert one == two
        assert whole.steps + whole.duplicates == sum(map(len, made))
        assert sum(r.steps for r in reports) == whole.steps
        with Store.open(together) as store:
            listed = store.query("files", Scope.everything())
            digests = {row["path"]: row["digest"] for row in listed.rows(named=True)}
            got = {
                step.key: (key.session_id, lane.name, step.line)
                for key in store.stale_sessions("")
                for lane in store.load_session(key).lanes
                for step in lane.steps
            }
        unique = {text_of(p): (p, t) for p, t in zip(reversed(paths), reversed(made), strict=True)}
        kept = [(p, t) for p, t in unique.values()]
        assert got == expected([t for _, t in kept], [digests[str(p)] for p, _ in kept])


def text_of(path: Path) -> str:
    return path.read_text()


def counted(store: Path) -> dict[str, list[tuple[str, int]]]:
    """Session -> (key, step) of the counted steps of its main lane."""
    with Store.open(store) as opened:
        frame = opened.sessions(Scope.everything())
        return {
            name: opened.query("steps", Scope.everything(), session_id=name)
            .select("key", "step")
            .rows()
            for name in frame["session_id"].sort()
        }


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_session_that_others_resumed_keeps_its_steps(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    first = [line("orig", f"k{i}", i) for i in range(3)]
    paths = [
        write(tmp_path / "a.txt", *first),
        # The copies were rewritten to the new session's name, so only its later end gives it away.
        write(
            tmp_path / "b.txt", *[x.replace("orig", "fork") for x in first], line("fork", "n", 9)
        ),
        write(tmp_path / "c.txt", *[line("odd", f"k{i}", 0, **{"from": "orig"}) for i in range(3)]),
    ]
    for i in order:
        ingest([paths[i]], tmp_path / "s.duckdb", sources=SOURCES)
    assert counted(tmp_path / "s.duckdb") == {
        "orig": [("k0", 0), ("k1", 1), ("k2", 2)],
        "fork": [("n", 0)],
        "odd": [],
    }


def test_a_marked_copy_yields_even_to_a_session_that_ended_later(tmp_path: Path) -> None:
    a = write(tmp_path / "a.txt", line("early", "k", 0, **{"from": "late"}))
    b = write(tmp_path / "b.txt", line("late", "k", 50))
    ingest([a, b], tmp_path / "s.duckdb", sources=SOURCES)
    assert counted(tmp_path / "s.duckdb") == {"early": [], "late": [("k", 0)]}


def test_a_file_that_goes_gives_its_keys_back(tmp_path: Path) -> None:
    # The first session owns k until its file grows past the end of the second one.
    a = write(tmp_path / "a.txt", line("one", "k", 0))
    b = write(tmp_path / "b.txt", line("two", "k", 5))
    ingest([a, b], tmp_path / "s.duckdb", sources=SOURCES)
    assert counted(tmp_path / "s.duckdb") == {"one": [("k", 0)], "two": []}
    a.write_text(a.read_text() + line("one", "later", 99))
    report = ingest([a], tmp_path / "s.duckdb", sources=SOURCES)
    assert counted(tmp_path / "s.duckdb") == {"one": [("later", 0)], "two": [("k", 0)]}
    assert (report.steps, report.duplicates) == (1, 1)


def test_times_interleave_recordings_and_never_reorder_one(tmp_path: Path) -> None:
    a = write(tmp_path / "a.txt", line("s", "a0", 0), line("s", "a1", 30), line("s", "a2", 10))
    b = write(tmp_path / "b.txt", line("s", "b0", 20), line("s", "b1", None), line("s", "b2", 40))
    ingest([a, b], tmp_path / "s.duckdb", sources=SOURCES)
    order = [key for key, _ in counted(tmp_path / "s.duckdb")["s"]]
    assert order == ["a0", "b0", "b1", "a1", "a2", "b2"]


def test_equal_keys_in_two_projects_are_two_steps(tmp_path: Path) -> None:
    a = write(tmp_path / "a.txt", line("s", "k"))
    for project in ("p", "q"):
        report = ingest([a], tmp_path / "s.duckdb", sources=SOURCES, project=project)
        assert (report.steps, report.duplicates) == (1, 0)
