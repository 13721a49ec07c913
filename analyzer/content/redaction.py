"""Mode `redacted`: secrets and personal data get stand-ins, all else stays."""

from __future__ import annotations

import re
from collections.abc import Iterable

from analyzer.content.detectors import Haystack, Span
from analyzer.content.personal import PERSONAL
from analyzer.content.secrets import SECRETS
from analyzer.content.standins import stand_in
from analyzer.model import Part

DETECTORS = (*SECRETS, *PERSONAL)
KINDS = (
    "PRIVATE_KEY",
    "JWT",
    "WEBHOOK",
    "API_KEY",
    "PASSWORD",
    "SECRET",
    "EMAIL",
    "USER",
    "CARD",
    "IBAN",
    "SSN",
    "PHONE",
    "IP",
)
"""Every kind that is found. Where two overlap, the earlier one names it."""
_RANK = {kind: rank for rank, kind in enumerate(KINDS)}
SHORTEST = 4
"""No value is shorter, so shorter texts are not looked at."""
REMEMBERED_CHARS = 4_000_000
_LAYOUT = re.compile(r"\\[nrt]|\s+")


class Redactor:
    """See `Filter`. Not shared between threads."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[str, str] = {}
        self._known_chars = 0

    def text(self, text: str) -> str:
        """A text with every value that is found replaced by its stand-in."""
        if len(text) < SHORTEST:
            return text
        known = self._known.get(text)
        if known is None:
            known = self._redacted(text)
            self._remember(text, known)
        return known

    def _remember(self, text: str, redacted: str) -> None:
        """Subagents and resumed sessions repeat parts whole."""
        if self._known_chars > REMEMBERED_CHARS:
            self._known.clear()
            self._known_chars = 0
        self._known[text] = redacted
        self._known_chars += len(text)

    def _redacted(self, text: str) -> str:
        hay = Haystack.of(text)
        found = merged(span for detector in DETECTORS for span in detector.spans(hay))
        if not found:
            return text
        out, at = [], 0
        for start, stop, kind in found:
            value = text[start:stop]
            if kind == "PRIVATE_KEY":
                # A key is the same whether its lines are ended as text or as JSON.
                value = _LAYOUT.sub("", value)
            out += [text[at:start], stand_in(self._key, kind, value)]
            at = stop
        return "".join((*out, text[at:]))

    # -- Filter -------------------------------------------------------------------------------

    def body(self, part: Part) -> str | None:
        """See `Filter`."""
        return None if part.body is None else self.text(part.body)

    def prose(self, text: str) -> str | None:
        """See `Filter`."""
        return self.text(text)

    def value(self, name: str, text: str) -> str:
        """See `Filter`."""
        return self.text(text)

    def term(self, text: str) -> str:
        """See `Filter`."""
        return self.text(text)

    def message(self, text: str) -> str:
        """See `Filter`."""
        return self.text(text)

    def raw(self, record: bytes) -> bytes:
        """See `Filter`."""
        return self.text(record.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, overlapping ones joined: nothing of a value may stick out."""
    out: list[Span] = []
    for span in sorted(spans):
        if out and span.start < out[-1].stop:
            last = out.pop()
            kind = min(last.kind, span.kind, key=_RANK.__getitem__)
            out.append(Span(last.start, max(last.stop, span.stop), kind))
        else:
            out.append(span)
    return out
