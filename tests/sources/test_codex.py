from __future__ import annotations

import copy
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzer.intake import ingest
from analyzer.sources import SOURCES
from analyzer.sources.base import read_head
from analyzer.sources.codex import CodexSource
from analyzer.store import Scope, Store
from tests.builders import write_lines
from tests.reading import batches, lanes
from tests.sources.recordings import real, rows, totals

SOURCE = CodexSource()
BEGUN = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)


def uuid7(at: datetime, tail: str = "a" * 12) -> str:
    """An id that tells when it was made."""
    millis = f"{int(at.timestamp() * 1000):012x}"
    return f"{millis[:8]}-{millis[8:]}-7abc-8abc-{tail}"


class Rollout:
    """Writes the rows of one thread."""

    def __init__(self, at: datetime = BEGUN, tail: str = "a" * 12, **meta: Any) -> None:
        self.at = at
        self.id = uuid7(at, tail)
        self.total = Counter[str]()
        self.rows: list[dict[str, Any]] = []
        self.turns = 0
        self.row(
            "session_meta",
            id=self.id,
            timestamp=at.isoformat(),
            base_instructions={"text": "You are an agent."},
            cli_version="0.142.0",
            model_provider="openai",
            **meta,
        )

    def row(self, kind: str, **payload: Any) -> None:
        self.at += timedelta(milliseconds=200)
        self.rows.append({"timestamp": self.at.isoformat(), "type": kind, "payload": payload})

    def turn(self, text: str, model: str = "gpt-5.5") -> None:
        self.at += timedelta(seconds=5)
        turn = uuid7(self.at, f"{self.turns:012d}")
        self.turns += 1
        self.row("event_msg", type="task_started", turn_id=turn)
        self.row("turn_context", turn_id=turn, model=model)
        self.row("response_item", type="message", role="user", content=_text("input", text))
        self.row("event_msg", type="user_message", message=text)

    def answer(
        self, name: str, sent: int, cached: int, output: int = 50, reasoning: int = 20
    ) -> None:
        self.at += timedelta(seconds=3)
        self.row("response_item", type="reasoning", summary=[], encrypted_content=f"secret {name}")
        call = f"call-{name}"
        self.row("response_item", type="function_call", name="shell", arguments="{}", call_id=call)
        self.count(sent, cached, output, reasoning)
        self.row("response_item", type="function_call_output", call_id=call, output=f"did {name}")

    def count(self, sent: int, cached: int, output: int, reasoning: int) -> None:
        last = {
            "input_tokens": sent,
            "cached_input_tokens": cached,
            "output_tokens": output,
            "reasoning_output_tokens": reasoning,
            "total_tokens": sent + output,
        }
        self.total.update(last)
        info = {"total_token_usage": dict(self.total), "last_token_usage": last}
        self.row("event_msg", type="token_count", info=info, rate_limits=None)

    def again(self) -> None:
        """The newest count, shown once more."""
        counts = [r for r in self.rows if r["payload"].get("type") == "token_count"]
        self.row("event_msg", **counts[-1]["payload"])

    def fork(self, **meta: Any) -> Rollout:
        """A thread that begins with a copy of this one, all rows stamped anew."""
        child = Rollout(self.at + timedelta(seconds=60), "b" * 12, **meta)
        for old in self.rows:
            stamp = (child.at + timedelta(milliseconds=10)).isoformat()
            child.rows.append({**copy.deepcopy(old), "timestamp": stamp})
        child.total = Counter(self.total)
        child.turns = 100
        return child

    def write(self, folder: Path) -> Path:
        return write_lines(folder / f"rollout-2026-06-01T09-00-00-{self.id}.jsonl", self.rows)


def _text(way: str, text: str) -> list[dict[str, str]]:
    return [{"type": f"{way}_text", "text": text}]


@pytest.fixture
def short() -> Rollout:
    t = Rollout()
    t.turn("please fix the bug")
    t.answer("a", 20_000, 3_456)
    t.answer("b", 20_500, 19_968)
    return t


def test_cached_tokens_are_part_of_the_input_and_reasoning_of_the_output(short, tmp_path) -> None:
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    usages = [s.usage for s in lane.steps]
    assert [(u.input, u.cache_read, u.cache_write, u.output, u.reasoning) for u in usages] == [
        (16_544, 3_456, None, 50, 20),
        (532, 19_968, None, 50, 20),
    ]
    assert usages[0].prompt == 20_000
    assert lane.session.session_id == short.id


def test_tokens_written_to_the_cache_are_part_of_the_input_too(short, tmp_path) -> None:
    for row in short.rows:
        info = row["payload"].get("info")
        if info:
            info["last_token_usage"]["cache_write_input_tokens"] = 500
    usage = lanes(SOURCE, short.write(tmp_path))["main"].steps[1].usage
    assert (usage.input, usage.cache_write, usage.prompt) == (32, 500, 20_500)


def test_only_a_changed_total_is_a_request(short, tmp_path) -> None:
    short.again()
    short.row("event_msg", type="token_count", info=None)
    short.again()
    short.turn("go on")
    short.answer("c", 21_000, 20_480)
    assert len(lanes(SOURCE, short.write(tmp_path))["main"].steps) == 3


def test_a_total_that_changed_in_any_field_is_a_request(short, tmp_path) -> None:
    short.row("response_item", type="message", role="assistant", content=_text("output", "done"))
    short.again()
    info = copy.deepcopy(short.rows[-1]["payload"]["info"])
    info["total_token_usage"]["cached_input_tokens"] += 1
    short.rows[-1]["payload"]["info"] = info
    assert len(lanes(SOURCE, short.write(tmp_path))["main"].steps) == 3


def test_a_count_without_a_total_is_counted_since_nothing_can_be_compared(short, tmp_path) -> None:
    for row in short.rows:
        info = row["payload"].get("info")
        if info:
            del info["total_token_usage"]
    steps = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert len({s.key for s in steps}) == 2


def test_a_count_without_its_last_usage_is_the_difference_of_totals(short, tmp_path) -> None:
    for row in short.rows:
        info = row["payload"].get("info")
        if info:
            del info["last_token_usage"]
    steps = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert [(s.usage.input, s.usage.cache_read) for s in steps] == [(16_544, 3_456), (532, 19_968)]


def test_the_prompt_is_what_stands_before_the_response_system_first(short, tmp_path) -> None:
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    first, second = (lane.parts(s.prompt) for s in lane.steps)
    assert [(p.section, p.kind) for p in first] == [("system", "text"), ("messages", "text")]
    assert [p.kind for p in second[2:]] == ["thinking", "tool_use", "tool_result"]
    assert (second[4].tool, second[4].call_id) == ("shell", "call-a")
    response = lane.steps[0].response
    assert [p.kind for r in response for p in lane.pool[r.start : r.stop]] == [
        "thinking",
        "tool_use",
    ]
    assert [s.human for s in lane.steps] == [True, False]


def test_the_model_is_that_of_the_turn(short, tmp_path) -> None:
    short.turn("go on", model="gpt-5.4")
    short.answer("c", 21_000, 0)
    steps = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert [s.model for s in steps] == ["gpt-5.5", "gpt-5.5", "gpt-5.4"]
    assert {s.provider for s in steps} == {"openai"}


def test_a_compaction_replaces_the_history_by_what_it_recorded(short, tmp_path) -> None:
    kept = {"type": "message", "role": "user", "content": _text("input", "please fix the bug")}
    short.row(
        "compacted",
        message="",
        replacement_history=[kept, {"type": "compaction", "encrypted_content": "secret"}],
    )
    short.again()
    short.answer("c", 9_000, 3_456)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    step = lane.steps[2]
    assert [(p.section, p.kind) for p in lane.parts(step.prompt)] == [
        ("system", "text"),
        ("messages", "text"),
        ("messages", "summary"),
    ]
    assert step.compaction is not None
    assert step.compaction.kind == "summary"


def test_what_an_aborted_turn_said_is_history_and_no_step(short, tmp_path) -> None:
    short.row("response_item", type="message", role="assistant", content=_text("output", "I was"))
    short.row("event_msg", type="turn_aborted", reason="interrupted")
    short.turn("stop, do this")
    short.answer("c", 21_000, 20_480)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    bodies = [p.body for p in lane.parts(lane.steps[2].prompt)]
    assert len(lane.steps) == 3
    assert bodies[-2:] == ["I was", "stop, do this"]


def test_results_recorded_before_the_count_follow_the_response(short, tmp_path) -> None:
    counted = next(i for i, r in enumerate(short.rows) if r["payload"].get("info"))
    rows = short.rows
    rows[counted], rows[counted + 1] = rows[counted + 1], rows[counted]
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    kinds = [p.kind for p in lane.parts(lane.steps[1].prompt)]
    assert kinds == ["text", "text", "thinking", "tool_use", "tool_result"]
    response = lane.steps[0].response
    assert sum(r.stop - r.start for r in response) == 2


def test_a_sub_agent_is_a_lane_of_its_parents_session(short, tmp_path) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": short.id, "depth": 1}}}
    child = Rollout(BEGUN + timedelta(seconds=9), "c" * 12, source=spawn, session_id=short.id)
    child.turn("look around")
    child.answer("s", 9_000, 0)
    found = lanes(SOURCE, child.write(tmp_path))
    assert list(found) == [child.id]
    lane = found[child.id]
    assert (lane.session.session_id, lane.parent) == (short.id, "main")
    assert lane.steps[0].human is False
    assert lane.steps[0].key.startswith(child.id)


def test_a_nested_sub_agent_stays_in_the_session_of_the_root(short, tmp_path) -> None:
    middle = uuid7(BEGUN + timedelta(seconds=5))
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": middle, "depth": 2}}}
    child = Rollout(BEGUN + timedelta(seconds=9), "c" * 12, source=spawn, session_id=short.id)
    child.turn("look closer")
    child.answer("s", 9_000, 0)
    lane = lanes(SOURCE, child.write(tmp_path))[child.id]
    assert (lane.session.session_id, lane.parent) == (short.id, middle)


def test_a_fork_repeats_the_keys_of_what_it_copied(short, tmp_path) -> None:
    parent = lanes(SOURCE, short.write(tmp_path))["main"]
    fork = short.fork(forked_from_id=short.id)
    fork.turn("another way")
    fork.answer("c", 21_000, 20_480)
    lane = lanes(SOURCE, fork.write(tmp_path))["main"]
    assert lane.session.session_id == fork.id
    assert [s.key for s in lane.steps[:2]] == [s.key for s in parent.steps]
    assert [s.copied_from for s in lane.steps] == [short.id, short.id, None]
    assert lane.steps[2].key.startswith(fork.id)


def test_a_fork_is_told_from_its_copy_by_time_where_turns_have_no_ids(short, tmp_path) -> None:
    parent_file = short.write(tmp_path)
    fork = short.fork(forked_from_id=short.id)
    fork.turn("another way")
    fork.answer("c", 21_000, 20_480)
    for row in fork.rows:
        row["payload"].pop("turn_id", None)
    lane = lanes(SOURCE, fork.write(tmp_path))["main"]
    parent = lanes(SOURCE, parent_file)["main"]
    assert [s.key for s in lane.steps[:2]] == [s.key for s in parent.steps]
    assert lane.steps[2].copied_from is None


def test_a_fork_of_a_fork_names_the_thread_that_made_each_request(short, tmp_path) -> None:
    first = short.fork(forked_from_id=short.id)
    first.turn("another way")
    first.answer("c", 21_000, 20_480)
    second = first.fork(forked_from_id=first.id)
    second.id = second.rows[0]["payload"]["id"] = uuid7(second.at, "d" * 12)
    second.turn("a third way")
    second.answer("d", 22_000, 20_480)
    lane = lanes(SOURCE, second.write(tmp_path))["main"]
    assert [s.copied_from for s in lane.steps] == [short.id, short.id, first.id, None]
    middle = lanes(SOURCE, first.write(tmp_path))["main"]
    assert [s.key for s in lane.steps[:3]] == [s.key for s in middle.steps]


def test_equal_turns_of_two_forks_stay_two(short, tmp_path) -> None:
    keys = []
    for tail in ("b" * 12, "c" * 12):
        fork = short.fork(forked_from_id=short.id)
        fork.id = fork.rows[0]["payload"]["id"] = uuid7(fork.at, tail)
        fork.turn("the same")
        fork.answer("c", 21_000, 20_480)
        keys.append(lanes(SOURCE, fork.write(tmp_path))["main"].steps[-1].key)
    assert len(set(keys)) == 2


def test_a_spawned_agent_that_copied_its_parents_history_counts_only_its_own(
    short, tmp_path
) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": short.id}}}
    child = short.fork(source=spawn)
    child.turn("look around")
    child.answer("s", 9_000, 0)
    lane = lanes(SOURCE, child.write(tmp_path))[child.id]
    parent = lanes(SOURCE, short.write(tmp_path))["main"]
    assert {s.key for s in parent.steps} == {s.key for s in lane.steps[:2]}
    assert [s.copied_from is None for s in lane.steps] == [False, False, True]


def test_a_total_that_a_spawned_agent_inherits_is_its_parents_request(short, tmp_path) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": short.id}}}
    child = Rollout(short.at + timedelta(seconds=9), "c" * 12, source=spawn)
    child.total = Counter(short.total)
    child.turn("look around")
    counts = [r["payload"] for r in short.rows if r["payload"].get("info")]
    child.row("event_msg", **counts[-1])
    child.answer("s", 9_000, 0)
    lane = lanes(SOURCE, child.write(tmp_path))[child.id]
    parent = lanes(SOURCE, short.write(tmp_path))["main"]
    assert lane.steps[0].key == parent.steps[-1].key
    assert [s.copied_from for s in lane.steps] == [short.id, None]


def test_a_store_counts_what_forks_copied_once_in_whatever_order(short, tmp_path) -> None:
    fork = short.fork(forked_from_id=short.id)
    fork.turn("another way")
    fork.answer("c", 21_000, 20_480)
    files = [short.write(tmp_path), fork.write(tmp_path)]
    for name, order in (("a", files), ("b", files[::-1])):
        store = tmp_path / name / "s.duckdb"
        assert sum(ingest([path], store, sources=SOURCES).steps for path in order) == 3
        with Store.open(store) as opened:
            sessions = opened.query("sessions", Scope.everything())
        assert dict(sessions.select("session_id", "n_steps").iter_rows()) == {
            short.id: 2,
            fork.id: 1,
        }


def test_bad_records_become_problems_and_the_rest_goes_on(short, tmp_path) -> None:
    path = short.write(tmp_path)
    lines = path.read_text().splitlines()
    bad = copy.deepcopy(next(r for r in short.rows if r["payload"].get("info")))
    bad["payload"]["info"]["total_token_usage"]["input_tokens"] = 1
    bad["payload"]["info"]["last_token_usage"]["cached_input_tokens"] = 30_000
    lines[1:1] = ["not json at all", '{"type": "response_item", "payload": 5}', json.dumps(bad)]
    path.write_text("\n".join(lines) + "\n")
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 2
    assert [p.line for p in problems] == [2, 3, 4]
    assert problems[1].pointer == "$.payload"
    assert problems[2].pointer == "$.payload.info.last_token_usage"


def test_a_file_cut_inside_its_last_line_is_still_being_written(short, tmp_path) -> None:
    path = short.write(tmp_path)
    whole = path.read_bytes()
    keys = {s.key for s in lanes(SOURCE, path)["main"].steps}
    for end in range(len(whole) - 300, len(whole), 7):
        path.write_bytes(whole[:end])
        found, problems = batches(SOURCE, path)
        assert not problems
        assert {s.key for b in found for s in b.steps} <= keys


def test_detection_needs_a_payload_and_a_known_row(short, tmp_path) -> None:
    assert SOURCE.detect(read_head(short.write(tmp_path)))
    other = tmp_path / "rollout-x.jsonl"
    other.write_text('{"type": "session", "payload": {}}\n')
    assert not SOURCE.detect(read_head(other))


@pytest.mark.data
def test_totals_of_the_real_rollouts_equal_an_independent_count(shared_data: Path) -> None:
    paths = real(shared_data / "traces" / "codex", "*.jsonl*")
    sums, steps = totals(SOURCE, paths)
    theirs: Counter[str] = Counter()
    requests = 0
    for path in paths:
        before = None
        for row in rows(path):
            info = row["payload"].get("info")
            if row["payload"].get("type") != "token_count" or not info:
                continue
            if info["total_token_usage"] == before:
                continue
            before = info["total_token_usage"]
            last = info["last_token_usage"]
            requests += 1
            theirs["input"] += last["input_tokens"] - last["cached_input_tokens"]
            theirs["cache_read"] += last["cached_input_tokens"]
            theirs["output"] += last["output_tokens"]
            theirs["reasoning"] += last["reasoning_output_tokens"]
    assert steps == requests
    assert +sums == theirs


def test_a_turn_that_was_aborted_is_a_label_of_the_next_request(tmp_path: Path) -> None:
    rollout = Rollout()
    rollout.turn("go")
    rollout.answer("a", 2_000, 0)
    rollout.row("event_msg", type="turn_aborted", reason="interrupted")
    rollout.row("event_msg", type="stream_error", message="stream disconnected")
    rollout.turn("go on")
    rollout.answer("b", 3_000, 1_920)
    rollout.answer("c", 4_000, 2_944)
    steps = lanes(SOURCE, rollout.write(tmp_path))["main"].steps
    notes = [{k: v for k, v in s.labels if k in ("aborted", "retries")} for s in steps]
    assert notes == [{}, {"aborted": "interrupted", "retries": "1"}, {}]


def test_a_total_that_grew_by_more_than_the_request_is_doubted(tmp_path: Path) -> None:
    rollout = Rollout()
    rollout.turn("go")
    rollout.answer("a", 2_000, 0)
    rollout.total.update({"input_tokens": 500, "total_tokens": 500})
    rollout.answer("b", 3_000, 1_920)
    rollout.total.clear()
    rollout.answer("c", 400, 0)
    steps = lanes(SOURCE, rollout.write(tmp_path))["main"].steps
    doubts = [s.usage.doubts for s in steps if s.usage]
    assert doubts == [(), (("total_delta", 3_550, 3_050),), ()]
