"""Several samplings in one response: the bill is the sum of all, each at its own model."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.diagnose import diagnose_lane
from analyzer.ledger import lane_ledger
from analyzer.model import Compaction, Lane
from analyzer.pricing import PriceBook
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.anthropic_stream import message_of
from analyzer.sources.anthropic_usage import anthropic_usage, clearing
from analyzer.sources.openai_log import OpenAILogSource
from analyzer.sources.steps import StepsSource
from tests.builders import write_lines
from tests.reading import lanes

COUNTS = st.integers(0, 500_000)


def one(kind: str, given_: int, output: int, read: int = 0, write: int = 0, **more: Any) -> dict:
    return {
        "type": kind,
        "input_tokens": given_,
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        **more,
    }


def top(entry: dict, *iterations: dict, **more: Any) -> dict:
    counts = {k: v for k, v in entry.items() if k.endswith("_tokens")}
    return {**counts, "iterations": list(iterations), **more}


def record(usage: dict, model: str = "claude-opus-4-6", **more: Any) -> dict:
    return {
        "ts": "2026-06-01T09:00:00Z",
        "request": {
            "model": model,
            "max_tokens": 9,
            "system": "S",
            "messages": [{"role": "user", "content": "Hi"}],
        },
        "response": {
            "id": "msg_1",
            "type": "message",
            "model": model,
            "content": [{"type": "text", "text": "Ho"}],
            "usage": usage,
            **more,
        },
    }


def bill(lane: Lane) -> Decimal:
    costs = [row.cost_usd for row in lane_ledger(lane, PriceBook.default()).rows]
    assert None not in costs
    return sum((c for c in costs if c is not None), Decimal(0))


COMPACTED = top(
    one("message", 23_000, 1_000),
    one("compaction", 180_000, 3_500),
    one("message", 23_000, 1_000),
)


BARE = {
    "input_tokens": 23_000,
    "output_tokens": 1_000,
    "iterations": [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
    ],
}
"""The same without cache counts, as the documentation prints it."""


@pytest.mark.parametrize("usage", [COMPACTED, BARE])
@pytest.mark.parametrize("form", ["log", "chat", "steps"])
def test_a_server_side_compaction_is_billed_beside_its_answer(
    form: str, usage: dict, tmp_path: Path
) -> None:
    """Anthropic's own sample: the top level shows 23,000 and 1,000, the bill is $1.1275."""
    rec = record(usage)
    source: Any = AnthropicLogSource()
    if form == "chat":
        source = OpenAILogSource()
    elif form == "steps":
        source = StepsSource()
        rec = {
            "session": "s",
            "id": "a",
            "at": rec["ts"],
            "model": "claude-opus-4-6",
            "request": {"messages": rec["request"]["messages"]},
            "response": "Ho",
            "usage": usage,
        }
    lane = lanes(source, write_lines(tmp_path / "run.jsonl", [rec]))["main"]
    assert bill(lane) == Decimal("1.1275")
    assert [dict(s.labels).get("iteration") for s in lane.steps] == ["compaction", None]
    assert lane.steps[1].compaction == Compaction(
        kind="summary", trigger="server", pre_tokens=180_000, summary_called=True
    )
    assert len({s.key for s in lane.steps}) == 2


def test_a_fallback_is_billed_at_both_models(tmp_path: Path) -> None:
    usage = top(
        one("fallback_message", 2, 136, read=54_112),
        one("message", 2, 2, read=32_238, write=21_874, model="claude-fable-5"),
        one("fallback_message", 2, 136, read=54_112, model="claude-opus-4-8"),
    )
    path = write_lines(tmp_path / "run.jsonl", [record(usage, "claude-opus-4-8")])
    lane = lanes(AnthropicLogSource(), path)["main"]
    assert [s.model for s in lane.steps] == ["claude-fable-5", "claude-opus-4-8"]
    fable = 2 * 10 + 2 * 50 + Decimal(32_238) * 1 + Decimal(21_874) * Decimal("12.5")
    opus = 2 * 5 + 136 * 25 + Decimal(54_112) * Decimal("0.5")
    assert bill(lane) == (fable + opus) / 1_000_000


def test_a_first_try_without_a_name_is_the_model_that_was_asked() -> None:
    usage = top(
        one("message", 5, 1),
        one("message", 5, 0),
        one("fallback_message", 5, 1, model="claude-opus-4-8"),
    )
    asked = anthropic_usage(usage, asked="claude-fable-5").earlier
    assert [r.model for r in asked] == ["claude-fable-5"]
    assert [r.model for r in anthropic_usage(usage).earlier] == ["unknown"]


ADVISED = (
    one("message", 412, 89),
    one("advisor_message", 823, 1612, model="claude-opus-5"),
    one("message", 1348, 442, read=412),
)


@pytest.mark.parametrize(
    "whole", [one("x", 412, 531), one("x", 1760, 531, read=412), one("x", 1348, 442, read=412)]
)
def test_an_advisor_is_billed_at_its_own_model_whatever_the_top_level_sums(
    whole: dict, tmp_path: Path
) -> None:
    """The top level has been the first round, and the sum of the executor's, by date."""
    path = write_lines(tmp_path / "run.jsonl", [record(top(whole, *ADVISED), "claude-sonnet-4-6")])
    lane = lanes(AnthropicLogSource(), path)["main"]
    executor = (412 + 1348) * 3 + Decimal("0.3") * 412 + (89 + 442) * 15
    assert bill(lane) == (executor + 823 * 5 + 1612 * 25) / 1_000_000
    assert not any(s.usage.doubts for s in lane.steps if s.usage)


def test_an_advisor_breaks_no_cache(tmp_path: Path) -> None:
    advised = (
        one("message", 3, 50, read=90_000, write=10_000),
        one("advisor_message", 101_000, 900, model="claude-opus-5"),
        one("message", 3, 60, read=100_000, write=2_000),
    )
    path = write_lines(
        tmp_path / "run.jsonl",
        [record(top(advised[-1], *advised), "claude-sonnet-4-6")],
    )
    found = diagnose_lane(
        lane_ledger(lanes(AnthropicLogSource(), path)["main"], PriceBook.default())
    )
    assert [v.kind for v in found.verdicts] == ["first", "first", "healthy"]
    assert found.findings == ()


def test_a_response_that_paused_at_its_compaction_is_billed() -> None:
    usage = top(one("x", 0, 0), one("compaction", 180_000, 3_500))
    found = anthropic_usage(usage)
    assert (found.usage.input, found.usage.output, found.earlier) == (180_000, 3_500, ())


@given(
    rounds=st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), min_size=2, max_size=4),
    form=st.sampled_from(["last", "first", "sum"]),
)
def test_the_rounds_are_the_bill_in_whatever_form_the_top_level_is(
    rounds: list[tuple[int, int, int, int]], form: str
) -> None:
    entries = [one("message", *r) for r in rounds]
    summed = one("x", *(sum(r[i] for r in rounds) for i in range(4)))
    whole = {"last": entries[-1], "first": entries[0], "sum": summed}[form]
    found = anthropic_usage(top(whole, *entries))
    usages = [*(r.usage for r in found.earlier), found.usage]
    for i, name in enumerate(("input", "output", "cache_read", "cache_write")):
        assert sum(getattr(u, name) for u in usages) == sum(r[i] for r in rounds)
    assert not found.usage.doubts


def test_a_top_level_that_is_no_sum_of_its_rounds_is_doubted() -> None:
    usage = top(one("x", 7, 1), one("message", 100, 1), one("message", 200, 1))
    assert anthropic_usage(usage).usage.doubts == (("iterations_mismatch", 7, 300),)


def test_terms_and_searches_are_read_once_a_response() -> None:
    usage = top(
        one("x", 10, 1),
        one("message", 10, 1),
        one("message", 10, 1),
        service_tier="batch",
        speed="standard",
        inference_geo="us",
        server_tool_use={"web_search_requests": 2, "web_fetch_requests": 1},
    )
    found = anthropic_usage(usage)
    assert found.usage.terms == found.earlier[0].usage.terms == ("batch", "us")
    assert found.usage.apart == (("web_searches", 2),)
    assert found.earlier[0].usage.apart == ()


def test_words_that_say_nothing_of_the_price_change_none() -> None:
    words = {"service_tier": "standard", "speed": "standard", "inference_geo": "not_available"}
    assert anthropic_usage({**one("x", 1, 1), **words}).usage.terms == ()
    assert anthropic_usage({**one("x", 1, 1), "service_tier": "gold"}).usage.terms == ()


def test_a_stale_split_of_an_opened_stream_is_not_the_closing_counts() -> None:
    opening = {
        "input_tokens": 100,
        "cache_creation_input_tokens": 500,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 500, "ephemeral_1h_input_tokens": 0},
    }
    closing = {"input_tokens": 181, "cache_creation_input_tokens": 0, "output_tokens": 8}
    events = [
        {"type": "message_start", "message": {"id": "m", "usage": opening}},
        {
            "type": "message_delta",
            "delta": {},
            "usage": closing,
            "context_management": {"applied_edits": [{"type": "e", "cleared_input_tokens": 9}]},
        },
    ]
    message = message_of("".join(f"data: {json.dumps(e)}\n\n" for e in events))
    found = anthropic_usage(message["usage"]).usage  # type: ignore[arg-type]
    assert (found.input, found.cache_write, found.doubts) == (181, 0, ())
    assert clearing(message["context_management"]) is not None


def test_what_the_server_cleared_is_a_compaction_of_its_step(tmp_path: Path) -> None:
    edits = [
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": 9_000},
        {
            "type": "clear_thinking_20251015",
            "cleared_thinking_turns": 1,
            "cleared_input_tokens": 500,
        },
    ]
    rec = record(one("x", 5, 1), context_management={"applied_edits": edits})
    (step,) = lanes(AnthropicLogSource(), write_lines(tmp_path / "r.jsonl", [rec]))["main"].steps
    assert step.compaction == Compaction(
        kind="clear",
        trigger="clear_tool_uses_20250919, clear_thinking_20251015",
        pruned=4,
        tokens_saved=9_500,
        summary_called=False,
    )
    assert clearing({"applied_edits": []}) is None


def test_a_split_that_is_not_the_flat_count_is_doubted() -> None:
    usage = {**one("x", 1, 1, write=100), "cache_creation": {"ephemeral_1h_input_tokens": 80}}
    found = anthropic_usage(usage).usage
    assert (found.cache_write, found.cache_write_1h) == (80, 80)
    assert found.doubts == (("write_split", 100, 80),)
