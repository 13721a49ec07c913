"""Thinking of an earlier turn is no longer in the prompt."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.model import Part

KEEPS_ALL = (
    "claude-opus-4-[5-9]*",
    "claude-opus-[5-9]*",
    "claude-sonnet-4-[6-9]*",
    "claude-sonnet-[5-9]*",
    "claude-haiku-[5-9]*",
    "claude-fable*",
    "claude-mythos*",
)
"""Models that keep the thinking of all turns in the prompt; the others keep the last turn's only.
Source: Anthropic, extended thinking and context editing, 2026-08 (Haiku: through 4.5)."""


class ThinkingStripped:
    """By the provider when a person speaks (older models), or by the client that did not send it."""

    kind: ClassVar[str] = "thinking-stripped"
    remedy: ClassVar[str] = (
        "Send thinking blocks back unchanged. On models that keep the last turn's thinking only, put a "
        "breakpoint on the newest user message, so that the entry before the thinking can be read, or "
        "use a model that keeps all of it."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        return self._dropped(case) or self._stripped(case)

    def _dropped(self, case: Case) -> Verdict | None:
        """The client left a thinking block out."""
        diverged, was, now = case.row.divergence, case.was, case.now
        if not case.recorded or diverged is None or was is None or was.kind != "thinking":
            return None
        if now is not None and now.kind == "thinking":
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"a thinking block of {was.chars:,} characters was not sent back in message "
                f"{diverged.index}",
                "message": diverged.index,
                "cut_tokens": case.row.cut_tokens,
            },
        )

    def _stripped(self, case: Case) -> Verdict | None:
        """The provider left out the thinking of the turn that a person's message ended."""
        row = case.row
        if not _keeps_last_turn(case.model) or not row.record.human or case.told is not None:
            return None
        if case.appended is None or row.compacted:
            return None
        thoughts = _last_turn(case)
        # The prompt must have become smaller than its text explains, or nothing was stripped.
        if not thoughts or not case.cut_is_real:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"a person spoke, and {row.record.model} keeps the thinking of the last turn "
                f"only: {len(thoughts)} thinking blocks left the prompt, and all behind the first of "
                "them was written again",
                "thinking_blocks": len(thoughts),
                "cut_tokens": row.cut_tokens,
            },
            inferred=not case.recorded,
        )


def _keeps_last_turn(model: str) -> bool:
    return model.startswith("claude") and not any(fnmatchcase(model, p) for p in KEEPS_ALL)


def _last_turn(case: Case) -> list[Part]:
    """Thinking blocks behind the last text of a person in the previous prompt, answer included."""
    before = case.row.previous
    if before is None or before.prompt is None:
        return []
    thoughts: list[Part] = []
    for part in case.parts((*before.prompt.ranges, *before.response)):
        if part.role == "user" and part.kind == "text" and not part.markup:
            thoughts = []
        elif part.kind == "thinking":
            thoughts.append(part)
    return thoughts
