"""Contradictions in recorded figures: found with both numbers, and never on healthy recordings."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.diagnose import Finding, diagnose_lane, diagnose_session
from analyzer.ledger import lane_ledger
from analyzer.model import Doubt, Lane, Session, SessionKey, Step, Usage
from analyzer.pricing import PriceBook
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.claude_code import ClaudeCodeSource
from analyzer.sources.spans.usage import normalise_usage
from tests.builders import Transcript, anthropic_records, keep_newest, write_lines
from tests.reading import lanes, ledger

BOOK = PriceBook.default()
KEY = SessionKey("p", "u", "s")
START = datetime(2026, 6, 1, 9, tzinfo=UTC)
MODEL = "claude-opus-4-8"
HOURLY = Usage(
    input=10,
    cache_read=50_000,
    cache_write=4_000,
    cache_write_5m=0,
    cache_write_1h=4_000,
    output=900,
    reasoning=400,
)


def lane_of(*usages: Usage, costs: Any = None, source: str = "", **more: Any) -> Lane:
    steps = tuple(
        Step(
            key=f"k{i}",
            lane="main",
            at=START + timedelta(minutes=i),
            ended_at=None,
            model=MODEL,
            usage=usage,
            prompt=None,
            reported_cost=costs[i] if costs else None,
            **more,
        )
        for i, usage in enumerate(usages)
    )
    return Lane(KEY, "main", steps, (), source=source)


def accounting(lane: Lane) -> list[Finding]:
    found = diagnose_lane(lane_ledger(lane, BOOK)).findings
    return [f for f in found if f.kind == "accounting"]


def cost(usage: Usage) -> Decimal:
    found = BOOK.cost(usage, MODEL, START)
    assert found is not None
    return found.total


def test_an_inclusive_input_is_told_with_both_figures() -> None:
    """The counts of langfuse#10592: 17,903 tokens shown as 35,720."""
    found = normalise_usage(
        {"input": 17_903, "input_cached_tokens": 17_817, "output": 40, "total_tokens": 17_943}
    )
    (finding,) = accounting(lane_of(found.usage, found.usage))
    assert found.usage.input == 86
    assert finding.evidence["contradiction"] == "input_inclusive"
    assert "71,440" in str(finding.evidence["summary"])
    assert "35,806 is right" in str(finding.evidence["summary"])
    assert (finding.tokens, finding.steps) == (2 * 17_817, (0, 1))


def test_contradictions_are_one_finding_a_lane_and_kind_and_waste_nothing() -> None:
    one, other = Doubt("write_split", 100, 80), Doubt("total_delta", 50, 40)
    usages = [replace(HOURLY, doubts=d) for d in ((one,), (one, other), ())]
    found = accounting(lane_of(*usages))
    assert [(f.evidence["contradiction"], f.steps, f.tokens) for f in found] == [
        ("write_split", (0, 1), 40),
        ("total_delta", (1,), 10),
    ]
    assert all(f.wasted_usd == 0 and f.expected for f in found)
    assert all(f.remedy.startswith("At the sender: ") for f in found)


def test_the_sums_of_a_session_do_not_know_the_contradictions() -> None:
    plain, doubted = HOURLY, replace(HOURLY, doubts=(Doubt("write_split", 100, 80),))
    sums = []
    for usage in (plain, doubted):
        lane = lane_of(usage, usage)
        d = diagnose_session(Session(KEY, (lane,)), BOOK)
        sums.append((d.cost_usd, d.wasted_usd, d.avoidable_usd, d.breaks))
        assert d.cost_usd == sum(row.cost_usd for row, _ in d.rows if row.cost_usd is not None)
    assert sums[0] == sums[1]


MISTAKES = {
    "hour_writes_as_short": replace(HOURLY, cache_write_5m=4_000, cache_write_1h=0),
    "reads_as_input": replace(HOURLY, input=50_010, cache_read=0),
    "cache_as_input": replace(HOURLY, input=54_010, cache_read=0, cache_write=0, cache_write_1h=0),
    "cache_counted_twice": replace(HOURLY, input=54_010),
    "writes_counted_twice": replace(HOURLY, input=4_010),
    "reads_left_out": replace(HOURLY, cache_read=0),
    "writes_left_out": replace(HOURLY, cache_write=0, cache_write_1h=0),
    "cache_left_out": replace(HOURLY, cache_read=0, cache_write=0, cache_write_1h=0),
    "reasoning_twice": replace(HOURLY, output=1_300),
    "reasoning_left_out": replace(HOURLY, output=500),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_stated_cost_is_explained_by_the_mistake_that_made_it(mistake: str) -> None:
    stated = float(cost(MISTAKES[mistake]))
    (finding,) = accounting(lane_of(HOURLY, HOURLY, costs=[stated, stated]))
    assert finding.evidence["contradiction"] == mistake
    assert finding.evidence["right_usd"] == pytest.approx(float(2 * cost(HOURLY)))
    assert finding.tokens > 0


def test_prices_that_are_all_higher_are_other_prices() -> None:
    usages = [replace(HOURLY, output=n, reasoning=0) for n in (100, 5_000, 900)]
    costs = [float(cost(u) * Decimal("1.05")) for u in usages]
    (finding,) = accounting(lane_of(*usages, costs=costs))
    assert finding.evidence["contradiction"] == "other_prices"
    assert "1.05 times" in str(finding.evidence["summary"])


def test_what_nothing_explains_is_said_to_be_unexplained() -> None:
    usages = [replace(HOURLY, output=n, reasoning=0) for n in (100, 5_000, 900)]
    costs = [float(cost(u)) * f for u, f in zip(usages, (1.3, 0.4, 2.2), strict=True)]
    (finding,) = accounting(lane_of(*usages, costs=costs))
    assert finding.evidence["contradiction"] == "cost_differs"


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=6), st.integers(2, 9))
def test_costs_that_were_rounded_contradict_nothing(outputs: list[int], digits: int) -> None:
    usages = [replace(HOURLY, output=n, reasoning=0) for n in outputs]
    costs = [round(float(cost(u)), digits) for u in usages]
    assert accounting(lane_of(*usages, costs=costs)) == []


def test_nothing_but_zeros_is_a_flat_plan_unless_the_costs_come_from_a_list() -> None:
    zeros = [0.0, 0.0]
    assert accounting(lane_of(HOURLY, HOURLY, costs=zeros, source="opencode")) == []
    (finding,) = accounting(lane_of(HOURLY, HOURLY, costs=zeros, source="langfuse"))
    assert finding.evidence["contradiction"] == "priced_zero"
    (finding,) = accounting(lane_of(HOURLY, HOURLY, costs=[float(cost(HOURLY)), 0.0]))
    assert (finding.evidence["contradiction"], finding.steps) == ("priced_zero", (1,))


def test_the_earlier_requests_of_a_response_belong_to_its_stated_cost() -> None:
    lane = lane_of(HOURLY, HOURLY, costs=[None, float(2 * cost(HOURLY))])
    first = replace(lane.steps[0], labels=(("iteration", "compaction"),))
    whole = replace(lane, steps=(first, lane.steps[1]))
    assert accounting(whole) == []
    last = replace(lane.steps[1], reported_cost=float(cost(HOURLY)))
    (finding,) = accounting(replace(lane, steps=(first, last)))
    assert finding.evidence["contradiction"] == "rounds_left_out"


def test_counts_that_break_the_laws_are_found_at_the_last() -> None:
    broken = replace(HOURLY, cache_write_1h=5_000, reasoning=1_000)
    assert [f.evidence["contradiction"] for f in accounting(lane_of(broken))] == [
        "split_over_write",
        "reasoning_over_output",
    ]


def test_a_price_that_is_unknown_is_null_and_says_why() -> None:
    lane = lane_of(HOURLY, replace(HOURLY, terms=("priority",)))
    lane = replace(lane, steps=(*lane.steps, replace(lane.steps[0], key="x", model="foo-1")))
    d = diagnose_session(Session(KEY, (lane,)), BOOK)
    assert d.cost_usd == cost(HOURLY)
    assert d.unpriced == {
        "priority has no published price for claude-opus-4-8": 1,
        "model foo-1 is in no price list": 1,
    }
    assert sum(d.unpriced.values()) == d.unpriced_steps


def test_writes_of_unknown_lifetime_are_counted_as_assumed() -> None:
    unsplit = replace(HOURLY, cache_write_5m=None, cache_write_1h=None)
    d = diagnose_session(Session(KEY, (lane_of(HOURLY, unsplit),)), BOOK)
    assert d.assumed_ttl_steps == 1


def test_healthy_and_churning_runs_contradict_nothing(tmp_path: Path) -> None:
    for shape in (None, keep_newest(3)):
        records = anthropic_records(12, **({"shape": shape} if shape else {}))
        path = write_lines(tmp_path / "run.jsonl", records)
        found = diagnose_lane(ledger(AnthropicLogSource(), path)).findings
        assert [f for f in found if f.kind == "accounting"] == []


def test_rows_of_one_response_that_give_two_prompts_are_found(tmp_path: Path) -> None:
    def transcript(second_read: int) -> Path:
        t = Transcript()
        t.user("go")
        t.answer("a", 0, 20_000)
        t.result("call-a", "x" * 400)
        t.answer("b", 20_000, 500)
        late = [r for r in t.rows if r.get("type") == "assistant"][-1]
        late["message"]["usage"]["cache_read_input_tokens"] = second_read
        return t.write(tmp_path)

    healthy = lanes(ClaudeCodeSource(), transcript(20_000))["main"]
    assert accounting(healthy) == []
    (finding,) = accounting(lanes(ClaudeCodeSource(), transcript(19_000))["main"])
    assert finding.evidence["contradiction"] == "rows_differ"
    assert finding.tokens == 1_000


def test_a_row_that_was_overtaken_contradicts_nothing_in_itself(tmp_path: Path) -> None:
    t = Transcript()
    t.user("go")
    t.answer("a", 0, 20_000)
    first, last = (r["message"]["usage"] for r in t.rows if r["type"] == "assistant")
    for usage, split in ((first, 7_000), (last, 20_000)):
        usage["cache_creation_input_tokens"] = 20_000
        usage["cache_creation"] = {"ephemeral_5m_input_tokens": split}
    first["cache_read_input_tokens"] = last["cache_read_input_tokens"] + 13_000
    assert first["output_tokens"] < last["output_tokens"]
    assert accounting(lanes(ClaudeCodeSource(), t.write(tmp_path))["main"]) == []
