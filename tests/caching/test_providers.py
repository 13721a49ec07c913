"""Rules of single providers at their limits, and which of them a model gets."""

from __future__ import annotations

import pytest

from analyzer.caching import (
    CACHES,
    hints,
    lifetimes,
    make_cache,
    minimum,
    rule_for,
    simulate,
)
from analyzer.caching.automatic import IntervalCache
from tests.caching.requests import request


@pytest.mark.parametrize(
    ("name", "size", "read"),
    [
        ("xai", 127, 0),
        ("xai", 128, 128),
        ("xai", 255, 128),
        ("kimi", 255, 0),
        ("kimi", 256, 256),
        ("kimi", 511, 256),
        ("kimi", 512, 512),
        ("qwen", 255, 0),
        ("qwen", 256, 256),
        ("qwen", 257, 257),
        ("minimax", 511, 0),
        ("minimax", 512, 512),
        ("openai-5.5", 1407, 0),
        ("openai-5.5", 1408, 1408),
        ("openai-5.5", 1919, 1408),
        ("openai-5.5", 1920, 1920),
    ],
)
def test_automatic_caches_read_whole_units_from_their_minimum_on(
    name: str, size: int, read: int
) -> None:
    cache = make_cache(name)
    assert cache.serve(request([1], tokens=size)).write == 0
    assert cache.serve(request([1], 10, tokens=size)).read == read


@pytest.mark.parametrize(("size", "read"), [(1947, 0), (1948, 1920), (3995, 1920), (3996, 3968)])
def test_hidden_tokens_shift_the_boundaries_and_are_not_reported(size: int, read: int) -> None:
    cache = IntervalCache(interval=2048, hidden=100)
    cache.serve(request([1], tokens=size))
    assert cache.serve(request([1], 10, tokens=size)).read == read


@pytest.mark.parametrize(
    ("name", "seconds"), [("openai", 300), ("openai-24h", 86_400), ("openai-5.5", 86_400)]
)
def test_retention_is_counted_from_the_last_use(name: str, seconds: int) -> None:
    for gap, read in ((seconds - 1, 1408), (seconds + 1, 0)):
        cache = make_cache(name)
        cache.serve(request([1], 0, tokens=1408))
        cache.serve(request([1], 200, tokens=1408))
        assert cache.serve(request([1], 200 + gap, tokens=1408)).read == read


@pytest.mark.parametrize(("added", "read"), [(19, 4000), (20, 0)])
def test_bedrock_counts_every_block_of_a_run_as_a_position(added: int, read: int) -> None:
    parts = list(range(2 + added))
    collapsed = [n > 2 for n in parts]
    for name, found in (("bedrock", read), ("anthropic", 4000)):
        cache = make_cache(name)
        cache.serve(request(parts[:2], 0, marks=[2]))
        step = request(parts, 10, marks=[len(parts)], collapsed=collapsed)
        assert cache.serve(step).read == found


def test_bedrock_has_minimums_of_its_own() -> None:
    assert minimum("claude-opus-4-7").tokens == 2048
    assert minimum("claude-opus-4-7", "bedrock").tokens == 4096
    assert minimum("claude-opus-5", "bedrock").tokens == 512
    for size, written in ((4095, 0), (4096, 4096)):
        step = request([1], tokens=size, marks=[1], model="claude-opus-4-7")
        assert make_cache("bedrock").serve(step).write == written


@pytest.mark.parametrize(("name", "least"), [("qwen-marks", 1024), ("minimax-marks", 512)])
def test_marks_of_other_vendors_work_as_anthropics_do(name: str, least: int) -> None:
    for size, written in ((least - 1, 0), (least, least)):
        cache = make_cache(name)
        assert cache.serve(request([1], 0, tokens=size, marks=[1])).write_5m == written
        assert cache.peek(request([1], 299, tokens=size, marks=[1])).read == written
        assert cache.peek(request([1], 301, tokens=size, marks=[1])).read == 0


def test_a_group_of_tool_outputs_is_one_message_ending_for_new_openai_models() -> None:
    parts = list(range(27))
    for collapsed, read in (([n > 1 for n in parts], 4000), (None, 0)):
        cache = make_cache("openai-5.6")
        cache.serve(request(parts[:2], 0))
        assert cache.serve(request(parts, 10, collapsed=collapsed)).read == read


@pytest.mark.parametrize(("added", "read"), [(20, 4000), (21, 0)])
def test_new_openai_models_look_up_twenty_earlier_endings(added: int, read: int) -> None:
    cache = make_cache("openai-5.6")
    cache.serve(request([1, 2], 0))
    assert cache.serve(request(list(range(1, 3 + added)), 10)).read == read


@pytest.mark.parametrize(
    ("provider", "model", "rule", "by"),
    [
        ("bedrock", "us.anthropic.claude-opus-4-7-v1:0", "bedrock", "model"),
        ("vertex", "claude-opus-4-8", "anthropic", "model"),
        ("bedrock", None, "anthropic", "provider"),
        ("openai", "gpt-5.5-pro", "openai-5.5", "model"),
        ("openai", "shiny-1", "openai", "provider"),
        ("moonshotai", "kimi-k3", "kimi", "model"),
        ("alibaba", "qwen-max", "qwen", "model"),
        ("minimax", "minimax-m3", "minimax", "model"),
        (None, "glm-5.3", "automatic", "model"),
        ("nobody", "nothing-1", "none", "nothing"),
    ],
)
def test_a_model_in_no_table_gets_the_rule_of_its_provider_and_says_so(
    provider: str | None, model: str | None, rule: str, by: str
) -> None:
    found = rule_for(provider, model)
    assert (found.cache, found.by) == (rule, by)


def test_published_names_of_lifetimes_and_hints_belong_to_rules_that_exist() -> None:
    for name in CACHES:
        assert all(hint.variant is None or hint.variant in CACHES for hint in hints(name))
        assert lifetimes(name) or hints(name) or name == "none" or name == "gemini-explicit", name


def _block(name: str, tokens: int, section: str = "messages", kind: str = "text"):
    return {"id": name, "tokens": tokens, "section": section, "kind": kind}


def _served(*steps, **fields):
    example = {"name": "x", "provider": "anthropic", "model": "claude-sonnet-4-5", **fields}
    return simulate([{**example, "steps": list(steps)}])[0]["steps"]


def test_an_automatic_mark_on_a_marked_block_is_no_second_mark() -> None:
    blocks = [_block(str(n), 2000) for n in range(4)]
    marks = [{"block": str(n)} for n in range(4)]
    step = {"at_s": 0, "blocks": blocks, "breakpoints": [*marks, {"block": "3", "auto": True}]}
    assert _served(step)[0]["cache_write"] == 8000


def test_a_server_tool_result_behind_the_last_mark_is_written_for_five_minutes() -> None:
    blocks = [_block("s", 5000, "system"), _block("w", 3000, kind="server_tool_result")]
    marked = {"at_s": 0, "blocks": blocks, "breakpoints": [{"block": "s", "ttl": "1h"}]}
    first, again = _served(marked, {**marked, "at_s": 9})
    assert (first["cache_write_1h"], first["cache_write_5m"]) == (5000, 3000)
    assert again["cache_read"] == 8000
    (bare,) = _served({"at_s": 0, "blocks": blocks})
    assert bare["cache_write"] == 0


def test_clouds_isolate_by_organisation_and_not_by_workspace() -> None:
    def reads(provider: str) -> int:
        step = {
            "at_s": 0,
            "blocks": [_block("s", 5000)],
            "breakpoints": [{"block": "s"}],
            "params": {"workspace": "a", "organization": "o"},
        }
        other = {**step, "at_s": 9, "params": {"workspace": "b", "organization": "o"}}
        return _served(step, other, provider=provider)[1]["cache_read"]

    assert reads("anthropic") == 0
    assert reads("bedrock") == reads("google-vertex") == 5000


def test_earlier_thinking_is_stripped_for_models_that_keep_the_last_turn_only() -> None:
    begin = [_block("s", 6000, "system"), {**_block("u1", 100), "role": "user"}]
    turn = [
        *begin,
        {**_block("t", 500, kind="thinking"), "role": "assistant"},
        {**_block("c", 50, kind="tool_use"), "role": "assistant"},
        {**_block("r", 300, kind="tool_result"), "role": "user"},
    ]
    asked = [*turn, {**_block("u2", 80), "role": "user"}]

    def step(at: int, blocks):
        return {"at_s": at, "blocks": blocks, "breakpoints": [{"block": blocks[-1]["id"]}]}

    steps = [step(0, begin), step(30, turn), step(60, asked)]
    old = _served(*steps, model="claude-haiku-4-5", rule="anthropic")
    new = _served(*steps, model="claude-opus-4-5", rule="anthropic")
    assert [s["cache_read"] for s in new] == [0, 6100, 6950]
    assert [s["cache_read"] for s in old] == [0, 6100, 6100]
    assert sum(old[2][k] for k in ("cache_read", "cache_write", "input")) == 6530
