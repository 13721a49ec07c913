"""The request that made a summary did not read the history from the cache."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.ledger import StepRow
from analyzer.model import ITERATION, Part

SUMMARY_ROUND = "compaction"
"""The kind of a round inside a response that wrote a summary. Source: Anthropic, compaction, 2026-08."""
LEAST_CHARS = 80
FRAME_CHARS = 2_000
"""What clients put around a summary; without the content its size has to do."""


class CompactionColdSummary:
    """Known by its answer: it stands in the next prompt as the summary."""

    kind: ClassVar[str] = "compaction-cold-summary"
    remedy: ClassVar[str] = (
        "Make the summary with the same tools, system prompt and history, and one instruction behind "
        "them, on the same model, before the lifetime ends: then the history is read and not paid again."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        how = _summarises(case)
        if how is None:
            return None
        row = case.row
        return Verdict(
            self.kind,
            {
                "summary": f"this request wrote the summary ({how}) and read only "
                f"{row.usage.cache_read or 0:,} of {row.expected_read or 0:,} tokens of the history",
                "gap_s": row.gap_s,
                "shared_tokens": row.shared_prefix_tokens,
                "model": row.record.model,
            },
        )


def _summarises(case: Case) -> str | None:
    if (ITERATION, SUMMARY_ROUND) in case.row.record.labels:
        return "usage names it as a round of compaction"
    following = case.row.step + 1
    if following >= len(case.ledger.rows):
        return None
    after = case.ledger.rows[following]
    if after.compacted and _holds_answer(case, after):
        return "its answer stands in the next prompt as the summary"
    return None


def _holds_answer(case: Case, after: StepRow) -> bool:
    answer = [p for p in case.parts(case.row.record.response) if p.kind in ("text", "summary")]
    prompt = after.record.prompt
    if prompt is None or not answer:
        return False
    summaries = [p for p in case.parts(prompt.ranges) if p.summary or p.kind == "summary"]
    return any(_same(a, s) for a in answer for s in summaries)


def _same(answer: Part, summary: Part) -> bool:
    fits = LEAST_CHARS <= answer.chars <= summary.chars <= answer.chars + FRAME_CHARS
    if answer.body is None or summary.body is None:
        return fits
    return fits and answer.body.strip() in summary.body
