"""What a detector is, and where text begins: boundaries that hold inside JSON as outside of it.

A detector is asked only where one of its cues stands, so a text without any is passed over at the
speed of a substring search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

BEGIN = r"(?:(?<![A-Za-z0-9_\\])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
"""Nothing of a word stands before: in an escaped text the letter of `\\n` belongs to no word."""


class Span(NamedTuple):
    """A sensitive value in a text, and its kind."""

    start: int
    stop: int
    kind: str


class Haystack(NamedTuple):
    """A text, and the same in small letters with every character in its place."""

    text: str
    lower: str

    @classmethod
    def of(cls, text: str) -> Haystack:
        """Make one; the one letter whose small form is longer is replaced first."""
        return cls(text, text.replace("İ", "I").lower())


class Detector(Protocol):
    """Finds the values of a kind."""

    def spans(self, hay: Haystack) -> Iterator[Span]:
        """The values in a text, in no particular order; they may overlap."""
        ...


def always(_: re.Match[str]) -> bool:
    """No further condition."""
    return True


@dataclass(frozen=True, slots=True)
class Cued:
    """A pattern that is tried where a cue stands, at the cue's first character."""

    kind: str
    cues: tuple[str, ...]
    pattern: re.Pattern[str]
    group: int | str = 0
    """The group of the pattern that is the value."""
    accept: Callable[[re.Match[str]], bool] = always
    any_case: bool = False
    """The cues are in small letters and stand for any case."""

    def spans(self, hay: Haystack) -> Iterator[Span]:
        """See `Detector`."""
        text = hay.text
        where = hay.lower if self.any_case else text
        for cue in self.cues:
            at = where.find(cue)
            while at >= 0:
                found = self.pattern.match(text, at)
                if found is not None and self.accept(found):
                    yield Span(*found.span(self.group), self.kind)
                    at = where.find(cue, max(found.end(), at + len(cue)))
                else:
                    at = where.find(cue, at + len(cue))


@dataclass(frozen=True, slots=True)
class Scanned:
    """A pattern that is searched in the whole text, where no literal cue exists."""

    kind: str
    pattern: re.Pattern[str]
    group: int | str = 0
    accept: Callable[[re.Match[str]], bool] = always

    def spans(self, hay: Haystack) -> Iterator[Span]:
        """See `Detector`."""
        for found in self.pattern.finditer(hay.text):
            if self.accept(found):
                yield Span(*found.span(self.group), self.kind)
