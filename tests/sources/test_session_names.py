"""Files of one name in several folders are sessions of their own where the files name none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
import yaml

from analyzer.sources import SOURCES
from tests.reading import batches

Rows = Callable[[str], str]


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def cassette(text: str) -> str:
    request = {"model": "gpt-5.4", "messages": [{"role": "user", "content": text}]}
    answer = {"choices": [{"message": {"role": "assistant", "content": "Ho"}}]}
    call = {
        "request": {"uri": "https://api.openai.com/v1/chat/completions"}
        | {"body": json.dumps(request)},
        "response": {"body": {"string": json.dumps(answer)}, "status": {"code": 200}},
    }
    return yaml.safe_dump({"interactions": [call], "version": 1})


def pi(text: str) -> str:
    usage = {"input": 1, "output": 2}
    return lines(
        {"type": "session", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/w"},
        {"type": "message", "message": {"role": "user", "content": text}},
        {"type": "message", "message": {"role": "assistant", "content": "Ho", "usage": usage}},
    )


def codex(text: str) -> str:
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    info = {"total_token_usage": usage, "last_token_usage": usage}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    count = {"type": "token_count", "info": info}
    return lines(
        {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": item},
        {"timestamp": "2026-01-01T00:00:01Z", "type": "event_msg", "payload": count},
    )


def copilot(text: str) -> str:
    said = {"model": "gpt-5", "content": "Ho", "outputTokens": 1, "messageId": "m"}
    return lines(
        {"type": "user.message", "data": {"content": text}, "id": text},
        {"type": "assistant.message", "data": said, "id": "2"},
    )


def cline(text: str) -> str:
    answer = {"role": "assistant", "content": "Ho", "metrics": {"inputTokens": 1}}
    return json.dumps({"version": 1, "messages": [{"role": "user", "content": text}, answer]})


def gemini(text: str) -> str:
    answer = {"type": "gemini", "content": "Ho", "tokens": {"input": 1, "output": 1}}
    return json.dumps({"projectHash": "h", "messages": [{"type": "user", "content": text}, answer]})


def inspect(text: str) -> str:
    message = {"role": "user", "content": text}
    output = {"choices": [{"message": {"role": "assistant", "content": "Ho"}}]}
    event = {"event": "model", "model": "m", "input": [message], "output": output}
    return json.dumps({"eval": {"created": text}, "samples": [{"id": 1, "events": [event]}]})


FILES: Mapping[str, tuple[str, Rows]] = {
    "vcr": ("test_chat.yaml", cassette),
    "pi": ("session.jsonl", pi),
    "codex": ("rollout.jsonl", codex),
    "copilot-cli": ("events.jsonl", copilot),
    "cline": ("session.messages.json", cline),
    "gemini-cli": ("session.json", gemini),
    "inspect": ("log.json", inspect),
}


@pytest.mark.parametrize("source", FILES)
def test_files_of_one_name_are_told_apart_and_a_copy_is_known(source: str, tmp_path) -> None:
    name, make = FILES[source]
    names = []
    for folder, text in (("a/run", "one"), ("b/run", "two"), ("c/run", "one")):
        (tmp_path / folder).mkdir(parents=True)
        path = tmp_path / folder / name
        path.write_text(make(text), encoding="utf-8")
        found, problems = batches(SOURCES[source], path)
        assert not problems
        names += {batch.session.session_id for batch in found if batch.steps}
    one, two, copy = names
    assert one == copy != two
