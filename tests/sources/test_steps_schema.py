"""The schema of step JSONL, the document that explains it, and the writer it recommends."""

from __future__ import annotations

import importlib.util
import re
import time
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import jsonschema

from analyzer.model import Compaction, Usage
from analyzer.sources.prompts import CACHE_KEY_SETTINGS
from analyzer.sources.steps import validate_file
from analyzer.sources.steps_rows import RequestRow, StepRow
from analyzer.sources.steps_schema import schema
from tests.step_rows import Read, user, whole, write_lines

CHECKOUT = Path(__file__).resolve().parents[2]
DOC = CHECKOUT / "docs" / "step-jsonl.md"

OURS = {f"{field.name}_tokens" for field in fields(Usage) if field.type == "int | None"}
"""Our names of the token counts."""


def test_the_schema_says_what_was_expected_and_what_came(tmp_path: Path) -> None:
    rows = [
        whole(user("hi"), usage={"cache_reads_tokens": 4}),
        {"request": {"messages": []}},
        {"session": "s", "usage": {}},
        whole(user("hi"), usage={"input_tokens": "4"}),
        whole({"content": "x"}),
        whole(user("hi"), compaction={"kind": "magic"}),
        {"type": "session", "session": "s", "titel": "T"},
        whole(user("hi"), x_mine={"a": 1}),
    ]
    path = write_lines(tmp_path / "a.jsonl", rows)
    found = [(p.line, p.pointer) for p in validate_file(path)]
    assert found == [
        (1, "$.usage"),
        (2, "$"),
        (3, "$"),
        (4, "$.usage.input_tokens"),
        (5, "$.request.messages[0]"),
        (6, "$.compaction.kind"),
        (7, "$"),
    ]
    messages = [p.message for p in validate_file(path)]
    assert "cache_reads_tokens" in messages[0]
    assert "cache_read_tokens" in messages[0]
    assert "'session'" in messages[1]
    assert "expected integer or null, got a string" in messages[3]


def test_complaints_about_a_foreign_file_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("nothing\n" * 3000)
    assert len(validate_file(path)) == 1000


def fields_of(name: str) -> set[str]:
    definition = schema()["$defs"]
    assert isinstance(definition, dict)
    return set(definition[name]["properties"])


def test_the_schema_and_the_reader_know_the_same_fields() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    # Request logs call the start of a request so; a writer of ours does not.
    read = set(StepRow.__struct_fields__) - {"ts", "timestamp"}
    # Only people read the number of a step.
    assert fields_of("step_line") | fields_of("session_line") == read | {"step"}
    assert fields_of("compaction") == set(Compaction.__dataclass_fields__)
    assert fields_of("usage") > OURS
    prompt = {"tools", "system", "messages", "cache_control", "model", "input", "instructions"}
    assert set(RequestRow.__struct_fields__) == CACHE_KEY_SETTINGS | prompt


def test_the_document_explains_every_field() -> None:
    told = set(re.findall(r"`(\w+)`", DOC.read_text(encoding="utf-8")))
    wanted = fields_of("step_line") | fields_of("compaction") | OURS
    assert wanted - told == {"type"}


def examples() -> str:
    found = re.findall(r"```jsonl\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    return "".join(found)


def test_the_examples_of_the_document_are_valid_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "doc.jsonl"
    path.write_text(examples())
    assert validate_file(path) == []
    read = Read(path)
    assert read.problems == []
    assert [len(read.digests(n)) for n in range(3)] == [3, 5, 7]
    assert len(read.steps) == 4


def load_emitter() -> ModuleType:
    path = CHECKOUT / "docs" / "emitters" / "emit_step.py"
    spec = importlib.util.spec_from_file_location("emit_step", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_the_documented_emitter_writes_is_valid_and_readable(tmp_path: Path) -> None:
    emit = load_emitter().emit_step
    path = tmp_path / "agent.steps.jsonl"
    messages = [user("hi")]
    for n in range(3):
        request = {"model": "claude-sonnet-4-6", "max_tokens": 100, "messages": list(messages)}
        content = [{"type": "text", "text": f"answer {n}"}]
        usage = {"input_tokens": 3, "cache_read_input_tokens": n, "cache_creation_input_tokens": 5}
        response = {"id": f"msg_{n}", "type": "message", "role": "assistant", "content": content}
        response |= {"stop_reason": "end_turn", "usage": usage | {"service_tier": "standard"}}
        emit(path, "s-1", request, response, time.time(), labels={"arm": "raw"})
        messages += [{"role": "assistant", "content": content}, user(f"next {n}")]
    assert validate_file(path) == []
    read = Read(path)
    assert read.problems == []
    keys = [step.key.split("@")[0] for step in read.steps]
    assert keys == [f"steps:s-1:main:msg_{n}" for n in range(3)]
    assert read.steps[1].usage is not None
    assert read.steps[1].usage.cache_read == 1
    assert read.steps[1].stop_reason == "end_turn"
    assert read.steps[2].prompt is not None
    assert len(read.steps[2].prompt.ranges) == 1
