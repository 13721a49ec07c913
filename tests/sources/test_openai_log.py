from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest

from analyzer.intake import ingest
from analyzer.model import Usage
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.base import HEAD_BYTES, read_head
from analyzer.sources.openai_log import OpenAILogSource
from tests.builders import anthropic_records, write_lines
from tests.reading import batches, lanes

SOURCE = OpenAILogSource()
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {}}}]


def call(n: int) -> dict:
    return {"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": f"{n}"}}


def chat(n: int) -> list[dict]:
    """The messages of the n-th request of one conversation."""
    out = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Go."}]
    for i in range(n):
        out.append({"role": "assistant", "content": None, "tool_calls": [call(i)]})
        out.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"result {i}"})
    return out


def record(n: int, **more) -> dict:
    usage = {
        "prompt_tokens": 1000 + n,
        "completion_tokens": 7,
        "total_tokens": 1007 + n,
        "prompt_tokens_details": {"cached_tokens": 512 * (n > 0)},
    }
    message = {"role": "assistant", "content": None, "tool_calls": [call(n)], "refusal": None}
    return {
        "timestamp": f"2026-01-02T03:04:{n:02d}Z",
        "request": {"model": "gpt-5.4", "tools": TOOLS, "messages": chat(n), "tool_choice": "auto"},
        "response": {
            "id": f"chatcmpl-{n}",
            "model": "gpt-5.4-2026-01-01",
            "choices": [{"message": message, "finish_reason": "tool_calls"}],
            "usage": usage,
        },
    } | more


def test_chat_requests_are_whole_prompts(tmp_path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [record(n) for n in range(3)])
    assert SOURCE.detect(read_head(path))
    assert not AnthropicLogSource().detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    assert [len(s.prompt) for s in lane.steps] == [3, 5, 7]
    assert all(s.prompt.recorded and len(s.prompt.ranges) == 1 for s in lane.steps)
    assert lane.steps[1].usage == Usage(input=489, cache_read=512, output=7)
    assert lane.steps[0].prompt.settings == (("tool_choice", "auto"),)
    assert lane.steps[0].key.startswith("openai:chatcmpl-0:")
    assert lane.steps[0].provider == "openai"
    for step, after in zip(lane.steps, lane.steps[1:], strict=False):
        assert {i for r in step.response for i in range(*r)} <= set(after.prompt.indices())


def test_flat_lines_with_anthropic_usage_keep_their_totals(tmp_path) -> None:
    rows = [
        {
            "session_id": "s",
            "model": "claude-sonnet-4-5",
            "messages": chat(n),
            "usage": {
                "input_tokens": 4,
                "cache_read_input_tokens": 900 * n,
                "cache_creation_input_tokens": 100,
                "output_tokens": 9,
            },
        }
        for n in range(3)
    ]
    path = write_lines(tmp_path / "x.oai.jsonl", rows)
    assert SOURCE.detect(read_head(path))
    assert not AnthropicLogSource().detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    assert lane.session.session_id == "s"
    assert [s.usage.prompt for s in lane.steps] == [104, 1004, 1904]
    assert [s.provider for s in lane.steps] == ["anthropic"] * 3


def test_a_first_line_longer_than_the_head_is_recognised(tmp_path) -> None:
    value = record(1)
    value["request"]["messages"][1]["content"] = "x" * (2 * HEAD_BYTES)
    path = write_lines(tmp_path / "a.jsonl", [value])
    assert SOURCE.detect(read_head(path))
    assert not AnthropicLogSource().detect(read_head(path))


def test_bodies_that_are_json_in_strings_are_opened(tmp_path) -> None:
    value = record(1)
    value["request"], value["response"] = (json.dumps(value[k]) for k in ("request", "response"))
    path = write_lines(tmp_path / "a.jsonl", [value])
    assert SOURCE.detect(read_head(path))
    (step,) = lanes(SOURCE, path)["main"].steps
    assert step.usage.prompt == 1001


def test_anthropic_logs_are_left_to_their_own_source(tmp_path) -> None:
    records = anthropic_records(3)
    for name, rows in {"rr": records, "bodies": [r["request"] for r in records]}.items():
        path = write_lines(tmp_path / f"{name}.jsonl", rows)
        assert AnthropicLogSource().detect(read_head(path))
        assert not SOURCE.detect(read_head(path))


def test_lists_of_messages_for_training_are_no_log(tmp_path) -> None:
    path = write_lines(tmp_path / "train.jsonl", [{"messages": chat(1)}])
    assert not SOURCE.detect(read_head(path))


def test_a_stream_is_put_together(tmp_path) -> None:
    value = record(0)
    chunks = [
        {"id": "chatcmpl-s", "choices": [{"delta": {"content": "Hel"}}]},
        {"id": "chatcmpl-s", "choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]},
        {"id": "chatcmpl-s", "choices": [], "usage": value["response"]["usage"]},
    ]
    text = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n"
    for response in (text, chunks):
        path = write_lines(tmp_path / "a.jsonl", [value | {"response": response}])
        lane = lanes(SOURCE, path)["main"]
        (step,) = lane.steps
        assert step.key.startswith("openai:chatcmpl-s:")
        assert step.usage.prompt == 1000
        assert [lane.pool[i].body for r in step.response for i in range(*r)] == ["Hello"]


def test_conversations_without_ids_are_told_apart_by_how_they_begin(tmp_path) -> None:
    other = copy.deepcopy(record(1))
    other["request"]["messages"][1]["content"] = "Something else."
    other["response"]["id"] = "chatcmpl-other"
    clocked = copy.deepcopy(record(2))
    clocked["request"]["messages"][0]["content"] = "You help. It is late."
    path = write_lines(tmp_path / "a.jsonl", [record(0), other, record(1), clocked])
    found = lanes(SOURCE, path)
    assert {name: len(lane.steps) for name, lane in found.items()} == {"main": 3, "main-2": 1}


def test_runs_that_share_a_file_name_are_sessions_of_their_own(tmp_path) -> None:
    names = set()
    for folder in ("one", "two"):
        rows = [record(n) for n in range(2)]
        for row in rows:
            row["request"]["messages"][1]["content"] = f"You work on {folder}."
        (tmp_path / folder).mkdir()
        path = write_lines(tmp_path / folder / "trace.jsonl", rows)
        names |= {lane.session.session_id for lane in lanes(SOURCE, path).values()}
    assert len(names) == 2


def reused(folder: str, created: int | None) -> list[dict]:
    """Two requests of a run, whose gateway counts its ids from 0 in every run."""
    rows = [record(n) for n in range(2)]
    for n, row in enumerate(rows):
        row["request"]["messages"][1]["content"] = f"You work on {folder}."
        if created is not None:
            row["response"]["created"] = created + n
    return rows


@pytest.mark.parametrize("created", [None, 1_775_793_880])
def test_an_id_that_a_gateway_reuses_stands_for_each_of_its_requests(tmp_path, created) -> None:
    write_lines(tmp_path / "a.jsonl", reused("one", created))
    write_lines(tmp_path / "b.jsonl", reused("two", created and created + 60))
    again = [row | {"note": "as another proxy logged it"} for row in reused("one", created)]
    write_lines(tmp_path / "c.jsonl", again)
    report = ingest([tmp_path], tmp_path / "store.duckdb")
    assert (report.steps, report.duplicates) == (4, 2)


def test_a_request_that_an_agent_recorded_too_is_counted_once(tmp_path) -> None:
    rows = reused("one", 1_775_793_880)
    messages = [*rows[1]["request"]["messages"], {"role": "assistant", "content": "Done."}]
    answers = [m for m in messages if m["role"] == "assistant"]
    for row, answer in zip(rows, answers, strict=True):
        answer["extra"] = {"response": row["response"]}
    run = {"info": {"mini_version": "2.2.7"}, "messages": messages, "instance_id": "repo__1"}
    run["trajectory_format"] = "mini-swe-agent-1.1"
    (tmp_path / "run.traj.json").write_text(json.dumps(run), encoding="utf-8")
    write_lines(tmp_path / "proxy.jsonl", rows)
    report = ingest([tmp_path], tmp_path / "store.duckdb")
    assert (report.files, report.steps, report.duplicates) == (2, 2, 2)


def test_a_summary_in_place_of_the_history_continues_its_lane(tmp_path) -> None:
    cut = copy.deepcopy(record(1))
    cut["request"]["messages"][1]["content"] = "Summary of the conversation so far: ..."
    found = lanes(SOURCE, write_lines(tmp_path / "a.jsonl", [record(0), cut]))
    assert {name: len(lane.steps) for name, lane in found.items()} == {"main": 2}


def responses(n: int, given, **more) -> dict:
    return {
        "request": {"model": "gpt-5.4", "instructions": "You help.", "input": given} | more,
        "response": {
            "id": f"resp_{n}",
            "object": "response",
            "status": "completed",
            "model": "gpt-5.4",
            "output": [
                {"type": "reasoning", "id": f"rs{n}", "summary": [], "encrypted_content": f"e{n}"},
                {"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": "{}"},
            ],
            "usage": {
                "input_tokens": 1000,
                "output_tokens": 7,
                "input_tokens_details": {"cached_tokens": 896},
            },
        },
    }


def test_responses_requests_are_whole_prompts(tmp_path) -> None:
    first = [{"role": "user", "content": [{"type": "input_text", "text": "Go."}]}]
    made = responses(0, first)
    second = [
        *first,
        *made["response"]["output"],
        {"type": "function_call_output", "call_id": "c0", "output": "result"},
    ]
    path = write_lines(tmp_path / "a.jsonl", [made, responses(1, second)])
    assert SOURCE.detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    assert [p.kind for p in lane.parts(lane.steps[1].prompt)] == [
        "text",
        "text",
        "thinking",
        "tool_use",
        "tool_result",
    ]
    assert lane.steps[1].prompt.ranges == ((0, 5),)
    assert lane.steps[0].usage == Usage(input=104, cache_read=896, output=7)


def test_a_previous_response_continues_its_conversation(tmp_path) -> None:
    result = {"type": "function_call_output", "call_id": "c0", "output": "result"}
    rows = [
        responses(0, "Go."),
        responses(1, [result], previous_response_id="resp_0"),
        responses(2, "Again.", previous_response_id="resp_gone"),
    ]
    found = lanes(SOURCE, write_lines(tmp_path / "a.jsonl", rows))
    _, second = found["main"].steps
    assert second.prompt.ranges == ((0, 5),)
    assert second.prompt.recorded
    (lost,) = found["main-2"].steps
    assert not lost.prompt.recorded


def test_bad_lines_are_problems_and_a_cut_last_line_is_none(tmp_path) -> None:
    bad = record(1)
    bad["response"]["usage"]["prompt_tokens"] = -1
    path = write_lines(tmp_path / "a.jsonl", [record(0), {"request": {}}, bad, [1], record(1)])
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"request": {"mess')
    found, problems = batches(SOURCE, path)
    assert [(p.line, p.pointer) for p in problems] == [
        (2, "$.request"),
        (3, "$.response.usage.prompt_tokens"),
        (4, "$"),
    ]
    assert sum(len(b.steps) for b in found) == 2


@pytest.mark.data
def test_generated_logs_give_the_totals_that_their_maker_prints(shared_data, tmp_path) -> None:
    made = subprocess.run(
        [sys.executable, str(shared_data / "generators" / "requests.py"), str(tmp_path)],
        env={"SEED": "11"},
        capture_output=True,
        check=True,
    )
    for kind, truth in json.loads(made.stdout).items():
        path = tmp_path / f"{kind}.oai.jsonl"
        assert SOURCE.detect(read_head(path))
        found, problems = batches(SOURCE, path)
        assert not problems
        usages = [s.usage for b in found for s in b.steps]
        assert sum(u.cache_read for u in usages) == truth["read"]
        assert sum(u.cache_write for u in usages) == truth["write"]


def read_one(tmp_path, response: dict):
    given = record(1)
    given["response"] = {**given["response"], **response}
    (step,) = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", [given]))["main"].steps
    return step


def test_the_tier_that_served_a_request_is_what_it_is_billed_on(tmp_path) -> None:
    step = read_one(tmp_path, {"service_tier": "flex"})
    assert step.usage.terms == ("flex",)
    assert dict(step.labels)["service_tier"] == "flex"
    assert read_one(tmp_path, {"service_tier": "default"}).usage.terms == ()


@pytest.mark.parametrize(
    ("diagnostics", "reason"),
    [
        (
            {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 9},
            "tools_changed",
        ),
        ({"cache_miss": {"reason": "input_changed"}}, "input_changed"),
        ({"type": "unavailable"}, "unavailable"),
        ({"type": "cache_hit"}, None),
        (None, None),
    ],
)
def test_the_providers_own_reason_for_a_miss_is_kept(tmp_path, diagnostics, reason) -> None:
    request = {"model": "gpt-6-sol", "input": "Go."}
    response = {
        "id": "resp_1",
        "output": [{"type": "message", "role": "assistant", "content": "Ho"}],
        "usage": {"input_tokens": 5, "output_tokens": 1},
        "prompt_cache_diagnostics": diagnostics,
    }
    path = write_lines(tmp_path / "run.jsonl", [{"request": request, "response": response}])
    (step,) = lanes(SOURCE, path)["main"].steps
    assert step.miss_reason == reason


def test_audio_is_counted_apart(tmp_path) -> None:
    usage = {
        "prompt_tokens": 500,
        "completion_tokens": 90,
        "prompt_tokens_details": {
            "audio_tokens": 300,
            "cached_tokens": 200,
            "cached_tokens_details": {"audio_tokens": 120},
        },
        "completion_tokens_details": {"audio_tokens": 60},
    }
    step = read_one(tmp_path, {"usage": usage})
    assert dict(step.usage.apart) == {"audio_input": 180, "audio_output": 60, "audio_read": 120}
