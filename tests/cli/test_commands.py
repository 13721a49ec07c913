from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
import zstandard

from analyzer.cli import main
from analyzer.views.frames import STEP_COLUMNS
from analyzer.views.table import Table
from analyzer.views.text import _fitting
from tests.builders import Transcript, anthropic_records, keep_newest, log_of, write_lines

STEP_FIELDS = [
    "lane",
    "step",
    "at",
    "model",
    "n_messages",
    "n_stubs",
    "last_stub_index",
    "prompt_tokens",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "cost_usd",
    "gap_s",
    "window_used",
    "shared_prefix_tokens",
    "divergence_index",
    "verdict",
    "wasted_usd",
]
FINDING_FIELDS = [
    "kind",
    "lane",
    "first_step",
    "last_step",
    "n_steps",
    "tokens",
    "wasted_usd",
    "evidence",
    "remedy",
]


class Analyzer:
    """The command line on a store of its own."""

    def __init__(self, db: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.db = db
        self.capsys = capsys
        self.stderr = ""

    def __call__(self, *args: str, code: int = 0) -> str:
        exit_code: object = 0
        try:
            main(["--db", str(self.db), *args])
        except SystemExit as done:
            exit_code = done.code
        captured = self.capsys.readouterr()
        self.stderr = captured.err
        assert exit_code == code, captured.err
        return captured.out

    def json(self, *args: str, code: int = 0):
        return json.loads(self(*args, "--format", "json", code=code))


@pytest.fixture
def analyzer(tmp_path, capsys) -> Analyzer:
    return Analyzer(tmp_path / "store.duckdb", capsys)


@pytest.fixture
def logs(tmp_path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    write_lines(folder / "healthy.jsonl", anthropic_records(16, seed=1))
    write_lines(folder / "churn.jsonl", anthropic_records(24, seed=2, shape=keep_newest(8)))
    return folder


@pytest.fixture
def loaded(analyzer, logs) -> Analyzer:
    analyzer("ingest", str(logs))
    return analyzer


def test_ingest_reports_what_it_read_and_repeats_nothing(analyzer, logs) -> None:
    first = analyzer.json("ingest", str(logs))
    assert {k: first[k] for k in ("files", "sessions", "steps", "duplicates", "problems")} == {
        "files": 2,
        "sessions": 2,
        "steps": 40,
        "duplicates": 0,
        "problems": [],
    }
    again = analyzer.json("ingest", str(logs))
    assert (again["steps"], again["duplicates"]) == (0, 40)
    assert len(analyzer.json("sessions")) == 2


def test_the_step_table_has_the_published_fields(loaded) -> None:
    rows = loaded.json("steps", "churn")
    assert len(rows) == 24
    assert set(STEP_FIELDS) <= set(rows[0])
    assert [r["step"] for r in rows] == list(range(24))
    assert [r["verdict"] for r in rows[8:11]] == ["healthy", "sliding-stubs", "sliding-stubs"]
    for row in rows:
        parts = (row["input_tokens"], row["cache_read_tokens"], row["cache_write_tokens"])
        assert sum(parts) == row["prompt_tokens"]
        assert row["cache_write_5m_tokens"] + row["cache_write_1h_tokens"] == parts[2]


def test_diagnose_has_the_published_fields_and_adds_up(loaded) -> None:
    found = loaded.json("diagnose", "--all")
    assert set(found) == {"sessions", "totals", "provider_reasons"}
    churn = next(s for s in found["sessions"] if log_of(s["session_id"]) == "churn")
    assert set(FINDING_FIELDS) <= set(churn["findings"][0])
    assert churn["wasted_usd"] == pytest.approx(sum(f["wasted_usd"] for f in churn["findings"]))
    steps = loaded.json("steps", "churn")
    assert churn["cost_usd"] == pytest.approx(sum(s["cost_usd"] for s in steps))
    assert churn["wasted_usd"] == pytest.approx(sum(s["wasted_usd"] or 0 for s in steps))
    assert found["totals"]["cost_usd"] == pytest.approx(
        sum(s["cost_usd"] for s in found["sessions"])
    )


def test_the_text_answer_names_cause_range_dollars_and_remedy(loaded) -> None:
    text = loaded("diagnose", "churn")
    for piece in ("sliding-stubs", "9 to 23", "% of the bill", "Decide once", "[Old tool result"):
        assert piece in text


def test_sessions_overview_shows_cost_waste_and_top_cause(loaded) -> None:
    rows = {log_of(r["session_id"]): r for r in loaded.json("sessions")}
    assert rows["churn"]["top_cause"] == "sliding-stubs"
    assert rows["healthy"]["top_cause"] is None
    assert rows["healthy"]["wasted_usd"] == 0
    assert rows["churn"]["cost_usd"] > rows["churn"]["wasted_usd"] > 0


def test_show_and_diff_point_at_the_message_that_changed(loaded) -> None:
    parts = loaded.json("show", "churn", "9")
    changed = [p for p in parts if p["change"] == "stub"]
    assert [p["message"] for p in changed] == [2]
    found = loaded.json("diff", "churn", "9")
    assert [d["change"] for d in found] == ["replaced", "added", "added", "added"]
    assert found[0]["message"] == 2
    assert found[0]["now"].startswith("[Old tool result")
    assert loaded.json("diff", "churn", "8", "9") == found


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--fail-on", "sliding-stubs"), 3),
        (("--fail-on", "sliding-stubs:1000"), 0),
        (("--fail-on", "tools-changed"), 0),
        (("--fail-on", "nonsense"), 2),
        (("--fail-on", "sliding-stubs:much"), 2),
        (("--fail-on", "sliding-stubs:nan"), 2),
        (("--max-waste", "5"), 3),
        (("--max-waste", "95"), 0),
    ],
)
def test_gates_have_exit_codes_of_their_own(loaded, args, code) -> None:
    loaded("diagnose", "--all", *args, code=code)


@pytest.fixture
def unpriced(analyzer, tmp_path) -> Analyzer:
    records = anthropic_records(24, shape=keep_newest(8))
    for record in records:
        record["request"]["model"] = record["response"]["model"] = "claude-nobody-1"
    analyzer("ingest", str(write_lines(tmp_path / "churn.jsonl", records)))
    return analyzer


def test_a_break_without_a_price_is_told_and_not_taken_for_free(unpriced) -> None:
    found = unpriced.json("diagnose", "--all")
    assert found["totals"]["wasted_usd"] is None
    assert found["totals"]["wasted_by_kind"] == {"sliding-stubs": None}
    text = unpriced("diagnose", "churn")
    assert "– lost in 15 breaks" in text
    assert "no cache counts" not in text


@pytest.mark.parametrize("gate", [("--fail-on", "sliding-stubs"), ("--max-waste", "50")])
def test_a_gate_does_not_pass_on_waste_without_a_price(unpriced, gate) -> None:
    unpriced("diagnose", "--all", *gate, code=3)
    assert "--prices" in unpriced.stderr


def test_replay_compares_policies_with_the_recorded_bill(loaded) -> None:
    found = loaded.json("replay", "churn", "--policy", "raw", "--policy", "sliding-stubs:keep=8")
    recorded = found["recorded"]
    raw, same = found["policies"]
    assert (raw["policy"], raw["spec"], same["spec"]) == ("raw", "raw", "sliding-stubs:keep=8")
    assert raw["cost_usd"] < recorded["cost_usd"]
    assert raw["breaks"] == 0
    assert raw["saving"] > raw["band"]
    assert same["cost_usd"] == pytest.approx(recorded["cost_usd"], rel=0.02)
    assert same["verdict"] == "no difference shown"
    for row in (recorded, raw, same):
        tokens = (row["cache_read_tokens"], row["cache_write_tokens"], row["input_tokens"])
        assert sum(tokens) == row["prompt_tokens"]
    assert raw["red_lines"] == 0
    assert raw["loss"] == {"visible": None, "recoverable": None, "silent": None}


def test_backtest_prints_blind_and_carried_errors(loaded) -> None:
    found = loaded.json("backtest", "--all")
    assert (found["sessions"], found["steps"]) == (2, 40)
    assert found["cost_error"]["p95"] < 0.02
    assert found["carried"]["cost_error"]["p95"] < 0.02
    assert found["verdict_agreement"] == 1
    assert {log_of(s["session_id"]) for s in found["per_session"]} == {"churn", "healthy"}


def test_unknown_names_say_what_there_is_and_exit_with_2(loaded) -> None:
    loaded("steps", "nothing-like-it", code=2)
    assert "churn" in loaded.stderr
    loaded("replay", "churn", "--policy", "watermark", code=2)
    assert "watermarks" in loaded.stderr
    loaded("replay", "churn", "--policy", "watermarks:tail=3", code=2)
    assert "protect_tokens" in loaded.stderr
    loaded("steps", "churn", "--lane", "side", code=2)
    assert "main" in loaded.stderr
    loaded("show", "churn", "99", code=2)
    assert "23" in loaded.stderr
    loaded("diagnose", code=2)
    assert "--all" in loaded.stderr


def test_without_a_store_the_message_says_how_to_make_one(analyzer) -> None:
    for command in (("sessions",), ("steps", "x"), ("diagnose", "--all")):
        analyzer(*command, code=1)
        assert "analyzer ingest" in analyzer.stderr


def test_a_session_is_found_by_the_beginning_of_its_id(loaded) -> None:
    assert len(loaded.json("steps", "chu")) == 24


def test_csv_and_markdown_hold_the_same_rows(loaded) -> None:
    rows = list(csv.DictReader(io.StringIO(loaded("steps", "churn", "--format", "csv"))))
    assert [r["verdict"] for r in rows] == [r["verdict"] for r in loaded.json("steps", "churn")]
    assert rows[0]["shared_prefix_tokens"] == ""
    lines = loaded("steps", "churn", "--format", "md").splitlines()
    assert len(lines) == 26


def test_a_project_sees_only_its_own_sessions(analyzer, logs) -> None:
    analyzer("ingest", str(logs / "healthy.jsonl"), "--as-project", "a")
    analyzer("ingest", str(logs / "churn.jsonl"), "--as-project", "b")
    (seen,) = analyzer.json("--project", "a", "sessions")
    assert log_of(seen["session_id"]) == "healthy"
    analyzer("--project", "a", "steps", "churn", code=2)


def test_hostile_names_never_reach_the_terminal_as_control_codes(analyzer, tmp_path) -> None:
    records = [
        {**r, "session_id": "evil\x1b[2Jsession[bold]red"} for r in anthropic_records(3, seed=5)
    ]
    path = write_lines(tmp_path / "x.jsonl", records)
    analyzer("ingest", str(path))
    for command in (("sessions",), ("diagnose", "--all"), ("sessions", "--format", "md")):
        out = analyzer(*command)
        assert "\x1b" not in out
        assert "red" in out


def test_problems_are_counted_and_the_rest_is_read(analyzer, tmp_path) -> None:
    t = Transcript()
    t.user("go")
    t.answer("a", 0, 20_000)
    path = t.write(tmp_path)
    path.write_text(path.read_text() + "not json\n")
    found = analyzer.json("ingest", str(path))
    assert found["steps"] == 1
    assert [(p["line"], p["pointer"]) for p in found["problems"]] == [(4, "$")]
    assert "not json" not in analyzer.stderr or "expected JSON" in analyzer.stderr
    analyzer("ingest", str(path), "--strict", "--as-project", "strict", code=1)


def test_simulate_policies_sources_and_prices_print_tables(analyzer, tmp_path) -> None:
    example = [
        {
            "name": "one",
            "provider": "anthropic",
            "model": "claude-sonnet-4-6",
            "rule": "anthropic",
            "steps": [
                {
                    "at_s": at,
                    "blocks": [{"id": "s", "tokens": 2_000, "section": "system", "kind": "text"}],
                    "breakpoints": [{"block": "s", "ttl": "5m"}],
                }
                for at in (0, 60)
            ],
        }
    ]
    path = tmp_path / "examples.json"
    path.write_text(json.dumps(example))
    steps = analyzer.json("simulate", str(path))[0]["steps"]
    assert [(s["cache_read"], s["cache_write"], s["input"]) for s in steps] == [
        (0, 2_000, 0),
        (2_000, 0, 0),
    ]
    names = {p["name"] for p in analyzer.json("policies")}
    assert {"recorded", "raw", "sliding-stubs", "watermarks"} <= names
    assert {"steps", "claude-code", "langfuse", "anthropic-log"} <= {
        s["name"] for s in analyzer.json("sources")
    }
    prices = analyzer.json("prices", "claude-sonnet-4-6")
    assert prices[0]["input"] == 3


def test_an_own_price_file_overrides_the_built_in_prices(loaded, tmp_path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        '[[price]]\nmodel = "claude-sonnet-4-6"\ninput = 30\noutput = 150\nread = 3\n'
        'write_5m = 37.5\nwrite_1h = 60\nsource = "a contract"\n'
    )
    usual = loaded.json("diagnose", "churn")["totals"]["cost_usd"]
    dear = loaded.json("--prices", str(path), "diagnose", "churn")["totals"]["cost_usd"]
    assert dear == pytest.approx(10 * usual)


def test_the_demo_tells_the_story_of_the_blow_up(analyzer) -> None:
    text = analyzer("demo", "--no-dashboard")
    for piece in ("blowup-177", "sliding-stubs", "$77.3", "watermarks", "7 to 176"):
        assert piece in text


def test_a_file_of_which_nothing_could_be_read_fails(analyzer, tmp_path) -> None:
    path = tmp_path / "odd.bin"
    path.write_bytes(b"\x00\x01 nothing of ours")
    analyzer("ingest", str(path), code=1)
    assert "nothing could be read" in analyzer.stderr


def test_files_that_no_source_knows_are_told_once_a_kind(analyzer, logs, tmp_path) -> None:
    for n in range(3):
        (logs / f"note{n}.txt").write_text(f"hello \x1b[31m {n}")
    (logs / "photo").write_bytes(b"\xff\xd8\xff\xe0")
    (logs / "packed").write_bytes(gzip.compress((logs / "healthy.jsonl").read_bytes() + b"\n"))
    squeezed = zstandard.compress((logs / "churn.jsonl").read_bytes() + b"\n")
    (logs / "squeezed.bin").write_bytes(squeezed)
    found = analyzer.json("ingest", str(logs))
    assert (found["files"], found["steps"], found["duplicates"]) == (4, 40, 40)
    assert [(k["suffix"], k["files"]) for k in found["skipped"]] == [(".txt", 3), ("", 1)]
    told = [line for line in analyzer.stderr.splitlines() if "not recognised" in line]
    assert len(told) == 2
    assert "3 files (.txt, beginning with 'hell')" in told[0]
    assert "note0.txt" in told[0]

    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "note.txt").write_text("hello")
    analyzer("ingest", str(alone), code=1)
    assert "no source recognises any file" in analyzer.stderr


def test_strict_remembers_what_could_not_be_read(analyzer, tmp_path) -> None:
    path = write_lines(tmp_path / "run.jsonl", anthropic_records(3))
    path.write_text(path.read_text() + "not json\n")
    analyzer("ingest", str(path))
    again = analyzer.json("ingest", str(path))
    assert (again["problems"], again["known_problems"]) == ([], 1)
    analyzer("ingest", str(path), "--strict", code=1)


def test_validation_refuses_a_time_that_the_reader_would_refuse(analyzer, tmp_path) -> None:
    row = {
        "v": 1,
        "session": "s",
        "at": "yesterday",
        "model": "claude-x",
        "request": {"messages": [{"role": "user", "content": "hi"}]},
    }
    path = write_lines(tmp_path / "s.jsonl", [row])
    out = analyzer("validate", str(path), code=1)
    assert "$.at" in out
    assert "ISO 8601" in out
    write_lines(path, [{**row, "at": "2026-01-01T00:00:00Z"}])
    assert "valid" in analyzer("validate", str(path))


def test_a_lane_has_a_bill_of_its_own(analyzer, tmp_path) -> None:
    records = [
        {**r, "session_id": "s", "lane": lane}
        for lane, n in (("main", 6), ("side", 4))
        for r in anthropic_records(n, seed=n)
    ]
    analyzer("ingest", str(write_lines(tmp_path / "run.jsonl", records)))
    cost = sum(r["cost_usd"] for r in analyzer.json("steps", "s", "--lane", "side"))
    title = analyzer("steps", "s", "--lane", "side").splitlines()[0]
    assert title.startswith(
        f"4 steps cost ${cost:.2f}" if cost >= 0.1 else f"4 steps cost ${cost:.4f}"
    )


def test_a_narrow_terminal_keeps_the_columns_that_matter() -> None:
    row = {c.key: 1_000_000 for c in STEP_COLUMNS} | {"verdict": "sliding-stubs", "lane": "main"}
    table = Table("t", STEP_COLUMNS, [row])
    shown, hidden = _fitting(table, 80)
    assert {"step", "verdict", "wasted_usd", "cost_usd"} <= {c.key for c in shown}
    assert hidden
    assert _fitting(table, 400)[1] == []


def test_diff_says_what_changed_beside_the_messages(analyzer, tmp_path) -> None:
    records = anthropic_records(4)
    records[3]["response"]["model"] = "claude-opus-4-8"
    records[3]["request"]["tool_choice"] = {"type": "any"}
    analyzer("ingest", str(write_lines(tmp_path / "run.jsonl", records)))
    text = analyzer("diff", "run", "3")
    assert "the model changed from claude-sonnet-4-6 to claude-opus-4-8" in text
    assert "request parameters changed: tool_choice" in text
    assert "model changed" not in analyzer("diff", "run", "2")


@pytest.mark.parametrize(
    ("gate", "code"), [("accounting", 3), ("accounting:0.000001", 3), ("accounting:1", 0)]
)
def test_a_gate_on_accounting_fails_on_figures_that_contradict(
    analyzer, tmp_path, gate, code
) -> None:
    rows = [
        {
            "session": "s",
            "id": f"r{i}",
            "at": f"2026-06-01T09:0{i}:00Z",
            "model": "claude-opus-4-8",
            "request": {"messages": [{"role": "user", "content": "Go."}]},
            "response": "Ho",
            "usage": {
                "input_tokens": 10,
                "cache_read_tokens": 9_000,
                "cache_write_tokens": 1_000,
                "cache_write_1h_tokens": 1_000,
                "output_tokens": 50,
            },
            "cost_usd": (10 * 5 + 9_000 * 0.5 + 1_000 * 6.25 + 50 * 25) / 1e6,
        }
        for i in range(2)
    ]
    analyzer("ingest", str(write_lines(tmp_path / "run.jsonl", rows)))
    found = analyzer.json("diagnose", "--all")
    (finding,) = found["sessions"][0]["findings"]
    assert (finding["kind"], finding["wasted_usd"], finding["tokens"]) == ("accounting", 0, 2_000)
    assert finding["evidence"]["contradiction"] == "hour_writes_as_short"
    assert found["totals"]["wasted_usd"] == found["totals"]["avoidable_usd"] == 0
    assert found["totals"]["wasted_by_kind"] == {}
    assert analyzer.json("sessions")[0]["top_cause"] is None
    analyzer("diagnose", "--all", "--fail-on", gate, code=code)
