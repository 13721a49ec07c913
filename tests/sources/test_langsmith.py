from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analyzer.model import Usage
from analyzer.sources import detect
from analyzer.sources.base import read_head
from analyzer.sources.langsmith import LangSmithSource
from analyzer.sources.langsmith_usage import usage_metadata
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
    assert usage_metadata(counts, "$").usage == expected
    beside = counts | {"input_tokens": 10, "total_tokens": 811}
    assert usage_metadata(beside, "$").usage == expected


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


T0 = datetime(2026, 3, 1, 9, tzinfo=UTC)


def run(name: str, at: int, *above: str, run_type: str = "llm", **fields) -> dict:
    """A run as `list_runs` gives it; `above` are the runs around it, from the outside."""
    chain = [*above, name]
    started = T0 + timedelta(seconds=at)
    return {
        "id": name,
        "name": name,
        "run_type": run_type,
        "start_time": started.isoformat(),
        "end_time": (started + timedelta(seconds=1)).isoformat(),
        "trace_id": chain[0],
        "parent_run_id": above[-1] if above else None,
        "dotted_order": ".".join(f"20260301T0900{i:02d}000000Z{n}" for i, n in enumerate(chain)),
        "session_id": "the project",
        "extra": {"metadata": fields.pop("metadata", {})},
        "inputs": {"messages": [{"role": "user", "content": fields.pop("said", "Hi")}]},
        "outputs": {"choices": [{"message": {"role": "assistant", "content": f"by {name}"}}]},
    } | fields


def counted(total: int) -> dict:
    return {"usage_metadata": {"input_tokens": total, "output_tokens": 1}}


def dump(path, runs):
    path.write_text("".join(json.dumps(r) + "\n" for r in runs), encoding="utf-8")
    return path


def trace() -> list[dict]:
    """Two requests of an agent, and between them two of an agent that is its tool."""
    sums = {"run_type": "chain", "total_tokens": 99, "prompt_tokens": 90}
    return [
        run("root", 0, metadata={"thread_id": "thread-1", "arm": "raw"}, **sums),
        run("one", 1, "root", outputs=counted(10)),
        run("search", 2, "root", run_type="tool"),
        run("two", 3, "root", "search", said="Find it", outputs=counted(20)),
        run("three", 4, "root", "search", said="Find it", outputs=counted(30)),
        run("four", 5, "root", outputs=counted(40)),
    ]


def test_every_kind_of_export_gives_the_requests_in_order_and_no_sums(tmp_path) -> None:
    runs = trace()
    rows = [
        {k: json.dumps(v) if isinstance(v, dict) else v for k, v in r.items()} for r in runs[::-1]
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "export.parquet")
    dump(tmp_path / "newest_first.jsonl", runs[::-1])
    dump(tmp_path / "twice.jsonl", [*runs, *runs[2:]])
    tree = runs[0] | {"child_runs": [*runs[1:3], *runs[5:]]}
    tree["child_runs"][1] = runs[2] | {"child_runs": runs[3:5]}
    documents = {"array": runs, "page": {"runs": runs, "cursors": {}}, "tree": tree}
    for name, value in documents.items():
        text = json.dumps(value, indent=1)
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    for path in sorted(tmp_path.iterdir()):
        assert detect(read_head(path)).name == "langsmith", path
        found = lanes(SOURCE, path)
        prompts = {name: [s.usage.prompt for s in lane.steps] for name, lane in found.items()}
        assert prompts == {"main": [10, 40], "search": [20, 30]}, path
        assert {lane.session.session_id for lane in found.values()} == {"thread-1"}
        assert (found["main"].parent, found["search"].parent) == (None, "main")


def test_nodes_of_a_graph_are_agents_whatever_their_runs_are_called(tmp_path) -> None:
    def at(path: str) -> dict:
        return {"langgraph_checkpoint_ns": path, "conversation_id": "c-1"}

    runs = [
        run("a", 1, metadata=at("boss:11")),
        run("b", 2, metadata=at("coder:22|agent:33")),
        run("c", 3, metadata=at("boss:44")),
        run("d", 4, metadata=at("coder:55|agent:66")),
    ]
    found = lanes(SOURCE, dump(tmp_path / "a.jsonl", runs))
    assert {name: len(lane.steps) for name, lane in found.items()} == {"main": 2, "coder/agent": 2}


def test_a_client_wrapped_twice_made_one_request(tmp_path) -> None:
    inside = run("in", 2, "out", outputs=counted(10))
    for outer, inner in ((counted(10), counted(10)), (counted(10), {}), ({}, counted(10))):
        runs = [run("out", 1, outputs=outer), inside | {"outputs": inner}]
        (step,) = lanes(SOURCE, dump(tmp_path / "a.jsonl", runs))["main"].steps
        assert step.usage.prompt == 10
    both = [run("out", 1, outputs={}), inside | {"outputs": {}}]
    (step,) = lanes(SOURCE, dump(tmp_path / "a.jsonl", both))["main"].steps
    assert (step.key, step.usage) == ("langsmith:in", None)


def wrapped(sdk: str, version: str, details: dict, **outputs) -> dict:
    message = {"role": "assistant", "content": [{"type": "text", "text": "Ho"}]}
    message |= {"model": "claude-sonnet-4-5", "stop_reason": "end_turn"}
    counts = {"input_tokens": 50, "output_tokens": 5, "total_tokens": 55}
    message["usage_metadata"] = counts | {"input_token_details": details}
    extra = {
        "metadata": {"ls_provider": "anthropic"},
        "runtime": {"sdk": sdk, "sdk_version": version},
    }
    asked = [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}]
    request = {"model": "claude-sonnet-4-5", "messages": asked, "max_tokens": 9}
    return run("r", 1, extra=extra, inputs=request, outputs=message | outputs)


@pytest.mark.parametrize(
    ("sdk", "version", "details", "expected"),
    [
        ("langsmith-py", "0.7.13", {"cache_read": 20}, Usage(50, 20, None, output=5)),
        ("langsmith-py", "0.7.14", {"cache_read": 20}, Usage(30, 20, None, output=5)),
        ("langsmith-py", "0.7.13", {"cache_creation": 20}, Usage(50, None, 20, output=5)),
        (
            "langsmith-js",
            "0.5.7",
            {"cache_read": 20, "ephemeral_5m_input_tokens": 1, "ephemeral_1hr_input_tokens": 2},
            Usage(50, 20, 3, 1, 2, output=5),
        ),
        (
            "langsmith-js",
            "0.5.8",
            {"cache_read": 20, "ephemeral_5m_input_tokens": 1, "ephemeral_1hr_input_tokens": 2},
            Usage(27, 20, 3, 1, 2, output=5),
        ),
    ],
)
def test_wrapped_anthropic_clients_count_as_their_version_did(
    tmp_path, sdk, version, details, expected
) -> None:
    path = dump(tmp_path / "a.jsonl", [wrapped(sdk, version, details)])
    lane = lanes(SOURCE, path)["main"]
    (step,) = lane.steps
    assert step.usage == expected
    assert [(p.section, p.body) for p in lane.parts(step.prompt)] == [
        ("system", "S"),
        ("messages", "Hi"),
    ]
    assert [lane.pool[i].body for r in step.response for i in range(*r)] == ["Ho"]
    assert (step.stop_reason, step.model) == ("end_turn", "claude-sonnet-4-5")


def test_reads_and_writes_that_a_client_added_up_stay_unknown(tmp_path) -> None:
    for cached, expected in ((900, Usage(output=5)), (0, Usage(50, 0, 0, output=5))):
        value = wrapped("langsmith-py", "0.4.60", {"cache_read": cached})
        value["outputs"] = {"message": value["outputs"]}
        (step,) = lanes(SOURCE, dump(tmp_path / "a.jsonl", [value]))["main"].steps
        assert step.usage == expected
        assert dict(step.labels).get("cache_tokens_read_or_written") == (str(cached or "") or None)


def test_what_a_provider_wrote_is_believed_before_what_a_client_made_of_it(tmp_path) -> None:
    raw = {"input_tokens": 3, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 5}
    fields = {"content": "A", "response_metadata": {"usage": raw | {"output_tokens": 2}}}
    answer = {"lc": 1, "type": "constructor", "id": ["langchain", "messages", "AIMessage"]}
    answer["kwargs"] = fields | {"usage_metadata": {"input_tokens": 3, "output_tokens": 2}}
    value = run("r", 1, outputs={"generations": [[{"message": answer}]]}, total_cost="0.25")
    (step,) = lanes(SOURCE, dump(tmp_path / "a.jsonl", [value]))["main"].steps
    assert step.usage == Usage(3, 7, 5, output=2)
    assert step.reported_cost == 0.25


def test_counts_of_a_run_itself_are_used_where_its_answer_has_none(tmp_path) -> None:
    own = {"prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 104}
    tiers = {"priority_cache_read": 60, "cache_read": 4}
    value = run("r", 1, prompt_token_details=tiers, **own)
    (step,) = lanes(SOURCE, dump(tmp_path / "a.jsonl", [value]))["main"].steps
    assert step.usage == Usage(36, 64, output=4)


def test_messages_are_known_by_their_class_and_a_call_is_one_part(tmp_path) -> None:
    def lc(name: str, **fields) -> dict:
        kind = ["langchain_core", "messages", name, f"{name}Message"]
        return {"lc": 1, "type": "constructor", "id": kind, "kwargs": fields}

    block = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    made = {"id": "c1", "name": "look", "args": {}}
    other = {"id": "c2", "function": {"name": "hear", "arguments": "{}"}}
    asked = [
        lc("Human", content="Q"),
        lc("AI", content=[block], tool_calls=[made]),
        lc("Tool", content="found", tool_call_id="c1"),
        lc("AI", content="", additional_kwargs={"tool_calls": [other]}),
        ["human", "And?"],
    ]
    value = run("r", 1, inputs={"messages": [asked]})
    lane = lanes(SOURCE, dump(tmp_path / "a.jsonl", [value]))["main"]
    kinds = [(p.role, p.kind, p.tool) for p in lane.parts(lane.steps[0].prompt)]
    assert kinds == [
        ("user", "text", None),
        ("assistant", "tool_use", "look"),
        ("tool", "tool_result", "look"),
        ("assistant", "tool_use", "hear"),
        ("user", "text", None),
    ]


def test_a_request_whose_inputs_are_hidden_keeps_its_counts(tmp_path) -> None:
    runs = [
        run("r", 1, inputs={}, outputs=counted(10), metadata={"arm": "raw", "ls_x": "y"}),
        run("s", 2, inputs={"question": {"deep": 1}}, outputs=counted(20)),
    ]
    found, problems = batches(SOURCE, dump(tmp_path / "a.jsonl", runs))
    steps = [s for b in found for s in b.steps]
    assert not problems
    assert [(s.usage.prompt, len(s.prompt), s.prompt.recorded) for s in steps] == [
        (10, 0, False),
        (20, 0, False),
    ]
    assert steps[0].labels == (("arm", "raw"),)


def test_runs_without_a_trace_are_told_apart_by_how_they_begin(tmp_path) -> None:
    names = set()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        value = run(folder, 1, said=folder) | {"trace_id": None, "dotted_order": None}
        path = dump(tmp_path / folder / "runs.jsonl", [value])
        assert SOURCE.detect(read_head(path))
        names |= {lane.session.session_id for lane in lanes(SOURCE, path).values()}
    assert len(names) == 2


def test_a_history_cut_at_its_front_stays_in_its_lane(tmp_path) -> None:
    said = [{"role": r, "content": f"{r} {n}"} for n in range(3) for r in ("user", "assistant")]
    runs = [
        run("a", 1, "t", inputs={"messages": said[:5]}),
        run("b", 2, "t", inputs={"messages": said[2:]}),
        run("c", 3, "t", said="Something else"),
    ]
    found = lanes(SOURCE, dump(tmp_path / "a.jsonl", runs))
    assert {name: len(lane.steps) for name, lane in found.items()} == {"main": 2, "main-2": 1}


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
