"""What holds for the recordings of every agent: hostile records never raise."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.model import LaneSteps, Problem
from analyzer.sources import SOURCES
from analyzer.sources.base import Context
from tests.sources.test_cline import answer as cline_answer
from tests.sources.test_codex import Rollout
from tests.sources.test_copilot_cli import Events
from tests.sources.test_gemini_cli import answer as gemini_answer
from tests.sources.test_gemini_cli import tokens
from tests.sources.test_opencode import Export
from tests.sources.test_pi import Session, filled

JUNK: list[Any] = [None, 5, -1, 1.5, True, "x", "", [], {}, [1], [[{}]], {"a": {}}, 1e300, "\ud83d"]


def rollout() -> list[Any]:
    t = Rollout()
    t.turn("go")
    t.answer("a", 900, 128)
    t.row("compacted", message="", replacement_history=[{"type": "compaction"}])
    t.answer("b", 900, 128)
    return t.rows


def events() -> list[Any]:
    e = Events()
    e.answer("a")
    e.row("session.compaction_complete", success=True, summaryContent="s")
    e.answer("b")
    return e.rows


def session() -> list[Any]:
    s = filled(Session(tree=True, parentSession="x.jsonl"))
    s.row("compaction", summary="s", firstKeptEntryId="e4", tokensBefore=9)
    s.answer("c", 1, 2)
    return s.rows


def export() -> Any:
    e = Export()
    e.user("go")
    e.answer("a", 900, 0)["parts"][2]["state"]["time"] = {"compacted": e.at + 1}
    e.answer("b", 900, 0, summary=True)
    return {"info": e.info, "messages": e.messages}


def chat() -> Any:
    user = {"type": "user", "timestamp": "2026-01-15T20:51:01Z", "content": "go"}
    messages = [user, gemini_answer("a", 3, tokens(900, 10))]
    return {"sessionId": "s", "projectHash": "h", "messages": messages}


def cline() -> Any:
    user = {"role": "user", "ts": 1, "content": "go", "metadata": {"kind": "compaction"}}
    return {
        "version": 1,
        "sessionId": "s",
        "agent": "a",
        "messages": [user, cline_answer("a", 1, 9, 3)],
    }


JOURNALS: dict[str, Callable[[], list[Any]]] = {
    "codex": rollout,
    "copilot-cli": events,
    "pi": session,
}
DOCUMENTS: dict[str, Callable[[], Any]] = {
    "opencode": export,
    "gemini-cli": chat,
    "cline": cline,
}


def spoiled(rng: random.Random, value: Any) -> Any:
    """A value with some of what is in it left out or replaced by something of another kind."""
    if rng.random() < 0.03:
        return rng.choice(JUNK)
    if isinstance(value, dict):
        return {k: spoiled(rng, v) for k, v in value.items() if rng.random() > 0.02}
    if isinstance(value, list):
        return [spoiled(rng, v) for v in value]
    return value


@pytest.mark.parametrize("name", [*JOURNALS, *DOCUMENTS])
def test_no_record_however_spoiled_raises(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    path = tmp_path / "a.json"
    steps = problems = 0
    for _ in range(120):
        if name in JOURNALS:
            lines = [json.dumps(spoiled(rng, row)) for row in JOURNALS[name]()]
        else:
            lines = [json.dumps(spoiled(rng, DOCUMENTS[name]()))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for entry in SOURCES[name].read(path, Context()):
            assert isinstance(entry, LaneSteps | Problem)
            steps += len(entry.steps) if isinstance(entry, LaneSteps) else 0
            problems += isinstance(entry, Problem)
    assert steps
    assert problems


@pytest.mark.parametrize("name", [*JOURNALS, *DOCUMENTS])
def test_nesting_without_end_is_a_problem(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"type":' + "[" * 100_000 + "]" * 100_000 + "}\n", encoding="utf-8")
    entries = list(SOURCES[name].read(path, Context()))
    assert [type(entry) for entry in entries] == [Problem]
