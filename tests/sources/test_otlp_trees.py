"""Which spans are steps, and to which lane and session they belong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.model import Lane, LaneSteps
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.base import Context
from analyzer.sources.otlp import OtlpSource
from tests import spans as otel
from tests.builders import anthropic_records, keep_newest, write_lines
from tests.reading import lanes as lanes_of_file
from tests.span_reading import (
    AGENT,
    CHAT,
    Reader,
    counted,
    flags,
    said,
    spans_of,
    stated,
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


# -- trees ------------------------------------------------------------------------------------


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
