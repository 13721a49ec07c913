"""What a person asks first: sums over sessions, sessions that match, one session in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import polars as pl

from analyzer.diagnose import Finding, SessionDiagnosis, Verdict, total
from analyzer.ledger import StepRow
from analyzer.views.table import usd

Frame: TypeAlias = pl.DataFrame


def counted(number: int, word: str) -> str:
    """A number with its word, in the plural where it is not one."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over an overview frame; None is unknown."""

    sessions: int
    steps: int
    cost_usd: float | None
    wasted_usd: float | None
    hit_ratio: float | None
    """Tokens read from the cache as a share of all prompt tokens, 0..1."""
    unjudged: int
    """Sessions without an up-to-date analysis; the sums of money leave them out."""


def totals(frame: pl.DataFrame) -> Totals:
    """Sums over the rows of the store's query `sessions`."""
    known = frame.filter(pl.col("cache_read").is_not_null())
    read, written, rest = (_sum(known, name) for name in ("cache_read", "cache_write", "input"))
    prompt = (read or 0) + (written or 0) + (rest or 0)
    return Totals(
        sessions=frame.height,
        steps=int(_sum(frame, "n_steps") or 0),
        cost_usd=_sum(frame, "cost_usd"),
        wasted_usd=_sum(frame, "wasted_usd"),
        hit_ratio=read / prompt if read is not None and prompt else None,
        unjudged=frame.filter(~pl.col("analysed") & (pl.col("n_steps") > 0)).height,
    )


def _sum(frame: pl.DataFrame, column: str) -> float | None:
    known = frame[column].drop_nulls()
    return float(known.sum()) if len(known) else None


NO_CAUSE = "none"
"""Stands for sessions without a finding where causes are chosen."""


def matching(
    frame: pl.DataFrame,
    text: str = "",
    sources: Sequence[str] = (),
    causes: Sequence[str] = (),
) -> pl.DataFrame:
    """Sessions whose id, title, project or user holds a text, of some sources and causes."""
    if text:
        names = ("session_id", "title", "project", "user_id")
        hits = [
            pl.col(n).str.to_lowercase().str.contains(text.lower(), literal=True).fill_null(False)
            for n in names
        ]
        frame = frame.filter(pl.any_horizontal(hits))
    if sources:
        frame = frame.filter(pl.col("source").is_in(list(sources)))
    if causes:
        frame = frame.filter(pl.col("top_cause").fill_null(NO_CAUSE).is_in(list(causes)))
    return frame


def dearest_first(frame: pl.DataFrame, rows: int) -> pl.DataFrame:
    """The sessions that lost most, then those that cost most; at most so many."""
    order = ["wasted_usd", "cost_usd", "started_at"]
    return frame.sort(order, descending=True, nulls_last=True, maintain_order=True).head(rows)


def choices(frame: pl.DataFrame, column: str) -> list[str]:
    """The distinct values of a column that a filter offers, most frequent first."""
    counts = frame.select(pl.col(column).fill_null(NO_CAUSE)).to_series().value_counts(sort=True)
    return [str(value) for value in counts[column]]


def bill_sentence(diagnosis: SessionDiagnosis) -> str:
    """What a session cost, how much of it was lost, and mostly why; without text of the trace."""
    d = diagnosis
    more = (
        f" (and {counted(d.unpriced_steps, 'step')} without a known price)"
        if d.unpriced_steps
        else ""
    )
    start = f"{counted(len(d.rows), 'step')} cost {usd(d.cost_usd)}{more}"
    if d.wasted_usd is None and not d.breaks:
        return f"{start}; whether the cache held is unknown, since no cache counts were recorded"
    if not d.breaks:
        return f"{start}; the cache never broke"
    share = f" ({d.wasted_usd / d.cost_usd:.0%})" if d.cost_usd and d.wasted_usd else ""
    losses = [f for f in d.findings if f.is_loss]
    cause = f", mostly by {losses[0].kind}" if losses else ""
    return f"{start}; {usd(d.wasted_usd)}{share} was lost in {counted(d.breaks, 'break')}{cause}"


def write_cost(diagnosis: SessionDiagnosis) -> Decimal | None:
    """USD paid for cache writes; None where no step has a price."""
    return total(row.cost.write for row, _ in diagnosis.rows if row.cost is not None)


def finding_sentence(finding: Finding, bill: Decimal | None) -> str:
    """Steps, dollars and share of a finding; without text of the trace."""
    n = len(finding.steps)
    where = (
        f"at step {finding.first_step:,}"
        if n == 1
        else f"at {n:,} steps, {finding.first_step:,} to {finding.last_step:,}"
    )
    if not finding.is_loss:
        off = f", {finding.tokens:,} tokens apart" if finding.tokens else ""
        return f"Recorded figures contradict each other {where}{off}"
    share = f" ({finding.wasted_usd / bill:.0%} of the bill)" if bill and finding.wasted_usd else ""
    return f"{usd(finding.wasted_usd)}{share} lost {where}, {finding.tokens:,} tokens paid again"


def lane_sentence(pairs: Sequence[tuple[StepRow, Verdict]]) -> str:
    """Whether the cache held through a lane."""
    broken = [row for row, _ in pairs if row.is_break]
    known = [row for row, _ in pairs if row.lost_tokens is not None]
    if not known and not broken:
        return "No cache counts were recorded, so breaks cannot be seen"
    if not broken:
        return f"The cache held through all {counted(len(pairs), 'step')}"
    prompt = sum(row.prompt_tokens or 0 for row, _ in pairs)
    lost = sum(row.lost_tokens or 0 for row in broken)
    share = f" ({lost / prompt:.0%} of all prompt tokens)" if prompt else ""
    return (
        f"The cache broke at {len(broken):,} of {counted(len(pairs), 'step')}, "
        f"and {lost:,} tokens{share} were paid again"
    )


def map_sentence(
    rows: Sequence[StepRow], findings: Sequence[Finding], *, rebuilt: bool = False
) -> str:
    """What the prefix map of a lane shows; a rebuilt one cannot show everything."""
    changed = [row for row in rows if row.divergence is not None]
    if not changed:
        if not rebuilt:
            return "Every prompt kept the one before as its prefix"
        if any(row.is_break for row in rows):
            return "The transcript shows no change: what broke the cache is out of its sight"
        return "As far as the transcript shows, every prompt kept the one before"
    for finding in findings:
        first, last = (finding.evidence.get(k) for k in ("first_message", "last_message"))
        if finding.kind.startswith("sliding") and isinstance(first, int) and isinstance(last, int):
            moves = f"slides from message {first:,} to {last:,}"
            if first == last:
                moves = f"stays at message {first:,}"
            return (
                f"The first change {moves} over steps "
                f"{finding.first_step:,}–{finding.last_step:,}: everything behind it is paid again "
                "each time"
            )
    return f"{len(changed):,} of {counted(len(rows), 'step')} changed what an earlier step had sent"
