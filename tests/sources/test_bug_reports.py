"""What tools of this kind were reported to get wrong, from files to the sums of a store.

The reports are numbered as in the table of bug reports that the project was given; those that a
test of one source covers are there.
"""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from analyzer.intake import ingest
from analyzer.pricing import PriceBook
from analyzer.sources.claude_code import ClaudeCodeSource
from analyzer.sources.codex import CodexSource
from analyzer.sources.openai_usage import openai_usage
from analyzer.store import Scope, Store
from tests.builders import Transcript, write_lines
from tests.reading import batches, lanes
from tests.sources.test_codex import Rollout
from tests.sources.test_opencode import Export
from tests.sources.test_pi import Session, filled

FIRST = "11111111-2222-4333-8444-555555555555"
SECOND = "99999999-2222-4333-8444-555555555555"
COUNTS = ("input", "cache_read", "cache_write", "output")


def stored(paths: list[Path], store: Path) -> dict[str, tuple[int, ...]]:
    """Session -> (steps, input, read, written, output), after one run a file."""
    for path in paths:
        assert ingest([path], store).problems == []
    with Store.open(store) as opened:
        frame = opened.query("sessions", Scope.everything())
        rows = frame.select("session_id", "n_steps", *COUNTS).rows()
    return {row[0]: tuple(value or 0 for value in row[1:]) for row in rows}


def in_every_order(paths: list[Path], folder: Path) -> dict[str, tuple[int, ...]]:
    """What a store holds in whatever order the files come; it has to be the same in all."""
    found = [
        stored(list(order), folder / str(i) / "s.duckdb")
        for i, order in enumerate(permutations(paths))
    ]
    assert all(one == found[0] for one in found)
    return found[0]


def conversation(session: str, **fields: Any) -> Transcript:
    t = Transcript(session)
    t.user("go", **fields)
    t.answer("a", 0, 20_000, **fields)
    t.result("call-a", "x", **fields)
    t.answer("b", 20_000, 100, **fields)
    return t


def test_1_without_request_ids_each_response_counts_once(tmp_path: Path) -> None:
    t = conversation(FIRST, requestId=None)
    assert in_every_order([t.write(tmp_path)], tmp_path) == {FIRST: (2, 6, 20_000, 20_100, 100)}


def test_4_ids_that_a_gateway_reuses_in_another_session_are_other_calls(tmp_path: Path) -> None:
    one, two = conversation(FIRST, requestId=None), Transcript(SECOND)
    two.user("another question", wait=900)
    two.answer("a", 7, 30_000, requestId=None)
    found = in_every_order([one.write(tmp_path), two.write(tmp_path)], tmp_path)
    assert found == {FIRST: (2, 6, 20_000, 20_100, 100), SECOND: (1, 3, 7, 30_000, 50)}


def test_6_of_a_response_that_fell_back_in_its_midst_one_whole_row_counts(tmp_path: Path) -> None:
    t = Transcript()
    t.user("go")
    t.answer("a", 5, 20_000, output=90)
    first, last = t.rows[-2:]
    first["message"] |= {"model": "claude-opus-4-8"}
    first["message"]["usage"] |= {"cache_read_input_tokens": 99_999, "output_tokens": 2}
    last["message"] |= {"model": "claude-sonnet-4-6"}
    (step,) = lanes(ClaudeCodeSource(), t.write(tmp_path))["main"].steps
    assert step.usage is not None
    assert step.model == "claude-sonnet-4-6"
    assert (step.usage.cache_read, step.usage.output) == (5, 90)


@pytest.mark.parametrize("renamed", [True, False])
def test_7_history_that_was_copied_into_other_files_counts_once(
    tmp_path: Path, renamed: bool
) -> None:
    one = conversation(FIRST)
    rest = Transcript(SECOND)
    rest.at, rest.count, rest.parent = one.at, one.count, one.parent
    rest.user("and now", wait=60)
    rest.answer("c", 20_100, 50)
    copied = [dict(row, sessionId=SECOND) if renamed else row for row in one.rows]
    both = write_lines(tmp_path / f"{SECOND}.jsonl", copied + rest.rows)
    found = in_every_order([one.write(tmp_path), both], tmp_path)
    assert found == {FIRST: (2, 6, 20_000, 20_100, 100), SECOND: (1, 3, 20_100, 50, 50)}


@pytest.mark.parametrize("missing", ["total_tokens", "reasoning_output_tokens"])
def test_9_a_total_without_one_field_is_still_compared(tmp_path: Path, missing: str) -> None:
    rollout = Rollout()
    rollout.turn("go")
    rollout.answer("a", 900, 128)
    rollout.again()
    rollout.answer("b", 1_000, 896)
    for row in rollout.rows:
        info = row["payload"].get("info")
        if info:
            info["total_token_usage"].pop(missing, None)
    steps = lanes(CodexSource(), rollout.write(tmp_path))["main"].steps
    assert [s.usage.prompt for s in steps if s.usage] == [900, 1_000]


def test_9_totals_that_say_nothing_are_not_equal(tmp_path: Path) -> None:
    rollout = Rollout()
    rollout.turn("go")
    rollout.answer("a", 900, 128)
    rollout.answer("b", 1_000, 896)
    for row in rollout.rows:
        info = row["payload"].get("info")
        if info:
            info["total_token_usage"] = {}
    steps = lanes(CodexSource(), rollout.write(tmp_path))["main"].steps
    assert [s.usage.prompt for s in steps if s.usage] == [900, 1_000]


def test_11_a_fork_of_opencode_with_new_ids_counts_only_what_is_new(tmp_path: Path) -> None:
    one = Export("ses_one")
    one.user("go")
    one.answer("a", 900, 0)
    one.answer("b", 1_000, 896)
    fork = Export("ses_fork")
    fork.messages = copy.deepcopy(one.messages)
    for i, message in enumerate(fork.messages):
        message["info"] |= {"id": f"msg_new_{i}", "sessionID": "ses_fork"}
    fork.at = one.at + 60_000
    fork.answer("c", 600, 1_792)
    found = in_every_order([one.write(tmp_path), fork.write(tmp_path)], tmp_path)
    assert {name: row[0] for name, row in found.items()} == {"ses_one": 2, "ses_fork": 1}


@pytest.mark.parametrize("key", ["branchedFrom", "parentSession"])
def test_12_a_branch_of_pi_counts_only_what_is_new(tmp_path: Path, key: str) -> None:
    one = filled(Session())
    branch = Session(SECOND, **{key: f"/home/x/2026-06-01T09-00-00_{FIRST}.jsonl"})
    branch.rows += copy.deepcopy(one.rows[1:])
    branch.at = one.at.replace(hour=11)
    branch.rows[0]["timestamp"] = branch.at.isoformat()
    branch.answer("c", 20_500, 300)
    found = in_every_order([one.write(tmp_path), branch.write(tmp_path)], tmp_path)
    assert found == {FIRST: (2, 6, 20_000, 20_500, 100), SECOND: (1, 3, 20_500, 300, 50)}


def test_14_reasoning_and_writes_are_parts_and_not_additions() -> None:
    usage = openai_usage(
        {
            "input_tokens": 1_000,
            "output_tokens": 300,
            "total_tokens": 1_300,
            "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 300},
            "output_tokens_details": {"reasoning_tokens": 250},
        }
    )
    assert (usage.input, usage.cache_read, usage.cache_write) == (100, 600, 300)
    assert (usage.output, usage.reasoning) == (300, 250)


def test_17_output_is_what_was_generated_and_never_the_rest_of_a_total() -> None:
    usage = openai_usage({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 99})
    assert (usage.input, usage.output) == (10, 5)


def test_19_writes_of_an_hour_cost_twice_the_input(tmp_path: Path) -> None:
    t = Transcript()
    t.answer("a", 0, 1_000_000, output=0)
    for row in t.rows:
        row["message"]["usage"] |= {
            "input_tokens": 0,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 400_000,
                "ephemeral_1h_input_tokens": 600_000,
            },
        }
    (step,) = lanes(ClaudeCodeSource(), t.write(tmp_path))["main"].steps
    assert step.usage is not None
    cost = PriceBook.default().cost(step.usage, step.model, step.at)
    # claude-sonnet-4-6: 3 USD a million of input, so 3.75 and 6 for writes of the two lifetimes.
    assert cost is not None
    assert cost.write == Decimal("0.4") * Decimal("3.75") + Decimal("0.6") * 6


def test_21_a_model_of_another_vendor_has_its_own_price_and_provider(tmp_path: Path) -> None:
    t = Transcript()
    t.answer("a", 0, 0)
    for row in t.rows:
        row["message"]["model"] = "deepseek-chat"
    (step,) = lanes(ClaudeCodeSource(), t.write(tmp_path))["main"].steps
    assert (step.model, step.provider) == ("deepseek-chat", "deepseek")


@pytest.mark.parametrize("written", ["2026-06-01T00:30:00+02:00", "2026-05-31T22:30:00Z"])
def test_22_times_are_kept_in_utc_whatever_zone_they_name(tmp_path: Path, written: str) -> None:
    t = conversation(FIRST)
    for row in t.rows:
        row["timestamp"] = written
    steps = lanes(ClaudeCodeSource(), t.write(tmp_path))["main"].steps
    assert {step.at for step in steps} == {datetime(2026, 5, 31, 22, 30, tzinfo=UTC)}


def test_23_one_bad_line_costs_itself_alone_and_is_named(tmp_path: Path) -> None:
    t = conversation(FIRST)
    lines = [json.dumps(row) for row in t.rows]
    lines[2] = lines[2][:-40]
    lines[-2] = lines[-2] + lines[-1]
    path = tmp_path / f"{FIRST}.jsonl"
    path.write_text("\n".join(lines[:-1]) + "\n")
    found, problems = batches(ClaudeCodeSource(), path)
    assert [len(batch.steps) for batch in found] == [2]
    assert [problem.line for problem in problems] == [3]


def test_24_a_sub_agent_counts_once_in_its_file_and_in_its_parents_progress(
    tmp_path: Path,
) -> None:
    main = conversation(FIRST)
    agent = conversation(FIRST, isSidechain=True, agentId="abc")
    for row in agent.rows:
        if row["type"] == "assistant":
            row["requestId"] = row["message"]["id"] = f"sub-{row['message']['id']}"
        data = {"type": "agent_progress", "agentId": "abc", "message": row}
        main.row("progress", data=data)
    folder = tmp_path / FIRST / "subagents"
    folder.mkdir(parents=True)
    paths = [main.write(tmp_path), agent.write(folder, "agent-abc")]
    assert in_every_order(paths, tmp_path) == {FIRST: (4, 12, 40_000, 40_200, 200)}
    with Store.open(tmp_path / "0" / "s.duckdb") as opened:
        (key,) = opened.stale_sessions("")
        loaded = {lane.name: lane for lane in opened.load_session(key).lanes}
    assert {name: (lane.parent, len(lane.steps)) for name, lane in loaded.items()} == {
        "main": (None, 2),
        "abc": ("main", 2),
    }


def test_25_rows_whose_parent_is_unknown_follow_in_the_order_of_the_file(tmp_path: Path) -> None:
    t = conversation(FIRST)
    t.parent = "a row that a compaction took away"
    t.user("go on")
    t.answer("c", 20_100, 10)
    lane = lanes(ClaudeCodeSource(), t.write(tmp_path))["main"]
    assert len(lane.parts(lane.steps[-1].prompt)) == 7  # type: ignore[arg-type]


def test_28_each_write_has_the_lifetime_that_it_tells(tmp_path: Path) -> None:
    t = conversation(FIRST)
    for row in t.rows[-2:]:
        row["message"]["usage"]["cache_creation"] = {
            "ephemeral_5m_input_tokens": 0,
            "ephemeral_1h_input_tokens": 100,
        }
    steps = lanes(ClaudeCodeSource(), t.write(tmp_path))["main"].steps
    splits = [(s.usage.cache_write_5m, s.usage.cache_write_1h) for s in steps if s.usage]
    assert splits == [(20_000, 0), (0, 100)]


def test_32_a_file_of_unknown_form_is_named_and_never_silently_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"kind":"a newer client"}\n')
    report = ingest([path], tmp_path / "s.duckdb")
    assert report.steps == 0
    assert "no source recognises this file" in report.problems[0].message
