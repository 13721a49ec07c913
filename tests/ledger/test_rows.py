from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.ledger import divergence, stubs_of
from analyzer.ledger.prefix import PoolIndex
from analyzer.model import Lane, Prompt, Range, SessionKey
from analyzer.ranges import common_parts, head, summed
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.base import to_ranges
from analyzer.sources.blocks import make_part
from analyzer.sources.claude_code import ClaudeCodeSource
from tests.builders import Transcript, anthropic_records, keep_newest, write_lines
from tests.reading import ledger


@pytest.fixture
def churn(tmp_path):
    records = anthropic_records(16, shape=keep_newest(5))
    return records, ledger(AnthropicLogSource(), write_lines(tmp_path / "run.jsonl", records))


def test_divergence_is_the_message_that_was_stubbed_at_every_step(churn) -> None:
    records, found = churn
    for row, before, now in zip(found.rows[1:], records, records[1:], strict=False):
        old, new = before["request"]["messages"], now["request"]["messages"]
        bare = [[_bare(b) for b in m["content"]] for m in (*old, *new)]
        pairs = zip(bare[: len(old)], bare[len(old) :], strict=False)
        truth = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        assert row.divergence_index == truth


def _bare(block):
    return {k: v for k, v in block.items() if k != "cache_control"}


def test_messages_and_stubs_are_counted_in_the_messages_array(churn) -> None:
    records, found = churn
    for row, record in zip(found.rows, records, strict=True):
        messages = record["request"]["messages"]
        stubs = [
            i
            for i, m in enumerate(messages)
            for b in m["content"]
            if b.get("content", "").startswith("[Old")
        ]
        assert row.n_messages == len(messages)
        assert row.n_stubs == len(stubs)
        assert row.last_stub_index == (stubs[-1] if stubs else None)


def test_the_sizes_of_parts_add_up_to_the_recorded_totals(churn) -> None:
    _, found = churn
    for step, hidden in zip(found.lane.steps, found.sizes.hidden, strict=True):
        assert found.sizes.of(step.prompt.ranges) + hidden == step.usage.prompt
        assert abs(hidden) <= 0.01 * step.usage.prompt


def test_a_break_loses_what_was_sent_again_and_not_what_is_new(churn) -> None:
    _, found = churn
    row = found.rows[10]
    usage = row.usage
    assert row.is_break
    new = row.appended_tokens
    assert row.lost_tokens == usage.prompt - new - usage.cache_read
    assert row.wasted_usd == row.lost_tokens * (Decimal("3.75") - Decimal("0.30")) / 1_000_000


def test_healthy_steps_lose_nothing(tmp_path) -> None:
    found = ledger(AnthropicLogSource(), write_lines(tmp_path / "run.jsonl", anthropic_records(12)))
    assert [row.lost_tokens for row in found.rows[1:]] == [0] * 11
    assert not any(row.is_break for row in found.rows)
    assert [row.divergence_index for row in found.rows] == [None] * 12
    for before, row in zip(found.rows, found.rows[1:], strict=False):
        assert row.shared_prefix_tokens == before.prompt_tokens


def test_unknown_counts_stay_unknown(tmp_path) -> None:
    records = [r["request"] for r in anthropic_records(3)]
    found = ledger(AnthropicLogSource(), write_lines(tmp_path / "run.jsonl", records))
    for row in found.rows:
        assert row.prompt_tokens is None
        assert row.cost_usd is None
        assert row.lost_tokens is None
        assert row.n_messages is not None


def test_a_rebuilt_prompt_does_not_claim_a_shared_prefix_that_the_cache_denies(tmp_path) -> None:
    t = Transcript()
    t.user("go")
    for n in range(6):
        t.answer(str(n), 20_000 + 1_000 * (n - 1) if n else 0, 1_000 if n else 20_000)
        t.result(f"call-{n}", "some result text " * 200)
    t.answer("broken", 18_000, 9_000)
    found = ledger(ClaudeCodeSource(), t.write(tmp_path))
    assert found.rows[3].shared_prefix_tokens == found.rows[2].prompt_tokens
    assert found.rows[6].shared_prefix_tokens is None


def _pool_lane(n: int) -> Lane:
    pool = tuple(
        make_part("messages", "user", "text", f"text {i}", starts_message=True) for i in range(n)
    )
    return Lane(SessionKey("p", "u", "s"), "main", (), pool)


@given(st.lists(st.integers(0, 7), max_size=9), st.lists(st.integers(0, 7), max_size=9))
def test_comparing_ranges_equals_comparing_parts_one_by_one(a, b) -> None:
    lane = _pool_lane(8)
    old, new = Prompt(to_ranges(a)), Prompt(to_ranges(b))
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    common = min(len(a), len(b)) if same is None else same
    assert common_parts(old, new) == common
    found = divergence(PoolIndex(lane), old, new)
    assert (found.index if found else None) == same
    assert list(old.indices()) == a


@given(st.lists(st.integers(0, 7), max_size=9), st.integers(0, 9))
def test_sums_over_the_first_parts_equal_sums_one_by_one(a, parts) -> None:
    sums = [0, 3, 4, 9, 9, 11, 18, 20, 21]
    prompt = Prompt(to_ranges(a))
    assert len(prompt) == len(a)
    assert summed(head(prompt, parts), sums) == sum(sums[i + 1] - sums[i] for i in a[:parts])


def test_a_result_that_comes_again_at_half_its_size_is_a_stub() -> None:
    def result(text: str, call: str = "c"):
        return make_part("messages", "user", "tool_result", text, call_id=call)

    pool = (result("long " * 50), result("long " * 20), result("long " * 49), result("ok", "d"))
    assert stubs_of(pool) == [False, True, False, False]


def test_ranges_keep_order_and_repeats() -> None:
    assert to_ranges([0, 1, 2, 1, 2, 5]) == (Range(0, 3), Range(1, 3), Range(5, 6))
