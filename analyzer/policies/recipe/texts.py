"""Texts cut at lines, characters, code blocks and sentences; None where nothing would go."""

from __future__ import annotations

import re

from analyzer.policies.base import CODE_BLOCK

_SENTENCE = re.compile(r"(?:[.!?](?=\s)|[。！？])\s*")
_TRUNCATED = " [truncated]"
CHARS_PER_LINE = 200
"""A kept "line" longer than this is cut too, so that one-line outputs shrink as well."""


def head_lines(text: str, lines: int) -> str | None:
    """The first lines of a text and how many were left out; None if it is no longer than that."""
    rows = text.split("\n")
    head = "\n".join(rows[:lines])[: lines * CHARS_PER_LINE]
    if len(head) == len(text):
        return None
    omitted = len(rows) - head.count("\n") - 1
    if omitted > 0:
        return f"{head}\n… {omitted} more lines omitted"
    return f"{head}\n… {len(text) - len(head)} more characters omitted"


def head_chars(text: str, chars: int, marker: str) -> str | None:
    """The first characters of a text and a marker; None if it is no longer than that."""
    return None if len(text) <= chars else text[:chars] + marker


def code_blocks(text: str, lines: int) -> str | None:
    """A text whose long fenced code blocks keep their first lines; None if there are none."""

    def cut(match: re.Match[str]) -> str:
        rows = match["code"].rstrip("\n").split("\n")
        if len(rows) <= lines + 1:
            return match[0]
        head = "\n".join(rows[:lines])
        return f"{match['open']}{head}\n… {len(rows)} lines in all\n{match['close']}"

    shorter = CODE_BLOCK.sub(cut, text)
    return None if shorter == text else shorter


def sentences(text: str, count: int) -> str | None:
    """The first sentences of a text and `[truncated]`; None if it has no more than those."""
    if text.endswith(_TRUNCATED):
        return None
    end = 0
    for _ in range(count):
        match = _SENTENCE.search(text, end)
        if match is None:
            return None
        end = match.end()
    kept = text[:end].rstrip()
    return None if len(kept) + len(_TRUNCATED) >= len(text) else kept + _TRUNCATED
