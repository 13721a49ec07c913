from __future__ import annotations

import gzip
import json

import pytest

from analyzer.model import Usage
from analyzer.sources.base import read_head
from analyzer.sources.openhands import OpenHandsSource
from tests.builders import write_lines
from tests.reading import batches, lanes

SOURCE = OpenHandsSource()


def response(identity: str, prompt: int, calls: list[str], cached: int | None = None) -> dict:
    details = None if cached is None else {"cached_tokens": cached}
    return {
        "id": identity,
        "created": 1_746_001_974,
        "model": "llama",
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": f"say {identity}",
                    "tool_calls": [
                        {
                            "id": c,
                            "type": "function",
                            "function": {"name": "run", "arguments": "{}"},
                        }
                        for c in calls
                    ],
                },
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": 5,
            "prompt_tokens_details": details,
        },
    }


def pair(number: int, made: dict, call: str) -> list[dict]:
    metadata = {"tool_call_id": call, "function_name": "run", "model_response": made}
    return [
        {
            "id": number,
            "timestamp": "2025-04-30T16:33:00",
            "source": "agent",
            "action": "run",
            "args": {"command": "ls", "thought": ""},
            "tool_call_metadata": metadata,
        },
        {
            "id": number + 1,
            "source": "agent",
            "observation": "run",
            "content": f"out {call}",
            "tool_call_metadata": metadata,
        },
    ]


def counted(identity: str, prompt: int, read: int = 0) -> dict:
    return {
        "model": "m",
        "prompt_tokens": prompt,
        "completion_tokens": 5,
        "cache_read_tokens": read,
        "cache_write_tokens": 0,
        "response_id": identity,
    }


def run(**more) -> dict:
    one, two = response("r1", 100, ["c1", "c2"]), response("r2", 150, ["c3"])
    return {
        "instance_id": "repo-1",
        "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "openai/llama"}},
        "history": [
            {
                "id": 0,
                "source": "agent",
                "action": "system",
                "args": {"content": "You act.", "tools": [{"function": {"name": "run"}}]},
            },
            {"id": 1, "source": "user", "action": "message", "args": {"content": "Go."}},
            *pair(2, one, "c1"),
            *pair(4, one, "c2"),
            *pair(6, two, "c3"),
        ],
        "metrics": {"token_usages": [counted("r1", 100), counted("r2", 150)]},
    } | more


def test_events_of_one_response_are_one_step(tmp_path) -> None:
    path = write_lines(tmp_path / "output.jsonl", [run()])
    assert SOURCE.detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    assert [s.key for s in lane.steps] == [
        "openai:r1@1746001974",
        "openai:r2@1746001974",
    ]
    assert [p.body for p in lane.parts(lane.steps[1].prompt)][1:] == [
        "You act.",
        "Go.",
        "say r1",
        "{}",
        "{}",
        "out c1",
        "out c2",
    ]
    assert [s.human for s in lane.steps] == [True, False]


def test_a_cache_that_is_never_used_is_not_reported(tmp_path) -> None:
    steps = lanes(SOURCE, write_lines(tmp_path / "o.jsonl", [run()]))["main"].steps
    assert [s.usage for s in steps] == [Usage(input=100, output=5), Usage(input=150, output=5)]
    used = run(metrics={"token_usages": [counted("r1", 100), counted("r2", 150, 90)]})
    steps = lanes(SOURCE, write_lines(tmp_path / "o.jsonl", [used]))["main"].steps
    assert [(s.usage.input, s.usage.cache_read) for s in steps] == [(100, 0), (60, 90)]


def test_requests_that_no_event_shows_are_still_counted(tmp_path) -> None:
    usages = [counted("r1", 100), counted("helper", 40), counted("r2", 150)]
    path = write_lines(tmp_path / "o.jsonl", [run(metrics={"token_usages": usages})])
    found = lanes(SOURCE, path)
    assert [s.usage.prompt for s in found["main"].steps] == [100, 150]
    assert [(s.key, s.usage.prompt, s.prompt) for s in found["summary"].steps] == [
        ("openai:helper", 40, None)
    ]


def test_an_answer_without_a_call_takes_the_next_response_not_named(tmp_path) -> None:
    value = run(
        metrics={"token_usages": [counted("r1", 100), counted("r2", 150), counted("r3", 9)]}
    )
    said = {"id": 9, "source": "agent", "action": "message", "args": {"content": "Done?"}}
    value["history"].append(said)
    lane = lanes(SOURCE, write_lines(tmp_path / "o.jsonl", [value]))["main"]
    assert (lane.steps[-1].key, lane.steps[-1].usage.prompt) == ("openai:r3", 9)


def test_condensation_takes_events_out_of_the_view(tmp_path) -> None:
    value = run()
    forget = {
        "id": 20,
        "source": "agent",
        "action": "condensation",
        "args": {"forgotten_event_ids": [2, 3, 4, 5], "summary": "(short)", "summary_offset": 1},
    }
    value["history"].insert(6, forget)
    lane = lanes(SOURCE, write_lines(tmp_path / "o.jsonl", [value]))["main"]
    bodies = [p.body for p in lane.parts(lane.steps[1].prompt)]
    assert bodies[1:] == ["You act.", "Go.", "(short)"]


def test_old_histories_are_pairs(tmp_path) -> None:
    value = run()
    events = value["history"]
    value["history"] = [[events[i], events[i + 1]] for i in range(0, len(events), 2)]
    lane = lanes(SOURCE, write_lines(tmp_path / "o.jsonl", [value]))["main"]
    assert len(lane.steps) == 2


def test_bad_records_are_problems_and_a_cut_last_line_is_none(tmp_path) -> None:
    value = run()
    value["history"][3] = 7
    path = write_lines(tmp_path / "o.jsonl", [value, {"instance_id": "x"}, run()])
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"instance_id": "cut')
    found, problems = batches(SOURCE, path)
    assert [(p.line, p.pointer) for p in problems] == [(1, "$.history[3]"), (2, "$.history")]
    assert sum(len(b.steps) for b in found) == 4


@pytest.mark.data
def test_sums_of_the_real_file_equal_its_own_totals(shared_data) -> None:
    (path,) = (shared_data / "traces" / "openhands").rglob("*.jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    found, problems = batches(SOURCE, path)
    assert not problems
    assert len({b.session for b in found}) == len(rows)
    for row, batch in zip(rows, found, strict=True):
        totals = row["metrics"]["accumulated_token_usage"]
        assert sum(s.usage.prompt for s in batch.steps) == totals["prompt_tokens"]
        assert sum(s.usage.output for s in batch.steps) == totals["completion_tokens"]
        ids = {
            "openai:{id}@{created}".format(**e["tool_call_metadata"]["model_response"])
            for e in row["history"]
            if e.get("tool_call_metadata")
        }
        assert {s.key for s in batch.steps} == ids
