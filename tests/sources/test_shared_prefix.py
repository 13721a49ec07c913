"""Cutting out of a line the messages that an earlier line holds."""

from __future__ import annotations

import json

import msgspec

from analyzer.sources.shared_prefix import Cut, SharedPrefix, split
from analyzer.sources.steps_rows import StepRow, decode_row


def line(*texts: str, before: str = "") -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    return (before + json.dumps({"session": "s", "request": {"messages": messages}})).encode()


def array(row: StepRow) -> msgspec.Raw:
    assert row.request is not None
    return row.request.messages


def remember(shared: SharedPrefix, data: bytes, cut: Cut | None = None) -> None:
    messages = array(decode_row(cut.line if cut else data))
    shared.remember(data, messages, split(messages), cut)


def test_only_what_follows_the_shared_messages_is_left() -> None:
    shared = SharedPrefix()
    remember(shared, line("a", "b"))
    cut = shared.cut(line("a", "b", "c", "d"))
    assert cut is not None
    assert cut.kept == 2
    assert json.loads(cut.line)["request"]["messages"] == [
        {"role": "user", "content": text} for text in "cd"
    ]
    assert shared.confirms(cut, array(decode_row(cut.line)))


def test_a_line_is_cut_at_the_first_message_that_differs() -> None:
    shared = SharedPrefix()
    remember(shared, line(*"abcdef"))
    kept = [shared.cut(line(*text)) for text in ("abXdef", "Xbcdef", "abc", "abcdef")]
    assert [cut.kept if cut else 0 for cut in kept] == [2, 0, 3, 6]


def test_a_cut_line_is_remembered_as_the_whole_line() -> None:
    shared = SharedPrefix()
    remember(shared, line("a"))
    for n in range(2, 30):
        data = line(*(str(k) if k else "a" for k in range(n)))
        cut = shared.cut(data)
        assert cut is not None
        assert cut.kept == n - 1
        remember(shared, data, cut)


def test_an_array_of_the_same_name_before_the_prompt_is_not_confirmed() -> None:
    shared = SharedPrefix()
    remember(shared, line("a", "b"))
    decoy = json.dumps([{"role": "user", "content": text} for text in "ab"])
    data = line("a", "b", "c").replace(
        b'"session"', f'"x": {{"messages": {decoy}}}, "session"'.encode()
    )
    cut = shared.cut(data)
    assert cut is not None
    assert not shared.confirms(cut, array(decode_row(cut.line)))


def test_lines_of_several_lanes_are_compared_with_the_best_one() -> None:
    shared = SharedPrefix()
    for texts in ("abc", "xyz", "abz"):
        remember(shared, line(*texts))
    kept = [shared.cut(line(*texts)) for texts in ("abcd", "xyzw", "abzz")]
    assert [cut.kept if cut else 0 for cut in kept] == [3, 3, 3]
