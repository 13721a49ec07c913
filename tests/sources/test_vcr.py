from __future__ import annotations

import gzip
import json

import pytest
import yaml

from analyzer.model import Usage
from analyzer.sources.base import read_head
from analyzer.sources.vcr import VcrSource
from tests.reading import batches, lanes

SOURCE = VcrSource()
CHAT = "https://api.openai.com/v1/chat/completions"
MESSAGES = "https://api.anthropic.com/v1/messages?beta=true"
CONVERSE = (
    "https://bedrock-runtime.us-east-1.amazonaws.com/model/us.anthropic.claude-x%3A0/converse"
)


def interaction(uri: str, request: object, response: object, **more) -> dict:
    def body(value):
        return value if isinstance(value, str | bytes) else json.dumps(value)

    headers = {"Date": ["Wed, 19 Nov 2025 20:20:59 GMT"]}
    return {
        "request": {"method": "POST", "uri": uri, "body": body(request), "headers": {}},
        "response": {
            "headers": headers,
            "status": {"code": 200},
            "body": {"string": body(response)},
        }
        | more,
    }


def write(path, *interactions):
    text = yaml.safe_dump({"interactions": list(interactions), "version": 1})
    path.write_text(text, encoding="utf-8")
    return path


def chat_call() -> dict:
    request = {"model": "gpt-5.4", "messages": [{"role": "user", "content": "Hi"}]}
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    answer = {"message": {"role": "assistant", "content": "Ho"}, "finish_reason": "stop"}
    return interaction(CHAT, request, {"id": "chatcmpl-1", "choices": [answer], "usage": usage})


def message_call(said: str = "Hi", **usage) -> dict:
    block = {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}
    request = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "system": "S",
        "messages": [{"role": "user", "content": [block]}],
    }
    counts = {
        "input_tokens": 3,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 50,
        "output_tokens": 2,
    }
    response = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Ho"}],
        "stop_reason": "end_turn",
        "usage": counts | usage,
    }
    return interaction(MESSAGES, request, response)


def test_calls_to_models_are_steps_and_others_are_left_out(tmp_path) -> None:
    counting = interaction(
        "https://api.anthropic.com/v1/messages/count_tokens", {"messages": []}, {"input_tokens": 9}
    )
    other = interaction("https://api.smith.test/runs/batch", {"post": []}, {})
    path = write(tmp_path / "c.yaml", chat_call(), counting, other, message_call("You"))
    assert SOURCE.detect(read_head(path))
    found = lanes(SOURCE, path)
    (chat,), (message,) = found["main"].steps, found["main-2"].steps
    assert chat.usage == Usage(input=12, cache_read=8, output=2)
    assert (chat.model, chat.provider) == ("gpt-5.4", "openai")
    assert chat.ended_at.isoformat() == "2025-11-19T20:20:59+00:00"
    assert message.usage.prompt == 53
    assert [tuple(b) for b in message.prompt.breakpoints] == [(1, "5m")]
    assert found["main"].session.session_id.startswith("c-")


def test_bedrock_counts_leave_the_cache_out_and_its_points_are_marks(tmp_path) -> None:
    request = {
        "messages": [{"role": "user", "content": [{"text": "Hi"}, {"cachePoint": {}}]}],
        "system": [{"text": "S"}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
        "inferenceConfig": {},
        "toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {}}}]},
    }
    response = {
        "output": {"message": {"role": "assistant", "content": [{"text": "Ho"}]}},
        "stopReason": "end_turn",
        "usage": {
            "inputTokens": 2,
            "outputTokens": 5,
            "cacheReadInputTokens": 0,
            "cacheWriteInputTokens": 1322,
        },
    }
    lane = lanes(SOURCE, write(tmp_path / "c.yaml", interaction(CONVERSE, request, response)))[
        "main"
    ]
    (step,) = lane.steps
    assert step.usage == Usage(input=2, cache_read=0, cache_write=1322, output=5)
    assert [tuple(b) for b in step.prompt.breakpoints] == [(1, "1h"), (2, "5m")]
    assert [p.section for p in lane.parts(step.prompt)] == ["tools", "system", "messages"]
    assert (step.model, step.provider) == ("us.anthropic.claude-x:0", "bedrock")


def test_bedrock_streams_are_read_between_their_binary_frames(tmp_path) -> None:
    events = [
        {"role": "assistant"},
        {"contentBlockIndex": 0, "delta": {"text": "Let me "}},
        {"contentBlockIndex": 0, "delta": {"text": "look."}},
        {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t1", "name": "look"}}},
        {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"q"'}}},
        {"contentBlockIndex": 1, "delta": {"toolUse": {"input": ": 1}"}}},
        {"stopReason": "tool_use"},
        {"usage": {"inputTokens": 7, "outputTokens": 3, "cacheReadInputTokens": 40}},
    ]
    raw = b"".join(b"\x00\x01{\xff:event-type" + json.dumps(e).encode() + b"\x9f" for e in events)
    request = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}], "inferenceConfig": {}}
    call = interaction(CONVERSE + "-stream", request, raw)
    lane = lanes(SOURCE, write(tmp_path / "c.yaml", call))["main"]
    (step,) = lane.steps
    assert step.usage == Usage(input=7, cache_read=40, output=3)
    assert step.stop_reason == "tool_use"
    made = [lane.pool[i] for r in step.response for i in range(*r)]
    assert [(p.kind, p.body) for p in made] == [("text", "Let me look."), ("tool_use", '{"q":1}')]


def test_bedrock_invocations_speak_the_messages_of_their_model(tmp_path) -> None:
    call = message_call()
    call["request"]["uri"] = CONVERSE.replace("converse", "invoke")
    (step,) = lanes(SOURCE, write(tmp_path / "c.yaml", call))["main"].steps
    assert (step.usage.prompt, step.provider) == (53, "bedrock")


def test_packed_and_streamed_bodies_are_read(tmp_path) -> None:
    call = chat_call()
    whole = json.loads(call["response"]["body"]["string"])
    packed = chat_call()
    packed["response"]["body"]["string"] = gzip.compress(json.dumps(whole).encode())
    parsed = chat_call()
    del parsed["response"]["body"]
    parsed["response"]["parsed_body"] = whole
    events = [
        {"type": "message_start", "message": {"id": "msg_2", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Ho"}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 4}},
    ]
    streamed = message_call("You")
    streamed["response"]["body"]["string"] = "".join(f"data: {json.dumps(e)}\n\n" for e in events)
    found = lanes(SOURCE, write(tmp_path / "c.yaml", packed, parsed, streamed))
    assert [s.usage.prompt for s in found["main"].steps] == [20, 20]
    assert found["main-2"].steps[0].usage == Usage(input=3, output=4)


def test_old_completions_are_read_whole_and_streamed(tmp_path) -> None:
    uri = "https://api.anthropic.com/v1/complete"
    request = {"model": "claude-2.1", "prompt": "Human: Hi"}
    answer = {"id": "c1", "type": "completion", "completion": "Ho", "stop_reason": "stop"}
    streamed = "".join(
        f"event: completion\ndata: {json.dumps(answer | {'completion': piece})}\n\n"
        for piece in ("H", "o")
    )
    path = write(
        tmp_path / "c.yaml",
        interaction(uri, request, answer),
        interaction(uri, request, streamed),
    )
    lane = lanes(SOURCE, path)["main"]
    for step in lane.steps:
        assert step.usage is None
        assert [lane.pool[i].body for r in step.response for i in range(*r)] == ["Ho"]


def test_requests_inside_a_request_are_steps_of_their_own(tmp_path) -> None:
    rounds = [
        {"type": "compaction", "input_tokens": 900, "output_tokens": 80},
        {"type": "message", "input_tokens": 3, "output_tokens": 2},
    ]
    path = write(tmp_path / "c.yaml", message_call(iterations=rounds))
    steps = lanes(SOURCE, path)["main"].steps
    assert [s.usage.input for s in steps] == [900, 3]
    assert steps[0].key == f"{steps[1].key}#0"


def test_bad_cassettes_and_calls_are_problems(tmp_path) -> None:
    broken = chat_call()
    broken["request"]["body"] = "{not json"
    odd = chat_call()
    odd["response"]["body"]["string"] = "plain words"
    found, problems = batches(SOURCE, write(tmp_path / "c.yaml", broken, odd, chat_call()))
    assert [p.line for p in problems] == [1, 2]
    assert sum(len(b.steps) for b in found) == 1
    bomb = ["&a0 [x, x]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9))]
    for text in (
        "interactions:\n- request: {uri: [",
        "interactions:\n  a: 1\n",
        "interactions:\n" + "".join(f"- {line}\n" for line in bomb),
        "interactions:\n- &a [*a]\n",
    ):
        path = tmp_path / "bad.yaml"
        path.write_text(text, encoding="utf-8")
        assert SOURCE.detect(read_head(path))
        assert (len(batches(SOURCE, path)[0]), len(batches(SOURCE, path)[1])) == (0, 1)


def test_other_yaml_is_not_claimed(tmp_path) -> None:
    path = tmp_path / "openapi.yml"
    path.write_text("openapi: 3.0.0\npaths:\n  /x:\n    interactions:\n", encoding="utf-8")
    assert not SOURCE.detect(read_head(path))


def plain_usages(call: dict) -> list[dict]:
    """The usage objects of one recorded call, read without anything of ours."""
    got = call["response"]
    if got.get("parsed_body"):
        found = [got["parsed_body"].get("usage")]
    else:
        text = (got.get("body") or {}).get("string") or ""
        if isinstance(text, bytes):
            text = (gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text).decode()
        if text.lstrip().startswith("{"):
            found = [json.loads(text).get("usage")]
        else:
            merged: dict = {}
            for line in text.splitlines():
                if line.startswith("data:") and line[5:].strip().startswith("{"):
                    event = json.loads(line[5:])
                    for place in (event, event.get("message") or {}, event.get("response") or {}):
                        merged |= place.get("usage") or {}
            found = [merged]
    last = found[0] or {}
    return [last, *(last.get("iterations") or [])[:-1]] if last else []


def plain_total(usage: dict) -> int:
    """Prompt and output tokens of a usage object of any of the three shapes."""
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"] + usage["completion_tokens"]
    if "inputTokens" in usage:
        return usage["totalTokens"]
    if "input_tokens_details" in usage:
        return usage["input_tokens"] + usage["output_tokens"]
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
    names = ("input_tokens", "output_tokens", *cached)
    return sum(usage.get(name) or 0 for name in names)


@pytest.mark.data
def test_sums_of_the_real_cassettes_equal_a_plain_count(shared_data) -> None:
    ours = theirs = n_ours = n_theirs = 0
    for path in sorted((shared_data / "traces" / "raw-api").rglob("*.yaml*")):
        raw = path.read_bytes()
        value = yaml.safe_load(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        calls = [
            c for c in value.get("interactions", ()) if "count_tokens" not in c["request"]["uri"]
        ]
        assert SOURCE.detect(read_head(path)) == bool(calls)
        if not calls:
            continue
        found, problems = batches(SOURCE, path)
        assert not problems
        steps = [s for b in found for s in b.steps]
        usages = [plain_usages(c) for c in calls]
        n_theirs += sum(max(1, len(u)) for u in usages)
        n_ours += len(steps)
        theirs += sum(plain_total(u) for own in usages for u in own)
        ours += sum(s.usage.prompt + s.usage.output for s in steps if s.usage is not None)
    assert (n_ours, ours) == (n_theirs, theirs)
    assert n_ours > 0
