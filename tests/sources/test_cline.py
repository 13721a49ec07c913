from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analyzer.sources.base import read_head
from analyzer.sources.cline import ClineSource
from tests.reading import batches, lanes
from tests.sources.recordings import plain, real, totals, write_document

SOURCE = ClineSource()
START = 1_783_376_868_000


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def answer(name: str, at: int, sent: int, read: int, write: int = 0) -> dict[str, Any]:
    call = {"type": "tool_use", "id": f"call-{name}", "name": "edit", "input": {"path": name}}
    return {
        "id": f"msg_{name}",
        "role": "assistant",
        "ts": START + at,
        "content": [*text(f"doing {name}"), call],
        "modelInfo": {"id": "anthropic/claude-opus-4.8", "provider": "cline"},
        "metrics": {
            "inputTokens": sent,
            "outputTokens": 50,
            "cacheReadTokens": read,
            "cacheWriteTokens": write,
            "cost": 0.05,
        },
    }


@pytest.fixture
def session() -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": "call-a", "content": "edited a"}
    return {
        "version": 1,
        "agent": "lead",
        "sessionId": "s-1",
        "messages": [
            {"id": "u1", "role": "user", "ts": START, "content": text("fix it")},
            answer("a", 4_000, 34_000, 0),
            {"id": "r1", "role": "user", "ts": START + 4_100, "content": [result]},
            answer("b", 8_000, 35_000, 33_998, 900),
        ],
        "system_prompt": "You are an agent.",
    }


def test_an_input_as_large_as_the_cached_part_includes_it(session, tmp_path) -> None:
    steps = lanes(SOURCE, write_document(tmp_path / "s.messages.json", session))["main"].steps
    assert [(s.usage.input, s.usage.prompt) for s in steps] == [(34_000, 34_000), (102, 35_000)]
    assert [s.reported_cost for s in steps] == [0.05, 0.05]
    assert dict(steps[1].labels)["raw_input_tokens"] == "35000"
    assert "raw_input_tokens" not in dict(steps[0].labels)


def test_an_input_smaller_than_the_cached_part_is_the_remainder(session, tmp_path) -> None:
    session["messages"][3]["metrics"]["inputTokens"] = 12
    steps = lanes(SOURCE, write_document(tmp_path / "s.messages.json", session))["main"].steps
    assert (steps[1].usage.input, steps[1].usage.prompt) == (12, 34_910)
    assert dict(steps[1].labels)["raw_input_tokens"] == "12"


def test_the_system_prompt_stands_before_the_messages(session, tmp_path) -> None:
    lane = lanes(SOURCE, write_document(tmp_path / "s.messages.json", session))["main"]
    parts = lane.parts(lane.steps[1].prompt)
    assert [p.kind for p in parts] == ["text", "text", "text", "tool_use", "tool_result"]
    assert parts[0].section == "system"
    assert parts[4].tool == "edit"
    assert [s.human for s in lane.steps] == [True, False]
    assert lane.steps[0].provider == "anthropic"


def test_what_a_compaction_left_repeats_the_keys_of_the_session(session, tmp_path) -> None:
    whole = lanes(SOURCE, write_document(tmp_path / "s.messages.json", session))["main"]
    notice = {
        "id": "u1",
        "role": "user",
        "ts": START,
        "content": [*text("fix it"), *text("Earlier context was compacted.")],
        "metadata": {"kind": "compaction", "reason": "manual_compaction"},
    }
    kept = {k: v for k, v in session["messages"][3].items() if k != "metrics"}
    session["messages"] = [notice, kept]
    left = lanes(SOURCE, write_document(tmp_path / "s.compaction.json", session))["main"]
    assert left.steps[0].key == whole.steps[1].key
    assert left.session == whole.session
    assert left.steps[0].usage is None
    assert left.steps[0].compaction is not None
    parts = left.parts(left.steps[0].prompt)
    assert [p.kind for p in parts] == ["text", "text", "summary"]


def test_the_description_of_a_session_holds_no_step(tmp_path) -> None:
    about = {"version": 1, "session_id": "s-1", "messages_path": "x", "model": "m"}
    path = write_document(tmp_path / "session.json", about)
    assert SOURCE.detect(read_head(path))
    assert batches(SOURCE, path) == ([], [])


def test_bad_messages_become_problems_and_the_rest_goes_on(session, tmp_path) -> None:
    bad = answer("x", 1, 5, 5)
    bad["metrics"]["cost"] = "dear"
    session["messages"][1:1] = ["?", bad]
    found, problems = batches(SOURCE, write_document(tmp_path / "s.messages.json", session))
    assert sum(len(b.steps) for b in found) == 2
    assert [p.pointer for p in problems] == ["$.messages[1]", "$.messages[2].metrics.cost"]


@pytest.mark.data
def test_totals_of_the_real_sessions_equal_an_independent_count(shared_data: Path) -> None:
    paths = real(shared_data / "traces" / "cline", "*.json*")
    sums, steps = totals(SOURCE, paths)
    theirs: Counter[str] = Counter()
    requests: set[str] = set()
    for path in paths:
        for message in json.loads(plain(path)).get("messages", []):
            if message["role"] != "assistant":
                continue
            requests.add(message["id"])
            counts = message.get("metrics")
            if counts:
                theirs["input"] += counts["inputTokens"] - counts["cacheReadTokens"]
                theirs["cache_read"] += counts["cacheReadTokens"]
                theirs["output"] += counts["outputTokens"]
                theirs["cost"] += round(counts["cost"] * 1_000_000)
    assert steps == len(requests)
    assert +sums == theirs
