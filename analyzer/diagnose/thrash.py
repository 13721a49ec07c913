"""Runs of compactions, or of clearing, at almost every step: one finding a run."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from analyzer.diagnose.base import Finding, Verdict, total, unpriced
from analyzer.ledger import LaneLedger, StepRow

KIND = "compaction-thrash"
MIN_EVENTS = 3
LEAST_TOKENS = 2_000
MAX_APART = 4
"""Steps from one compaction to the next inside a run."""
REMEDY = (
    "Compact deeper and less often: what is left must be far below the trigger (for example down to "
    "60 % of the window from 80 %), or the next results trigger it again. For the provider's clearing "
    "set `clear_at_least`, so that a small gain does not cost a rewrite."
)


def thrash_runs(ledger: LaneLedger, taken: set[int]) -> list[tuple[int, ...]]:
    """Indices of the rows of each run, without those of other findings."""
    events = [i for i, row in enumerate(ledger.rows) if i not in taken and _is_event(row)]
    runs: list[list[int]] = []
    for i in events:
        if runs and i - runs[-1][-1] <= MAX_APART:
            runs[-1].append(i)
        else:
            runs.append([i])
    return [tuple(run) for run in runs if len(run) >= MIN_EVENTS]


def _is_event(row: StepRow) -> bool:
    """Whether so much was cut at this step that it had to be written again."""
    told = row.record.compaction
    saved = told.tokens_saved if told is not None else None
    much = max(row.cut_tokens or 0, saved or 0) >= LEAST_TOKENS
    return (row.compacted or told is not None) and (much or row.is_break)


def thrash_finding(
    ledger: LaneLedger, run: Sequence[int], verdicts: Sequence[Verdict | None]
) -> Finding:
    """One finding for a run, with what its steps cut and what they wrote again."""
    rows = [ledger.rows[i] for i in run]
    cut = sum(max(0, row.cut_tokens or 0) for row in rows)
    written = sum(row.usage.cache_write or 0 for row in rows)
    lost = [row for row in rows if row.is_break]
    apart = (run[-1] - run[0]) / (len(run) - 1)
    return Finding(
        kind=KIND,
        lane=ledger.lane.name,
        steps=tuple(row.step for row in rows),
        tokens=sum(row.lost_tokens or 0 for row in lost),
        wasted_usd=total(row.wasted_usd for row in lost) if lost else Decimal(0),
        evidence={
            "summary": f"{len(rows)} compactions in steps {rows[0].step}–{rows[-1].step}, one in "
            f"{apart:.1f} steps: {cut:,} tokens were cut and {written:,} written",
            "compactions": len(rows),
            "steps_apart": round(apart, 2),
            "cut_tokens": cut,
            "written_tokens": written,
            **unpriced(lost),
        },
        remedy=REMEDY,
        inferred=all(v is None or v.inferred for v in (verdicts[i] for i in run)),
        expected=False,
    )
