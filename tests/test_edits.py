"""Edits as values: applied, found again by comparing, refused where they overlap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.edits import (
    Drop,
    Insert,
    Replace,
    ServerDelete,
    Summarize,
    SummaryCall,
    apply,
    diff,
    rewritten,
    summary_part,
)
from analyzer.errors import LawError
from analyzer.model import Part
from analyzer.sources.blocks import make_part

LETTERS = [make_part("messages", "user", "text", letter) for letter in "abcdef"]
PROMPTS = st.lists(st.sampled_from(LETTERS), max_size=25)


def letters(text: str) -> list[Part]:
    return [LETTERS["abcdef".index(c)] for c in text]


@given(PROMPTS, PROMPTS)
def test_the_difference_of_two_prompts_applied_to_one_gives_the_other(
    a: list[Part], b: list[Part]
) -> None:
    assert apply(a, diff(a, b)) == b


@given(PROMPTS)
def test_equal_prompts_do_not_differ(a: list[Part]) -> None:
    assert diff(a, list(a)) == []


def test_a_stub_in_the_middle_is_one_replacement() -> None:
    before, after = letters("abcde"), letters("abfde")
    assert diff(before, after) == [Replace(2, LETTERS[5])]


def test_positions_refer_to_the_prompt_before_any_edit() -> None:
    edits = [Insert(4, tuple(letters("f"))), Drop(0, 2), Replace(3, LETTERS[0])]
    assert apply(letters("abcde"), edits) == letters("cafe")


def test_a_summary_stands_in_the_place_of_what_it_covers() -> None:
    covered = letters("bcd")
    part = summary_part(covered, 100)
    call = SummaryCall("cold_messages", 300, 100)
    prompt = apply(letters("abcde"), [Summarize(1, 4, part, call)])
    assert prompt == [LETTERS[0], part, LETTERS[4]]
    assert part.estimate == 100
    assert part == summary_part(covered, 100)
    assert part.digest != summary_part(letters("bce"), 100).digest


def test_what_the_provider_deletes_stays_in_the_request() -> None:
    assert apply(letters("abc"), [ServerDelete(1)]) == letters("abc")


@pytest.mark.parametrize(
    "edits",
    [
        [Drop(0, 3), Replace(2, LETTERS[0])],
        [Replace(1, LETTERS[0]), Replace(1, LETTERS[2])],
        [Drop(4, 6)],
        [Insert(7, ())],
    ],
)
def test_edits_that_overlap_or_lie_outside_are_refused(edits: list[Drop]) -> None:
    with pytest.raises(LawError, match="do not overlap"):
        apply(letters("abcde"), edits)


def test_a_rewritten_part_is_what_a_request_with_that_content_gives() -> None:
    def part(body: str) -> Part:
        return make_part(
            "messages",
            "user",
            "tool_result",
            body,
            tool="bash",
            call_id="c1",
            starts_message=True,
        )

    assert rewritten(part("x" * 1000), "short").digest == part("short").digest
    stub = rewritten(part("x" * 1000), "[cleared]", placeholder=True)
    assert stub.envelope == part("").envelope
    assert (stub.call_id, stub.tool, stub.chars) == ("c1", "bash", 9)
