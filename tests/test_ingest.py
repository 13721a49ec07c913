"""From paths to a store: repeated runs, damaged input, and the same result however it is read."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from analyzer.errors import InputError, UsageError
from analyzer.intake import IngestReport, Progress, ingest
from analyzer.intake import sink as module
from analyzer.model import SessionKey
from analyzer.reading import BOOT, Job, Reader, encode, reference
from analyzer.records import from_bytes
from analyzer.sources import SOURCES as REAL_SOURCES
from analyzer.store import Scope, Store
from tests.builders import anthropic_records, write_lines
from tests.steplines import JOINT, SOURCES, dump, line, write

ALL = Scope.everything()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store" / "s.duckdb"


def run(store: Path, *paths: Path, **options: object) -> IngestReport:
    return ingest(list(paths), store, **{"sources": SOURCES, **options})  # type: ignore[arg-type]


def figures(report: IngestReport) -> tuple[int, int, int, int, int]:
    return report.files, report.sessions, report.steps, report.duplicates, report.unchanged


def table(store: Path, name: str) -> pl.DataFrame:
    with Store.open(store) as opened:
        return opened.query(name, ALL)


def test_a_first_run_tells_what_it_did(tmp_path: Path, store: Path) -> None:
    write(tmp_path / "in" / "a.txt", line("s", "k0"), line("s", "k1"), line("t", "k2"))
    write(tmp_path / "in" / "sub" / "b.txt", line("u", "k1"), line("u", "k3"))
    report = run(store, tmp_path / "in")
    assert figures(report) == (2, 3, 4, 1, 0)
    assert report.parts == 5
    assert report.problems == []
    assert table(store, "files")["n_steps"].to_list() == [3, 2]


def test_the_same_file_again_is_skipped(tmp_path: Path, store: Path) -> None:
    made = write(tmp_path / "a.txt", line("s", "k0"), line("s", "k1"))
    run(store, made)
    before = dump(store)
    assert figures(run(store, made)) == (0, 0, 0, 2, 1)
    assert dump(store) == before


def test_the_same_bytes_under_another_name_are_skipped(tmp_path: Path, store: Path) -> None:
    rows = [line("s", "k0"), line("s", "k1")]
    made = write(tmp_path / "a.txt", *rows)
    copy = write(tmp_path / "copy.txt", *rows)
    assert figures(run(store, made, copy)) == (1, 1, 2, 2, 1)
    assert figures(run(store, copy)) == (0, 0, 0, 2, 1)


def test_a_file_that_grew_replaces_what_was_read_of_it(tmp_path: Path, store: Path) -> None:
    made = write(tmp_path / "a.txt", line("s", "k0"), line("s", "k1"))
    run(store, made)
    with made.open("a") as stream:
        stream.write(line("s", "k2") + line("t", "k3"))
    assert figures(run(store, made)) == (1, 2, 2, 2, 0)
    fresh = tmp_path / "fresh.duckdb"
    run(fresh, made)
    assert dump(store) == dump(fresh)


def test_a_rotated_file_is_new_and_the_old_one_stays(tmp_path: Path, store: Path) -> None:
    made = write(tmp_path / "a.txt", line("s", "k0"), line("s", "k1"))
    run(store, made)
    write(made, line("t", "k2"))
    assert figures(run(store, made)) == (1, 1, 1, 0, 0)
    write(made, line("t", "k2"), line("t", "k3"))
    assert figures(run(store, made)) == (1, 1, 1, 1, 0)
    assert table(store, "sessions")["n_steps"].sort().to_list() == [2, 2]
    assert table(store, "files").height == 2


def test_a_file_that_shrank_is_another_file(tmp_path: Path, store: Path) -> None:
    made = write(tmp_path / "a.txt", line("s", "k0"), line("s", "k1"))
    run(store, made)
    write(made, line("s", "k0"))
    assert figures(run(store, made)) == (1, 1, 0, 1, 0)
    assert table(store, "sessions")["n_steps"].to_list() == [2]


def test_a_last_line_that_is_being_written_is_no_problem(tmp_path: Path, store: Path) -> None:
    made = write(tmp_path / "a.txt", line("s", "k0"), line("s", "k1")[:-20])
    report = run(store, made)
    assert (report.steps, report.problems) == (1, [])
    write(made, line("s", "k0"), line("s", "k1"))
    assert figures(run(store, made)) == (1, 1, 1, 1, 0)


def test_a_record_that_cannot_be_read_is_kept_with_its_place(tmp_path: Path, store: Path) -> None:
    made = write(tmp_path / "a.txt", line("s", "k0"), '{"s": \n', line("s", "k1"))
    report = run(store, made)
    assert report.steps == 2
    (problem,) = report.problems
    assert (problem.path, problem.line, problem.pointer) == (str(made), 3, "$")
    (row,) = table(store, "problems").rows(named=True)
    assert (row["line"], row["raw"], row["project"]) == (3, b'{"s": ', "default")
    assert run(store, made).problems == []
    assert table(store, "problems").height == 1


def test_strict_stops_at_the_first_problem_and_leaves_that_file_out(
    tmp_path: Path, store: Path
) -> None:
    good = write(tmp_path / "good.txt", *[line("s", f"k{i}") for i in range(9)])
    bad = write(tmp_path / "bad.txt", line("t", "k"), "{\n")
    with pytest.raises(InputError, match=r"bad\.txt:3: expected JSON.*without --strict"):
        run(store, good, bad, strict=True)
    assert table(store, "sessions")["session_id"].to_list() == ["s"]
    assert run(store, bad).steps == 1


def test_a_damaged_archive_gives_what_can_be_read(tmp_path: Path, store: Path) -> None:
    rows = [line("s", f"k{i}", new=[os.urandom(900).hex()]) for i in range(300)]
    plain = write(tmp_path / "a.txt", *rows)
    packed = gzip.compress(plain.read_bytes())
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(packed[: len(packed) // 2])
    report = run(store, cut)
    assert 0 < report.steps < 300
    (problem,) = report.problems
    assert "damaged or cut off" in problem.message


def test_without_content_nothing_of_it_reaches_the_store(tmp_path: Path, store: Path) -> None:
    made = write(tmp_path / "a.txt", line("s", "k0", new=["a very secret text"]))
    report = run(store, made, content="none")
    assert (report.steps, report.parts) == (1, 1)
    assert dump(store)["packs"] == []
    key = SessionKey("default", "", "s")
    with Store.open(store) as opened:
        assert opened.part_bodies(key, "main", [0]) == [None]
        assert opened.load_session(key).lanes[0].pool[0].chars == 18


def test_what_no_source_recognises_is_told_once_a_kind(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.txt", line("s", "k"))
    for i in range(3):
        (folder / f"{i}.PNG").write_bytes(b"\x89PNG" + bytes([i]))
    (folder / "notes.md").write_text("# notes")
    report = run(store, folder)
    assert [(k.suffix, k.files) for k in report.skipped_kinds] == [(".png", 3), (".md", 1)]
    assert report.problems == []


def test_a_named_file_that_no_source_recognises_is_a_problem(tmp_path: Path, store: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# notes")
    (problem,) = run(store, notes).problems
    assert problem.path == str(notes)
    assert "it begins with b'# notes'); known: steplines" in problem.message


def test_a_named_source_reads_a_file_that_it_would_not_recognise(
    tmp_path: Path, store: Path
) -> None:
    made = tmp_path / "a.txt"
    made.write_text(line("s", "k"))
    assert run(store, made, source="steplines").steps == 1
    with pytest.raises(UsageError, match="no source 'nope'; known: steplines"):
        run(store, made, source="nope")


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path, store: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing at .*gone"):
        run(store, tmp_path / "gone")
    assert not store.exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_name_that_is_no_text_is_read_and_known_again(
    tmp_path: Path, store: Path, workers: int
) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/in/\xff\n\x01.jsonl"))
    try:
        write(path, line("s", "a"), "{broken\n")
    except OSError:
        pytest.skip("this file system takes names of text only")
    first = run(store, path.parent, workers=workers)
    assert (first.files, first.steps) == (1, 1)
    (problem,) = first.problems
    assert problem.path.endswith("\\udcff\n\x01.jsonl")
    with path.open("a") as stream:
        stream.write(line("s", "b"))
    grown = run(store, path.parent, workers=workers)
    assert (grown.files, grown.steps, grown.duplicates) == (1, 1, 1)
    with Store.open(store) as opened:
        assert opened.query("files", Scope.everything()).height == 1


def test_links_that_go_round_in_circles_end(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "in"
    made = write(folder / "sub" / "a.txt", line("s", "k"))
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "again.txt").symlink_to(made)
    (folder / "dangling.txt").symlink_to(tmp_path / "gone")
    assert figures(run(store, folder)) == (1, 1, 1, 0, 0)


def many(folder: Path) -> Path:
    """Files of several sizes, sessions across files, a problem, copies."""
    for i in range(7):
        rows = [
            line(
                f"s{j % 3}", f"k{i % 5}.{j}", i * 100 + j, l=f"lane{j % 2}", new=[f"{i} {j} " * 50]
            )
            for j in range(40 * i)
        ]
        write(folder / f"f{i}.txt", *rows, *(["oops\n"] if i == 3 else []))
    return folder


def test_worker_processes_give_the_same_store(tmp_path: Path, store: Path) -> None:
    folder = many(tmp_path / "in")
    alone = tmp_path / "alone.duckdb"
    one = run(alone, folder, workers=0)
    two = run(store, folder, workers=2)
    assert figures(one) == figures(two)
    assert len(one.problems) == len(two.problems) == 1
    assert dump(alone) == dump(store)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_in_many_pieces_give_the_same_store(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    folder = many(tmp_path / "in")
    for f in folder.iterdir():
        # So long that a reader sends it in several chunks, each written on its own.
        rows = [line("big", f"{f.name}{j}", j, new=[f"{j}" * 40]) for j in range(5_000)]
        with f.open("a") as stream:
            stream.writelines(rows)
    whole = tmp_path / "whole.duckdb"
    run(whole, folder, workers=0)
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    monkeypatch.setattr(module, "PUBLISH_SECONDS", 0)
    monkeypatch.setattr(module, "PUBLISH_SHARE", 0)
    monkeypatch.setattr("analyzer.store.write.SEGMENT_BYTES", 5_000)
    run(store, folder, workers=workers)
    assert dump(whole) == dump(store)
    # Bodies are found in whatever segment they are, and a grown file leaves all of them.
    key = SessionKey("default", "", "big")
    with Store.open(store) as many_segments, Store.open(whole) as one_segment:
        parts = range(0, 5_000, 100)
        bodies = many_segments.part_bodies(key, "main", parts)
        assert bodies == one_segment.part_bodies(key, "main", parts)
    with (folder / "f1.txt").open("a") as stream:
        stream.write(line("big", "one more"))
    run(store, folder, workers=workers)
    run(whole, folder, workers=workers)
    assert dump(whole) == dump(store)


@pytest.mark.parametrize("pieces", [1, 9_000])
def test_a_reader_that_dies_costs_its_file_alone(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    folder = many(tmp_path / "in")
    rows = [line("gone", f"g{i}") for i in range(pieces)]
    write(folder / "bad.txt", *rows, '{"exit": 7}\n')
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    report = run(store, folder, workers=2)
    died = [p for p in report.problems if "ended with code 7" in p.message]
    assert [Path(p.path).name for p in died] == ["bad.txt"]
    assert report.files == 7
    assert "gone" not in table(store, "sessions")["session_id"].to_list()
    with pytest.raises(InputError, match=r"bad\.txt: the process .* code 7"):
        run(tmp_path / "strict.duckdb", folder / "bad.txt", workers=1, strict=True)


@pytest.mark.parametrize("name", REAL_SOURCES)
def test_a_worker_finds_each_source(tmp_path: Path, name: str) -> None:
    """A worker loads one format and not the others, so each has to load alone."""
    missing = os.fsencode(tmp_path / "gone")
    job = Job([missing], reference(REAL_SOURCES[name]), 1, "p", "", "full", b"")
    reader = Reader()
    chunks = [from_bytes(message) for message in reader.ask(encode(job))]
    reader.close()
    assert chunks[-1].last
    assert chunks[-1].rows("problems") == 1


def test_progress_counts_what_is_committed(tmp_path: Path, store: Path) -> None:
    folder = many(tmp_path / "in")
    seen: list[Progress] = []
    run(store, folder, workers=0, progress=seen.append)
    total = sum(f.stat().st_size for f in folder.iterdir())
    assert seen[-1] == Progress(7, 7, total, total)
    assert [p.files for p in seen] == sorted(p.files for p in seen)


def joint(store: Path, *paths: Path) -> IngestReport:
    return run(store, *paths, sources=JOINT)


def test_files_that_belong_together_are_read_together(tmp_path: Path, store: Path) -> None:
    a = write(tmp_path / "a.txt", line("s", "k0"), line("s", "k1"))
    b = write(tmp_path / "b.txt", line("s", "k2"))
    assert figures(joint(store, a, b)) == (1, 1, 3, 0, 0)
    with Store.open(store) as opened:
        (lane,) = opened.load_session(SessionKey("default", "", "s")).lanes
    assert [len(step.prompt or ()) for step in lane.steps] == [1, 2, 3]
    # The same set, a part of it, a larger set, and one whose member grew.
    assert figures(joint(store, b, a)) == (0, 0, 0, 3, 2)
    assert figures(joint(store, a)) == (0, 0, 0, 3, 1)
    c = write(tmp_path / "c.txt", line("s", "k3"))
    assert figures(joint(store, a, b, c)) == (1, 1, 1, 3, 0)
    with c.open("a") as stream:
        stream.write(line("s", "k4"))
    assert figures(joint(store, a, b, c)) == (1, 1, 1, 4, 0)
    fresh = tmp_path / "fresh.duckdb"
    joint(fresh, a, b, c)
    assert dump(store) == dump(fresh)


def test_a_reading_process_loads_no_database() -> None:
    script = BOOT.replace("serve()\n", "") + (
        "heavy = {'duckdb', 'polars', 'pyarrow', 'rich', 'click'} & set(sys.modules)\n"
        "from analyzer import Step\n"
        "from analyzer.sources import SOURCES\n"
        "assert Step.__module__ == 'analyzer.model'\n"
        "assert SOURCES\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *sys.path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_logs_of_one_name_that_name_no_session_are_sessions_of_their_own(
    tmp_path: Path, store: Path
) -> None:
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        write_lines(tmp_path / str(seed) / "trace.jsonl", anthropic_records(3, seed=seed))
    assert ingest([tmp_path], store).steps == 6
    assert table(store, "sessions")["n_steps"].to_list() == [3, 3]


@pytest.mark.parametrize("cut_first", [True, False])
def test_of_a_cut_and_a_whole_recording_the_whole_answer_counts(
    tmp_path: Path, store: Path, cut_first: bool
) -> None:
    whole, cut = anthropic_records(3), anthropic_records(3)
    for record in cut:
        record["response"]["usage"]["output_tokens"] = 1
    for name, records in zip("ab" if cut_first else "ba", (cut, whole), strict=True):
        write_lines(tmp_path / f"{name}.jsonl", records)
    report = ingest([tmp_path], store)
    assert (report.steps, report.duplicates) == (3, 3)
    outputs = [record["response"]["usage"]["output_tokens"] for record in whole]
    assert table(store, "sessions")["output"].sum() == sum(outputs) > 3


def test_the_small_example_set_counts_every_call_once(shared_data: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    generator = shared_data / "generators" / "transcripts.py"
    subprocess.run(
        [sys.executable, str(generator), "small", str(home)], check=True, capture_output=True
    )
    truth = json.loads((home / "truth.json").read_text())["total"]
    report = ingest([home], tmp_path / "s.duckdb")
    assert (report.steps, report.problems) == (truth["calls"], [])
    sums = table(tmp_path / "s.duckdb", "sessions").sum()
    for column, key in (
        ("input", "input"),
        ("cache_read", "read"),
        ("cache_write", "write"),
        ("output", "output"),
    ):
        assert sums[column].item() == truth[key]
