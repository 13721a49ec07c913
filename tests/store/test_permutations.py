"""The same records give the same tables, however they come: in any order, again, copied or cut.

What cannot be equal where a recording is cut in two files: the prompts of the second half (what was
said before stands in the other file, so they are rebuilt without it), the start of a request whose
question stands before the cut, and what only the first half tells (a rollout's model until its next
turn). Counts, keys and answers are equal, and what is not known stays unknown.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from analyzer.intake import ingest
from analyzer.store import Store
from analyzer.workspace import Workspace, analyse
from tests.recount.requests import unpacked
from tests.samples import Sample, samples
from tests.steplines import dump

COUNTED = (
    "key",
    "model",
    "input",
    "cache_read",
    "cache_write",
    "cache_write_5m",
    "cache_write_1h",
    "output",
)
JOURNALS = [s for s in samples() if s.form == "lines" and s.source not in ("openhands", "langfuse")]
NAMES = {"pi": "2026-06-01T09-00-00_11111111-2222-4333-8444-555555555555"}


def of(sample: Sample) -> str:
    return f"{sample.source}-{sample.name}"


def tables(store: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in a store but the paths of its files."""
    analyse(store)
    found = dump(store)
    found["files"] = sorted((row[:5] + row[6:] for row in found["files"]), key=repr)
    found["problems"] = sorted((row[:1] + row[2:] for row in found["problems"]), key=repr)
    return found


def counted(store: Path) -> list[tuple[Any, ...]]:
    """What is counted, by key: all that a cut leaves as it is."""
    rows = []
    with Store.open(store) as opened:
        for key in opened.stale_sessions(""):
            for lane in opened.load_session(key).lanes:
                for step in lane.steps:
                    usage = step.usage
                    counts = [getattr(usage, name, None) for name in COUNTED[2:]]
                    rows.append((step.key, *counts, step.stop_reason))
    return sorted(rows, key=repr)


@pytest.mark.parametrize("sample", JOURNALS, ids=of)
def test_a_file_that_grew_line_by_line_is_as_if_read_once(sample: Sample, tmp_path: Path) -> None:
    lines = sample.encode().splitlines(keepends=True)
    path = tmp_path / f"{NAMES.get(sample.source, 'a')}.jsonl"
    whole, grown = tmp_path / "whole.duckdb", tmp_path / "grown.duckdb"
    steps = 0
    for stop in (*range(2, len(lines), 3), len(lines)):
        path.write_bytes(b"".join(lines[:stop]) + b"".join(lines[stop : stop + 1])[:9])
        steps += ingest([path], grown, source=sample.source).steps
    path.write_bytes(b"".join(lines))
    steps += ingest([path], grown, source=sample.source).steps
    assert steps == ingest([path], whole, source=sample.source).steps
    assert tables(whole) == tables(grown)


@pytest.mark.parametrize("sample", JOURNALS, ids=of)
def test_a_recording_cut_into_two_files_counts_what_the_whole_one_counts(
    sample: Sample, tmp_path: Path
) -> None:
    lines = sample.encode().splitlines(keepends=True)
    stem = NAMES.get(sample.source, "a")
    whole = tmp_path / f"{stem}.jsonl"
    whole.write_bytes(b"".join(lines))
    ingest([whole], tmp_path / "whole.duckdb", source=sample.source)
    expected = counted(tmp_path / "whole.duckdb")
    for cut in range(1, len(lines), max(1, len(lines) // 5)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        halves = [folder / f"{stem}.jsonl", folder / f"{stem}.2.jsonl"]
        halves[0].write_bytes(b"".join(lines[:cut]))
        halves[1].write_bytes(b"".join(lines[cut:]))
        ingest(halves[:: random.Random(cut).choice((1, -1))], folder / "s.db", source=sample.source)
        found = counted(folder / "s.db")
        if sample.source in ("codex", "copilot-cli", "steps"):
            # What names thread, session or model may stand in the other half.
            assert [row[1:] for row in found] == [row[1:] for row in expected], cut
        else:
            assert found == expected, cut


def subset(shared_data: Path) -> list[Path]:
    """A few recordings of each format, with those that copy each other, small ones first."""
    root = shared_data / "traces"
    found = []
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and folder.name != "LICENSES":
            files = sorted(
                (path for path in folder.rglob("*") if path.is_file()),
                key=lambda path: (path.stat().st_size, str(path)),
            )
            found += [path for path in files[:6] if path.stat().st_size < 400_000]
    found += sorted(root.glob("claude-code/*/b4dcf65c-*")) + sorted(
        root.glob("claude-code/*/e1bc91d1-*")
    )
    return found


@pytest.mark.data
def test_real_files_give_equal_tables_in_any_order_and_number_of_runs(
    shared_data: Path, tmp_path: Path
) -> None:
    files = subset(shared_data)
    assert len(files) > 60
    one, twice, reversed_, many = (tmp_path / f"{name}.db" for name in ("1", "2", "r", "m"))
    whole = ingest(files, one)
    expected = tables(one)
    assert whole.steps > 100
    assert whole.duplicates

    ingest(files, twice)
    again = ingest(files, twice)
    assert (again.files, again.steps) == (0, 0)
    assert tables(twice) == expected

    ingest(files[::-1], reversed_)
    assert tables(reversed_) == expected

    joint = [path for path in files if "langfuse" in path.parts]
    runs = [[path] for path in files if path not in joint] + [joint]
    random.Random(7).shuffle(runs)
    for start in range(0, len(runs), 12):
        ingest([path for run in runs[start : start + 12] for path in run], many)
    assert tables(many) == expected


@pytest.mark.data
def test_copies_of_real_files_in_other_folders_add_nothing(
    shared_data: Path, tmp_path: Path
) -> None:
    files = [path for path in subset(shared_data) if "langfuse" not in path.parts]
    store = tmp_path / "s.db"
    ingest(files, store)
    expected = tables(store)
    for number, path in enumerate(files):
        (tmp_path / "copies" / str(number)).mkdir(parents=True)
        shutil.copy(path, tmp_path / "copies" / str(number) / path.name)
    report = ingest([tmp_path / "copies"], store)
    assert (report.files, report.steps, report.parts) == (0, 0, 0)
    assert tables(store) == expected


@pytest.mark.data
@pytest.mark.parametrize("folder", ["claude-code", "codex", "openclaw"])
def test_a_real_recording_cut_in_two_keeps_its_sums_and_gets_no_new_cause(
    folder: str, shared_data: Path, tmp_path: Path
) -> None:
    files = sorted((shared_data / "traces" / folder).rglob("*.jsonl*"))
    files = [f for f in files if 20_000 < f.stat().st_size < 150_000 and "trajectory" not in f.name]
    for number, path in enumerate(random.Random(2).sample(files, 3)):
        lines = unpacked(path).splitlines(keepends=True)
        stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
        halves = []
        for name, part in ((stem, lines), (f"{stem}.1", lines[: len(lines) // 2])):
            halves.append(tmp_path / f"{number}{name[-2:]}" / f"{name}.jsonl")
            halves[-1].parent.mkdir()
            halves[-1].write_bytes(b"".join(part))
        halves.append(halves[-1].with_name(f"{stem}.2.jsonl"))
        halves[-1].write_bytes(b"".join(lines[len(lines) // 2 :]))
        stores = [tmp_path / f"{number}{name}.db" for name in ("whole", "cut")]
        ingest(halves[:1], stores[0])
        ingest(halves[1:], stores[1])
        assert counted(stores[0]) == counted(stores[1])
        one, two = causes(stores[0]), causes(stores[1])
        assert one == two, {k: (v, two.get(k)) for k, v in one.items() if two.get(k) != v}


def causes(store: Path) -> dict[str, str]:
    """Key -> verdict of each step."""
    workspace = Workspace.open(store)
    try:
        keys = workspace.keys()
        return {
            row.record.key: verdict.kind
            for key in keys
            for row, verdict in workspace.diagnose(key).rows
        }
    finally:
        workspace.close()
