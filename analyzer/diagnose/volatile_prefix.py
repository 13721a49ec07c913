"""Text that differs from request to request stands at the head of the prompt."""

from __future__ import annotations

import re
from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict, changed_span, excerpts
from analyzer.ledger import Divergence

_VOLATILE = (
    ("a clock", re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d{1,2}:\d\d(:\d\d)?\b")),
    ("a date", re.compile(r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b")),
    ("a uuid", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-", re.IGNORECASE)),
    (
        "a hash or nonce",
        re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{10,}\b", re.IGNORECASE),
    ),
    ("an epoch time", re.compile(r"\b1\d{9,12}\b")),
    ("a version", re.compile(r"\bv?\d+\.\d+\.\d+")),
    ("a counter", re.compile(r"\b\d+\b")),
)
SHORT_CHARS = 200
_WORD = re.compile(r"[^\s\"'<>(){}\[\],;]")


class VolatilePrefix:
    """The system prompt, or the first message, changed."""

    kind: ClassVar[str] = "volatile-prefix"
    remedy: ClassVar[str] = (
        "Move what varies (clock, ids, git status, memory) out of the head of the prompt to the end "
        "of the newest user message, or freeze it for the session."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        diverged = case.row.divergence
        if case.told == "system_changed":
            return case.says(self.kind, "the system prompt changed")
        if not case.recorded or diverged is None:
            return None
        now, was = case.now, case.was
        in_head = diverged.index == -1 or (
            diverged.index == 0 and now is not None and now.role != "tool"
        )
        if not in_head or now is None or _moved_up(case, diverged):
            return None
        what = volatile_kind(was.body if was else None, now.body)
        where = "the system prompt" if diverged.index == -1 else "the first message"
        return Verdict(
            self.kind,
            {
                "summary": f"{where} changed" + (f": {what} differs" if what else ""),
                "varies": what,
                "position": diverged.common,
                **excerpts(was, now),
            },
        )


def _moved_up(case: Case, diverged: Divergence) -> bool:
    """Whether the first message was dropped: what stands there now stood behind it before."""
    before = case.row.previous
    if diverged.index != 0 or before is None or before.prompt is None:
        return False
    return any(r.start <= diverged.now < r.stop for r in before.prompt.ranges)


def volatile_kind(was: str | None, now: str | None) -> str | None:
    """What sort of text differs between two texts; None if it is not of a volatile sort."""
    if was is None or now is None:
        return None
    start, was_end, now_end = changed_span(was, now)
    old, new = _widen(was, start, was_end), _widen(now, start, now_end)
    if max(len(old), len(new)) > SHORT_CHARS:
        return None
    for name, pattern in _VOLATILE:
        if pattern.search(old) and pattern.search(new):
            return name
    return None


def _widen(text: str, start: int, end: int) -> str:
    """The changed characters with the rest of the words they stand in."""
    # What is longer than a short text is of no volatile sort, however far the word goes on.
    first, last = max(0, start - SHORT_CHARS), min(len(text), end + SHORT_CHARS)
    while start > first and _WORD.match(text[start - 1]):
        start -= 1
    while end < last and _WORD.match(text[end]):
        end += 1
    # A date and a time are two words of one clock.
    return text[max(0, start - 11) : end] if text[start - 1 : start] == " " else text[start:end]
