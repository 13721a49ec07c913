"""Spans of every convention, in every form of file, become the same steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.diagnose.lane import diagnose_lane
from analyzer.ledger import lane_ledger
from analyzer.model import Lane, LaneSteps, Part, Step
from analyzer.pricing import PriceBook
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.base import Context
from analyzer.sources.langfuse import LangfuseSource
from analyzer.sources.otlp import OtlpSource
from tests import spans as otel
from tests.builders import anthropic_records, keep_newest, write_lines
from tests.reading import lanes as lanes_of_file
from tests.spans import Reader, counted

BOOK = PriceBook.default()
RECORDS = anthropic_records(12, shape=keep_newest(5))


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def said(lane: Lane, step: Step) -> list[tuple[str, str | None, Any]]:
    """Kind, tool and content of the parts of a prompt, whatever the dialect was."""
    assert step.prompt is not None
    return [_said(part) for part in lane.parts(step.prompt) if part.section != "tools"]


def _said(part: Part) -> tuple[str, str | None, Any]:
    body = part.body or ""
    return part.kind, part.tool, json.loads(body) if part.kind == "tool_use" else body


def tools(lane: Lane) -> list[str | None]:
    """The tools that the last request offered."""
    prompt = lane.steps[-1].prompt
    assert prompt is not None
    return [part.tool for part in lane.parts(prompt) if part.section == "tools"]


def answers(lane: Lane, step: Step) -> list[str | None]:
    return [lane.pool[i].body for r in step.response for i in range(*r)]


def verdicts(lane: Lane) -> list[str]:
    return [v.kind for v in diagnose_lane(lane_ledger(lane, BOOK)).verdicts]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Lane:
    """The same run as a raw log of requests."""
    path = write_lines(tmp_path_factory.mktemp("truth") / "run.jsonl", RECORDS)
    return lanes_of_file(AnthropicLogSource(), path)["main"]


# -- conventions ------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", otel.CONVENTIONS)
def test_a_run_reads_the_same_in_every_convention(
    convention: str, read: Reader, truth: Lane
) -> None:
    spans = otel.run(RECORDS, otel.CONVENTIONS[convention])
    lane = read.one(otel.request(spans))
    assert lane.session.session_id == "run"
    assert lane.name == "main"
    assert counted(lane) == counted(truth)
    for mine, theirs in zip(lane.steps, truth.steps, strict=True):
        assert said(lane, mine) == said(truth, theirs)
        assert answers(lane, mine)[0] == answers(truth, theirs)[0]
        assert (mine.model, mine.at) == (theirs.model, theirs.at)
        assert mine.provider == "anthropic"
    assert verdicts(lane) == verdicts(truth)
    assert "sliding-stubs" in verdicts(lane)
    if convention != "genai_events":  # which has no place for them
        assert tools(lane) == tools(truth) == ["tool0", "tool1", "tool2"]


@pytest.mark.parametrize("convention", otel.CONVENTIONS)
def test_an_answer_is_found_again_in_the_next_prompt(convention: str, read: Reader) -> None:
    lane = read.one(otel.request(otel.run(RECORDS[:3], otel.CONVENTIONS[convention])))
    for step, following in zip(lane.steps, lane.steps[1:], strict=False):
        answered = {i for r in step.response for i in range(*r)}
        assert following.prompt is not None
        assert answered
        assert answered <= set(following.prompt.indices())


def test_logged_events_reach_their_spans_from_another_file(read: Reader, truth: Lane) -> None:
    spans = otel.run(RECORDS, otel.genai_events)
    records = []
    for span in spans:
        for event in span.pop("events"):
            attributes = event.pop("attributes")
            body = {"kvlistValue": {"values": attributes}}
            record = {"eventName": event.pop("name"), "body": body, **event}
            records.append({**record, "traceId": span["traceId"], "spanId": span["spanId"]})
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    for documents in ((otel.request(spans), logs), (logs, otel.request(spans)), (logs,) * 2):
        lanes = read.clean(*documents, otel.request(spans))
        (lane,) = lanes.values()
        assert [said(lane, s) for s in lane.steps] == [said(truth, s) for s in truth.steps]
        assert counted(lane) == counted(truth)


def test_without_content_there_is_usage_and_no_prompt(read: Reader, truth: Lane) -> None:
    def bare(record: otel.Record) -> otel.Written:
        given, _ = otel.genai(record)
        return {k: v for k, v in given.items() if not isinstance(v, list)}, []

    lane = read.one(otel.request(otel.run(RECORDS, bare)))
    assert counted(lane) == counted(truth)
    assert {step.prompt for step in lane.steps} == {None}


def test_messages_without_what_was_said_are_no_prompt(read: Reader) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "grep"}}
    events = [
        ("gen_ai.user.message", {"gen_ai.system": "openai"}),
        ("gen_ai.assistant.message", {"tool_calls": [call]}),
        ("gen_ai.tool.message", {"id": "t1"}),
        ("gen_ai.choice", {"index": 0, "message": {"role": "assistant"}}),
    ]
    hidden = {"openinference.span.kind": "LLM", "input.value": "__REDACTED__"}
    for given, noted in ((CHAT, events), (hidden | {"output.value": "__REDACTED__"}, [])):
        (step,) = read.one(otel.request([otel.span(1, 1.78e9, given, events=noted)])).steps
        assert (step.prompt, step.response) == (None, ())


def test_gemini_requests_of_adk_are_read_with_their_hidden_cache_counts(read: Reader) -> None:
    sent = {
        "model": "gemini-2.5-pro",
        "config": {
            "system_instruction": "Fix bugs.",
            "tools": [{"function_declarations": [{"name": "read_file"}]}],
        },
        "contents": [{"role": "user", "parts": [{"text": "The test fails."}]}],
    }
    usage = {"prompt_token_count": 4440, "cached_content_token_count": 4090}
    usage |= {"candidates_token_count": 14, "thoughts_token_count": 60, "total_token_count": 4514}
    answer = {"content": {"role": "model", "parts": [{"text": "The exponent."}]}}
    given = {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.request.model": "gemini-2.5-pro",
        "gcp.vertex.agent.session_id": "adk-1",
        "gcp.vertex.agent.llm_request": json.dumps(sent),
        "gcp.vertex.agent.llm_response": json.dumps({**answer, "usage_metadata": usage}),
        "gen_ai.usage.input_tokens": 4440,
        "gen_ai.usage.output_tokens": 14,
        "gen_ai.response.finish_reasons": ["stop"],
    }
    lane = read.one(otel.request([otel.span(1, 1.78e9, given, name="call_llm")]))
    assert lane.session.session_id == "adk-1"
    assert counted(lane) == [(350, 4090, None, 74)]
    assert said(lane, lane.steps[0]) == [
        ("text", None, "Fix bugs."),
        ("text", None, "The test fails."),
    ]
    assert lane.steps[0].stop_reason in ("stop", "STOP")


def test_bedrock_blocks_in_the_events_of_strands_are_read(read: Reader) -> None:
    call = {"toolUse": {"toolUseId": "t1", "name": "grep", "input": {"q": "x"}}}
    result = {"toolResult": {"toolUseId": "t1", "content": [{"text": "found"}]}}
    events = [
        ("gen_ai.user.message", {"content": json.dumps([{"text": "find x"}])}),
        ("gen_ai.assistant.message", {"content": json.dumps([call])}),
        ("gen_ai.tool.message", {"content": json.dumps([result])}),
        ("gen_ai.choice", {"finish_reason": "end_turn", "message": json.dumps([{"text": "a.py"}])}),
    ]
    given = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    lane = read.one(otel.request([otel.span(1, 1.78e9, given, events=events)]))
    (step,) = lane.steps
    assert said(lane, step) == [
        ("text", None, "find x"),
        ("tool_use", "grep", {"q": "x"}),
        ("tool_result", "grep", "found"),
    ]
    assert answers(lane, step) == ["a.py"]
    assert step.stop_reason == "end_turn"


def test_the_list_of_events_of_pydantic_ai_is_read(read: Reader) -> None:
    function = {"name": "grep", "arguments": '{"q":"x"}'}
    rows = [
        {"event.name": "gen_ai.system.message", "role": "system", "content": "Find."},
        {"event.name": "gen_ai.user.message", "role": "user", "content": "find x"},
        {
            "event.name": "gen_ai.assistant.message",
            "role": "assistant",
            "tool_calls": [{"id": "t1", "type": "function", "function": function}],
        },
        {"event.name": "gen_ai.tool.message", "role": "tool", "id": "t1", "content": "found"},
        {"event.name": "gen_ai.choice", "message": {"role": "assistant", "content": "a.py"}},
    ]
    tool = {"name": "grep", "parameters_json_schema": {"type": "object"}}
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5.4",
        "events": json.dumps(rows),
        "model_request_parameters": json.dumps({"function_tools": [tool]}),
    }
    lane = read.one(otel.request([otel.span(1, 1.78e9, given)]))
    assert tools(lane) == ["grep"]
    assert said(lane, lane.steps[0]) == [
        ("text", None, "Find."),
        ("text", None, "find x"),
        ("tool_use", "grep", {"q": "x"}),
        ("tool_result", "grep", "found"),
    ]
    assert answers(lane, lane.steps[0]) == ["a.py"]


def test_a_conversation_kept_by_the_provider_shows_only_what_is_new(read: Reader) -> None:
    spans = []
    for n in range(2):
        message = {"role": "user", "parts": [{"type": "text", "content": f"question {n}"}]}
        given = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-5.4",
            "gen_ai.input.messages": json.dumps([message]),
            "session.id": "s",
        }
        if n:
            given["gen_ai.openai.request.previous_response_id"] = "resp_0"
        spans.append(otel.span(n + 1, 1.78e9 + n * 60, given))
    lane = read.one(otel.request(spans))
    assert [body for _, _, body in said(lane, lane.steps[1])] == ["question 0", "question 1"]
    assert lane.steps[1].prompt is not None
    assert not lane.steps[1].prompt.recorded


# -- usage ------------------------------------------------------------------------------------


def flags(step: Step) -> set[str]:
    return set(dict(step.labels).get("usage.flags", "").split(",")) - {""}


def usage_only(*rows: otel.Attributes, **more: Any) -> Any:
    """Model calls of which nothing but counts is known."""
    common = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-sonnet-4-6"}
    spans = [
        otel.span(n + 1, 1.78e9 + n * 60, {**common, "session.id": "s", **row})
        for n, row in enumerate(rows)
    ]
    return otel.request(spans, **more)


def stated(whole: int, read: int | None, write: int | None = None) -> otel.Attributes:
    names = ("input_tokens", "cache_read.input_tokens", "cache_creation.input_tokens")
    given = {f"gen_ai.usage.{k}": v for k, v in zip(names, (whole, read, write), strict=True)}
    return {k: v for k, v in given.items() if v is not None} | {"gen_ai.usage.output_tokens": 9}


def test_input_holds_cached_tokens_as_the_convention_says(read: Reader) -> None:
    lane = read.one(usage_only(stated(1000, 0, 900), stated(1100, 900, 150)))
    assert counted(lane) == [(100, 0, 900, 9), (50, 900, 150, 9)]
    assert flags(lane.steps[1]) == {"by_convention", "input_inclusive"}
    raw = json.loads(dict(lane.steps[1].labels)["usage.raw"])
    assert raw["input_tokens"] == 1100


def test_one_record_with_less_input_than_cached_tokens_proves_its_sender_exclusive(
    read: Reader,
) -> None:
    broken = (stated(1000, 0, 900), stated(1100, 900, 150), stated(3, 2000))
    lane = read.one(usage_only(*broken))
    assert counted(lane) == [(1000, 0, 900, 9), (1100, 900, 150, 9), (3, 2000, 0, 9)]
    other = usage_only(*broken[:2], scope="another")
    lanes = read.clean(usage_only(broken[2]), other)
    (kept,) = lanes.values()
    assert sorted(counted(kept))[-2:] == [(50, 900, 150, 9), (100, 0, 900, 9)]


def test_what_one_model_proves_of_a_sender_holds_for_its_other_models(read: Reader) -> None:
    haiku = {**stated(1100, 900), "gen_ai.request.model": "claude-haiku-4-5"}
    assert read.one(usage_only(stated(3, 900), haiku)).steps[1].usage.input == 1100  # type: ignore[union-attr]


@pytest.mark.parametrize("inclusive", [True, False])
def test_both_kinds_of_anthropic_senders_read_the_same(
    inclusive: bool, read: Reader, truth: Lane
) -> None:
    def writer(record: otel.Record) -> otel.Written:
        given, events = otel.genai(record)
        return {**given, **otel.counts(record, inclusive=inclusive)}, events

    lane = read.one(otel.request(otel.run(RECORDS, writer)))
    assert counted(lane) == counted(truth)
    assert verdicts(lane) == verdicts(truth)


def test_reasoning_is_a_part_of_the_output(read: Reader) -> None:
    given = {**stated(50, None), "gen_ai.usage.reasoning.output_tokens": 5}
    usage = read.one(usage_only(given)).steps[0].usage
    assert usage is not None
    assert (usage.output, usage.reasoning, usage.cache_read) == (9, 5, None)


def test_counts_written_as_texts_or_with_a_point_are_counts(read: Reader) -> None:
    outer = {k: str(v) for k, v in stated(1000, 900).items()}
    inner = {k: float(v) for k, v in stated(1000, 900).items()}
    common = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    spans = [
        otel.span(1, 1.78e9, common | outer),
        otel.span(2, 1.78e9 + 1, common | inner, parent=1),
        otel.span(3, 1.78e9 + 9, common | outer),
    ]
    assert counted(read.one(otel.request(spans))) == [(100, 900, None, 9)] * 2


def test_counts_under_several_names_count_once(read: Reader) -> None:
    given = {
        **stated(1100, 900),
        "llm.token_count.prompt": 1100,
        "llm.token_count.completion": 9,
        "llm.token_count.prompt_details.cache_read": 900,
        "llm.token_count.prompt_details.cache_write": 150,
        "gen_ai.usage.details.cache_read_tokens": 900,
        "gen_ai.usage.details.input_tokens": 50,
        "gen_ai.usage.cost": 0.25,
    }
    (step,) = read.one(usage_only(given)).steps
    assert step.usage is not None
    assert (step.usage.input, step.usage.cache_read, step.usage.cache_write) == (50, 900, 150)
    assert step.reported_cost == 0.25


def test_the_counts_of_anthropic_beside_those_of_the_ai_sdk_are_taken(read: Reader) -> None:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 150,
        "cache_creation": {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 100},
        "output_tokens": 9,
        "service_tier": "standard",
    }
    given = {
        "ai.operationId": "ai.streamText.doStream",
        "ai.usage.inputTokens": 3,
        "ai.usage.cachedInputTokens": 900,
        "ai.response.providerMetadata": json.dumps({"anthropic": {"usage": usage}}),
    }
    found = read.one(usage_only(given)).steps[0].usage
    assert found is not None
    assert (found.input, found.cache_read, found.cache_write) == (3, 900, 150)
    assert (found.cache_write_5m, found.cache_write_1h, found.output) == (50, 100, 9)


def test_a_count_that_overlaps_others_is_taken_only_where_they_are_not(read: Reader) -> None:
    names = {"prompt": 1000, "completion": 9, "prompt_details.cache_input": 950}
    given = {f"llm.token_count.{key}": count for key, count in names.items()}
    split = {"prompt_details.cache_read": 900, "prompt_details.cache_write": 50}
    more = {f"llm.token_count.{key}": count for key, count in split.items()}
    kind = {"openinference.span.kind": "LLM"}
    assert counted(read.one(usage_only(kind | given))) == [(50, 950, None, 9)]
    assert counted(read.one(usage_only(kind | given | more))) == [(50, 900, 50, 9)]


def test_an_unknown_count_stays_unknown_and_a_wrong_one_is_a_problem(read: Reader) -> None:
    lane = read.one(usage_only({"gen_ai.usage.output_tokens": 9}, {}))
    assert [step.usage and step.usage.input for step in lane.steps] == [None, None]
    assert lane.steps[1].usage is None
    _, problems = read(usage_only({"gen_ai.usage.input_tokens": "many"}))
    assert [p.pointer.rpartition(".")[2] for p in problems] == ["input_tokens"]


# -- trees ------------------------------------------------------------------------------------

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **stated(100, None)}
AGENT = {"gen_ai.operation.name": "invoke_agent", **stated(1000, None)}


def spans_of(lane: Lane) -> list[int]:
    return [int(dict(step.labels)["otlp.span"], 16) for step in lane.steps]


@pytest.mark.parametrize(
    "outer",
    [
        AGENT,
        {"gen_ai.operation.name": "agent_step", **stated(1000, None)},
        {"ai.operationId": "ai.generateText", "ai.usage.inputTokens": 1000},
        {"openinference.span.kind": "CHAIN", "llm.token_count.prompt": 1000},
        {"openinference.span.kind": "AGENT", "llm.token_count.prompt": 1000},
        {"openinference.span.kind": "LLM", "llm.token_count.prompt": 1000},
    ],
)
def test_the_sum_of_a_span_around_requests_is_not_counted_again(
    outer: otel.Attributes, read: Reader
) -> None:
    spans = [
        otel.span(1, 1.78e9, outer, name="outer"),
        otel.span(2, 1.78e9 + 1, CHAT, parent=1),
        otel.span(3, 1.78e9 + 2, CHAT, parent=1),
    ]
    assert spans_of(read.one(otel.request(spans))) == [2, 3]


def test_a_run_of_which_only_the_sum_is_known_is_counted_by_it(read: Reader) -> None:
    tool = {"gen_ai.operation.name": "execute_tool"}
    spans = [
        otel.span(1, 1.78e9, AGENT, name="invoke_agent coder"),
        otel.span(2, 1.78e9 + 1, tool, parent=1),
    ]
    lane = read.one(otel.request(spans))
    assert (lane.name, spans_of(lane), counted(lane)) == ("main", [1], [(1000, None, None, 9)])
    assert "aggregate_span" in flags(lane.steps[0])
    assert lane.steps[0].prompt is None


def test_a_subagent_is_a_lane_of_its_own_even_where_only_its_sum_is_known(read: Reader) -> None:
    known = [
        otel.span(1, 1.78e9, AGENT, name="invoke_agent main agent"),
        otel.span(2, 1.78e9 + 1, CHAT, parent=1),
        otel.span(3, 1.78e9 + 6, {"gen_ai.operation.name": "execute_tool"}, parent=1),
        otel.span(4, 1.78e9 + 7, AGENT, parent=3, name="invoke_agent search"),
        otel.span(6, 1.78e9 + 30, CHAT, parent=1),
    ]
    inner = otel.span(5, 1.78e9 + 8, CHAT, parent=4)
    for spans, member in (([*known, inner], 5), (known, 4)):
        lanes = read.clean(otel.request(spans))
        found = {name.partition("/")[2]: spans_of(lane) for name, lane in lanes.items()}
        assert found == {"main": [2, 6], "invoke_agent search": [member]}
        (below,) = [lane for lane in lanes.values() if lane.name != "main"]
        assert below.parent == "main"


def test_a_run_of_the_ai_sdk_inside_a_tool_is_a_lane_of_its_own(read: Reader) -> None:
    step = {"ai.operationId": "ai.streamText.doStream", "ai.usage.inputTokens": 10}
    outer = {"ai.operationId": "ai.streamText", "ai.usage.inputTokens": 20}
    spans = [
        otel.span(1, 1.78e9, {"http.route": "/chat"}, name="POST"),
        otel.span(2, 1.78e9, outer, parent=1, name="ai.streamText"),
        otel.span(3, 1.78e9 + 1, step, parent=2),
        otel.span(4, 1.78e9 + 6, {"ai.operationId": "ai.toolCall"}, parent=2),
        otel.span(5, 1.78e9 + 6, outer, parent=4, name="ai.streamText"),
        otel.span(6, 1.78e9 + 7, step, parent=5),
    ]
    lanes = read.clean(otel.request(spans))
    assert {lane.name: spans_of(lane) for lane in lanes.values()} == {
        "main": [3],
        "ai.streamText": [6],
    }


def test_the_requests_of_claude_code_are_lanes_by_their_agent(read: Reader) -> None:
    def asked(number: int, second: float, uncached: int, **more: Any) -> dict[str, Any]:
        given = {
            "session.id": "s",
            "span.type": "llm_request",
            "model": "claude-opus-5",
            "gen_ai.system": "anthropic",
            "input_tokens": uncached,
            "output_tokens": 9,
            "cache_read_tokens": 80,
            "cache_creation_tokens": 20,
            "query_source": "repl_main_thread",
            "stop_reason": "tool_use",
        }
        trace = f"{1 + (number > 3):032x}"
        return otel.span(number, 1.78e9 + second, given | more, trace=trace, parent=99)

    spans = [
        asked(1, 0, 2),
        asked(2, 10, 500, agent_id="a1", query_source="agent:Explore"),
        asked(3, 20, 3, success=False, error="529"),
        asked(4, 30, 4),
        asked(5, 40, 7, agent_id="a1", query_source="agent:Explore"),
        asked(6, 50, 8, query_source="generate_session_title"),
    ]
    lanes = {lane.name: lane for lane in read.clean(otel.request(spans)).values()}
    assert {name: spans_of(lane) for name, lane in lanes.items()} == {
        "main": [1, 3, 4],
        "subagent a1": [2, 5],
        "subagent generate_session_title": [6],
    }
    assert counted(lanes["main"]) == [(2, 80, 20, 9), (3, 80, 20, 9), (4, 80, 20, 9)]
    assert counted(lanes["subagent a1"])[0] == (500, 80, 20, 9)
    assert [step.error for step in lanes["main"].steps] == [None, "529", None]
    assert lanes["subagent a1"].parent == "main"


def test_a_failed_request_says_why(read: Reader) -> None:
    raised = [("exception", {"exception.message": "529 overloaded"})]
    spans = [
        otel.span(1, 1.78e9, CHAT, status={"code": 2, "message": "timeout"}),
        otel.span(2, 1.78e9 + 9, CHAT, status={"code": "STATUS_CODE_ERROR"}, events=raised),
        otel.span(3, 1.78e9 + 18, {**CHAT, "error.type": "429"}),
        otel.span(4, 1.78e9 + 27, CHAT, status={"code": 1}, events=raised),
    ]
    spans = [{**span, "traceId": otel.TRACE} for span in spans]
    lane = read.one(otel.request(spans))
    assert [step.error for step in lane.steps] == ["timeout", "529 overloaded", "429", None]


def test_steps_within_a_microsecond_are_in_the_order_of_their_nanoseconds(read: Reader) -> None:
    spans = [otel.span(n, 1.78e9, CHAT) for n in (1, 2, 3)]
    for span, rest in zip(spans, (700, 300, 500), strict=True):
        span["startTimeUnixNano"] = str(int(span["startTimeUnixNano"]) + rest)
    assert spans_of(read.one(otel.request(spans))) == [2, 3, 1]


def test_a_framework_and_its_client_that_record_one_request_complete_each_other(
    read: Reader,
) -> None:
    message = {"role": "user", "parts": [{"type": "text", "content": "hi"}]}
    outer = {**CHAT, **stated(1000, 900), "gen_ai.input.messages": json.dumps([message])}
    spans = [
        otel.span(1, 1.78e9, outer, name="call_llm"),
        otel.span(2, 1.78e9, {"http.request.method": "POST"}, parent=1),
        otel.span(3, 1.78e9 + 0.1, {**CHAT, **stated(1000, None)}, parent=2),
    ]
    lane = read.one(otel.request(spans))
    assert (spans_of(lane), counted(lane)) == ([3], [(100, 900, None, 9)])
    assert said(lane, lane.steps[0]) == [("text", None, "hi")]


def test_the_note_that_a_span_has_begun_is_no_request(read: Reader) -> None:
    pending = {"gen_ai.operation.name": "chat", "logfire.span_type": "pending_span"}
    spans = [otel.span(1, 1.78e9, CHAT), otel.span(2, 1.78e9, pending, parent=1)]
    assert spans_of(read.one(otel.request(spans))) == [1]
    assert read.clean(otel.request(spans[1:])) == {}


# -- sessions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "langfuse.session.id",
        "session.id",
        "gen_ai.conversation.id",
        "traceloop.association.properties.session_id",
        "ai.telemetry.metadata.sessionId",
    ],
)
def test_a_trace_belongs_to_the_session_that_any_of_its_spans_names(
    name: str, read: Reader
) -> None:
    spans = [
        otel.span(1, 1.78e9, {}),
        otel.span(2, 1.78e9 + 1, CHAT, parent=1),
        otel.span(3, 1.78e9 + 2, {**CHAT, name: "the-session"}, parent=1),
    ]
    assert read.one(otel.request(spans)).session.session_id == "the-session"


def test_an_attribute_made_for_sessions_counts_before_one_that_often_holds_them(
    read: Reader,
) -> None:
    spans = [
        otel.span(1, 1.78e9, {"gen_ai.conversation.id": "root"}),
        otel.span(2, 1.78e9 + 1, {**CHAT, "session.id": "early"}, parent=1),
        otel.span(3, 1.78e9 + 2, {**CHAT, "session.id": "late"}, parent=1),
    ]
    for order in (spans, spans[::-1]):
        assert read.one(otel.request(order)).session.session_id == "early"


def test_a_session_is_sought_in_metadata_then_in_the_resource_then_named_by_its_trace(
    read: Reader,
) -> None:
    hidden = {**CHAT, "metadata": json.dumps({"thread_id": "t-9", "user_id": "ann"})}
    key = read.one(otel.request([otel.span(1, 1.78e9, hidden)])).session
    assert (key.session_id, key.user) == ("t-9", "ann")
    told = otel.request([otel.span(1, 1.78e9, CHAT)], resource={"session.id": "r"})
    assert read.one(told).session.session_id == "r"
    bare = otel.request([otel.span(1, 1.78e9, CHAT)])
    assert read.one(bare).session.session_id == f"trace:{otel.TRACE}"


def test_a_title_comes_from_any_span_and_every_step_has_its_labels(tmp_path: Path) -> None:
    root = {"langfuse.trace.name": "Fix the import", "langfuse.trace.tags": ["x"]}
    given = {**CHAT, "gen_ai.response.id": "msg_1", "langfuse.environment": "prod"}
    path = tmp_path / "a.json"
    spans = [otel.span(1, 1.78e9, root), otel.span(2, 1.78e9 + 1, given, parent=1)]
    path.write_text(json.dumps(otel.request(spans)))
    (batch,) = OtlpSource().read(path, Context())
    assert isinstance(batch, LaneSteps)
    assert batch.title == "Fix the import"
    labels = dict(batch.steps[0].labels)
    assert labels["otlp.trace_name"] == "Fix the import"
    assert labels["otlp.response"] == "msg_1"
    assert (labels["environment"], labels["service"], labels["otlp.scope"]) == ("prod", "s", "test")


def test_a_session_lies_in_two_files_and_traces(read: Reader, truth: Lane) -> None:
    spans = otel.run(RECORDS, otel.genai)
    for span in spans[7:]:
        span["traceId"] = "1" * 32
        span["parentSpanId"] = ""
        span["attributes"] += otel.pairs({"session.id": "run"})
    documents = [otel.request(spans[:7]), otel.request(spans[7:])]
    for order in (documents, documents[::-1]):
        lane = read.one(*order)
        assert lane.session.session_id == "run"
        assert counted(lane) == counted(truth)
        assert verdicts(lane) == verdicts(truth)


# -- real shapes ------------------------------------------------------------------------------


@pytest.mark.data
def test_a_generation_reads_the_same_from_a_span_and_from_langfuse(
    shared_data: Path, tmp_path: Path
) -> None:
    paths = sorted((shared_data / "langfuse" / "examples").glob("shape_*.json"))
    assert len(paths) > 15
    for path in paths:
        shape = json.loads(path.read_text())
        observation = shape["observation"]
        given = {
            "langfuse.observation.type": observation["type"].lower(),
            "langfuse.observation.model.name": observation.get("model"),
            "langfuse.observation.usage_details": json.dumps(observation.get("usageDetails") or {}),
        }
        row = {**observation, "traceId": otel.TRACE, "startTime": "2026-10-02T09:00:00Z"}
        for side in ("input", "output"):
            content = observation.get(side)
            text = content if content is None or isinstance(content, str) else json.dumps(content)
            given[f"langfuse.observation.{side}"] = text
            row[side] = text
        tool_definitions = (row.get("metadata") or {}).get("attributes") or {}
        given |= {key: v for key, v in tool_definitions.items() if isinstance(v, str)}
        span, page = tmp_path / "span.json", tmp_path / "page.json"
        named = {key: v for key, v in given.items() if v is not None}
        span.write_text(json.dumps(otel.request([otel.span(1, 1.7909316e9, named)])))
        page.write_text(json.dumps({"data": [row], "meta": {}}))
        mine = lanes_of_file(OtlpSource(), span)["main"]
        theirs = lanes_of_file(LangfuseSource(), page)["main"]
        assert counted(mine) == counted(theirs), path.name
        assert [p.digest for p in mine.pool] == [p.digest for p in theirs.pool], path.name
