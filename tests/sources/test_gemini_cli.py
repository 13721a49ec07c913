from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analyzer.sources.base import read_head
from analyzer.sources.gemini_cli import GeminiCliSource
from tests.reading import batches, lanes
from tests.sources.recordings import plain, real, totals, write_document

SOURCE = GeminiCliSource()
START = "2026-01-15T20:51:{:02d}.000Z"


def answer(name: str, second: int, tokens: dict[str, int]) -> dict[str, Any]:
    """A response that called a tool."""
    response = {"functionResponse": {"id": f"c-{name}", "response": {"output": f"did {name}"}}}
    call = {"id": f"c-{name}", "name": "shell", "args": {"command": name}, "result": [response]}
    return {
        "id": f"m-{name}",
        "timestamp": START.format(second),
        "type": "gemini",
        "content": f"doing {name}",
        "thoughts": [{"subject": "s", "description": "d"}],
        "tokens": tokens,
        "model": "gemini-3-flash-preview",
        "toolCalls": [call],
    }


def tokens(sent: int, cached: int, **more: int) -> dict[str, int]:
    return {"input": sent, "output": 100, "cached": cached, "thoughts": 40, "tool": 0, **more}


@pytest.fixture
def chat() -> dict[str, Any]:
    user = {"id": "u", "timestamp": START.format(1), "type": "user", "content": "make a file"}
    return {
        "sessionId": "s-1",
        "projectHash": "h",
        "messages": [
            user,
            answer("a", 5, tokens(12_000, 0)),
            {"id": "i", "timestamp": START.format(6), "type": "info", "content": "update!"},
            answer("b", 9, tokens(12_200, 11_800)),
        ],
    }


def test_cached_is_part_of_the_input_and_thoughts_come_on_top(chat, tmp_path) -> None:
    steps = lanes(SOURCE, write_document(tmp_path / "s.json", chat))["main"].steps
    assert [(s.usage.input, s.usage.cache_read) for s in steps] == [(12_000, 0), (400, 11_800)]
    assert [(s.usage.output, s.usage.reasoning) for s in steps] == [(140, 40), (140, 40)]


def test_tokens_of_a_server_side_tool_stand_beside_the_input(chat, tmp_path) -> None:
    chat["messages"][3]["tokens"]["tool"] = 30
    steps = lanes(SOURCE, write_document(tmp_path / "s.json", chat))["main"].steps
    assert (steps[1].usage.input, steps[1].usage.prompt) == (430, 12_230)


def test_the_prompt_holds_calls_and_results_but_no_thoughts(chat, tmp_path) -> None:
    lane = lanes(SOURCE, write_document(tmp_path / "s.json", chat))["main"]
    parts = lane.parts(lane.steps[1].prompt)
    assert [p.kind for p in parts] == ["text", "text", "tool_use", "tool_result"]
    assert parts[3].body == "did a"
    assert [s.human for s in lane.steps] == [True, False]
    assert lane.steps[0].provider == "google"


def test_a_response_that_reports_nothing_has_no_usage_rather_than_zero(chat, tmp_path) -> None:
    chat["messages"][1]["tokens"] = dict.fromkeys(chat["messages"][1]["tokens"], 0)
    steps = lanes(SOURCE, write_document(tmp_path / "s.json", chat))["main"].steps
    assert [s.usage is None for s in steps] == [True, False]


def test_a_chat_without_a_response_has_no_step(chat, tmp_path) -> None:
    del chat["messages"][1:]
    assert batches(SOURCE, write_document(tmp_path / "s.json", chat)) == ([], [])


def test_bad_messages_become_problems_and_the_rest_goes_on(chat, tmp_path) -> None:
    chat["messages"][1:1] = [7, answer("x", 3, tokens(10, 11))]
    found, problems = batches(SOURCE, write_document(tmp_path / "s.json", chat))
    assert sum(len(b.steps) for b in found) == 2
    assert [p.pointer for p in problems] == ["$.messages[1]", "$.messages[2].tokens"]


def test_detection_needs_a_projects_hash(chat, tmp_path) -> None:
    assert SOURCE.detect(read_head(write_document(tmp_path / "s.json", chat)))
    del chat["projectHash"]
    assert not SOURCE.detect(read_head(write_document(tmp_path / "t.json", chat)))


@pytest.mark.data
def test_totals_of_the_real_chats_equal_an_independent_count(shared_data: Path) -> None:
    paths = real(shared_data / "traces" / "gemini-cli", "*.json*")
    sums, steps = totals(SOURCE, paths)
    theirs: Counter[str] = Counter()
    requests = 0
    whole = 0
    for path in paths:
        for message in json.loads(plain(path))["messages"]:
            if message["type"] == "gemini":
                counts = message["tokens"]
                requests += 1
                whole += counts["total"]
                theirs["input"] += counts["input"] - counts["cached"] + counts["tool"]
                theirs["cache_read"] += counts["cached"]
                theirs["output"] += counts["output"] + counts["thoughts"]
                theirs["reasoning"] += counts["thoughts"]
    assert steps == requests
    assert +sums == theirs
    assert sums["input"] + sums["cache_read"] + sums["output"] == whole
