"""What the token counts of spans mean, whichever convention and sender wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzer.model import Lane
from analyzer.sources.anthropic_log import AnthropicLogSource
from tests import spans as otel
from tests.builders import anthropic_records, keep_newest, write_lines
from tests.reading import lanes as lanes_of_file
from tests.span_reading import (
    Reader,
    counted,
    flags,
    stated,
    usage_only,
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


def test_input_holds_cached_tokens_as_the_convention_says(read: Reader) -> None:
    lane = read.one(usage_only(stated(1000, 0, 900), stated(1100, 900, 150)))
    assert counted(lane) == [(100, 0, 900, 9), (50, 900, 150, 9)]
    assert flags(lane.steps[1]) == {"by_convention", "input_inclusive"}
    raw = json.loads(dict(lane.steps[1].labels)["usage.raw"])
    assert raw["input_tokens"] == 1100


def test_one_record_with_less_input_than_cached_tokens_proves_its_sender_exclusive(
    read: Reader,
) -> None:
    broken = (stated(1000, 0, 900), stated(1100, 900, 150), stated(3, 2000))
    lane = read.one(usage_only(*broken))
    assert counted(lane) == [(1000, 0, 900, 9), (1100, 900, 150, 9), (3, 2000, 0, 9)]
    other = usage_only(*broken[:2], scope="another")
    lanes = read.clean(usage_only(broken[2]), other)
    (kept,) = lanes.values()
    assert sorted(counted(kept))[-2:] == [(50, 900, 150, 9), (100, 0, 900, 9)]


def test_what_one_model_proves_of_a_sender_holds_for_its_other_models(read: Reader) -> None:
    haiku = {**stated(1100, 900), "gen_ai.request.model": "claude-haiku-4-5"}
    assert read.one(usage_only(stated(3, 900), haiku)).steps[1].usage.input == 1100  # type: ignore[union-attr]


@pytest.mark.parametrize("inclusive", [True, False])
def test_both_kinds_of_anthropic_senders_read_the_same(
    inclusive: bool, read: Reader, truth: Lane
) -> None:
    def writer(record: otel.Record) -> otel.Written:
        given, events = otel.genai(record)
        return {**given, **otel.counts(record, inclusive=inclusive)}, events

    lane = read.one(otel.request(otel.run(RECORDS, writer)))
    assert counted(lane) == counted(truth)
    assert verdicts(lane) == verdicts(truth)


def test_reasoning_is_a_part_of_the_output(read: Reader) -> None:
    given = {**stated(50, None), "gen_ai.usage.reasoning.output_tokens": 5}
    usage = read.one(usage_only(given)).steps[0].usage
    assert usage is not None
    assert (usage.output, usage.reasoning, usage.cache_read) == (9, 5, None)


def test_counts_written_as_texts_or_with_a_point_are_counts(read: Reader) -> None:
    outer = {k: str(v) for k, v in stated(1000, 900).items()}
    inner = {k: float(v) for k, v in stated(1000, 900).items()}
    common = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    spans = [
        otel.span(1, 1.78e9, common | outer),
        otel.span(2, 1.78e9 + 1, common | inner, parent=1),
        otel.span(3, 1.78e9 + 9, common | outer),
    ]
    assert counted(read.one(otel.request(spans))) == [(100, 900, None, 9)] * 2


def test_counts_under_several_names_count_once(read: Reader) -> None:
    given = {
        **stated(1100, 900),
        "llm.token_count.prompt": 1100,
        "llm.token_count.completion": 9,
        "llm.token_count.prompt_details.cache_read": 900,
        "llm.token_count.prompt_details.cache_write": 150,
        "gen_ai.usage.details.cache_read_tokens": 900,
        "gen_ai.usage.details.input_tokens": 50,
        "gen_ai.usage.cost": 0.25,
    }
    (step,) = read.one(usage_only(given)).steps
    assert step.usage is not None
    assert (step.usage.input, step.usage.cache_read, step.usage.cache_write) == (50, 900, 150)
    assert step.reported_cost == 0.25


def test_the_counts_of_anthropic_beside_those_of_the_ai_sdk_are_taken(read: Reader) -> None:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 150,
        "cache_creation": {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 100},
        "output_tokens": 9,
        "service_tier": "standard",
    }
    given = {
        "ai.operationId": "ai.streamText.doStream",
        "ai.usage.inputTokens": 3,
        "ai.usage.cachedInputTokens": 900,
        "ai.response.providerMetadata": json.dumps({"anthropic": {"usage": usage}}),
    }
    found = read.one(usage_only(given)).steps[0].usage
    assert found is not None
    assert (found.input, found.cache_read, found.cache_write) == (3, 900, 150)
    assert (found.cache_write_5m, found.cache_write_1h, found.output) == (50, 100, 9)


def test_a_count_that_overlaps_others_is_taken_only_where_they_are_not(read: Reader) -> None:
    names = {"prompt": 1000, "completion": 9, "prompt_details.cache_input": 950}
    given = {f"llm.token_count.{key}": count for key, count in names.items()}
    split = {"prompt_details.cache_read": 900, "prompt_details.cache_write": 50}
    more = {f"llm.token_count.{key}": count for key, count in split.items()}
    kind = {"openinference.span.kind": "LLM"}
    assert counted(read.one(usage_only(kind | given))) == [(50, 950, None, 9)]
    assert counted(read.one(usage_only(kind | given | more))) == [(50, 900, 50, 9)]


def test_an_unknown_count_stays_unknown_and_a_wrong_one_is_a_problem(read: Reader) -> None:
    lane = read.one(usage_only({"gen_ai.usage.output_tokens": 9}, {}))
    assert [step.usage and step.usage.input for step in lane.steps] == [None, None]
    assert lane.steps[1].usage is None
    _, problems = read(usage_only({"gen_ai.usage.input_tokens": "many"}))
    assert [p.pointer.rpartition(".")[2] for p in problems] == ["input_tokens"]
