"""Specs of policies: read, written, refused with the names that exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.edits import Edit
from analyzer.errors import InputError, UsageError
from analyzer.policies import POLICIES, Recipe, Turn, parse_spec, presets, spec
from analyzer.policies.base import Memory
from analyzer.specs import join, split


@dataclass(frozen=True)
class Lazy:
    """Does nothing, with a parameter."""

    name: ClassVar[str] = "lazy"
    memory: ClassVar[Memory] = "persisted"
    level: int = 3

    def edits(self, turn: Turn) -> Iterable[Edit]:
        return ()


@pytest.mark.parametrize(
    "text",
    [
        *POLICIES,
        "sliding-stubs:keep=3",
        "sliding-stubs:keep=3,placeholder=gone",
        'sliding-stubs:placeholder="a, b = c"',
        "watermarks:snip_at=0.5,prune_at=0.7,summarize_at=1.0,protect_tokens=4000",
        "tests.policies.test_spec:Lazy",
        "tests.policies.test_spec:Lazy:level=7",
    ],
)
def test_a_spec_written_and_read_again_is_the_same_policy(text: str) -> None:
    policy = parse_spec(text)
    assert parse_spec(spec(policy)) == policy
    assert spec(policy) == text


@given(
    st.builds(lambda keep, text: f"sliding-stubs:keep={keep}", st.integers(0, 10**6), st.none())
    | st.floats(0, 1).map(lambda share: f"watermarks:snip_at={share!r}")
)
def test_every_value_of_a_parameter_survives(text: str) -> None:
    policy = parse_spec(text)
    assert parse_spec(spec(policy)) == policy


@given(st.text(alphabet='ab ,="[]:é\n', min_size=1, max_size=12))
def test_every_text_survives_as_a_parameter(text: str) -> None:
    assert split(join("sliding-stubs", [("placeholder", text), ("keep", 3)])) == (
        "sliding-stubs",
        {"placeholder": text, "keep": "3"},
    )


def test_a_default_given_in_words_is_the_default() -> None:
    assert parse_spec("watermarks:snip_at=0.6") == parse_spec("watermarks")


def test_an_unknown_parameter_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UsageError) as error:
        parse_spec("watermarks:tail=3")
    text = str(error.value)
    assert text.startswith(
        "policy 'watermarks' has no parameter 'tail'; it takes: snip_at, prune_at"
    )
    assert "protect_tokens" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("waterfall", "no policy 'waterfall'; known: raw, recorded"),
        ("sliding-stubs:keep=many", "expected a whole number for 'keep', got 'many'"),
        ("sliding-stubs:keep=-1", "expected 'keep' from 0.0"),
        ("watermarks:snip_at=nan", "expected 'snip_at' from 0.0 to 1.0, got nan"),
        ("raw:keep=3", "no parameter 'keep'; it takes: none"),
        ("keep=3", "put the name in front"),
        ('sliding-stubs:placeholder="open', "expected a closing quote"),
        ("tests.policies.test_spec:Missing", "expected a policy class"),
        ("pathlib:Path", "to have edits"),
    ],
)
def test_a_bad_spec_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_spec(text)


def test_every_preset_names_its_source_and_explains_its_parameters() -> None:
    for preset in presets():
        assert preset.title
        if preset.name != "recorded":
            assert preset.source
        assert all(parameter.help for parameter in preset.parameters.values())


RECIPE = """
title = "Clear when many"
[parameters]
most = { default = 4, help = "results" }
[[rules]]
name = "clear"
trigger = { counter = { kind = "items" }, at_least = "$most" }
[[rules.actions]]
select = { kinds = ["tool_result"], protect_newest = 1 }
"""


def test_a_recipe_file_is_a_policy_with_parameters(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    policy = parse_spec(f"{path}:most=7")
    assert isinstance(policy, Recipe)
    assert policy.rules[0].trigger.at_least == 7
    assert parse_spec(spec(policy)) == policy


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("protect_newest", "protect_newst", r"no field 'protect_newst' at `\$.rules\[0\]"),
        ('"$most"', '"$least"', "uses \\$least"),
        ('"items"', '"itmes"', "Invalid enum value 'itmes'"),
        ("title =", "titel =", "unknown field `titel`"),
        ("[[rules]]", "[[rules]", "cannot be read"),
    ],
)
def test_a_recipe_with_a_mistake_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.replace(old, new))
    with pytest.raises(InputError, match=message):
        parse_spec(str(path))


def test_a_recipe_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml"):
        parse_spec(str(tmp_path / "none.toml"))
