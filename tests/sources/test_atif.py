from __future__ import annotations

import json

import pytest

from analyzer.model import Usage
from analyzer.sources.atif import AtifSource
from analyzer.sources.base import read_head
from tests.reading import batches, lanes

SOURCE = AtifSource()


def run() -> dict:
    call = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "s-1",
        "agent": {
            "name": "a",
            "model_name": "gpt-5.4",
            "tool_definitions": [{"type": "function", "function": {"name": "bash"}}],
        },
        "steps": [
            {"step_id": 1, "source": "system", "message": "You help."},
            {"step_id": 2, "source": "user", "message": "Go."},
            {
                "step_id": 3,
                "source": "agent",
                "message": "looking",
                "timestamp": "2026-01-02T03:04:05Z",
                "tool_calls": [call],
                "observation": {"results": [{"source_call_id": "c1", "content": "a b"}]},
                "metrics": {
                    "prompt_tokens": 100,
                    "cached_tokens": 64,
                    "completion_tokens": 9,
                    "cost_usd": 0.25,
                },
            },
            {"step_id": 4, "source": "agent", "message": "done"},
        ],
    }


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_agent_steps_are_requests_for_everything_before_them(tmp_path) -> None:
    path = write(tmp_path / "t.json", run())
    assert SOURCE.detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    first, second = lane.steps
    assert [p.section for p in lane.parts(first.prompt)] == ["tools", "messages", "messages"]
    assert [p.kind for p in lane.parts(second.prompt)][3:] == ["text", "tool_use", "tool_result"]
    assert first.usage == Usage(input=36, cache_read=64, output=9)
    assert second.usage is None
    assert (first.model, first.provider, first.reported_cost) == ("gpt-5.4", "openai", 0.25)
    assert lane.session.session_id == "s-1"


def test_copied_steps_and_steps_without_a_model_are_context_only(tmp_path) -> None:
    value = run()
    value["steps"][2]["is_copied_context"] = True
    value["steps"].insert(
        3, {"step_id": 9, "source": "agent", "message": "rule", "llm_call_count": 0}
    )
    lane = lanes(SOURCE, write(tmp_path / "t.json", value))["main"]
    (step,) = lane.steps
    assert [p.body for p in lane.parts(step.prompt)][-2:] == ["a b", "rule"]


def test_files_that_share_a_session_id_keep_their_steps_apart(tmp_path) -> None:
    other = run()
    other["steps"][2]["message"] = "something else"
    keys = [
        [s.key for s in lanes(SOURCE, write(tmp_path / "t.json", v))["main"].steps]
        for v in (run(), other, run())
    ]
    assert keys[0] == keys[2]
    assert not set(keys[0]) & set(keys[1])


def test_embedded_subagents_are_lanes(tmp_path) -> None:
    value = run() | {"subagent_trajectories": [run() | {"trajectory_id": "sub"}]}
    found = lanes(SOURCE, write(tmp_path / "t.json", value))
    assert (found["sub"].parent, len(found["sub"].steps)) == ("main", 2)
    assert not {s.key for s in found["sub"].steps} & {s.key for s in found["main"].steps}


def test_bad_steps_are_problems(tmp_path) -> None:
    value = run()
    value["steps"][1] = {"step_id": 2, "source": "martian", "message": "x"}
    value["steps"][2]["metrics"]["prompt_tokens"] = "many"
    found, problems = batches(SOURCE, write(tmp_path / "t.json", value))
    assert [p.pointer for p in problems] == [
        "$.steps[1].source",
        "$.steps[2].metrics.prompt_tokens",
    ]
    assert sum(len(b.steps) for b in found) == 1
    assert len(batches(SOURCE, write(tmp_path / "n.json", {"schema_version": "ATIF-v1.6"}))[1]) == 1


@pytest.mark.data
def test_sums_of_the_real_files_equal_their_own_totals(shared_data) -> None:
    for path in sorted((shared_data / "traces" / "atif").rglob("*.json")):
        value = json.loads(path.read_text(encoding="utf-8"))
        found, problems = batches(SOURCE, path)
        assert not problems
        steps = [s for b in found for s in b.steps]
        assert len(steps) == sum("metrics" in s for s in value["steps"])
        totals = value["final_metrics"]
        assert sum(s.usage.prompt for s in steps) == totals["total_prompt_tokens"]
        assert sum(s.usage.output for s in steps) == totals["total_completion_tokens"]
        assert sum(s.reported_cost for s in steps) == pytest.approx(totals["total_cost_usd"])
