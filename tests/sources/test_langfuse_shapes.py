"""The shapes of input and output, whoever sent them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyzer.sources.spans.memory import Memory
from analyzer.sources.spans.shapes import MEDIA, Request, read_request
from analyzer.sources.spans.usage import normalise_usage

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"path": "a.py"}'},
}


def read(given: Any, output: Any = None, **more: Any) -> Request:
    return read_request(given, output, more.pop("metadata", {}), parsed=True, **more)


def counts(request: Request) -> dict[str, Any]:
    """What the shared examples count."""
    parts = [marked.part for marked in request.parts()]
    return {
        "messages": None
        if "unparseable" in request.flags
        else sum(part.starts_message for part in parts),
        "system": any(p.role == "system" and p.section != "tools" for p in parts),
        "tools": len(request.tools),
        "tool_calls": sum(part.kind == "tool_use" for part in parts),
        "tool_results": sum(part.kind == "tool_result" for part in parts),
        "cache_breakpoints": sum(marked.mark is not None for marked in request.parts()),
        "media": sum(MEDIA in (part.body or "") for part in parts),
        "tool_calls_out": sum(marked.part.kind == "tool_use" for marked in request.response),
    }


def digests(request: Request) -> list[bytes]:
    return [m.part.digest for m in (*request.parts(), *request.response)]


@pytest.mark.data
def test_every_shared_shape_gives_its_counts_and_flags(shared_data: Path) -> None:
    files = sorted((shared_data / "langfuse/examples").glob("shape_*.json"))
    assert len(files) >= 20
    for file in files:
        case = json.loads(file.read_text())
        seen, expect = case["observation"], case["expect"]
        request = read(seen["input"], seen["output"], metadata=seen["metadata"])
        found = counts(request)
        assert {k: v for k, v in found.items() if k in expect} == {
            k: v for k, v in expect.items() if k in found
        }, file.name
        flags = {*request.flags, *normalise_usage(seen["usageDetails"]).flags}
        # The examples note the missing cache keys only where they are about nothing else.
        assert flags - {"no_cache_keys"} == set(expect["flags"]) - {"no_cache_keys"}, file.name


@pytest.mark.data
def test_a_shape_reads_the_same_as_text_and_as_parsed_json(shared_data: Path) -> None:
    for file in (shared_data / "langfuse/examples").glob("shape_*.json"):
        seen = json.loads(file.read_text())["observation"]
        texts = [
            value if value is None or isinstance(value, str) else json.dumps(value)
            for value in (seen["input"], seen["output"])
        ]
        as_text = read_request(texts[0], texts[1], seen["metadata"])
        parsed = read(seen["input"], seen["output"], metadata=seen["metadata"])
        assert digests(as_text) == digests(parsed), file.name


def test_tools_come_first_then_system_then_messages() -> None:
    request = read(
        {
            "messages": [{"role": "user", "content": "hi"}],
            "system": "be brief",
            "tools": [{"name": "read", "input_schema": {}}],
        }
    )
    assert [m.part.section for m in request.parts()] == ["tools", "system", "messages"]
    assert request.whole


@pytest.mark.parametrize(
    ("answer", "next_message"),
    [
        ({"role": "assistant", "content": "ok", "tool_calls": [CALL]},) * 2,
        (
            {"choices": [{"message": {"role": "assistant", "content": "ok"}}]},
            {"role": "assistant", "content": "ok"},
        ),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
            {"role": "assistant", "content": "ok"},
        ),
        ("ok", {"role": "assistant", "content": "ok"}),
        (
            {"content": {"role": "model", "parts": [{"text": "ok"}]}},
            {"role": "model", "parts": [{"text": "ok"}]},
        ),
        (
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"toolCallId": "t1", "toolName": "read", "input": '{"p":1}'}],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "tool-call", "toolCallId": "t1", "toolName": "read", "input": {"p": 1}}
                ],
            },
        ),
        (
            [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "ok"}],
                }
            ],
            {"role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
        ),
        (
            [{"message": {"role": "assistant", "content": "ok"}}],
            {"message": {"role": "assistant", "content": "ok"}},
        ),
        (
            {"output": {"message": {"role": "assistant", "content": [{"text": "ok"}]}}},
            {"role": "assistant", "content": [{"text": "ok"}]},
        ),
    ],
)
def test_a_response_has_the_digests_that_the_next_prompt_gives_it(
    answer: Any, next_message: Any
) -> None:
    first = {"role": "user", "content": "hi"}
    now = read([first], answer)
    following = read([first, next_message])
    assert [m.part.digest for m in now.response] == [m.part.digest for m in following.messages[1:]]
    assert now.response


def test_bedrock_cache_points_mark_what_stands_before_them() -> None:
    request = read(
        {
            "system": [{"text": "rules"}, {"cachePoint": {"type": "default"}}],
            "messages": [
                {"role": "user", "content": [{"text": "hi"}]},
                {
                    "role": "assistant",
                    "content": [{"toolUse": {"toolUseId": "t1", "name": "read", "input": {}}}],
                },
                {
                    "role": "user",
                    "content": [
                        {"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}]}},
                        {"cachePoint": {"type": "default"}},
                    ],
                },
            ],
            "toolConfig": {
                "tools": [{"toolSpec": {"name": "read"}}, {"cachePoint": {"type": "default"}}]
            },
        }
    )
    assert [m.mark for m in request.parts()] == ["5m", "5m", None, None, "5m"]
    assert [p.part.kind for p in request.messages] == ["text", "tool_use", "tool_result"]
    assert request.messages[2].part.tool == "read"


def test_moving_a_cache_mark_changes_no_digest() -> None:
    plain = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    mark = {"anthropic": {"cacheControl": {"type": "ephemeral", "ttl": "1h"}}}
    marked = read([{**plain, "providerOptions": mark}])
    assert digests(marked) == digests(read([plain]))
    assert marked.messages[0].mark == "1h"


def test_messages_of_langgraph_name_their_role_in_type() -> None:
    request = read(
        [
            [
                {"type": "system", "content": "s"},
                {"type": "human", "content": "hi"},
                {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "1"}]},
                {"type": "tool", "content": "done", "tool_call_id": "1"},
            ]
        ]
    )
    assert [m.part.role for m in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[3].part.tool == "f"


def test_events_of_older_opentelemetry_name_their_role_in_the_event() -> None:
    request = read(
        [
            {"event.name": "gen_ai.system.message", "content": "s"},
            {"event.name": "gen_ai.user.message", "content": "hi", "role": "user"},
            {"event.name": "gen_ai.choice", "message": {"role": "assistant", "content": "ok"}},
        ]
    )
    assert [m.part.role for m in request.messages] == ["system", "user", "assistant"]


def test_results_without_ids_are_paired_with_calls_by_order() -> None:
    call = {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]}
    answer = {
        "role": "user",
        "parts": [{"functionResponse": {"name": "read", "response": {"r": 1}}}],
    }
    request = read({"contents": [call, answer, call, answer]})
    ids = [m.part.call_id for m in request.messages]
    assert ids[0] == ids[1] != ids[2] == ids[3]


def test_a_role_that_is_a_tools_name_is_its_result() -> None:
    request = read(
        [
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "read", "content": "text of a.py"},
        ]
    )
    part = request.messages[1].part
    assert (part.kind, part.call_id) == ("tool_result", "call_1")


@pytest.mark.parametrize(
    "metadata",
    [
        {"tools": [{"name": "read"}]},
        {"attributes": {"ai.prompt.tools": ['{"name": "read"}']}},
        {"attributes": '{"gen_ai.tool.definitions": "[{\\"name\\": \\"read\\"}]"}'},
        {"attributes": {"model_request_parameters": '{"function_tools": [{"name": "read"}]}'}},
        {"attributes": {"llm.tools.0.tool.json_schema": '{"name": "read"}'}},
    ],
)
def test_tools_that_old_servers_left_in_metadata_are_found(metadata: dict[str, Any]) -> None:
    request = read([{"role": "user", "content": "hi"}], metadata=metadata)
    assert [m.part.tool for m in request.tools] == ["read"]


def test_a_text_that_is_json_but_no_request_stays_as_it_was_written() -> None:
    asked = '{"question":  "why"}'
    request = read_request(asked, '{"answer":  1}', {})
    assert request.messages[0].part.body == asked
    assert request.response[0].part.body == '{"answer":  1}'


def test_a_previous_response_id_makes_the_input_a_delta() -> None:
    new = {"input": [{"role": "user", "content": "go on"}], "previous_response_id": "r1"}
    assert read(new).delta
    assert not read({**new, "previous_response_id": None}).delta


def test_the_codex_plugins_tool_outputs_are_a_delta() -> None:
    request = read([{"name": "shell", "output": "ok"}, {"name": "shell", "output": "no"}])
    assert request.delta
    assert [m.part.body for m in request.messages] == ["ok", "no"]


def test_memory_changes_nothing_but_the_time() -> None:
    memory = Memory()
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
    for messages in ([call, result], [call, result], [result], [call, result, call]):
        with_memory = read(messages, memory=memory)
        assert digests(with_memory) == digests(read(messages))


WORDS = """role content parts messages tools system input output type text name id message
tool_calls function arguments contents cachePoint toolResult args kwargs lc providerOptions choices
config tool_results previous_response_id"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS.split()), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(JSON, JSON, st.booleans())
@example(None, [{"type": [], "role": {}}], False)
@example([{"role": "tool", "content": [{"type": [], "id": {}}]}], None, False)
def test_no_content_is_ever_refused(given_input: Any, output: Any, as_text: bool) -> None:
    if as_text:
        given_input, output = json.dumps(given_input), json.dumps(output)
    request = read_request(given_input, output, {})
    assert all(len(m.part.digest) == 16 for m in (*request.parts(), *request.response))
