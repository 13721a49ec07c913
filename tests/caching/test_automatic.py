from __future__ import annotations

import pytest

from analyzer.caching import cache_for, make_cache, settings_levels
from analyzer.caching.automatic import OpenAiCache, PrefixCache
from analyzer.caching.blocks import BlockCache
from analyzer.errors import UsageError
from tests.caching.requests import request


def test_the_prefix_rule_reads_what_any_earlier_request_shares_and_writes_the_rest() -> None:
    cache = PrefixCache()
    assert cache.serve(request([1, 2, 3])).write == 6000
    served = cache.serve(request([1, 2, 9, 9], 10))
    assert (served.read, served.write_5m, served.input) == (4000, 4000, 0)


@pytest.mark.parametrize(("gap", "read"), [(299, 4000), (301, 0)])
def test_an_idle_prefix_is_gone_after_its_lifetime(gap: int, read: int) -> None:
    cache = PrefixCache()
    cache.serve(request([1, 2]))
    assert cache.serve(request([1, 2], gap)).read == read


def test_the_lifetime_is_a_parameter() -> None:
    cache = PrefixCache(ttl=900)
    cache.serve(request([1, 2]))
    assert cache.peek(request([1, 2], 899)).read == 4000
    assert cache.peek(request([1, 2], 901)).read == 0


@pytest.mark.parametrize(
    ("size", "read"), [(1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (2006, 1920)]
)
def test_classic_openai_reads_1024_and_steps_of_128(size: int, read: int) -> None:
    cache = OpenAiCache()
    first = cache.serve(request([1], tokens=size))
    assert (first.write, first.input) == (0, size)
    assert cache.serve(request([1], 10, tokens=size)).read == read


@pytest.mark.parametrize(("size", "read"), [(63, 0), (64, 64), (5035, 4992)])
def test_deepseek_reads_units_of_64(size: int, read: int) -> None:
    cache = make_cache("deepseek")
    cache.serve(request([1], tokens=size))
    assert cache.serve(request([1], 10, tokens=size)).read == read


def test_deepseek_units_read_a_common_prefix_only_once_it_was_detected() -> None:
    cache = make_cache("deepseek-units")
    reads = [cache.serve(request([1, 2, last], last)).read for last in (10, 20, 30)]
    assert reads == [0, 0, 4000]
    assert cache.serve(request([1, 2, 30, 40], 40)).read == 6000


def test_new_openai_models_read_marked_boundaries_only() -> None:
    cache = make_cache("openai-5.6")
    assert cache.serve(request([1], 0)).write == 2000
    assert cache.serve(request([1, 2, 3], 10)).read == 2000
    assert cache.serve(request([1, 2, 9], 20)).read == 2000
    assert cache.peek(request([1, 2], 30, implicit=False, marks=[2])).read == 0


@pytest.mark.parametrize(("size", "written"), [(1023, 0), (1024, 1024)])
def test_new_openai_models_store_from_1024_tokens_on(size: int, written: int) -> None:
    assert make_cache("openai-5.6").serve(request([1], tokens=size)).write == written


@pytest.mark.parametrize(("gap", "read"), [(1799, 2000), (1801, 0)])
def test_new_openai_models_keep_an_entry_for_half_an_hour(gap: int, read: int) -> None:
    cache = make_cache("openai-5.6")
    cache.serve(request([1], 0))
    assert cache.serve(request([1], gap)).read == read


def test_a_twelve_hour_write_is_billed_as_the_long_one() -> None:
    cache = make_cache("openai-5.6")
    assert cache.serve(request([1], 0, marks=[1], ttl="1h")).write_1h == 2000
    assert cache.peek(request([1], 43_199)).read == 2000
    assert cache.peek(request([1], 43_201)).read == 0


def test_stored_content_ends_with_its_time_however_often_it_is_used() -> None:
    cache = make_cache("gemini-explicit")
    created = cache.serve(request([1], 0, marks=[1], ttl="1h"))
    assert (created.write, created.input) == (0, 2000)
    assert cache.serve(request([1, 2], 3000)).read == 2000
    assert cache.serve(request([1, 2], 3601)).read == 0


def test_blocks_are_whole_and_the_last_token_is_always_computed() -> None:
    for name, same, parted in (("vllm", 992, 496), ("sglang", 999, 500)):
        cache = make_cache(name)
        cache.serve(request([1, 2], 0, tokens=500))
        assert cache.serve(request([1, 2], 1e6, tokens=500)).read == same
        assert cache.serve(request([1, 3], 1e6 + 1, tokens=500)).read == parted


def test_a_full_block_cache_drops_the_least_recently_used_and_deepest_first() -> None:
    cache = BlockCache(capacity=6400)
    cache.serve(request([1, 2], 0, tokens=1600))
    cache.serve(request([5, 6], 10, tokens=1600))
    cache.serve(request([5, 7], 20, tokens=1600))
    assert cache.peek(request([1, 2], 30, tokens=1600)).read == 1600
    assert cache.peek(request([5, 7, 8], 30, tokens=1600)).read == 3200


def test_without_a_cache_everything_is_input() -> None:
    cache = make_cache("none")
    cache.serve(request([1, 2]))
    assert cache.serve(request([1, 2], 1)).input == 4000


def test_forgetting_shortens_an_automatic_prefix() -> None:
    cache = PrefixCache()
    cache.serve(request([1, 2, 3]))
    cache.forget(request([1, 2, 3], 1), 2500)
    assert cache.serve(request([1, 2, 3], 2)).read == 2000


@pytest.mark.parametrize(
    ("provider", "model", "rule"),
    [
        ("anthropic", None, "anthropic"),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock"),
        ("openrouter", "anthropic/claude-opus-4.8", "anthropic"),
        (None, "gpt-4o-2024-08-06", "openai"),
        ("openai", "gpt-5.4", "openai"),
        ("openai", "gpt-5.6-sol", "openai-5.6"),
        (None, "gpt-6.1-terra", "openai-5.6"),
        (None, "deepseek/deepseek-chat", "deepseek"),
        ("google", "gemini-2.5-pro", "gemini"),
        ("vllm", "some-model", "vllm"),
        (None, "grok-4.7", "xai"),
        (None, "<synthetic>", "none"),
        (None, None, "none"),
    ],
)
def test_the_default_rule_follows_the_model_before_the_provider(
    provider: str | None, model: str | None, rule: str
) -> None:
    assert cache_for(provider, model) == rule


def test_settings_are_sorted_by_what_a_change_loses() -> None:
    given = {"tool_choice": "any", "speed": "fast", "temperature": "0.5", "effort": "high"}
    assert settings_levels("anthropic", given) == ("", "speed=fast", "effort=high;tool_choice=any")
    assert settings_levels("anthropic", {"tool_choice": "auto"}) == ("", "", "")
    assert settings_levels("openai", {"verbosity": "low"}) == ("verbosity=low", "", "")


def test_an_unknown_rule_is_refused_with_the_known_names() -> None:
    with pytest.raises(UsageError, match=r"anthropic, .*openai"):
        make_cache("anthropci")
