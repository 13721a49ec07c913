from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from analyzer.caching import simulate
from analyzer.errors import InputError

UNSUPPORTED: dict[str, str] = {}
"""Golden examples that the models do not reproduce, each with its reason; it may only shrink."""


def _wrong(example: dict[str, Any]) -> list[str]:
    (result,) = simulate([example])
    assert result["name"] == example["name"]
    found: list[str] = []
    for i, (step, got) in enumerate(zip(example["steps"], result["steps"], strict=True)):
        wanted = step["expect"]
        counts = dict(got)
        for key in ("cache_read", "cache_write_5m", "cache_write_1h", "cache_write", "input"):
            if key in wanted and wanted[key] != counts[key]:
                found.append(f"step {i} {key}: expected {wanted[key]}, got {counts[key]}")
        cost, paid = wanted["cost_usd"], got["cost_usd"]
        if cost is None or paid is None:
            same = cost is paid
        else:
            same = abs(Decimal(cost) - Decimal(str(paid))) <= Decimal("1e-9")
        if not same:
            found.append(f"step {i} cost: expected {cost}, got {paid}")
    return found


@pytest.mark.data
def test_every_golden_example_comes_out_to_the_token_and_the_cent(shared_data: Path) -> None:
    examples = json.loads((shared_data / "cache_examples.json").read_text(encoding="utf-8"))
    wrong = {e["name"]: found for e in examples if (found := _wrong(e))}
    assert wrong.keys() == UNSUPPORTED.keys(), wrong


def _block(name: str, tokens: int, section: str = "messages", kind: str = "text") -> dict[str, Any]:
    return {"id": name, "tokens": tokens, "section": section, "kind": kind}


def _example(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    base = {"name": "own", "provider": "anthropic", "model": "claude-sonnet-4-5"}
    return {**base, "rule": "anthropic", "steps": list(steps), **fields}


def _reads(example: dict[str, Any]) -> list[int]:
    return [step["cache_read"] for step in simulate([example])[0]["steps"]]


def test_without_a_price_table_the_price_book_is_asked() -> None:
    step = {"at_s": 0, "blocks": [_block("s", 10_000)], "breakpoints": [{"block": "s"}]}
    (result,) = simulate([_example({**step, "output": 100})])
    assert result["steps"][0] == {
        "cache_read": 0,
        "cache_write_5m": 10_000,
        "cache_write_1h": 0,
        "cache_write": 10_000,
        "input": 0,
        "cost_usd": 0.039,
    }
    (unknown,) = simulate([_example(step, model="some-model")])
    assert unknown["steps"][0]["cost_usd"] is None


def test_long_prompts_get_the_tier_that_a_table_of_list_prices_leaves_unsaid() -> None:
    listed = {"input": "0.10", "output": "0.50", "read": "0.01", "write_5m": "0.125"}

    def cost(tokens: int, prices: dict[str, str]) -> float | None:
        step = {"at_s": 0, "blocks": [_block("s", tokens)], "breakpoints": []}
        example = _example(step, model="claude-haiku-5-5", prices_per_mtok=prices)
        return simulate([example])[0]["steps"][0]["cost_usd"]

    assert cost(100_000, listed) == pytest.approx(0.01)
    assert cost(100_001, listed) == pytest.approx(0.0500005)
    assert cost(100_001, {**listed, "input": "7"}) == pytest.approx(0.700007)


def test_requests_that_start_together_do_not_read_each_other() -> None:
    step = {"at_s": 0, "blocks": [_block("s", 5000)], "breakpoints": [{"block": "s"}]}
    early, late = {**step, "first_token_s": 3}, {**step, "at_s": 2}
    assert _reads(_example(step, step, {**step, "at_s": 1})) == [0, 0, 5000]
    assert _reads(_example(early, late, {**step, "at_s": 3})) == [0, 0, 5000]


def test_an_automatic_mark_steps_back_over_thinking() -> None:
    blocks = [_block("s", 5000), _block("t", 100, kind="thinking")]
    step = {"at_s": 0, "blocks": blocks, "breakpoints": [{"block": "t", "auto": True}]}
    (result,) = simulate([_example(step)])
    assert result["steps"][0]["cache_write"] == 5000


def test_switching_to_explicit_mode_does_not_find_an_implicit_entry_elsewhere() -> None:
    blocks = [_block("dev", 3000, "system"), _block("m", 2000)]
    implicit = {"at_s": 0, "blocks": blocks, "params": {"mode": "implicit"}}
    explicit = {
        "at_s": 30,
        "blocks": blocks,
        "breakpoints": [{"block": "dev"}],
        "params": {"mode": "explicit"},
    }
    unmarked = {"at_s": 60, "blocks": blocks, "params": {"mode": "explicit"}}
    example = _example(implicit, explicit, unmarked, rule="openai-breakpoints", model="gpt-5.6-sol")
    steps = simulate([example])[0]["steps"]
    assert [s["cache_write"] for s in steps] == [5000, 3000, 0]
    assert [s["cache_read"] for s in steps] == [0, 0, 0]
    assert steps[0]["cache_write_5m"] is None


def test_the_rule_falls_back_to_the_provider_and_model() -> None:
    step = {"at_s": 0, "blocks": [_block("p", 2006)]}
    example = _example(step, {**step, "at_s": 9}, provider="openai", model="gpt-4o", rule=None)
    assert _reads(example) == [0, 1920]


def test_a_bedrock_example_counts_every_block_as_a_position() -> None:
    first = [_block("s", 3000, "system")]
    calls = [_block(f"c{n}", 40, kind="tool_use") for n in range(25)]
    steps = (
        {"at_s": 0, "blocks": first, "breakpoints": [{"block": "s"}]},
        {"at_s": 9, "blocks": first + calls, "breakpoints": [{"block": "c24"}]},
    )
    assert _reads(_example(*steps, provider="bedrock", rule=None)) == [0, 0]
    assert _reads(_example(*steps)) == [0, 3000]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"name": "x"}, "array of cache examples"),
        ([{"name": "x", "steps": [{"at_s": "soon"}]}], r"\$\[0\].steps\[0\].at_s"),
        (
            [_example({"at_s": 0, "blocks": [], "breakpoints": [{"block": "s"}]})],
            r"got 's' - at `\$\[0\].steps\[0\].breakpoints\[0\].block`",
        ),
        (
            [_example({"at_s": 0, "blocks": [_block("a", 1, "body")]})],
            r"tools, system, messages .*blocks\[0\]",
        ),
        (
            [
                _example(
                    {
                        "at_s": 0,
                        "blocks": [_block(str(n), 900) for n in range(5)],
                        "breakpoints": [{"block": str(n)} for n in range(5)],
                    }
                )
            ],
            "at most 4 breakpoints, got 5",
        ),
        (
            [
                _example(
                    {
                        "at_s": 0,
                        "blocks": [_block("a", 900), _block("b", 900)],
                        "breakpoints": [{"block": "a"}, {"block": "b", "ttl": "1h"}],
                    }
                )
            ],
            "1h before those of 5m",
        ),
        (
            [_example({"at_s": 0, "blocks": []}, prices_per_mtok={"input": "cheap"})],
            r"got 'cheap' - at `\$\[0\].prices_per_mtok.input`",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(broken: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(broken)
