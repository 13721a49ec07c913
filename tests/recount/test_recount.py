"""Every real file counted twice: by its source, and by rules written down apart from the sources."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from analyzer.intake import ingest
from analyzer.model import LaneSteps
from analyzer.sources import detect
from analyzer.sources.base import Context, read_head
from analyzer.store import Scope, Store
from tests.builders import Transcript
from tests.recount import agents
from tests.recount.compare import FORMATS, compare, compared, table
from tests.recount.requests import Request
from tests.sources.test_codex import Rollout

SEVERAL_SESSIONS = ("dag_fork.jsonl", "dag_resume.jsonl")
"""Fixtures in which sessions go on from one another's rows: one growing context, so one session."""

# Path -> what the index counts beyond our steps, and why.
INDEX: dict[str, tuple[int, str]] = {
    "df0a6e5d-bba0-4488-b540-8f55f98b5b1b": (-1, "a fallback's first try was billed too"),
    "0a93878f-dc30-4a5d-882f-3cd81cd3d499": (1, "the client's own words"),
    "15f99783-ab13-4526-902c-0ca770a5d70e": (1, "the client's own words"),
    "545b45d4-729e-4d0b-8e6b-45cb65d43f00": (1, "the client's own words"),
    "6dd5f6de-b876-49d9-bbfa-d92d2ef306a3": (1, "the client's own words"),
    "86cc3044-7515-43f1-9c25-1444738c64c9": (1, "the client's own words"),
    "ab8c5aa0-e11b-4b16-9be3-c470a9483829": (1, "the client's own words"),
    "1b42a18b-704c-4278-bb92-ed95ac914d02": (1, "the client's own words"),
    "f3d53121-fdf7-40bf-a4df-e3b17ddbbbd1": (1, "the client's own words"),
    "b2e732c1-5f16-4ebe-ba84-0a11adc45c66": (2, "messages that the gateway wrote itself"),
    "ses_30bfbb6f4ffeJ2960akRy1tOR3": (6, "commands that the person ran"),
    "ses_31a4b9127ffeWeR4XnP70FhbEV": (3, "commands that the person ran"),
    "ses_336ebe11bffePlPIwBobiYzDoC": (6, "commands that the person ran"),
    "agno-2025-06-11.json": (2, "a generation around each generation"),
    "agno-2025-06-11.trace.json": (2, "a generation around each generation"),
    "openai-assistants-2024-05-29": (3, "spans with a usage of nothing"),
    "test_anthropic_cache_count_tokens": (1, "a count of tokens asks no model"),
    "test_anthropic_compaction_end_to_end": (-1, "the server's compaction was billed too"),
    "test_anthropic_compaction_usage_with_cache.yaml": (-1, "the server's compaction"),
    "test_anthropic_compaction_usage_with_cache_streaming": (-1, "the server's compaction"),
    "anthropic_managed": (-2, "recorded clients were not counted"),
    "crux1-sample-telemetry": (-8, "telemetry was not counted"),
    "langsmith_js_wrap": (-1, "wrapped runs were not counted"),
    "langsmith_py_wrap": (-1, "wrapped runs were not counted"),
}


@pytest.mark.data
@pytest.mark.parametrize("name", FORMATS)
def test_each_file_gives_the_requests_of_an_independent_recount(
    name: str, shared_data: Path
) -> None:
    source, recount = FORMATS[name]
    checked = 0
    for path in sorted((shared_data / "traces" / name).rglob("*")):
        if not path.is_file() or (found := detect(read_head(path))) is None:
            continue
        assert found.name in source.split(), path
        result = compare(name, path, recount)
        checked += 1
        if path.name in SEVERAL_SESSIONS:
            assert len(result.sessions) == 1
            assert (result.ours, result.problems) == (result.recounted, ())
        else:
            assert not result.difference, f"{path}: {result.difference}"
    assert checked


@pytest.mark.data
def test_a_store_of_all_transcripts_counts_each_request_once(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "traces" / "claude-code"
    best: dict[str, Request] = {}
    for path in sorted(folder.rglob("*")):
        for request in agents.claude_code(path) if path.is_file() else ():
            known = best.get(request.key)
            if known is None or (request.output or 0) > (known.output or 0):
                best[request.key] = request
    report = ingest([folder], tmp_path / "s.duckdb")
    assert (report.steps, report.problems) == (len(best), [])
    assert report.duplicates > 0
    with Store.open(tmp_path / "s.duckdb") as opened:
        sums = opened.query("sessions", Scope.everything()).sum()
    for column, name in (("input", "input"), ("cache_read", "read"), ("cache_write", "write")):
        assert sums[column].item() == sum(getattr(r, name) or 0 for r in best.values()), column
    assert sums["output"].item() == sum(request.output or 0 for request in best.values())


@pytest.mark.data
def test_steps_are_those_of_the_index_but_for_what_is_explained(shared_data: Path) -> None:
    root = shared_data / "traces"
    with (root / "INDEX.tsv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    wrong = []
    for row in rows:
        path = root / row["path"]
        source = detect(read_head(path))
        if source is None:
            continue
        steps: Counter[bool] = Counter()
        for entry in source.read(path, Context()):
            if isinstance(entry, LaneSteps):
                steps[entry.parent is None] += len(entry.steps)
        more, _ = next((v for part, v in INDEX.items() if part in row["path"]), (0, ""))
        if int(row["steps"]) != steps.total() + more:
            wrong.append((row["path"], row["steps"], steps, more))
        # The index tells sub-agents apart for Claude Code only.
        if row["format"] == "claude-code" and int(row["subagent_steps"]) != steps[False]:
            wrong.append((row["path"], row["subagent_steps"], steps, "sub-agents"))
    assert not wrong


def test_the_recount_sees_a_step_that_a_source_would_lose_or_double(tmp_path: Path) -> None:
    t = Transcript()
    t.user("go")
    t.answer("a", 900, 128)
    t.answer("b", 1028, 10)
    path = t.write(tmp_path)
    whole = compare("claude-code", path, agents.claude_code)
    assert not whole.difference
    assert whole.ours == {(3, 900, 128, 128, 0, 50): 1, (3, 1028, 10, 10, 0, 50): 1}
    for rows in (t.rows[:3], [*t.rows, *json.loads(json.dumps(t.rows[-1:]).replace("-b", "-c"))]):
        other = tmp_path / "other.jsonl"
        other.write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = compare("claude-code", path, lambda _, at=other: agents.claude_code(at))
        assert result.difference


def test_the_table_adds_up_and_shows_each_format(tmp_path: Path) -> None:
    t = Transcript()
    t.answer("a", 900, 128)
    (tmp_path / "claude-code").mkdir()
    t.write(tmp_path / "claude-code")
    (tmp_path / "codex").mkdir()
    rollout = Rollout()
    rollout.turn("go")
    rollout.answer("a", 900, 128)
    rollout.write(tmp_path / "codex")
    results = list(compared(tmp_path))
    assert [result.difference for result in results] == ["", ""]
    lines = table(results).splitlines()
    assert [line.split()[0] for line in lines] == ["format", *FORMATS]
    assert lines[1].split()[1:] == ["1", "1", "1", "0", "1,081", "1,081", "0"]
