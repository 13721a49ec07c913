"""Whatever stands around a request and its response in a log, what is read of them is the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.model import Lane
from analyzer.sources import detect
from analyzer.sources.base import HEAD_BYTES, read_head
from tests.builders import anthropic_records, keep_newest, write_lines
from tests.reading import batches, lanes

Record = dict[str, Any]
RUN = anthropic_records(5, shape=keep_newest(2))


def chat_records() -> list[Record]:
    """A run of a chat API, in the plain wrapper."""
    messages: list[Record] = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
    out = []
    for n in range(4):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {
            "prompt_tokens": 2000 + n,
            "completion_tokens": 7,
            "total_tokens": 2007 + n,
            "prompt_tokens_details": {"cached_tokens": 1024 * (n > 0)},
        }
        response = {
            "id": f"chatcmpl-{n}",
            "model": "gpt-5.4",
            "choices": [{"message": answer, "finish_reason": "tool_calls"}],
            "usage": usage,
        }
        request = {"model": "gpt-5.4", "messages": [*messages]}
        out.append({"ts": 1_780_000_000 + 60 * n, "request": request, "response": response})
        messages += [answer, {"role": "tool", "tool_call_id": f"c{n}", "content": f"result {n}"}]
    return out


def events(response: Record) -> list[Record]:
    """A response as the events of its stream."""
    if "choices" in response:
        message = response["choices"][0]["message"]
        calls = [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]
        delta = {"delta": {**message, "tool_calls": calls}, "finish_reason": "tool_calls"}
        whole = {k: v for k, v in response.items() if k not in ("choices", "usage")}
        return [
            {**whole, "choices": [delta], "usage": None},
            {**whole, "choices": [], "usage": response["usage"]},
        ]
    usage = response["usage"]
    start = {**response, "content": [], "usage": {**usage, "output_tokens": 1}}
    out: list[Record] = [{"type": "message_start", "message": start}]
    for block in response["content"]:
        if block["type"] == "text":
            pieces = [{"type": "text_delta", "text": block["text"]}]
            out.append({"type": "content_block_start", "content_block": {**block, "text": ""}})
        else:
            text = json.dumps(block["input"])
            pieces = [{"type": "input_json_delta", "partial_json": text}]
            out.append({"type": "content_block_start", "content_block": {**block, "input": {}}})
        out += [{"type": "content_block_delta", "delta": piece} for piece in pieces]
    closing = {"output_tokens": usage["output_tokens"]}
    return [*out, {"type": "message_delta", "delta": {}, "usage": closing}]


def stream(response: Record) -> str:
    return "".join(
        f"event: x\r\ndata: {json.dumps(e, ensure_ascii=False)}\r\n\r\n" for e in events(response)
    )


def texts(record: Record) -> Record:
    bodies = {f"{k}_body": json.dumps(record[k]) for k in ("request", "response")}
    return {"timestamp": record["ts"], **bodies, "status": 200}


def http(record: Record, kind: Callable[[Record], Any] = dict, ask: Any = dict) -> Record:
    return {
        "started_at": record["ts"],
        "request": {"method": "POST", "headers": {}, "body": ask(record["request"])},
        "response": {"status": 200, "headers": {}, "body": kind(record["response"])},
    }


def intercepted(record: Record) -> Record:
    """As a client's own requests are caught on their way out: times stand beside the bodies."""
    return {
        "request": {"timestamp": record["ts"], "url": "/v1/x", "body": record["request"]},
        "response": {"timestamp": record["ts"], "body_raw": stream(record["response"])},
        "logged_at": "2026-11-30T23:59:59Z",
    }


def enveloped(record: Record) -> Record:
    found = [{"event": "x", "data": e, "timestamp": "?"} for e in events(record["response"])]
    return {**record, "response": {"status_code": 200, "events": found}}


WRAPPERS: dict[str, Callable[[Record], Record]] = {
    "bodies as texts": texts,
    "http": http,
    "http with texts": lambda r: http(r, json.dumps, json.dumps),
    "http with a stream": lambda r: http(r, stream, json.dumps),
    "a list of events": lambda r: {**r, "response": events(r["response"])},
    "intercepted": intercepted,
    "events in envelopes": enveloped,
    "times of a gateway": lambda r: {
        "request_created_at": r["ts"],
        "request_body": r["request"],
        "response_body": r["response"],
    },
}


def read(path: Path) -> Lane:
    source = detect(read_head(path))
    assert source is not None
    (lane,) = lanes(source, path).values()
    return lane


@pytest.mark.parametrize("records", [RUN, chat_records()], ids=["messages", "chat"])
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_every_wrapper_gives_what_the_plain_one_gives(
    wrap: Callable[[Record], Record], records: list[Record], tmp_path: Path
) -> None:
    plain = read(write_lines(tmp_path / "plain.jsonl", records))
    wrapped = read(write_lines(tmp_path / "wrapped.jsonl", [wrap(r) for r in records]))
    assert [s.usage for s in wrapped.steps] == [s.usage for s in plain.steps]
    assert [s.at for s in wrapped.steps] == [s.at for s in plain.steps]
    assert [wrapped.parts(s.prompt) for s in wrapped.steps] == [
        plain.parts(s.prompt) for s in plain.steps
    ]
    assert [
        [wrapped.pool[i] for r in s.response for i in range(r.start, r.stop)] for s in wrapped.steps
    ] == [[plain.pool[i] for r in s.response for i in range(r.start, r.stop)] for s in plain.steps]


def test_a_response_ends_when_it_was_there(tmp_path: Path) -> None:
    record = intercepted(RUN[0])
    record["request"]["timestamp"] = 1_780_000_000.5
    record["response"]["timestamp"] = 1_780_000_009.5
    (step,) = read(write_lines(tmp_path / "a.jsonl", [record])).steps
    assert step.at is not None
    assert step.ended_at is not None
    assert (step.ended_at - step.at).total_seconds() == 9


@pytest.mark.parametrize("records", [RUN, chat_records()], ids=["messages", "chat"])
def test_a_first_line_of_texts_longer_than_the_head_is_recognised(
    records: list[Record], tmp_path: Path
) -> None:
    record = json.loads(json.dumps(records[0]))
    record["request"]["messages"][-1]["content"] = 'a "quoted" \\n word ' * HEAD_BYTES
    for wrap in (texts, WRAPPERS["http with texts"]):
        path = write_lines(tmp_path / "long.jsonl", [wrap(record)])
        assert detect(read_head(path)) is detect(read_head(write_lines(path, records)))


def test_line_ends_of_a_stream_are_not_those_of_its_text(tmp_path: Path) -> None:
    record = json.loads(json.dumps(RUN[0]))
    record["response"]["content"] = [{"type": "text", "text": "a\u2028b\u0085c\x0cd"}]
    record["response"] = stream(record["response"])
    lane = read(write_lines(tmp_path / "a.jsonl", [record]))
    assert lane.pool[lane.steps[0].response[0].start].body == "a\u2028b\u0085c\x0cd"


@pytest.mark.parametrize("records", [RUN, chat_records()], ids=["messages", "chat"])
def test_failures_are_steps_with_their_error_and_without_usage(
    records: list[Record], tmp_path: Path
) -> None:
    first, *_ = records
    said = {"status_code": 502, "body": "<html>Bad gateway</html>"}
    failed = [
        {**first, "response": said},
        {**first, "response": None, "error": "connection reset"},
        {**first, "response": {"type": "error", "error": {"type": "overloaded_error"}}},
    ]
    steps = read(write_lines(tmp_path / "a.jsonl", [first, *failed])).steps
    assert [s.usage is None for s in steps] == [False, True, True, True]
    for step, word in zip(steps[1:], ("http_502", "reset", "overloaded"), strict=True):
        assert word in (step.error or "")


def test_text_that_is_no_response_is_a_problem(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [RUN[0], {**RUN[1], "response": "lost"}])
    source = detect(read_head(path))
    assert source is not None
    assert [(p.line, p.pointer) for p in batches(source, path)[1]] == [(2, "$.response")]


def test_a_request_that_only_counts_tokens_is_no_step(tmp_path: Path) -> None:
    counting = {**http(RUN[1]), "response": {"status": 200, "body": {"input_tokens": 4711}}}
    path = write_lines(tmp_path / "a.jsonl", [http(RUN[0]), counting])
    assert len(read(path).steps) == 1
    answered = {**chat_records()[0], **chat_records()[0]["response"], "input_tokens": 4711}
    del answered["response"]
    assert len(read(write_lines(path, [answered])).steps) == 1
