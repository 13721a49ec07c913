from __future__ import annotations

import pytest

from analyzer.errors import DecodeError
from analyzer.model import Usage
from analyzer.sources.openai_usage import disjoint, openai_usage, reported_usage

CHAT = {
    "prompt_tokens": 4020,
    "completion_tokens": 9,
    "total_tokens": 4029,
    "prompt_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 2000},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
RESPONSES = {
    "input_tokens": 4020,
    "output_tokens": 9,
    "total_tokens": 4029,
    "input_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 2000},
    "output_tokens_details": {"reasoning_tokens": 5},
}


@pytest.mark.parametrize("usage", [CHAT, RESPONSES], ids=["chat", "responses"])
def test_input_includes_what_was_read_and_written(usage) -> None:
    read = openai_usage(usage)
    assert read == Usage(input=996, cache_read=1024, cache_write=2000, output=9, reasoning=5)
    assert read.prompt == 4020


def test_deepseek_hits_are_part_of_the_prompt() -> None:
    usage = {
        "prompt_tokens": 2706,
        "completion_tokens": 51,
        "prompt_tokens_details": {"cached_tokens": 320},
        "prompt_cache_hit_tokens": 320,
        "prompt_cache_miss_tokens": 2386,
    }
    assert openai_usage(usage) == Usage(input=2386, cache_read=320, output=51)
    del usage["prompt_tokens_details"], usage["prompt_tokens"]
    assert openai_usage(usage) == Usage(input=2386, cache_read=320, output=51)


def test_what_is_not_reported_stays_unknown() -> None:
    bare = openai_usage({"prompt_tokens": 10, "prompt_tokens_details": None})
    assert bare == Usage(input=10)
    assert not bare.knows_cache
    assert openai_usage({"completion_tokens": 3}).prompt is None
    assert reported_usage({}) is None


def test_the_shape_of_the_usage_decides_and_not_that_of_the_messages() -> None:
    anthropic = {
        "input_tokens": 4,
        "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 100,
        "output_tokens": 7,
    }
    assert reported_usage(anthropic).prompt == 1004
    litellm = {"prompt_tokens": 1004, "completion_tokens": 7, **anthropic, "input_tokens": None}
    assert reported_usage(litellm).prompt == 1004
    assert reported_usage(litellm).input == 4


def test_a_sender_that_left_the_cache_out_is_known_by_its_own_figures() -> None:
    assert disjoint(50, 40, 10, 5, total=105) == (50, 10)
    assert disjoint(50, 40, 10, 5, total=55) == (0, 10)
    assert disjoint(50, 60, None) == (50, None)


def test_tokens_written_and_read_by_one_request_are_counted_once() -> None:
    uncached, written = disjoint(2168, 2161, 2161, 100, total=2268)
    assert (uncached, written) == (7, 0)
    assert sum(disjoint(2168, 100, 2100)) + 100 == 2168


@pytest.mark.parametrize("bad", [-1, 1.5, "7", True])
def test_a_count_that_is_none_is_refused_with_its_place(bad) -> None:
    with pytest.raises(DecodeError, match=r"\$\.u\.prompt_tokens"):
        openai_usage({"prompt_tokens": bad}, "$.u")
