from __future__ import annotations

import gzip
import json

import pytest

from analyzer.sources.base import read_head
from analyzer.sources.swe_agent import SweAgentSource
from tests.reading import batches, lanes

SOURCE = SweAgentSource()


def entry(text: str, **more) -> dict:
    return {"action": "ls", "observation": "out", "response": text, "thought": text, **more}


def run() -> dict:
    agent = {"agent": "primary"}
    return {
        "environment": "swe_main",
        "trajectory": [entry("one"), entry("two")],
        "history": [
            {"role": "system", "content": "You fix.", **agent},
            {"role": "assistant", "content": "shown", "is_demo": True, **agent},
            {"role": "user", "content": "Issue.", **agent},
            {"role": "assistant", "content": "one", **agent},
            {"role": "user", "content": "out", **agent},
            {"role": "assistant", "content": "two", **agent},
        ],
        "info": {"model_stats": {"tokens_sent": 500, "api_calls": 2}},
    }


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_step_sent_the_history_before_it_and_demonstrations_are_no_steps(tmp_path) -> None:
    path = write(tmp_path / "i.traj", run())
    assert SOURCE.detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    bodies = [[p.body for p in lane.parts(s.prompt)] for s in lane.steps]
    assert bodies == [
        ["You fix.", "shown", "Issue."],
        ["You fix.", "shown", "Issue.", "one", "out"],
    ]
    assert [s.usage for s in lane.steps] == [None, None]
    assert all(s.prompt.recorded for s in lane.steps)
    assert [s.human for s in lane.steps] == [True, False]


def test_results_know_their_call_and_missing_tools_are_said(tmp_path) -> None:
    value = run()
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    value["history"][3]["tool_calls"] = [call]
    value["history"][4] |= {"role": "tool", "tool_call_ids": ["c1"]}
    lane = lanes(SOURCE, write(tmp_path / "i.traj", value))["main"]
    result = next(p for p in lane.pool if p.kind == "tool_result")
    assert (result.call_id, result.tool) == ("c1", "bash")
    assert not lane.steps[0].prompt.recorded


def test_a_last_step_without_a_message_is_still_a_step(tmp_path) -> None:
    value = run()
    value["trajectory"].append(entry("three"))
    value["history"].append({"role": "user", "content": "last out", "agent": "primary"})
    lane = lanes(SOURCE, write(tmp_path / "i.traj", value))["main"]
    assert len(lane.steps) == 3
    assert lane.parts(lane.steps[2].prompt)[-1].body == "last out"


def test_a_recorded_query_is_what_was_sent(tmp_path) -> None:
    value = run()
    query = [{"role": "system", "content": "You fix."}, {"role": "user", "content": "(elided)"}]
    value["trajectory"][1]["query"] = query
    lane = lanes(SOURCE, write(tmp_path / "i.traj", value))["main"]
    assert [p.body for p in lane.parts(lane.steps[1].prompt)] == ["You fix.", "(elided)"]


def test_another_agent_of_the_history_is_a_lane(tmp_path) -> None:
    value = run()
    value["history"].append({"role": "user", "content": "sub", "agent": "sub"})
    value["history"].append({"role": "assistant", "content": "done", "agent": "sub"})
    value["trajectory"].append(entry("done"))
    found = lanes(SOURCE, write(tmp_path / "i.traj", value))
    assert (found["sub"].parent, len(found["sub"].steps)) == ("main", 1)
    assert len(found["main"].steps) == 2


def test_bad_records_are_problems(tmp_path) -> None:
    value = run()
    value["history"][4] = None
    steps, problems = batches(SOURCE, write(tmp_path / "i.traj", value))
    assert [p.pointer for p in problems] == ["$.history[4]"]
    assert sum(len(b.steps) for b in steps) == 2
    value = run() | {"history": [], "trajectory": [3, entry("x")]}
    steps, problems = batches(SOURCE, write(tmp_path / "i.traj", value))
    assert [p.pointer for p in problems] == ["$.trajectory[0]"]
    assert sum(len(b.steps) for b in steps) == 1


@pytest.mark.data
def test_every_entry_of_the_real_files_is_a_step_without_usage(shared_data) -> None:
    ours = theirs = 0
    for path in sorted((shared_data / "traces" / "swe-agent").rglob("*.traj*")):
        raw = path.read_bytes()
        value = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        theirs += len(value["trajectory"])
        found, problems = batches(SOURCE, path)
        assert not problems
        steps = [s for b in found for s in b.steps]
        assert all(s.usage is None for s in steps)
        before = [
            index
            for index, m in enumerate(value["history"])
            if m["role"] == "assistant" and not m.get("is_demo")
        ]
        lane = lanes(SOURCE, path)["main"]
        assert [
            sum(p.starts_message for p in lane.parts(s.prompt)) for s in steps[: len(before)]
        ] == before
        ours += len(steps)
    assert ours == theirs > 0
