"""The documented OpenTelemetry writer says the same as the documented step writer."""

from __future__ import annotations

import importlib.util
import re
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from analyzer.diagnose.lane import diagnose_lane
from analyzer.ledger import lane_ledger
from analyzer.model import Lane, Usage
from analyzer.pricing import PriceBook
from analyzer.sources.otlp import OtlpSource
from analyzer.sources.steps import StepsSource
from tests import spans as otel
from tests.builders import anthropic_records, keep_newest
from tests.reading import lanes

CHECKOUT = Path(__file__).resolve().parents[2]
SPAN, TRACE = "00f067aa0ba902b7", otel.TRACE


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, CHECKOUT / "docs" / "emitters" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OTEL, STEP = load("emit_otel"), load("emit_step")


def written(folder: Path, calls: list[tuple[Any, Any, float]]) -> tuple[Lane, Lane]:
    """The main lanes of the same calls, by either writer."""
    spans, steps = folder / "a.otlp.jsonl", folder / "a.steps.jsonl"
    for request, response, began in calls:
        OTEL.emit_call(spans, "s-1", request, response, began, TRACE, SPAN)
        STEP.emit_step(steps, "s-1", request, response, began)
    OTEL.emit_agent(spans, "s-1", "coder", calls[0][2] - 1, TRACE, span=SPAN)
    return lanes(OtlpSource(), spans)["main"], lanes(StepsSource(), steps)["main"]


def verdicts(lane: Lane) -> list[str]:
    return [v.kind for v in diagnose_lane(lane_ledger(lane, PriceBook.default())).verdicts]


@pytest.mark.parametrize("keep", [3, 100])
def test_both_writers_give_the_same_usage_prompts_and_verdicts(keep: int, tmp_path: Path) -> None:
    records = anthropic_records(10, shape=keep_newest(keep))
    mine, theirs = written(
        tmp_path,
        [
            (r["request"], r["response"], datetime.fromisoformat(r["ts"]).timestamp())
            for r in records
        ],
    )
    assert [step.usage for step in mine.steps] == [step.usage for step in theirs.steps]
    assert mine.steps[3].usage is not None
    assert mine.steps[3].usage.cache_write_5m
    assert verdicts(mine) == verdicts(theirs)
    assert ("sliding-stubs" in verdicts(mine)) == (keep == 3)
    assert mine.session.session_id == theirs.session.session_id == "s-1"
    for step, other in zip(mine.steps, theirs.steps, strict=True):
        assert step.prompt is not None
        assert other.prompt is not None
        assert [p.digest for p in mine.parts(step.prompt)] == [
            p.digest for p in theirs.parts(other.prompt)
        ]
        assert step.prompt.breakpoints == other.prompt.breakpoints
        assert (step.model, step.stop_reason, step.at) == (other.model, other.stop_reason, other.at)


def test_openai_counts_are_read_from_both_writers_alike(tmp_path: Path) -> None:
    request = {"model": "gpt-5.4", "messages": [{"role": "user", "content": "hi"}]}
    usage = {"prompt_tokens": 2006, "completion_tokens": 9, "total_tokens": 2015}
    usage["prompt_tokens_details"] = {"cached_tokens": 1920}  # type: ignore[assignment]
    message = {"role": "assistant", "content": "hello"}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    response = {"id": "c-1", "model": "gpt-5.4", "choices": choices, "usage": usage}
    mine, theirs = written(tmp_path, [(request, response, 1.78e9)])
    assert mine.steps[0].usage == theirs.steps[0].usage == Usage(86, 1920, output=9)
    assert mine.steps[0].stop_reason == "stop"
    assert mine.pool[0].body == "hi"


def test_what_a_response_does_not_count_stays_unknown(tmp_path: Path) -> None:
    request = {"model": "claude-sonnet-4-6", "messages": [{"role": "user", "content": "hi"}]}
    mine, _ = written(tmp_path, [(request, {"content": []}, 1.78e9)])
    assert mine.steps[0].usage is None


def test_without_the_attributes_of_langfuse_the_counts_are_the_same(tmp_path: Path) -> None:
    record = anthropic_records(2)[1]
    path = tmp_path / "a.jsonl"
    dropped = {"langfuse.observation.usage_details": None, "langfuse.observation.type": None}
    OTEL.emit_call(path, "s", record["request"], record["response"], 1.78e9, TRACE, **dropped)
    usage = lanes(OtlpSource(), path)["main"].steps[0].usage
    sent = record["response"]["usage"]
    assert usage is not None
    assert (usage.input, usage.cache_read) == (3, sent["cache_read_input_tokens"])
    assert usage.cache_write == sent["cache_creation_input_tokens"]


def test_every_attribute_that_the_writer_writes_is_explained() -> None:
    code = (CHECKOUT / "docs" / "emitters" / "emit_otel.py").read_text(encoding="utf-8")
    text = (CHECKOUT / "docs" / "otel.md").read_text(encoding="utf-8")
    names = set(re.findall(r'"((?:gen_ai|langfuse)\.[a-z_.]+)"', code))
    assert len(names) > 15
    assert {name for name in names if f"`{name}`" not in text} == set()
