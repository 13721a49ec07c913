from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
import zstandard

from analyzer.sources.base import Context, read_head
from analyzer.sources.claude_code import ClaudeCodeSource
from tests.builders import Transcript, words
from tests.reading import batches, lanes

SOURCE = ClaudeCodeSource()


@pytest.fixture
def short() -> Transcript:
    t = Transcript()
    t.user("please fix the bug")
    t.answer("a", 0, 20_000)
    t.result("call-a", "content of a " * 100)
    t.answer("b", 20_000, 500)
    t.result("call-b", "content of b " * 100)
    return t


def test_one_response_of_many_rows_is_one_step_and_its_last_usage_counts(short, tmp_path) -> None:
    steps = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert [s.usage.output for s in steps] == [50, 50]
    assert [s.usage.cache_read for s in steps] == [0, 20_000]


def test_the_prompt_of_a_step_is_what_stands_before_its_response(short, tmp_path) -> None:
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    first, second = (lane.parts(s.prompt) for s in lane.steps)
    assert [p.kind for p in first] == ["text"]
    assert [p.kind for p in second] == ["text", "text", "tool_use", "tool_result"]
    assert [p.starts_message for p in second] == [True, True, False, True]
    assert second[3].tool == "Read"


def test_rows_of_a_response_may_stand_apart(short, tmp_path) -> None:
    t = Transcript()
    t.user("go")
    t.answer("a", 0, 20_000)
    late = t.rows.pop()
    t.result("call-x", "result of a parallel call")
    t.rows.append(late)
    t.answer("b", 20_000, 100)
    lane = lanes(SOURCE, t.write(tmp_path))["main"]
    assert len(lane.steps) == 2
    assert [p.kind for p in lane.parts(lane.steps[1].prompt)] == [
        "text",
        "text",
        "tool_use",
        "tool_result",
    ]


def test_a_response_without_a_request_id_is_still_counted_once(tmp_path) -> None:
    t = Transcript()
    t.user("go")
    t.answer("a", 0, 20_000, requestId=None)
    t.result("call-a", "x")
    t.answer("b", 20_000, 100, requestId=None)
    steps = lanes(SOURCE, t.write(tmp_path))["main"].steps
    assert len(steps) == 2
    assert len({s.key for s in steps}) == 2


def test_a_resumed_file_repeats_the_keys_of_the_rows_it_copied(short, tmp_path) -> None:
    resumed = Transcript("99999999-2222-4333-8444-555555555555")
    resumed.rows = [{**row, "sessionId": resumed.session} for row in short.rows]
    resumed.answer("c", 0, 21_000)
    a = lanes(SOURCE, short.write(tmp_path))["main"]
    b = lanes(SOURCE, resumed.write(tmp_path))["main"]
    assert [s.key for s in b.steps[:2]] == [s.key for s in a.steps]
    assert b.session.session_id == resumed.session


def test_client_made_messages_are_no_steps(short, tmp_path) -> None:
    short.row(
        "assistant",
        message={"id": "x", "model": "<synthetic>", "role": "assistant", "content": []},
    )
    assert len(lanes(SOURCE, short.write(tmp_path))["main"].steps) == 2


def test_a_compaction_starts_the_prompt_over_with_its_summary(short, tmp_path) -> None:
    short.row(
        "system",
        subtype="compact_boundary",
        compactMetadata={"trigger": "auto", "preTokens": 150_000},
        parentUuid=None,
    )
    short.user("This session is being continued.", isCompactSummary=True)
    short.answer("c", 18_000, 2_000)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    step = lane.steps[2]
    assert [p.kind for p in lane.parts(step.prompt)] == ["summary"]
    assert step.compaction is not None
    assert step.compaction.pre_tokens == 150_000
    assert step.human is False


def test_results_cleared_in_place_become_stubs(short, tmp_path) -> None:
    short.row(
        "system",
        subtype="microcompact_boundary",
        microcompactMetadata={"compactedToolIds": ["call-a"], "tokensSaved": 300},
    )
    short.answer("c", 18_000, 2_000)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    stubs = [p.call_id for p in lane.parts(lane.steps[2].prompt) if p.placeholder]
    assert stubs == ["call-a"]


def test_a_rewind_takes_the_abandoned_branch_out_of_the_prompt(short, tmp_path) -> None:
    first = short.rows[0]["uuid"]
    short.user("no, do it differently", parentUuid=first)
    short.answer("c", 18_000, 300)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    assert [p.body for p in lane.parts(lane.steps[2].prompt)] == [
        "please fix the bug",
        "no, do it differently",
    ]


def test_sub_agents_are_lanes_of_their_own_in_each_of_their_forms(short, tmp_path) -> None:
    own = Transcript(short.session)
    own.user("look around", isSidechain=True, agentId="abc")
    own.answer("s", 0, 9_000, isSidechain=True, agentId="abc")
    path = own.write(tmp_path, "agent-abc")
    in_file = lanes(SOURCE, path)["abc"]
    for row in own.rows:
        short.row(
            "progress",
            data={
                "type": "agent_progress",
                "agentId": "abc",
                "message": {**row, "isSidechain": False},
            },
        )
    both = lanes(SOURCE, short.write(tmp_path))
    assert sorted(both) == ["abc", "main"]
    assert len(both["main"].steps) == 2
    assert [s.key for s in both["abc"].steps] == [s.key for s in in_file.steps]
    assert both["abc"].parent == in_file.parent == "main"
    assert in_file.session == both["main"].session


def test_a_fallback_inside_one_response_is_a_request_of_its_own(short, tmp_path) -> None:
    usage = short.rows[-2]["message"]["usage"]
    short.rows[-2]["message"]["usage"] = {
        **usage,
        "iterations": [
            {
                "type": "message",
                "model": "claude-fable-5",
                "cache_creation_input_tokens": 21_874,
                "input_tokens": 2,
                "output_tokens": 1,
            },
            {"type": "fallback_message", "model": "claude-opus-4-8", **usage},
        ],
    }
    steps = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert [(s.model, s.usage.cache_write) for s in steps[1:]] == [
        ("claude-fable-5", 21_874),
        ("claude-sonnet-4-6", 500),
    ]


def test_a_flat_zero_beside_nested_writes_does_not_hide_them(short, tmp_path) -> None:
    for row in short.rows:
        if row["type"] == "assistant":
            row["message"]["usage"]["cache_creation_input_tokens"] = 0
    steps = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert [s.usage.cache_write for s in steps] == [20_000, 500]


def test_a_late_answer_means_that_the_request_started_late(tmp_path) -> None:
    t = Transcript()
    t.user("go")
    t.answer("a", 0, 20_000)
    t.result("call-a", "x")
    t.at = t.at.replace(hour=t.at.hour + 1)
    t.answer("b", 0, 20_100)
    steps = lanes(SOURCE, t.write(tmp_path))["main"].steps
    assert (steps[1].at - steps[0].at).total_seconds() > 3_500


def test_a_person_is_told_from_tool_results_and_injected_text(tmp_path) -> None:
    t = Transcript()
    t.user("go")
    t.answer("a", 0, 20_000)
    t.result("call-a", "x")
    t.answer("b", 20_000, 10)
    t.user("<command-name>/clear</command-name>")
    t.answer("c", 20_000, 10)
    t.user("thanks, now the tests")
    t.answer("d", 20_000, 10)
    assert [s.human for s in lanes(SOURCE, t.write(tmp_path))["main"].steps] == [
        True,
        False,
        False,
        True,
    ]


def test_glued_objects_and_lone_surrogates_are_read(short, tmp_path) -> None:
    lines = [json.dumps(row) for row in short.rows]
    lines[2] = lines[2] + '{"type":"summary","summary":"a title","leafUuid":"x"}'
    lines[3] = lines[3].replace("content of a", "content \\ud83d of a")
    path = tmp_path / f"{short.session}.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, problems = batches(SOURCE, path)
    assert problems == []
    assert sum(len(b.steps) for b in found) == 2
    assert found[0].title == "a title"


def test_bad_records_become_problems_and_the_rest_goes_on(short, tmp_path) -> None:
    lines = [json.dumps(row) for row in short.rows]
    lines.insert(3, '{"type": "assistant", "message": {"id": 5}}')
    lines.insert(2, "not json at all")
    lines.insert(1, "[1, 2, 3]")
    lines.insert(1, '{"silly": 1}')
    path = tmp_path / f"{short.session}.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 2
    assert [p.line for p in problems] == [3, 5, 7]
    assert problems[2].pointer == "$.message.id"
    assert problems[1].raw == b"not json at all"


def test_rows_of_new_types_may_name_their_fields_as_they_like(short, tmp_path) -> None:
    lines = [json.dumps(row) for row in short.rows]
    lines.insert(1, '{"type": "beacon", "message": "connected", "timestamp": {"s": 1}}')
    lines.insert(1, '{"type": "frame-link", "summary": {"a": 1}, "version": 3, "isMeta": "no"}')
    path = tmp_path / f"{short.session}.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, problems = batches(SOURCE, path)
    assert problems == []
    assert sum(len(b.steps) for b in found) == 2


def test_what_is_beside_the_counts_of_a_response_never_costs_them(short, tmp_path) -> None:
    short.rows[-1]["message"] |= {"diagnostics": "none", "context_management": []}
    _, problems = batches(SOURCE, short.write(tmp_path))
    assert problems == []


@pytest.mark.parametrize("depth", [1_500, 100_000])
def test_a_row_nested_deeper_than_can_be_read_costs_only_itself(short, tmp_path, depth) -> None:
    lines = [json.dumps(row) for row in short.rows]
    lines.insert(1, lines[0][:-1] + ', "toolUseResult": ' + "[" * depth + "]" * depth + "}")
    path = tmp_path / f"{short.session}.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 2
    assert [(p.line, "nesting" in p.message) for p in problems] == [(2, True)]


def test_numbers_that_json_has_not_are_read_beside_lone_surrogates(short, tmp_path) -> None:
    lines = [json.dumps(row) for row in short.rows]
    lines[2] = lines[2].replace("content of a", "content \\ud83d of a", 1)[:-1] + ', "x": NaN}'
    lines[3] = lines[3][:-1] + ', "note": "\\ud83d", "y": [-Infinity, 1e999]}'
    path = tmp_path / f"{short.session}.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, problems = batches(SOURCE, path)
    assert problems == []
    assert sum(len(b.steps) for b in found) == 2


def test_a_byte_order_mark_hides_no_row(short, tmp_path) -> None:
    path = short.write(tmp_path)
    plain = lanes(SOURCE, path)["main"]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert batches(SOURCE, path)[1] == []
    assert lanes(SOURCE, path)["main"].pool == plain.pool


def test_a_file_cut_at_any_byte_of_its_last_lines_invents_nothing(short, tmp_path) -> None:
    whole = short.write(tmp_path).read_bytes()
    cut_from = whole.rstrip(b"\n").rsplit(b"\n", 2)[0]
    full = {s.key for s in lanes(SOURCE, tmp_path / f"{short.session}.jsonl")["main"].steps}
    path = tmp_path / "22222222-2222-4333-8444-555555555555.jsonl"
    for end in range(len(cut_from), len(whole)):
        path.write_bytes(whole[:end])
        found, problems = batches(SOURCE, path)
        keys = {s.key for b in found for s in b.steps}
        assert keys <= full
        assert not problems


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_cut_archive_gives_its_readable_lines_and_a_problem(short, tmp_path, pack) -> None:
    rng = random.Random(1)
    for _ in range(400):
        short.user(words(rng, 4_000))
    whole = short.write(tmp_path).read_bytes()
    raw = pack(whole)
    path = tmp_path / "33333333-2222-4333-8444-555555555555.jsonl.packed"
    path.write_bytes(raw[: len(raw) * 2 // 3])
    assert SOURCE.detect(read_head(path))
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 2
    assert len(problems) == 1
    assert "damaged or cut off" in problems[0].message
    assert problems[0].line > whole.count(b"\n") // 3
    path.write_bytes(raw[:40] + b"\xff" * 20 + raw[60:])
    assert batches(SOURCE, path)[1]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_what_stands_before_the_rubbish_behind_an_archive_is_read(short, tmp_path, pack) -> None:
    raw = short.write(tmp_path).read_bytes()
    path = tmp_path / "33333333-2222-4333-8444-555555555555.jsonl"
    path.write_bytes(pack(raw[:700]) + pack(raw[700:]))
    assert (sum(len(b.steps) for b in batches(SOURCE, path)[0]), batches(SOURCE, path)[1]) == (
        2,
        [],
    )
    path.write_bytes(path.read_bytes() + b"rubbish")
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 2
    assert len(problems) == 1


def test_detection_looks_at_content_and_not_at_names(short, tmp_path) -> None:
    path = short.write(tmp_path, "gemini-session")
    assert SOURCE.detect(read_head(path))
    other = tmp_path / "11111111-2222-4333-8444-555555555555.other.jsonl"
    other.write_text('{"messages": [], "model": "claude-x"}\n')
    assert not SOURCE.detect(read_head(other))


@pytest.mark.data
def test_totals_of_the_real_transcripts_equal_an_independent_count(shared_data: Path) -> None:
    """Counts by plain JSON: last usage of each (message id, request id), over all files."""
    folder = shared_data / "traces" / "claude-code"
    ours: dict[str, tuple[int, ...]] = {}
    theirs: dict[tuple[str, str], tuple[int, ...]] = {}
    for path in sorted(folder.rglob("*.jsonl*")):
        for entry in SOURCE.read(path, Context()):
            for step in getattr(entry, "steps", ()):
                if step.usage is not None and "#" not in step.key:
                    u = step.usage
                    ours.setdefault(
                        step.key,
                        (u.input or 0, u.output or 0, u.cache_read or 0, u.cache_write or 0),
                    )
        _count(path, theirs)
    assert [sum(v[i] for v in ours.values()) for i in range(4)] == [
        sum(v[i] for v in theirs.values()) for i in range(4)
    ]


def _count(path: Path, into: dict[tuple[str, str], tuple[int, ...]]) -> None:
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    decoder = json.JSONDecoder()
    for line in raw.decode("utf-8", "replace").split("\n"):
        text = line.strip()
        at = 0
        while at < len(text):
            try:
                row, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                break
            if isinstance(row, dict):
                _take(row, into)
                data = row.get("data")
                if isinstance(data, dict) and data.get("type") == "agent_progress":
                    _take(data.get("message") or {}, into)


def _take(row: dict, into: dict[tuple[str, str], tuple[int, ...]]) -> None:
    message = row.get("message") or {}
    if row.get("type") != "assistant" or message.get("model") == "<synthetic>":
        return
    usage = message.get("usage")
    if not usage or row.get("isApiErrorMessage"):
        return
    key = (message.get("id") or row.get("uuid"), row.get("requestId") or "")
    values = tuple(
        usage.get(k) or 0
        for k in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        )
    )
    if key not in into or values[1] >= into[key][1]:
        into[key] = values


def test_failed_requests_are_told_by_the_one_that_came_through(tmp_path) -> None:
    t = Transcript()
    t.user("go")
    for attempt in (1, 2):
        error = {"status": 529, "error": {"type": "error", "error": {"type": "overloaded_error"}}}
        t.row("system", subtype="api_error", error=error, retryAttempt=attempt, retryInMs=500)
    t.answer("a", 0, 20_000)
    t.result("call-a", "x")
    broken = {"code": "ECONNRESET", "message": "closed"}
    t.row("system", subtype="api_error", error={"message": "no", "connection": broken})
    t.answer("b", 20_000, 500)
    t.result("call-b", "x")
    t.answer("c", 20_500, 500)
    steps = lanes(SOURCE, t.write(tmp_path))["main"].steps
    notes = [{k: v for k, v in s.labels if k.startswith("retr")} for s in steps]
    assert notes == [
        {"retries": "2", "retry_reason": "529 overloaded_error"},
        {"retries": "1", "retry_reason": "ECONNRESET"},
        {},
    ]
