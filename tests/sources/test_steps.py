"""The product's own step JSONL: what a writer may rely on when a file is read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from analyzer.sources.base import read_head
from analyzer.sources.steps import StepsSource, validate_file
from tests.step_rows import Read, Row, call, result, user, whole, write_lines


def test_a_line_becomes_a_step_with_its_fields(tmp_path: Path) -> None:
    usage = {
        "input_tokens": 3,
        "cache_read_tokens": 10,
        "cache_write_5m_tokens": 7,
        "cache_write_1h_tokens": 20,
        "output_tokens": 9,
        "reasoning_tokens": 4,
    }
    row = whole(
        user("hi"),
        v=1,
        id=7,
        at="2026-05-12T10:00:00+02:00",
        ended_at=1_778_573_000_000,
        model="claude-sonnet-4-6",
        provider="anthropic",
        usage=usage,
        cache_miss_reason={"type": "tools_changed"},
        stop_reason="end_turn",
        cost_usd=0.5,
        labels={"arm": "raw", "success": True},
        compaction={"tier": 2, "summary_called": False, "window_used": 0.8, "pruned": 4},
    )
    row["request"] |= {"tool_choice": {"type": "auto"}, "max_tokens": 5}
    step = Read(write_lines(tmp_path / "a.jsonl", [row])).steps[0]
    assert step.key == "steps:s:main:7"
    assert step.at is not None
    assert step.at.isoformat() == "2026-05-12T08:00:00+00:00"
    assert step.ended_at is not None
    assert (step.model, step.provider) == ("claude-sonnet-4-6", "anthropic")
    assert step.usage is not None
    assert (step.usage.input, step.usage.cache_read, step.usage.cache_write) == (3, 10, 27)
    assert (step.usage.output, step.usage.reasoning) == (9, 4)
    assert step.prompt is not None
    assert step.prompt.settings == (("tool_choice", '{"type":"auto"}'),)
    assert step.miss_reason == "tools_changed"
    assert step.labels == (("arm", "raw"), ("success", "true"))
    assert step.compaction is not None
    assert (step.compaction.kind, step.compaction.tier, step.compaction.pruned) == ("clear", "2", 4)
    assert step.compaction.snipped is None
    assert (step.reported_cost, step.stop_reason, step.line) == (0.5, "end_turn", 1)


def test_what_a_line_does_not_say_is_unknown_and_not_zero(tmp_path: Path) -> None:
    rows = [whole(user("hi")), whole(user("hi"), user("ho"), usage={"output_tokens": 1})]
    first, second = Read(write_lines(tmp_path / "a.jsonl", rows)).steps
    assert first.usage is None
    assert first.at is None
    assert second.usage is not None
    assert second.usage.input is None
    assert second.usage.cache_read is None


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 10}},
            (20, 10, None),
        ),
        (
            {
                "input_tokens": 30,
                "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5},
            },
            (15, 10, 5),
        ),
        (
            {
                "input_tokens": 30,
                "cache_read_input_tokens": 10,
                "cache_creation": {"ephemeral_1h_input_tokens": 6},
            },
            (30, 10, 6),
        ),
        ({"input_tokens": 30, "cache_read_tokens": 10}, (30, 10, None)),
    ],
    ids=["openai chat", "openai responses", "anthropic", "ours"],
)
def test_usage_is_made_disjoint_whoever_wrote_it(
    tmp_path: Path, usage: Row, expected: tuple[int, int, int | None]
) -> None:
    step = Read(write_lines(tmp_path / "a.jsonl", [whole(user("hi"), usage=usage)])).steps[0]
    assert step.usage is not None
    got = (step.usage.input, step.usage.cache_read, step.usage.cache_write)
    assert got == expected


def test_more_cached_tokens_than_prompt_tokens_is_a_problem(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 10}}
    read = Read(write_lines(tmp_path / "a.jsonl", [whole(user("hi"), usage=usage)]))
    assert read.steps == []
    assert [p.pointer for p in read.problems] == ["$.usage"]


def test_the_response_is_the_next_prompts_assistant_message(tmp_path: Path) -> None:
    answer = [{"type": "text", "text": "Let me look.", "citations": None}, *call("t1")["content"]]
    sent = {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, answer[1]]}
    rows = [whole(user("hi"), response=answer), whole(user("hi"), sent, result("t1", "x"))]
    first, second = Read(write_lines(tmp_path / "a.jsonl", rows)).steps
    assert second.prompt is not None
    answered = [i for r in first.response for i in range(r.start, r.stop)]
    assert answered == list(second.prompt.indices())[2:4]


def test_a_chat_completion_is_unwrapped(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "done"}
    usage = {"prompt_tokens": 4, "completion_tokens": 1}
    rows = [
        whole(user("hi"), response={"choices": [{"message": message}], "usage": usage}),
        whole(user("hi"), message, user("more")),
    ]
    read = Read(write_lines(tmp_path / "a.jsonl", rows))
    assert read.steps[0].usage is not None
    assert read.steps[0].usage.input == 4
    assert len(read.steps[1].new_parts) == 1


def test_a_person_spoke_only_where_new_user_text_came(tmp_path: Path) -> None:
    rows = [
        whole(user("hi")),
        {"session": "s", "append": [call("t1"), result("t1", "x")]},
        {"session": "s", "append": [call("t2"), result("t2", "y")], "drop": [[1, 3]]},
        {"session": "s", "append": [{"role": "assistant", "content": "ok"}, user("hi")]},
    ]
    read = Read(write_lines(tmp_path / "a.jsonl", rows))
    assert [step.human for step in read.steps] == [True, False, False, True]


def test_an_appending_lane_is_one_range_even_with_equal_messages(tmp_path: Path) -> None:
    messages = [user("continue")]
    rows = []
    for _ in range(5):
        rows.append(whole(*messages, response="ok"))
        messages += [{"role": "assistant", "content": "ok"}, user("continue")]
    read = Read(write_lines(tmp_path / "a.jsonl", rows))
    prompts = [step.prompt for step in read.steps]
    assert [p.ranges for p in prompts if p is not None] == [((0, 2 + 2 * n),) for n in range(5)]


def test_marks_and_parameters_stay_for_deltas(tmp_path: Path) -> None:
    row = whole(user("hi"), model="m", provider="p")
    row["request"] |= {"cache_control": {"type": "ephemeral", "ttl": "1h"}, "tool_choice": "auto"}
    row["request"]["system"] = [
        {"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}
    ]
    delta = {"session": "s", "append": [call("t1"), result("t1", "x")]}
    step = Read(write_lines(tmp_path / "a.jsonl", [row, delta])).steps[1]
    assert step.prompt is not None
    assert step.prompt.breakpoints == ((0, "5m"), (3, "1h"))
    assert step.prompt.settings == (("tool_choice", "auto"),)
    assert (step.model, step.provider) == ("m", "p")
    assert step.prompt.recorded


def test_a_lane_without_a_request_is_marked_as_rebuilt(tmp_path: Path) -> None:
    rows = [{"session": "s", "append": [user("hi")]}, whole(user("hi"), user("ho"))]
    first, second = Read(write_lines(tmp_path / "a.jsonl", rows)).steps
    assert first.prompt is not None
    assert second.prompt is not None
    assert (first.prompt.recorded, second.prompt.recorded) == (False, True)


def test_sessions_and_lanes_may_take_turns(tmp_path: Path) -> None:
    rows: list[Row] = [{"type": "session", "session": "a", "title": "T", "attributes": {"k": 1}}]
    lanes = [("a", "main", None), ("a", "search", "main"), ("b", "main", None)]
    for n in range(6):
        for session, lane, parent in lanes:
            row: Row = {"session": session, "lane": lane, "parent": parent}
            said = [user(f"{session}{lane}{k}") for k in range(n + 1)]
            if n % 3 == 2:
                row["append"] = said[-1:]
            else:
                row["request"] = {"messages": said}
            rows.append(row)
    read = Read(write_lines(tmp_path / "a.jsonl", rows))
    assert read.problems == []
    assert {(b.session.session_id, b.lane, b.parent, b.title) for b in read.batches} == {
        ("a", "main", None, "T"),
        ("a", "search", "main", "T"),
        ("b", "main", None, None),
    }
    for number, (session, lane) in enumerate(read.lane_of):
        own = read.bodies(number)
        assert own == [f"{session}{lane}{k}" for k in range(len(own))]
    assert read.steps[0].labels == (("k", "1"),)


def test_the_same_line_is_the_same_step_in_another_file(tmp_path: Path) -> None:
    rows = [
        whole(user("hi")),
        {"session": "s", "append": [user("continue")]},
        {"session": "s", "append": [user("continue")]},
    ]
    short = Read(write_lines(tmp_path / "a.jsonl", rows[:2]))
    longer = Read(write_lines(tmp_path / "b.jsonl", rows))
    keys = [step.key for step in longer.steps]
    assert [step.key for step in short.steps] == keys[:2]
    assert len(set(keys)) == 3


def test_a_delta_that_was_written_twice_counts_once(tmp_path: Path) -> None:
    delta = {"session": "s", "id": "x", "append": [user("more")]}
    read = Read(write_lines(tmp_path / "a.jsonl", [whole(user("hi")), delta, delta]))
    assert [len(read.digests(n)) for n in range(len(read.steps))] == [2, 3]


def test_bad_lines_become_problems_and_the_rest_is_read(tmp_path: Path) -> None:
    good = whole(user("hi"))
    bad: list[Row | str] = [
        "{not json",
        "[]",
        {"request": {"messages": []}},
        {"session": "s"},
        {"session": "s", "request": {"messages": "x"}},
        {"session": "s", "request": {"messages": [user("a"), 5]}},
        {"session": "s", "request": "x"},
        {"session": "s", "append": [user("a")], "replace": [{"index": 99, "message": user("b")}]},
        {"session": "s", "request": {"messages": []}, "usage": {"input_tokens": 1.5}},
        {"session": "s", "request": {"messages": []}, "at": "yesterday"},
        {"session": "s", "v": 2, "request": {"messages": []}},
        {"session": "s", "type": "event"},
    ]
    lines = [json.dumps(good)]
    for row in bad:
        lines += [row if isinstance(row, str) else json.dumps(row), json.dumps(good)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    read = Read(path)
    assert [p.line for p in read.problems] == [2 * n for n in range(1, len(bad) + 1)]
    assert len(read.steps) == len(bad) + 1
    assert all(read.digests(n) == read.digests(0) for n in range(len(read.steps)))
    pointers = [p.pointer for p in read.problems]
    assert pointers[5] == "$.request.messages[1]"
    assert pointers[8:11] == ["$.usage.input_tokens", "$.at", "$.v"]
    assert all(p.raw for p in read.problems)


def test_after_a_lost_line_deltas_are_not_taken_for_recorded_prompts(tmp_path: Path) -> None:
    more = {"session": "s", "append": [user("b")]}
    edit = {"session": "s", "append": [user("c")], "drop": [[0, 1]]}
    lines = [json.dumps(whole(user("a"))), "{broken", json.dumps(more), json.dumps(edit)]
    lines += [json.dumps({"session": "s", "append": [user("d")]}), json.dumps(whole(user("z")))]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    prompts = [step.prompt for step in Read(path).steps]
    known = [None if p is None else p.recorded for p in prompts]
    assert known == [True, False, None, None, True]


def test_a_file_that_is_cut_anywhere_in_its_last_lines_never_invents_a_step(tmp_path: Path) -> None:
    rows = [
        whole(user("hi")),
        {
            "session": "s",
            "append": [call("t1"), result("t1", "é\n")],
            "usage": {"input_tokens": 12},
        },
        whole(user("hi"), call("t1"), result("t1", "é\n"), user("next")),
    ]
    data = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    path = tmp_path / "a.jsonl"
    for size in range(ends[0], len(data) + 1):
        path.write_bytes(data[:size])
        read = Read(path)
        assert read.problems == []
        # The bytes before the line end are already the whole object.
        assert len(read.steps) == sum(size >= end - 1 for end in ends)
        assert validate_file(path) == []


def test_a_last_line_that_is_whole_but_wrong_is_a_problem(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [whole(user("hi")), {"session": "s"}], end="")
    assert [p.line for p in Read(path).problems] == [2]


def test_a_broken_last_line_with_a_line_end_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(whole(user("hi"))) + '\n{"session":"s","requ\n')
    assert [p.line for p in Read(path).problems] == [2]
    assert [p.line for p in validate_file(path)] == [2]


def test_a_cut_archive_gives_what_can_be_read_and_a_problem(tmp_path: Path) -> None:
    rows = [whole(*[user(f"{n} {k * 7919}") for k in range(n)]) for n in range(1, 200)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = tmp_path / "a.jsonl.gz"
    packed = gzip.compress(data, mtime=0)
    path.write_bytes(packed)
    assert len(Read(path).steps) == 199
    path.write_bytes(packed[: len(packed) // 2])
    read = Read(path)
    assert 0 < len(read.steps) < 199
    assert len(read.problems) == 1


def test_what_strict_parsers_refuse_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first, second = json.dumps(whole(user("a"))), json.dumps(whole(user("a"), user("b")))
    odd = '{"session":"s","request":{"messages":[{"role":"user","content":"\\ud83d"}]},"x_n":NaN}'
    path.write_bytes(b"\xef\xbb\xbf" + f"{first}{second}\r\n\n{odd}\n{second}\n".encode())
    read = Read(path)
    assert read.problems == []
    assert [len(read.digests(n)) for n in range(4)] == [2, 3, 1, 3]


def test_a_line_nested_deeper_than_can_be_read_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [json.dumps(whole(user("a")))] * 2
    for depth in (1_500, 100_000):
        rows.insert(1, rows[0][:-1] + ', "labels": ' + "[" * depth + "]" * depth + "}")
    path.write_text("\n".join(rows) + "\n")
    read = Read(path)
    assert len(read.steps) == 2
    assert [(p.line, "nesting" in p.message) for p in read.problems] == [(2, True), (3, True)]


def test_deep_but_readable_values_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    deep = '{"b":1,"a":' * 600 + "NaN" + "}" * 600
    row = json.dumps(whole(user("a"))).replace('"system"', f'"thinking": {deep}, "system"')
    path.write_text(row + "\n")
    (step,) = Read(path).steps
    settings = dict(step.prompt.settings)
    assert settings["thinking"] == '{"a":' * 600 + "null" + ',"b":1}' * 600


def test_a_file_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    source = StepsSource()
    ours = write_lines(tmp_path / "a.jsonl", [whole(user("x" * 100_000))])
    other = write_lines(tmp_path / "b.jsonl", [{"sessionId": "s", "type": "user", "message": {}}])
    titled = write_lines(tmp_path / "c.jsonl", [{"type": "session", "session": "s", "title": "T"}])
    empty = write_lines(tmp_path / "d.jsonl", [], end="")
    found = [source.detect(read_head(path)) for path in (ours, other, titled, empty)]
    assert found == [True, False, True, False]


def test_requests_inside_a_request_are_steps_before_it(tmp_path: Path) -> None:
    usage = {"input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": 50}
    tried = {"model": "claude-fable-5", "input_tokens": 2, "cache_creation_input_tokens": 21_874}
    usage["iterations"] = [tried, {"model": "claude-opus-4-8"}]
    rows = [whole(user("hi"), id="a", model="claude-opus-4-8", usage=usage)]
    seen = Read(write_lines(tmp_path / "a.jsonl", rows))
    assert [(s.key, s.model) for s in seen.steps] == [
        (f"{seen.steps[1].key}#0", "claude-fable-5"),
        (seen.steps[1].key, "claude-opus-4-8"),
    ]
    assert [s.usage.cache_write for s in seen.steps if s.usage] == [21_874, None]
    assert seen.digests(0) == seen.digests(1)
    assert [s.human for s in seen.steps] == [True, False]


@pytest.mark.parametrize("name", ["at", "ts", "timestamp"])
def test_a_start_is_read_under_the_names_that_logs_give_it(tmp_path: Path, name: str) -> None:
    rows = [whole(user("hi"), **{name: "2026-05-12T09:41:07Z"})]
    (step,) = Read(write_lines(tmp_path / "a.jsonl", rows)).steps
    assert step.at is not None
    assert step.at.isoformat() == "2026-05-12T09:41:07+00:00"
