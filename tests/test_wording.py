from __future__ import annotations

import pytest

from analyzer.edits import rewritten
from analyzer.policies.base import is_spoken
from analyzer.replay.align import is_summary
from analyzer.sources.blocks import make_part
from analyzer.wording import reads_like_placeholder


def said(text: str, role: str = "user"):
    return make_part("messages", role, "text", text, starts_message=True)


@pytest.mark.parametrize(
    ("text", "spoken", "summary"),
    [
        ("please fix the bug", True, False),
        ("  <system-reminder>be brief</system-reminder>", False, False),
        (
            "This session is continued from a previous conversation that ran out of context",
            True,
            True,
        ),
        ("## Summary\nwe did much", True, True),
        ("x" * 400 + " summary of the conversation", True, False),
    ],
)
def test_what_a_text_is_needs_no_text_later(text: str, spoken: bool, summary: bool) -> None:
    part = said(text)
    assert (is_spoken(part), is_summary(part)) == (spoken, summary)
    assert (part.markup, part.summary) == (not spoken, summary)


def test_only_texts_are_asked() -> None:
    part = make_part("messages", "user", "tool_result", "<b>Summary of the session</b>")
    assert not part.markup
    assert not part.summary


def test_a_rewritten_part_is_what_its_new_text_is() -> None:
    part = rewritten(said("<note>"), "Summary of our work")
    assert (part.markup, part.summary) == (False, True)


def test_long_texts_are_no_placeholders() -> None:
    assert reads_like_placeholder("[Old tool result content cleared]")
    assert not reads_like_placeholder("[Old tool result content cleared]" + " " * 400)
