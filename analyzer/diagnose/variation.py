"""What differs between two texts: the very characters, and of what sort they are.

Owns the pinning of volatile text (a clock, a nonce, a counter …) and the test for equal content in
other bytes. Both need the bodies; where a store kept none, the evidence says so and gives sizes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzer.model import Part

EXCERPT_CHARS = 60
NOT_KEPT = "not kept"
SHORT_CHARS = 200
"""A longer stretch is other content and no volatile text."""
MOST_CHARS = 20_000
"""A longer middle is not taken apart word by word."""
SHOWN_CHANGES = 5

_DAYS = "mon|tue|wed|thu|fri|sat|sun"
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_KINDS = (
    ("a clock", re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d{1,2}:\d\d(:\d\d)?\b")),
    ("a date", re.compile(r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b")),
    ("a date", re.compile(rf"^({_DAYS})[a-z]*$|^({_MONTHS})[a-z]*$", re.IGNORECASE)),
    ("a uuid", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-", re.IGNORECASE)),
    (
        "a hash or nonce",
        re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{10,}\b", re.IGNORECASE),
    ),
    ("an epoch time", re.compile(r"\b1\d{9,12}\b")),
    ("a path", re.compile(r"^(?:[\w.-]*[=:])?(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.~@+-]+[/\\]")),
    ("a path", re.compile(r"^[\w.~@+-]+(?:[/\\][\w.~@+-]+){2,}")),
    ("a version", re.compile(r"\bv?\d+\.\d+\.\d+")),
    ("a nonce", re.compile(r"^(?=\S*\d)(?=\S*[A-Za-z])[\w+/=.:-]{16,}$")),
    ("a counter", re.compile(r"^[#$(]?-?\d[\d,._]*%?[).:/]?$|\b\d+\b")),
)
_GIT = re.compile(r"\bgit ?status\b|\bcurrent branch\b|\brecent commits\b", re.IGNORECASE)
_GIT_LINE = re.compile(r"^\s?(?:[MADRCU?!]{1,2}\s+\S|[0-9a-f]{7,40} \S)")
_WORD = re.compile(r"[^\s\"'<>(){}\[\],;]")
_UNIT = re.compile(r"[^\s\"'<>(){}\[\],;]+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Variation:
    """One stretch of characters that differs, as offsets into both texts."""

    start: int
    end: int
    now_start: int
    now_end: int
    kind: str | None
    """Of which volatile sort it is; None for other content."""


def changed_span(was: str, now: str) -> tuple[int, int, int]:
    """Where two texts differ: start, end in `was`, end in `now` (equal head and tail left out)."""
    limit = min(len(was), len(now))
    start = _longest(limit, lambda n, m: was[n:m] == now[n:m])
    a, b = len(was), len(now)
    tail = _longest(limit - start, lambda n, m: was[a - m : a - n] == now[b - m : b - n])
    return start, a - tail, b - tail


def _longest(limit: int, equal: Callable[[int, int], bool]) -> int:
    """The most characters that agree, by bisection over slices (long texts agree nearly all over)."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if equal(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def variations(was: str, now: str) -> list[Variation]:
    """Every stretch that differs, narrowed to whole words; empty for equal texts."""
    if was == now:
        return []
    start, end, now_end = changed_span(was, now)
    first = _widened(was, start, -1)
    last, now_last = _widened(was, end, 1), _widened(now, now_end, 1)
    if max(last, now_last) - first > MOST_CHARS:
        return [_variation(was, now, (first, last, first, now_last))]
    old, new = _UNIT.findall(was[first:last]), _UNIT.findall(now[first:now_last])
    if len(old) != len(new):
        return [_variation(was, now, (first, last, first, now_last))]
    return [_variation(was, now, span) for span in _spans(old, new, first)]


def _spans(old: Sequence[str], new: Sequence[str], first: int) -> list[tuple[int, int, int, int]]:
    """Places of the words that differ, where both texts have as many words."""
    spans: list[tuple[int, int, int, int]] = []
    at = now_at = first
    for a, b in zip(old, new, strict=True):
        if a != b:
            # A date and a time are two words of one clock.
            near = spans and at - spans[-1][1] <= 1
            begin = (spans[-1][0], spans[-1][2]) if near else (at, now_at)
            if near:
                spans.pop()
            spans.append((begin[0], at + len(a), begin[1], now_at + len(b)))
        at, now_at = at + len(a), now_at + len(b)
    return spans


def _variation(was: str, now: str, span: tuple[int, int, int, int]) -> Variation:
    start, end, now_start, now_end = span
    old, new = was[start:end], now[now_start:now_end]
    return Variation(*span, _kind(old, new, now[max(0, now_start - 400) : now_start]))


def _kind(old: str, new: str, before: str) -> str | None:
    if old.split() == new.split():
        return "whitespace"
    if _is_git(old, new, before):
        return "the git status"
    if max(len(old), len(new)) > SHORT_CHARS:
        return _reordered(old, new)
    if not old or not new:
        return None
    return next((name for name, p in _KINDS if p.search(old) and p.search(new)), None)


def _is_git(old: str, new: str, before: str) -> bool:
    """Whether the lines of a working tree's state differ, below a heading that says so."""
    if _GIT.search(before) is None:
        return False
    lines = [line for text in (old, new) for line in text.splitlines() if line.strip()]
    return bool(lines) and ("\n" in old + new or any(_GIT_LINE.match(line) for line in lines))


def _reordered(old: str, new: str) -> str | None:
    a, b = old.splitlines(), new.splitlines()
    return "the order of lines" if len(a) > 1 and sorted(a) == sorted(b) else None


def _widened(text: str, at: int, step: int) -> int:
    """The edge of the word that a place stands in; never further than a short text is long."""
    for _ in range(SHORT_CHARS):
        if not 0 <= at - (step < 0) < len(text) or not _WORD.match(text[at - (step < 0)]):
            break
        at += step
    return at


def volatile_kind(was: str | None, now: str | None) -> str | None:
    """What sort of text differs between two texts; None if any of it is of no volatile sort."""
    if was is None or now is None:
        return None
    return _named(variations(was, now))


def _named(found: Sequence[Variation]) -> str | None:
    kinds = list(dict.fromkeys(v.kind for v in found))
    if not kinds or None in kinds:
        return None
    return " and ".join(kind for kind in kinds if kind)


def pinned(was: Part | None, now: Part | None) -> dict[str, str | int | list[str] | None]:
    """Evidence of a change of content: sizes, excerpts, the characters that vary, and their sort.

    `changed` lists "first–last character: was → is" for the first few stretches. Where the content
    was not kept, `content` says so, and only the sizes are left.
    """
    a, b = (was.body if was else None), (now.body if now else None)
    if a is None or b is None:
        return {**excerpts(was, now), **_sizes(was, now)}
    found = variations(a, b)
    shown = [
        f"{v.start}–{v.end}: {_quoted(a[v.start : v.end])} → {_quoted(b[v.now_start : v.now_end])}"
        for v in found[:SHOWN_CHANGES]
    ]
    pins = {"varies": _named(found), "changes": len(found), "changed": shown}
    return {**pins, **excerpts(was, now), **_sizes(was, now)}


def _sizes(was: Part | None, now: Part | None) -> dict[str, int | None]:
    return {"was_chars": was.chars if was else None, "now_chars": now.chars if now else None}


def _quoted(text: str) -> str:
    flat = re.sub(r"\s+", " ", text[:EXCERPT_CHARS])
    return f"“{flat}{'…' if len(text) > EXCERPT_CHARS else ''}”"


def excerpts(was: Part | None, now: Part | None) -> dict[str, str | None]:
    """Was/now excerpts around the first difference; None where the content was not kept, which is
    then said under `content`."""
    a, b = (was.body if was else None), (now.body if now else None)
    if a is None or b is None:
        lost = any(part is not None and part.body is None for part in (was, now))
        said = {"content": NOT_KEPT} if lost else {}
        return {"was": _clip(a, 0), "now": _clip(b, 0), **said}
    start, _, _ = changed_span(a, b)
    at = max(0, start - EXCERPT_CHARS // 3)
    return {"was": _clip(a, at), "now": _clip(b, at)}


def _clip(text: str | None, at: int) -> str | None:
    if text is None:
        return None
    piece = text[at : at + EXCERPT_CHARS * 2]
    flat = re.sub(r"\s+", " ", piece)
    return ("…" if at else "") + flat + ("…" if at + EXCERPT_CHARS * 2 < len(text) else "")


def drift(was: Part | None, now: Part | None) -> str | None:
    """How two parts write the same content in other bytes, in words; None if the content differs.

    Without bodies nobody can tell, so the answer is None.
    """
    if was is None or now is None or was.body is None or now.body is None:
        return None
    alike = (was.section, was.role, was.kind, was.tool) == (
        now.section,
        now.role,
        now.kind,
        now.tool,
    )
    if (
        not alike
        or was.digest == now.digest
        or was.call_id != now.call_id
        or was.kind == "thinking"
    ):
        return None
    if was.body == now.body:
        # A redacted body may be equal where the content was not; its size was that of the content.
        return _around(was, now) if was.chars == now.chars else None
    return _rewritten(was.body, now.body)


def _around(was: Part, now: Part) -> str:
    if was.starts_message != now.starts_message:
        return "the place where a message begins"
    return "the form around it (a string or a list of blocks, or a flag of the block)"


def _rewritten(was: str, now: str) -> str | None:
    a, b = _canonical(was), _canonical(now)
    if a is not None and a == b:
        # Keys are sorted by `_canonical` alone, so what is left without sorting is their order.
        return "whitespace or escapes" if _plain(was) == _plain(now) else "the order of keys"
    if was.split() == now.split():
        return "whitespace"
    if unicodedata.normalize("NFC", was) == unicodedata.normalize("NFC", now):
        return "the Unicode form"
    return None


def _canonical(text: str) -> str | None:
    """A JSON object or array with sorted keys; None if the text is none."""
    return _json(text, sort=True)


def _plain(text: str) -> str | None:
    return _json(text, sort=False)


def _json(text: str, *, sort: bool) -> str | None:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.dumps(json.loads(text), sort_keys=sort)
    except (ValueError, RecursionError):
        return None
