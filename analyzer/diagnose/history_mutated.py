"""An old message changed: pruned, stubbed, shortened, moved or dropped."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict, describe
from analyzer.diagnose.variation import pinned
from analyzer.model import Compaction

MUCH_TOKENS = 1_000
MUCH_SHARE = 0.02
"""Of the previous prompt."""


class HistoryMutated:
    """Read off the content where prompts are recorded, else off a prompt that came out too small."""

    kind: ClassVar[str] = "history-mutated"
    remedy: ClassVar[str] = (
        "Never edit old messages in place at each step. If history must shrink, do it seldom and in "
        "one batch between two watermarks, and keep every decision fixed afterwards."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        return self._recorded(case) if case.recorded else self._inferred(case)

    def _recorded(self, case: Case) -> Verdict | None:
        diverged, told = case.row.divergence, case.row.record.compaction
        if diverged is None and told is not None:
            return self._cleared(case, told)
        if diverged is None or diverged.index < 0:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"message {diverged.index} changed: it was {describe(case.was)}, "
                f"it is {describe(case.now)}",
                "message": diverged.index,
                "new_stubs": case.row.new_stubs,
                "cut_tokens": case.row.cut_tokens,
                **pinned(case.was, case.now),
            },
        )

    def _cleared(self, case: Case, told: Compaction) -> Verdict | None:
        """The client sent everything, and the provider cleared a part of it before reading."""
        if told.kind != "clear":
            return None
        tokens = told.tokens_saved
        size = f" of {tokens:,} tokens" if tokens is not None else ""
        return Verdict(
            self.kind,
            {
                "summary": f"the provider cleared old results{size} from the prompt (the response says "
                f"so); the read fell back to {case.row.usage.cache_read or 0:,} tokens",
                "cleared_tokens": tokens,
                "cut_tokens": case.row.cut_tokens,
                "read_floor": case.row.usage.cache_read,
            },
        )

    def _inferred(self, case: Case) -> Verdict | None:
        row = case.row
        told = row.record.compaction
        if told is None and case.told is not None:
            changed = case.told in ("messages_changed", "input_changed")
            return case.says(self.kind, "an old message changed") if changed else None
        if told is None and not (row.usage.cache_read and _much(case)):
            return None
        what = (
            "old tool results were cleared in place (the transcript marks it)"
            if told
            else f"the prompt is about {row.cut_tokens:,} tokens smaller than the transcript's text "
            f"explains: older content was cut or replaced when it was sent"
        )
        return Verdict(
            self.kind,
            {
                "summary": f"{what}; the read fell back to {row.usage.cache_read or 0:,} tokens",
                "read_floor": row.usage.cache_read,
                "cut_tokens": row.cut_tokens,
            },
            inferred=told is None,
        )


def _much(case: Case) -> bool:
    """Whether so much is gone that no estimate can be that wrong.

    A single step rests on one estimate; a run of steps is judged by its sums (see `sliding`).
    """
    cut, before = case.row.cut_tokens or 0, case.row.previous
    was = before.usage.prompt if before is not None and before.usage is not None else None
    return case.cut_is_real and cut >= max(MUCH_TOKENS, (was or 0) * MUCH_SHARE)
