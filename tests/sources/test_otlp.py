"""Spans of every convention become the same steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzer.model import Lane
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.langfuse import LangfuseSource
from analyzer.sources.otlp import OtlpSource
from tests import spans as otel
from tests.builders import anthropic_records, keep_newest, write_lines
from tests.reading import lanes as lanes_of_file
from tests.span_reading import (
    CHAT,
    Reader,
    answers,
    counted,
    said,
    tools,
    verdicts,
)

RECORDS = anthropic_records(12, shape=keep_newest(5))


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


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
    # A sender that keeps to its convention contradicts nothing.
    assert [step.usage.doubts for step in lane.steps if step.usage] == [()] * 12
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
