from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analyzer.sources.base import read_head
from analyzer.sources.opencode import OpenCodeSource
from tests.reading import batches, lanes
from tests.sources.recordings import plain, real, totals, write_document

SOURCE = OpenCodeSource()


class Export:
    """Builds the export of one session."""

    def __init__(self, name: str = "ses_one", **info: Any) -> None:
        self.at = 1_780_000_000_000
        self.id = name
        self.info = {
            "id": name,
            "projectID": "p",
            "title": "Fix it",
            "version": "1.2.26",
            "time": {"created": self.at},
            **info,
        }
        self.messages: list[dict[str, Any]] = []

    def add(self, role: str, parts: list[dict[str, Any]], **info: Any) -> dict[str, Any]:
        self.at += 1_000
        name = f"msg_{len(self.messages)}"
        base = {"id": name, "sessionID": self.id, "role": role, "time": {"created": self.at}}
        message = {"info": {**base, **info}, "parts": parts}
        self.messages.append(message)
        return message

    def user(self, text: str, **part: Any) -> None:
        self.add("user", [{"type": "text", "text": text, **part}])

    def answer(self, name: str, sent: int, read: int, **info: Any) -> dict[str, Any]:
        tokens = {
            "total": sent + read + 50,
            "input": sent,
            "output": 50,
            "reasoning": 20,
            "cache": {"read": read, "write": 0},
        }
        state = {"status": "completed", "input": {"path": name}, "output": f"content of {name}"}
        call = {"type": "tool", "callID": f"call_{name}", "tool": "read", "state": state}
        parts = [
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm"},
            call,
            {"type": "step-finish", "tokens": tokens, "cost": 0.01},
        ]
        fields = {
            "modelID": "gpt-5.4",
            "providerID": "opencode",
            "cost": 0.01,
            "tokens": tokens,
            "finish": "tool-calls",
        }
        message = self.add("assistant", parts, **{**fields, **info})
        message["info"]["time"]["completed"] = self.at + 900
        return message

    def write(self, folder: Path) -> Path:
        document = {"info": self.info, "messages": self.messages}
        return write_document(folder / f"{self.id}.json", document)


@pytest.fixture
def short() -> Export:
    e = Export()
    e.user("please fix the bug")
    e.answer("a", 20_000, 0)
    e.answer("b", 500, 19_968)
    return e


def test_the_cache_stands_beside_the_input_and_one_message_is_one_step(short, tmp_path) -> None:
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    usages = [s.usage for s in lane.steps]
    assert [(u.input, u.cache_read, u.cache_write, u.output, u.reasoning) for u in usages] == [
        (20_000, 0, 0, 50, 20),
        (500, 19_968, 0, 50, 20),
    ]
    assert [s.reported_cost for s in lane.steps] == [0.01, 0.01]
    assert lane.steps[0].provider == "openai"
    assert dict(lane.steps[0].labels)["provider"] == "opencode"


def test_call_and_result_of_one_record_become_what_was_sent(short, tmp_path) -> None:
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    parts = lane.parts(lane.steps[1].prompt)
    assert [p.kind for p in parts] == ["text", "thinking", "tool_use", "tool_result"]
    assert parts[3].body == "content of a"
    assert parts[2].call_id == parts[3].call_id == "call_a"
    assert [s.human for s in lane.steps] == [True, False]


def test_reasoning_is_added_where_the_total_says_that_it_stands_apart(short, tmp_path) -> None:
    for message in short.messages:
        tokens = message["info"].get("tokens")
        if tokens:
            tokens["total"] += tokens["reasoning"]
    steps = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert [s.usage.output for s in steps] == [70, 70]


def test_without_a_total_the_raw_output_is_kept_beside_our_reading(short, tmp_path) -> None:
    for message in short.messages:
        if "tokens" in message["info"]:
            del message["info"]["tokens"]["total"]
    step = lanes(SOURCE, short.write(tmp_path))["main"].steps[0]
    assert step.usage.output == 50
    assert dict(step.labels)["raw_output_tokens"] == "50"


def test_ids_that_were_taken_out_are_never_joined_on(short, tmp_path) -> None:
    other = Export("ses_two", title="Something else")
    other.user("hello")
    other.answer("c", 900, 0)
    for export in (short, other):
        export.info["parentID"] = "REDACTED"
        export.info["id"] = "REDACTED"
        for message in export.messages:
            message["info"] |= {"id": "REDACTED", "sessionID": "REDACTED"}
            for part in message["parts"]:
                if part["type"] == "tool":
                    part["callID"] = "REDACTED"
    one = lanes(SOURCE, short.write(tmp_path))["main"]
    two = lanes(SOURCE, other.write(tmp_path))["main"]
    assert one.session != two.session
    assert "REDACTED" not in one.session.session_id
    assert len({s.key for s in one.steps + two.steps}) == 3
    assert one.steps[0].human is False
    results = [p for p in one.pool if p.kind == "tool_result"]
    calls = [p for p in one.pool if p.kind == "tool_use"]
    assert [p.call_id for p in results] == [p.call_id for p in calls]
    assert len({p.call_id for p in results}) == 2


def test_a_sub_agent_is_a_lane_of_its_parents_session(short, tmp_path) -> None:
    short.info["parentID"] = "ses_parent"
    lane = lanes(SOURCE, short.write(tmp_path))["ses_one"]
    assert (lane.session.session_id, lane.parent) == ("ses_parent", "main")
    assert not any(s.human for s in lane.steps)


def test_a_fork_repeats_the_keys_though_its_ids_differ(short, tmp_path) -> None:
    fork = Export("ses_fork")
    fork.messages = copy.deepcopy(short.messages)
    for i, message in enumerate(fork.messages):
        message["info"] |= {"id": f"msg_new_{i}", "sessionID": "ses_fork"}
    fork.at = short.at + 60_000
    fork.answer("c", 600, 20_352)
    old = lanes(SOURCE, short.write(tmp_path))["main"].steps
    new = lanes(SOURCE, fork.write(tmp_path))["main"].steps
    assert [s.key for s in new[:2]] == [s.key for s in old]
    assert len({s.key for s in new}) == 3


def test_equal_counts_at_another_time_or_of_another_model_are_other_requests(tmp_path) -> None:
    e = Export()
    e.user("go")
    e.answer("a", 900, 0)
    e.answer("a", 900, 0)
    e.at -= 1_000
    e.answer("a", 900, 0, modelID="gpt-5.3-codex")
    assert len({s.key for s in lanes(SOURCE, e.write(tmp_path))["main"].steps}) == 3


def test_a_tool_that_the_client_ran_by_itself_is_no_request(short, tmp_path) -> None:
    message = short.answer("c", 0, 0)
    message["parts"] = [p for p in message["parts"] if p["type"] == "tool"]
    short.answer("d", 700, 20_352)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    assert len(lane.steps) == 3
    assert "content of c" in [p.body for p in lane.parts(lane.steps[2].prompt)]


def test_an_aborted_request_has_no_usage_rather_than_zero(short, tmp_path) -> None:
    error = {"name": "MessageAbortedError", "data": {"message": "aborted"}}
    message = short.answer("c", 0, 0, error=error)
    message["parts"] = [{"type": "step-start"}]
    message["info"]["tokens"] = {"input": 0, "output": 0, "cache": {"read": 0, "write": 0}}
    step = lanes(SOURCE, short.write(tmp_path))["main"].steps[2]
    assert (step.usage, step.reported_cost, step.error) == (None, None, "aborted")


def test_each_finished_step_of_one_message_is_a_request(short, tmp_path) -> None:
    message = short.answer("c", 600, 20_352)
    again = short.answer("d", 700, 20_992)
    short.messages.pop()
    message["parts"] += again["parts"]
    steps = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert [s.usage.input for s in steps] == [20_000, 500, 600, 700]
    assert len({s.key for s in steps}) == 4


def test_results_cleared_later_are_stubs_from_then_on_only(short, tmp_path) -> None:
    state = short.messages[1]["parts"][2]["state"]
    state["time"] = {"compacted": short.at + 10}
    short.answer("c", 19_000, 0)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    before, after = (lane.parts(s.prompt) for s in lane.steps[1:])
    assert [p.placeholder for p in before if p.kind == "tool_result"] == [False]
    assert [p.placeholder for p in after if p.kind == "tool_result"] == [True, False]
    assert lane.steps[2].compaction is not None
    assert lane.steps[2].compaction.kind == "clear"


def test_a_summary_takes_the_place_of_the_history(short, tmp_path) -> None:
    short.add("user", [{"type": "compaction", "auto": True}])
    message = short.answer("s", 21_000, 0, summary=True)
    message["parts"][2] = {"type": "text", "text": "We fixed a and b."}
    short.user("go on")
    short.answer("c", 3_000, 0)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    step = lane.steps[3]
    assert [p.kind for p in lane.parts(step.prompt)] == ["text", "summary", "text"]
    assert step.compaction is not None
    assert step.compaction.trigger == "auto"


def test_bad_messages_become_problems_and_the_rest_goes_on(short, tmp_path) -> None:
    broken = copy.deepcopy(short.messages[1])
    broken["info"]["tokens"]["input"] = -5
    short.messages[1:1] = [5, broken, {"info": {"role": "tool"}, "parts": []}]
    found, problems = batches(SOURCE, short.write(tmp_path))
    assert sum(len(b.steps) for b in found) == 2
    assert [p.pointer for p in problems] == [
        "$.messages[1]",
        "$.messages[2].info.tokens.input",
        "$.messages[3].info.role",
    ]


def test_a_file_that_is_no_json_is_a_problem(tmp_path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"info": {"id": "ses_1", "projectID": "p"}, "messages": [')
    assert SOURCE.detect(read_head(path))
    found, problems = batches(SOURCE, path)
    assert (found, len(problems)) == ([], 1)


@pytest.mark.data
def test_totals_of_the_real_exports_equal_an_independent_count(shared_data: Path) -> None:
    paths = real(shared_data / "traces" / "opencode", "*.json*")
    sums, steps = totals(SOURCE, paths)
    theirs: Counter[str] = Counter()
    requests = 0
    for path in paths:
        for message in json.loads(plain(path))["messages"]:
            for part in message["parts"]:
                if part["type"] == "step-finish":
                    tokens = part["tokens"]
                    requests += 1
                    theirs["input"] += tokens["input"]
                    theirs["cache_read"] += tokens["cache"]["read"]
                    theirs["cache_write"] += tokens["cache"]["write"]
                    theirs["output"] += tokens["output"]
                    theirs["reasoning"] += tokens["reasoning"]
                    theirs["cost"] += round(part["cost"] * 1_000_000)
    assert steps == requests
    assert +sums == +theirs
