from __future__ import annotations

import gzip
import json

import pytest

from analyzer.model import Usage
from analyzer.sources.base import read_head
from analyzer.sources.mini_swe_agent import MiniSweAgentSource
from tests.reading import batches, lanes

SOURCE = MiniSweAgentSource()


def answer(n: int, prompt: int, cached: int, *, cost: float = 0.5) -> dict:
    call = {"id": f"c{n}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    return {
        "role": "assistant",
        "content": f"say {n}",
        "tool_calls": [call],
        "extra": {
            "cost": cost,
            "timestamp": 1_775_793_882.5 + n,
            "response": {
                "id": f"r{n}",
                "created": 1_775_793_880 + n,
                "model": "deepseek-chat",
                "choices": [{"finish_reason": "tool_calls"}],
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": 5,
                    "prompt_cache_hit_tokens": cached,
                },
            },
        },
    }


def run() -> dict:
    return {
        "info": {"mini_version": "2.2.7", "config": {"model": {"model_name": "deepseek/x"}}},
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Fix it."},
            answer(1, 100, 0),
            {"role": "tool", "tool_call_id": "c1", "content": "out 1", "extra": {"x": 1}},
            answer(2, 160, 64),
            {"role": "exit", "content": "diff"},
        ],
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": "repo__1",
    }


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_step_sent_all_messages_before_it(tmp_path) -> None:
    path = write(tmp_path / "a.traj.json", run())
    assert SOURCE.detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    first, second = lane.steps
    assert [p.body for p in lane.parts(first.prompt)] == ["You help.", "Fix it."]
    assert [p.body for p in lane.parts(second.prompt)][2:] == ["say 1", "{}", "out 1"]
    assert second.prompt.ranges[0].start == 0
    assert len(second.prompt.ranges) == 1
    assert second.usage == Usage(input=96, cache_read=64, output=5)
    assert second.key == "openai:r2@1775793882"
    assert (second.model, second.reported_cost) == ("deepseek-chat", 0.5)
    assert [s.human for s in lane.steps] == [True, False]
    assert second.ended_at > second.at


def test_a_prompt_whose_tools_are_not_in_the_file_is_no_recorded_one(tmp_path) -> None:
    called = lanes(SOURCE, write(tmp_path / "a.traj.json", run()))["main"]
    assert not any(s.prompt.recorded for s in called.steps)
    bare = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "```ls```"},
        {"role": "user", "content": "out"},
        {"role": "assistant", "content": "```pwd```"},
    ]
    path = write(tmp_path / "b.traj.json", bare)
    assert SOURCE.detect(read_head(path))
    steps = lanes(SOURCE, path)["main"].steps
    assert [s.usage for s in steps] == [None, None]
    assert all(s.prompt.recorded for s in steps)
    assert [s.human for s in steps] == [True, False]


def test_a_list_of_messages_under_another_name_is_not_claimed(tmp_path) -> None:
    path = write(tmp_path / "chat.json", [{"role": "user", "content": "hello"}])
    assert not SOURCE.detect(read_head(path))


def test_runs_of_one_instance_are_sessions_of_their_own(tmp_path) -> None:
    other = run()
    other["messages"][2]["extra"]["response"]["id"] = "elsewhere"
    grown = run()
    grown["messages"].insert(5, answer(3, 200, 128))
    names = {
        key: batches(SOURCE, write(tmp_path / f"{key}.traj.json", value))[0][0].session.session_id
        for key, value in {"one": run(), "other": other, "grown": grown}.items()
    }
    assert names["one"] == names["grown"] != names["other"]
    assert all(name.startswith("repo__1-") for name in names.values())


def test_a_bad_message_is_a_problem_and_the_rest_is_read(tmp_path) -> None:
    value = run()
    value["messages"].insert(3, "no message")
    value["messages"][5]["extra"]["response"]["usage"]["prompt_tokens"] = -4
    steps, problems = batches(SOURCE, write(tmp_path / "a.traj.json", value))
    assert [p.pointer for p in problems] == [
        "$.messages[3]",
        "$.messages[5].extra.response.usage.prompt_tokens",
    ]
    assert sum(len(b.steps) for b in steps) == 1
    for broken in ({"messages": 3}, 7, {}):
        assert len(batches(SOURCE, write(tmp_path / "b.traj.json", broken))[1]) == 1


@pytest.mark.data
def test_sums_of_the_real_files_equal_a_plain_count(shared_data) -> None:
    ours, theirs = [0, 0, 0, 0], [0, 0, 0, 0]
    for path in sorted((shared_data / "traces" / "mini-swe-agent").rglob("*.traj.json*")):
        raw = path.read_bytes()
        value = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        for message in value if isinstance(value, list) else value["messages"]:
            if message["role"] == "assistant":
                usage = message.get("extra", {}).get("response", {}).get("usage", {})
                counts = ("prompt_tokens", "prompt_cache_hit_tokens", "completion_tokens")
                theirs[0] += 1
                for place, name in enumerate(counts, 1):
                    theirs[place] += usage.get(name, 0)
        steps, problems = batches(SOURCE, path)
        assert not problems
        for step in (s for b in steps for s in b.steps):
            ours[0] += 1
            if step.usage is not None:
                ours[1] += step.usage.prompt
                ours[2] += step.usage.cache_read
                ours[3] += step.usage.output
    assert ours == theirs
    assert ours[0] > 0
