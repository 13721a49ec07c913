"""Whole requests as prompts over a lane's pool."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from analyzer.errors import DecodeError
from analyzer.sources.base import Pool
from analyzer.sources.prompts import PromptReader

Raw = msgspec.Raw


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def user(text: str, mark: bool = False) -> Raw:
    block: dict[str, Any] = {"type": "text", "text": text}
    if mark:
        block["cache_control"] = {"type": "ephemeral"}
    return raw({"role": "user", "content": [block]})


def test_moving_a_mark_changes_no_part() -> None:
    pool = Pool()
    reader = PromptReader(pool)
    first = reader.read(None, None, [user("a", mark=True)], {})
    second = reader.read(None, None, [user("a"), user("b", mark=True)], {})
    assert first.ranges[0] == (0, 1)
    assert second.ranges == ((0, 2),)
    assert [first.breakpoints, second.breakpoints] == [((0, "5m"),), ((1, "5m"),)]
    assert len(pool) == 2


def test_equal_messages_in_one_prompt_are_parts_of_their_own() -> None:
    reader = PromptReader(Pool())
    prompt = reader.read(None, None, [user("a"), user("a"), user("a")], {})
    again = reader.read(None, None, [user("a"), user("a"), user("a"), user("b")], {})
    assert prompt.ranges == ((0, 3),)
    assert again.ranges == ((0, 4),)


def test_a_changed_tool_leaves_the_other_parts_as_they_were() -> None:
    reader = PromptReader(Pool())
    tools = [raw([{"name": "a"}, {"name": name}]) for name in ("b", "c")]
    first = reader.read(tools[0], raw("S"), [user("a")], {})
    second = reader.read(tools[1], raw("S"), [user("a"), user("b")], {})
    third = reader.read(tools[0], raw("S"), [user("a"), user("b")], {})
    assert list(first.indices()) == [0, 1, 2, 3]
    assert list(second.indices()) == [0, 4, 2, 3, 5]
    assert list(third.indices()) == [0, 1, 2, 3, 5]


def test_the_automatic_mark_steps_back_over_what_cannot_carry_one() -> None:
    reader = PromptReader(Pool())
    thinking = raw({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]})
    prompt = reader.read(None, None, [user("a"), thinking], {}, auto="1h")
    assert prompt.breakpoints == ((0, "1h"),)
    marked = reader.read(None, None, [user("a"), user("b", mark=True)], {}, auto="5m")
    assert marked.breakpoints == ((1, "5m"),)


def test_only_parameters_of_the_cache_key_are_kept_in_one_order() -> None:
    reader = PromptReader(Pool())
    thinking = {"type": "enabled", "budget_tokens": 5}
    given = {"thinking": thinking, "speed": "fast", "max_tokens": 9, "tool_choice": None}
    turned = {"speed": "fast", "thinking": dict(reversed(thinking.items()))}
    prompts = [reader.read(None, None, [user("a")], values) for values in (given, turned)]
    wanted = (("speed", "fast"), ("thinking", '{"budget_tokens":5,"type":"enabled"}'))
    assert [p.settings for p in prompts] == [wanted, wanted]


def test_a_bad_message_leaves_the_reader_as_it_was() -> None:
    reader = PromptReader(Pool())
    before = reader.read(None, raw("S"), [user("a")], {"speed": "fast"})
    with pytest.raises(DecodeError, match=r"messages\[1\]"):
        reader.read(None, raw("T"), [user("a"), raw(5)], {})
    with pytest.raises(DecodeError, match="last 1 messages, got 3"):
        reader.edit([], replace={3: user("x")})
    after = reader.edit([user("b")])
    assert list(after.indices()) == [*before.indices(), 2]
    assert after.settings == before.settings


def test_messages_are_counted_by_entries_and_not_by_parts() -> None:
    reader = PromptReader(Pool())
    blocks = [{"type": "text", "text": text} for text in "xyz"]
    prompt = reader.read(
        raw([{"name": "t"}]), raw("S"), [user("a"), raw({"role": "user", "content": blocks})], {}
    )
    assert (len(prompt), reader.messages_in(prompt)) == (6, 2)


def test_an_edit_of_old_user_text_is_not_a_person_speaking() -> None:
    reader = PromptReader(Pool())
    before = reader.read(None, None, [user("a"), user("b")], {})
    edited = reader.edit([], replace={0: user("shorter")})
    reminded = reader.edit([user("<system-reminder>be brief</system-reminder>")])
    spoken = reader.edit([user("c")])
    assert not reader.human_since(before, edited)
    assert not reader.human_since(edited, reminded)
    assert reader.human_since(reminded, spoken)
    assert reader.human_since(None, before)


def test_a_response_is_found_again_even_where_it_was_said_before() -> None:
    reader = PromptReader(Pool())
    answer = {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}
    messages = [user("a")]
    for turn in range(3):
        reader.read(None, None, messages, {})
        response = reader.response(raw(answer["content"]))
        messages += [raw(answer), user("next")]
        prompt = reader.read(None, None, messages, {})
        assert response == ((1 + 2 * turn, 2 + 2 * turn),)
        assert prompt.ranges == ((0, len(messages)),)
