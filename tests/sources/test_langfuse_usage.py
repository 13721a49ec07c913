"""What usage counts mean, whoever sent them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.model import Usage
from analyzer.sources.spans.senders import judge
from analyzer.sources.spans.usage import NormalisedUsage, Sender, normalise_usage

COUNTS = st.integers(0, 200_000)


def split(normalised: NormalisedUsage) -> dict[str, int]:
    """The canonical split in the words of the shared examples, where unknown reads as nothing."""
    usage = normalised.usage
    return {
        "input_uncached": usage.input or 0,
        "cache_read": usage.cache_read or 0,
        "cache_write": usage.cache_write or 0,
        "cache_write_5m": usage.cache_write_5m or 0,
        "cache_write_1h": usage.cache_write_1h or 0,
        "output": usage.output or 0,
        "reasoning": usage.reasoning or 0,
        "context": normalised.context or 0,
    }


@pytest.mark.data
def test_every_shared_variant_gives_its_split_and_flags(shared_data: Path) -> None:
    cases = json.loads((shared_data / "langfuse/examples/usage_variants.json").read_text())
    assert len(cases) >= 17
    for case in cases:
        aggregate = "AGENT span" in case["source"]
        got = normalise_usage(case["usageDetails"], aggregate=aggregate)
        assert split(got) == case["expect"], case["case"]
        assert list(got.flags) == sorted(case["flags"]), case["case"]


def test_exclusive_input_is_taken_as_it_stands() -> None:
    got = normalise_usage(
        {
            "input": 12,
            "output": 40,
            "cache_read_input_tokens": 900,
            "cache_creation_input_tokens": 100,
            "total": 1052,
        }
    )
    assert got.usage == Usage(input=12, cache_read=900, cache_write=100, output=40)
    assert (got.context, got.flags) == (1012, ())


def test_the_senders_total_shows_that_input_holds_the_cached_tokens() -> None:
    raw = {"input": 490, "input_cache_read": 400, "input_cache_creation": 80, "output": 20}
    assert normalise_usage({**raw, "total": 510}).usage.input == 10
    assert normalise_usage({**raw, "total": 990}).usage.input == 490


def test_writes_inside_input_are_taken_out_of_it() -> None:
    got = normalise_usage(
        {
            "input": 620,
            "output": 24,
            "total": 3644,
            "cache_creation_input_tokens": 600,
            "cache_read_input_tokens": 3000,
        }
    )
    assert (got.usage.input, got.context) == (20, 3620)
    assert got.flags == ("write_inside_input",)


def test_the_split_by_lifetime_wins_over_the_flat_count() -> None:
    got = normalise_usage(
        {
            "input": 10,
            "output": 20,
            "cache_read_input_tokens": 400,
            "cache_creation_input_tokens": 80,
            "input_cache_creation_5m": 30,
            "input_cache_creation_1h": 50,
        }
    )
    assert got.usage == Usage(10, 400, 80, 30, 50, 20)
    flat = normalise_usage({"input": 10, "output": 20, "cache_creation_input_tokens": 80})
    assert (flat.usage.cache_write, flat.usage.cache_write_5m) == (80, None)


def test_clamped_input_is_restored_from_the_total() -> None:
    raw = {"input": 0, "input_cached_tokens": 400, "input_cache_creation": 80, "output": 20}
    assert normalise_usage({**raw, "total": 510}).usage.input == 10
    assert normalise_usage({**raw, "total": 500}).usage.input == 0
    without_cache = {"input": 0, "input_cached_tokens": 2048, "output": 33, "total": 120}
    assert normalise_usage(without_cache).usage.input == 87


def test_reasoning_is_inside_output_or_beside_it_as_the_total_says() -> None:
    beside = {"input": 100, "output": 30, "output_reasoning_tokens": 20}
    assert normalise_usage({**beside, "total": 150}).usage.output == 50
    assert normalise_usage({**beside, "total": 130}).usage.output == 30
    inside = normalise_usage({"input": 100, "output": 30, "reasoning_tokens": 20, "total": 130})
    assert (inside.usage.output, inside.usage.reasoning) == (30, 20)
    assert "reasoning_inside_output" in inside.flags


def test_raw_gemini_counts_hold_the_cached_tokens_and_leave_thoughts_beside() -> None:
    got = normalise_usage(
        {
            "prompt_token_count": 1000,
            "cached_content_token_count": 900,
            "candidates_token_count": 50,
            "thoughts_token_count": 25,
            "total_token_count": 1075,
        }
    )
    assert got.usage == Usage(input=100, cache_read=900, output=75, reasoning=25)


def test_nested_details_of_a_provider_are_understood() -> None:
    got = normalise_usage(
        {
            "prompt_tokens": 1000,
            "prompt_tokens_details": {"cached_tokens": 768},
            "completion_tokens": 10,
            "total_tokens": 1010,
        }
    )
    assert (got.usage.input, got.usage.cache_read, got.usage.output) == (232, 768, 10)


def test_what_was_not_reported_stays_unknown() -> None:
    assert normalise_usage({}).usage == Usage()
    assert normalise_usage({"total": 777}).context is None
    only_output = normalise_usage({"output": 5}).usage
    assert (only_output.input, only_output.output) == (None, 5)
    plain = normalise_usage({"input": 5, "output": 1, "total": 6}).usage
    assert (plain.cache_read, plain.cache_write, plain.reasoning) == (None, None, None)


def test_values_that_are_no_counts_are_named_and_left_out() -> None:
    raw: dict[str, Any] = {
        "input": -3,
        "output": "12",
        "cache_read_input_tokens": True,
        "cached_tokens": float("nan"),
        "reasoning_tokens": 1.5,
        "total": 1 << 60,
    }
    got = normalise_usage(raw)
    assert set(got.bad_keys) == set(raw) - {"output"}
    assert got.usage == Usage(output=12)


def test_one_doubtful_record_keeps_the_contracts_reading_and_is_flagged() -> None:
    raw = {"input": 1000, "input_cached_tokens": 950, "output": 20, "total": 1970}
    got = normalise_usage(raw)
    assert (got.usage.input, got.flags) == (1000, ("maybe_inclusive",))


def test_a_sender_whose_remainder_always_stays_small_is_inclusive() -> None:
    rows = [
        {"input": n, "input_cached_tokens": n - 40, "output": 20, "total": 2 * n - 20}
        for n in (1000, 1400, 2100)
    ]
    sender = judge([(normalise_usage(row), None) for row in rows])
    assert sender.inclusive is True
    got = normalise_usage(rows[0], sender)
    assert (got.usage.input, got.context) == (40, 1000)


def test_one_step_with_less_input_than_cached_proves_an_exclusive_sender() -> None:
    doubtful = {"input": 1000, "input_cached_tokens": 950, "output": 20, "total": 1970}
    later = {"input": 60, "input_cached_tokens": 1900, "output": 20, "total": 1980}
    records = [(normalise_usage(row), None) for row in (doubtful, doubtful, doubtful, later)]
    sender = judge(records)
    assert sender.inclusive is False
    got = normalise_usage(doubtful, sender)
    assert (got.usage.input, got.flags) == (1000, ())


def test_the_size_of_known_prompts_decides_between_the_two_readings() -> None:
    row = normalise_usage({"input": 1500, "input_cached_tokens": 1100, "output": 20, "total": 2620})
    assert judge([(row, 1450)]).inclusive is True
    assert judge([(row, 2650)]).inclusive is False


def test_zeros_that_a_sender_leaves_out_are_zeros_once_others_show_the_key() -> None:
    first = normalise_usage({"input": 3, "output": 9, "cache_creation_input_tokens": 700})
    plain = {"input": 40, "output": 2}
    sender = judge([(first, None), (normalise_usage(plain), None)])
    assert normalise_usage(plain).usage.cache_write is None
    assert normalise_usage(plain, sender).usage.cache_write == 0


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "input",
                "prompt_tokens",
                "output",
                "total",
                "total_tokens",
                "cache_read_input_tokens",
                "input_cached_tokens",
                "cache_creation_input_tokens",
                "input_cache_creation_5m",
                "input_cache_creation_1h",
                "output_reasoning_tokens",
                "reasoning_tokens",
                "input_audio_tokens",
                "output_audio_tokens",
                "prompt_details.cache_read",
                "surprise",
            ]
        ),
        COUNTS | st.none() | st.floats() | st.text(max_size=3) | st.booleans(),
    ),
    st.sampled_from([None, Sender(True), Sender(False, True, True)]),
)
def test_no_count_is_negative_and_the_parts_add_up_to_the_context(
    raw: dict[str, Any], sender: Sender | None
) -> None:
    got = normalise_usage(raw, sender)
    usage = got.usage
    counts = [
        usage.input,
        usage.cache_read,
        usage.cache_write,
        usage.cache_write_5m,
        usage.cache_write_1h,
        usage.output,
        usage.reasoning,
    ]
    assert all(count is None or count >= 0 for count in counts)
    assert got.context == usage.prompt
    if usage.input is not None:
        cached = (usage.cache_read or 0) + (usage.cache_write or 0)
        assert got.context == usage.input + cached
    by_lifetime = (usage.cache_write_5m or 0) + (usage.cache_write_1h or 0)
    assert by_lifetime <= (usage.cache_write or 0)
    assert (usage.reasoning or 0) <= (usage.output or 0)


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.booleans())
def test_the_same_counts_under_a_second_name_change_nothing(
    uncached: int, read: int, write: int, output: int, with_total: bool
) -> None:
    raw = {
        "input": uncached,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "output": output,
    }
    if with_total:
        raw["total"] = uncached + read + write + output
    doubled = {**raw, "input_cached_tokens": read, "cache_write_tokens": write}
    assert normalise_usage(doubled).usage == normalise_usage(raw).usage


@given(COUNTS, COUNTS, COUNTS, st.integers(1, 5000))
def test_an_inclusive_sender_with_its_own_total_is_always_recognised(
    uncached: int, read: int, write: int, output: int
) -> None:
    raw = {
        "input": uncached + read + write,
        "input_cached_tokens": read,
        "input_cache_creation": write,
        "output": output,
        "total": uncached + read + write + output,
    }
    assert normalise_usage(raw).usage.input == uncached


def test_a_total_that_leaves_the_cache_out_proves_nothing_about_input() -> None:
    early = {"input": 900, "cache_read_input_tokens": 300, "output": 10, "total": 910}
    late = {"input": 50, "cache_read_input_tokens": 4000, "output": 10, "total": 60}
    assert normalise_usage(early).usage.input == 600
    sender = judge([(normalise_usage(early), None), (normalise_usage(late), None)])
    assert [normalise_usage(raw, sender).usage.input for raw in (early, late)] == [900, 50]


def test_a_record_that_proves_itself_is_not_overruled_by_its_senders_others() -> None:
    proved = {"input": 490, "input_cached_tokens": 480, "output": 20, "total": 510}
    other = {"input": 10, "input_cached_tokens": 480, "output": 20, "total": 510}
    sender = judge([(normalise_usage(proved), None), (normalise_usage(other), None)])
    assert [normalise_usage(raw, sender).usage.input for raw in (proved, other)] == [10, 10]
