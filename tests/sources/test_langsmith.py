from __future__ import annotations

import json

import pytest

from analyzer.model import Usage
from analyzer.sources.base import read_head
from analyzer.sources.langsmith import LangSmithSource, usage_metadata
from tests.reading import batches, lanes

SOURCE = LangSmithSource()


def batch(**outputs) -> dict:
    run = {
        "id": "run-1",
        "trace_id": "trace-1",
        "dotted_order": "20241011T205823298773Zrun-1",
        "run_type": "llm",
        "start_time": 1_728_803_135_809,
        "extra": {"metadata": {"ls_provider": "openai", "ls_model_name": "gpt-4o-mini"}},
        "inputs": {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "howdy"}]},
        "outputs": {},
    }
    answer = {"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    patch = {
        "id": "run-1",
        "end_time": 1_728_803_136_663,
        "inputs": None,
        "outputs": {"model": "gpt-4o-mini-2024", "choices": [answer]} | outputs,
    }
    chain = run | {"id": "run-0", "run_type": "chain"}
    return {"post": [run, chain], "patch": [patch]}


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


COUNTS = {
    "input_tokens": 100,
    "output_tokens": 9,
    "total_tokens": 109,
    "input_token_details": {"cache_read": 64},
    "output_token_details": {"reasoning": 4},
}


def test_a_run_posted_and_patched_is_one_step(tmp_path) -> None:
    path = write(tmp_path / "b.json", batch(usage_metadata=COUNTS))
    assert SOURCE.detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    (step,) = lane.steps
    assert (step.key, lane.session.session_id) == ("langsmith:run-1", "trace-1")
    assert (step.model, step.provider, step.stop_reason) == ("gpt-4o-mini-2024", "openai", "stop")
    assert step.usage == Usage(input=36, cache_read=64, output=9, reasoning=4)
    assert [p.body for p in lane.parts(step.prompt)] == ["howdy"]
    assert (step.ended_at - step.at).total_seconds() == pytest.approx(0.854)


def test_a_patch_may_name_its_run_by_the_order_alone(tmp_path) -> None:
    value = batch(usage_metadata=COUNTS)
    del value["patch"][0]["id"]
    value["patch"][0]["dotted_order"] = value["post"][0]["dotted_order"]
    (step,) = lanes(SOURCE, write(tmp_path / "b.json", value))["main"].steps
    assert (step.key, step.usage.prompt) == ("langsmith:run-1", 100)


def test_usage_that_is_not_there_stays_unknown(tmp_path) -> None:
    (step,) = lanes(SOURCE, write(tmp_path / "b.json", batch()))["main"].steps
    assert step.usage is None


def test_writes_are_split_by_lifetime_under_their_exact_names() -> None:
    details = {
        "cache_read": 500,
        "ephemeral_5m_input_tokens": 100,
        "ephemeral_1h_input_tokens": 200,
        "cache_creation": 0,
    }
    counts = {"input_tokens": 810, "output_tokens": 1, "input_token_details": details}
    expected = Usage(10, 500, 300, cache_write_5m=100, cache_write_1h=200, output=1)
    assert usage_metadata(counts, "$") == expected
    beside = counts | {"input_tokens": 10, "total_tokens": 811}
    assert usage_metadata(beside, "$") == expected


def test_messages_of_langchain_are_read(tmp_path) -> None:
    def lc(kind: str, **fields) -> dict:
        return {"lc": 1, "type": "constructor", "kwargs": {"type": kind, **fields}}

    called = lc("ai", content="", tool_calls=[{"id": "c1", "name": "look", "args": {"q": 1}}])
    asked = [lc("system", content="S"), lc("human", content="Q")]
    result = lc("tool", content="found", tool_call_id="c1")
    answer = lc("ai", content="A", usage_metadata=COUNTS)
    run = batch()["post"][0] | {
        "inputs": {"messages": [[*asked, called, result]]},
        "outputs": {"generations": [[{"message": answer}]]},
    }
    path = write(tmp_path / "runs.json", [run])
    assert SOURCE.detect(read_head(path))
    lane = lanes(SOURCE, path)["main"]
    (step,) = lane.steps
    kinds = [(p.role, p.kind, p.tool) for p in lane.parts(step.prompt)]
    assert kinds == [
        ("system", "text", None),
        ("user", "text", None),
        ("assistant", "tool_use", "look"),
        ("tool", "tool_result", "look"),
    ]
    assert step.usage.prompt == 100
    assert [lane.pool[i].body for r in step.response for i in range(*r)] == ["A"]


def test_bad_runs_are_problems(tmp_path) -> None:
    value = batch(usage_metadata=COUNTS | {"input_tokens": "many"})
    value["post"].append(7)
    found, problems = batches(SOURCE, write(tmp_path / "b.json", value))
    assert not found
    assert [p.pointer for p in problems] == ["$.post[2]", "$.outputs.usage_metadata.input_tokens"]


@pytest.mark.data
def test_sums_of_the_real_batches_equal_a_plain_count(shared_data) -> None:
    ours = theirs = n_ours = n_theirs = 0
    for path in sorted((shared_data / "traces" / "langsmith").rglob("*.json")):
        value = json.loads(path.read_text(encoding="utf-8"))
        n_theirs += len({r["id"] for r in value["post"] if r["run_type"] == "llm"})
        for run in (*value["post"], *value["patch"]):
            theirs += ((run.get("outputs") or {}).get("usage_metadata") or {}).get(
                "total_tokens", 0
            )
        assert SOURCE.detect(read_head(path))
        found, problems = batches(SOURCE, path)
        assert not problems
        steps = [s for b in found for s in b.steps]
        n_ours += len(steps)
        ours += sum(s.usage.prompt + s.usage.output for s in steps if s.usage is not None)
    assert (n_ours, ours) == (n_theirs, theirs)
    assert ours > 0
