"""The history was replaced by a summary, or most of it was dropped at once."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict


class Compaction:
    """Expected: writing a summary is the price of compacting; only the lost system prefix is waste."""

    kind: ClassVar[str] = "compaction"
    remedy: ClassVar[str] = (
        "Put a breakpoint at the end of the system prompt so that tools and system stay readable "
        "across a compaction, and compact seldom and deeply rather than often and a little."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        if not case.row.compacted:
            return None
        told = case.row.record.compaction
        cut = case.row.cut_tokens
        how = "the transcript marks it" if told else "the prompt lost most of its content at once"
        return Verdict(
            self.kind,
            {
                "summary": f"the history was compacted ({how})",
                "cut_tokens": cut,
                "trigger": told.trigger if told else None,
                "pre_tokens": told.pre_tokens if told else None,
            },
            inferred=told is None and not case.recorded,
            expected=True,
        )
