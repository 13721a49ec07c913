from __future__ import annotations

import json

from analyzer.intake import ingest
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.base import read_head
from tests.builders import anthropic_records, keep_newest, write_lines
from tests.reading import batches, lanes

SOURCE = AnthropicLogSource()


def test_each_step_has_its_whole_prompt(tmp_path) -> None:
    records = anthropic_records(5)
    lane = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", records))["main"]
    for step, record in zip(lane.steps, records, strict=True):
        parts = lane.parts(step.prompt)
        request = record["request"]
        assert sum(p.section == "tools" for p in parts) == len(request["tools"])
        assert sum(p.starts_message for p in parts) == len(request["messages"])
        assert [p.body for p in parts if p.kind == "tool_result"] == [
            b["content"]
            for m in request["messages"]
            for b in m["content"]
            if b["type"] == "tool_result"
        ]
        assert step.usage.prompt == sum(
            record["response"]["usage"][k]
            for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )


def test_a_moving_cache_mark_is_no_change_of_content(tmp_path) -> None:
    lane = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", anthropic_records(4)))["main"]
    assert all(len(s.prompt.ranges) == 1 for s in lane.steps)
    assert [b.position for b in lane.steps[0].prompt.breakpoints] == [3, 4]


def test_the_response_is_found_again_in_the_next_prompt(tmp_path) -> None:
    lane = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", anthropic_records(4)))["main"]
    for step, after in zip(lane.steps, lane.steps[1:], strict=False):
        held = set(after.prompt.indices())
        assert {i for r in step.response for i in range(r.start, r.stop)} <= held


def test_stubs_are_other_parts_with_the_same_call(tmp_path) -> None:
    records = anthropic_records(8, shape=keep_newest(3))
    lane = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", records))["main"]
    last = lane.parts(lane.steps[-1].prompt)
    assert [p.call_id for p in last if p.placeholder] == [f"call_{i}" for i in range(4)]


def test_bare_request_bodies_are_steps_without_usage(tmp_path) -> None:
    path = write_lines(tmp_path / "run.jsonl", [r["request"] for r in anthropic_records(3)])
    assert SOURCE.detect(read_head(path))
    steps = lanes(SOURCE, path)["main"].steps
    assert [s.usage for s in steps] == [None, None, None]
    assert all(s.prompt for s in steps)


def test_conversations_without_ids_are_told_apart_by_their_first_message(tmp_path) -> None:
    one, two = anthropic_records(4, seed=1), anthropic_records(4, seed=2)
    mixed = [r for pair in zip(one, two, strict=True) for r in pair]
    found = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", mixed))
    assert {name: len(lane.steps) for name, lane in found.items()} == {"main": 4, "main-2": 4}
    assert all(len(s.prompt.ranges) == 1 for lane in found.values() for s in lane.steps)


def test_a_conversation_cut_at_its_front_stays_one_lane(tmp_path) -> None:
    def window(messages, step):
        del messages[:-9]

    one, two = anthropic_records(12, seed=1, shape=window), anthropic_records(4, seed=2)
    mixed = [r for pair in zip(one, two, strict=False) for r in pair] + one[4:]
    found = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", mixed))
    assert {name: len(lane.steps) for name, lane in found.items()} == {"main": 12, "main-2": 4}


def test_sessions_with_ids_may_be_interleaved(tmp_path) -> None:
    one, two = anthropic_records(4, seed=1), anthropic_records(4, seed=2)
    mixed = [
        {**r, "session_id": name}
        for pair in zip(one, two, strict=True)
        for name, r in zip("ab", pair, strict=True)
    ]
    found, problems = batches(SOURCE, write_lines(tmp_path / "run.jsonl", mixed))
    assert not problems
    assert {(b.session.session_id, b.lane): len(b.steps) for b in found} == {
        ("a", "main"): 4,
        ("b", "main"): 4,
    }


def test_a_streamed_response_is_put_together(tmp_path) -> None:
    record = anthropic_records(1)[0]
    usage = record["response"]["usage"]
    events = [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "model": "claude-sonnet-4-6",
                "usage": {**usage, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hel"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "lo"}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 77},
        },
    ]
    record["response"] = "".join(f"event: x\ndata: {json.dumps(e)}\n\n" for e in events)
    lane = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", [record]))["main"]
    step = lane.steps[0]
    assert step.usage.output == 77
    assert step.usage.cache_write == usage["cache_creation_input_tokens"]
    assert step.stop_reason == "end_turn"
    assert lane.pool[step.response[0].start].body == "hello"


def test_a_bad_line_costs_only_itself(tmp_path) -> None:
    lines = [json.dumps(r) for r in anthropic_records(3)]
    lines.insert(1, '{"ts": "x", "request": {"model": "claude-x"}}')
    lines.insert(1, json.dumps({**anthropic_records(1)[0], "ts": "yesterday"}))
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(lines) + "\n")
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 3
    assert [(p.line, p.pointer) for p in problems] == [(2, "$.time"), (3, "$.request.messages")]


def test_a_record_nested_deeper_than_can_be_read_costs_only_itself(tmp_path) -> None:
    lines = [json.dumps(r) for r in anthropic_records(3)]
    for depth in (1_500, 100_000):
        lines.insert(1, lines[0][:-1] + ', "extra": ' + "[" * depth + "]" * depth + "}")
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(lines) + "\n")
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 3
    assert [(p.line, "nesting" in p.message) for p in problems] == [(2, True), (3, True)]


def test_what_strict_parsers_refuse_is_still_read(tmp_path) -> None:
    first, second = (json.dumps(r) for r in anthropic_records(2))
    answer = json.dumps(anthropic_records(1)[0]["response"]["content"])
    lines = [
        f'{first[:-1]}, "note": "\\ud83d", "x": NaN}}'.encode(),
        second.replace(answer, '[{"type": "text", "text": "ab"}]')
        .encode()
        .replace(b"ab", b"a\xf0"),
    ]
    lines.append(lines[1].replace(b'"ts"', b'"z": Infinity, "ts"', 1))
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    found, problems = batches(SOURCE, path)
    assert problems == []
    assert sum(len(b.steps) for b in found) == 3


def test_a_last_line_that_is_still_being_written_is_no_problem(tmp_path) -> None:
    whole = write_lines(tmp_path / "run.jsonl", anthropic_records(3)).read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    path = tmp_path / "cut.jsonl"
    for end in range(last, len(whole), 97):
        path.write_bytes(whole[:end])
        found, problems = batches(SOURCE, path)
        assert sum(len(b.steps) for b in found) == 2
        assert not problems


def test_an_id_that_a_gateway_reuses_stands_for_each_of_its_requests(tmp_path) -> None:
    one, two = anthropic_records(3, seed=1), anthropic_records(3, seed=2)
    for a, b in zip(one, two, strict=True):
        b["response"]["id"] = a["response"]["id"]
    first = lanes(SOURCE, write_lines(tmp_path / "a.jsonl", one))["main"]
    again = lanes(SOURCE, write_lines(tmp_path / "b.jsonl", one))["main"]
    other = lanes(SOURCE, write_lines(tmp_path / "c.jsonl", two))["main"]
    assert [s.key for s in again.steps] == [s.key for s in first.steps]
    assert not {s.key for s in other.steps} & {s.key for s in first.steps}


def test_a_cut_capture_of_a_response_is_the_same_request_as_the_whole_one(tmp_path) -> None:
    whole, cut = anthropic_records(3), anthropic_records(3)
    for record in cut:
        record["response"]["usage"]["output_tokens"] = 1
    first = lanes(SOURCE, write_lines(tmp_path / "a.jsonl", whole))["main"]
    again = lanes(SOURCE, write_lines(tmp_path / "b.jsonl", cut))["main"]
    assert [s.key for s in again.steps] == [s.key for s in first.steps]


def test_a_compaction_by_the_server_is_a_request_of_its_own(tmp_path) -> None:
    records = anthropic_records(2)
    usage = records[1]["response"]["usage"]
    inner = {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}
    usage["iterations"] = [inner, {"type": "message", **usage}]
    lane = lanes(SOURCE, write_lines(tmp_path / "run.jsonl", records))["main"]
    assert [s.usage.input for s in lane.steps] == [3, 180_000, 3]
    first, second, answer = lane.steps
    assert second.key != answer.key
    assert second.prompt == answer.prompt
    assert (second.response, bool(answer.response)) == ((), True)
    assert (second.human, answer.human) == (False, False)
    assert first.human


def test_two_runs_that_begin_with_the_same_bare_request_are_two(tmp_path) -> None:
    first, second = (
        write_lines(
            tmp_path / f"{name}.jsonl",
            [record["request"] for record in anthropic_records(3, seed=1)[:1]]
            + [record["request"] for record in anthropic_records(3, seed=seed)[1:]],
        )
        for name, seed in (("one", 1), ("two", 2))
    )
    report = ingest([first, second], tmp_path / "s.duckdb")
    assert (report.steps, report.duplicates) == (6, 0)
