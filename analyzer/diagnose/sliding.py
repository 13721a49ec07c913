"""Runs of breaks in which a window slides over old messages: one finding a run.

A rule such as "keep the newest N results, stub the older ones", judged at every step, changes one
old message per step, so the cached prefix dies at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from analyzer.diagnose.base import (
    Case,
    Evidence,
    Finding,
    Verdict,
    describe,
    total,
    unpriced,
)
from analyzer.diagnose.variation import pinned
from analyzer.ledger import LaneLedger, StepRow

MIN_BREAKS = 3
MAX_PAUSE = 2
"""Steps without a sliding break that a run may hold (a step that added nothing old enough)."""
DENSITY = 0.5
"""A run breaks at more than this share of its steps: below, old content is cleared in batches."""
FORWARD_SHARE = 0.8
STUB_SHARE = 0.4
CUT_SHARE = 0.25
FLOOR_DRIFT = 0.15

REMEDY = (
    "Decide once and keep the decision: let the stub boundary jump forward seldom, in one batch "
    "between two watermarks (for example clear at 80 % of the window down to 60 %), and never judge "
    "it again at each step. Or let the provider clear results on its side with a `clear_at_least`."
)


@dataclass(frozen=True, slots=True)
class Run:
    """Indices of the rows of one sliding run, and what slides."""

    rows: tuple[int, ...]
    kind: str
    inferred: bool


def sliding_runs(ledger: LaneLedger, verdicts: Sequence[Verdict | None]) -> list[Run]:
    """Find the runs of a lane. `verdicts` are those of the single-step rules, None where no break."""
    runs: list[Run] = []
    current: list[int] = []
    for i, row in enumerate(ledger.rows):
        if not _may_slide(row, verdicts[i]):
            continue
        if current and i - current[-1] > MAX_PAUSE + 1:
            runs += _as_run(ledger, current)
            current = []
        current.append(i)
    return runs + _as_run(ledger, current)


def _may_slide(row: StepRow, verdict: Verdict | None) -> bool:
    if verdict is None or row.compacted:
        return False
    if verdict.kind == "history-mutated":
        return True
    # Without the content, single steps of a run can look like other causes; the run decides.
    return verdict.inferred and verdict.kind in ("routing-or-eviction", "tools-changed")


def _as_run(ledger: LaneLedger, indices: list[int]) -> list[Run]:
    if len(indices) < MIN_BREAKS or len(indices) <= DENSITY * (indices[-1] - indices[0] + 1):
        return []
    rows = [ledger.rows[i] for i in indices]
    recorded = Case(ledger, rows[0]).recorded
    kind = _recorded_kind(rows) if recorded else _inferred_kind(rows)
    return [Run(tuple(indices), kind, not recorded)] if kind else []


def _recorded_kind(rows: list[StepRow]) -> str | None:
    places = [row.divergence_index for row in rows]
    if any(p is None or p < 0 for p in places):
        return None
    known = [p for p in places if p is not None]
    moves = list(pairwise(known))
    forward = sum(b > a for a, b in moves)
    stubbing = sum(row.new_stubs > 0 for row in rows)
    if forward >= FORWARD_SHARE * len(moves):
        return "sliding-stubs" if stubbing >= STUB_SHARE * len(rows) else "sliding-window"
    # A window that drops its oldest messages breaks at the same place every time.
    cutting = sum((row.cut_tokens or 0) > 0 for row in rows)
    return "sliding-window" if cutting >= FORWARD_SHARE * len(rows) else None


def _inferred_kind(rows: list[StepRow]) -> str | None:
    cut = sum(row.cut_tokens or 0 for row in rows)
    appended = sum(row.appended_tokens or 0 for row in rows)
    if appended <= 0 or cut < CUT_SHARE * appended:
        return None
    reads = [row.usage.cache_read or 0 for row in rows]
    rising = sum(b >= a for a, b in pairwise(reads))
    largest = max(r.expected_read or 0 for r in rows)
    flat = max(reads) - min(reads) <= FLOOR_DRIFT * max(1, largest)
    if not flat and rising < FORWARD_SHARE * (len(reads) - 1):
        return None
    return "sliding-stubs"


def run_finding(ledger: LaneLedger, run: Run) -> Finding:
    """One finding for a whole run, with its growth law."""
    rows = [ledger.rows[i] for i in run.rows]
    return Finding(
        kind=run.kind,
        lane=ledger.lane.name,
        steps=tuple(row.step for row in rows),
        tokens=sum(row.lost_tokens or 0 for row in rows),
        wasted_usd=total(row.wasted_usd for row in rows),
        evidence=_evidence(ledger, rows, run),
        remedy=REMEDY,
        inferred=run.inferred,
        expected=False,
    )


def _evidence(ledger: LaneLedger, rows: list[StepRow], run: Run) -> Evidence:
    first, last = rows[0], rows[-1]
    span = max(1, last.step - first.step)
    reads = [row.usage.cache_read or 0 for row in rows]
    writes = [row.usage.cache_write or 0 for row in rows]
    evidence: dict[str, str | int | float | bool | list[str] | list[int] | None] = {
        "read_floor": min(reads),
        "read_ceiling": max(reads),
        "first_write": writes[0],
        "last_write": writes[-1],
        "written_tokens": sum(writes),
        "cut_tokens": sum(row.cut_tokens or 0 for row in rows),
        **unpriced(rows),
    }
    if run.inferred:
        evidence["summary"] = (
            f"{len(rows)} breaks in steps {first.step}–{last.step}: at each one the prompt came out "
            f"smaller than the transcript's text explains, and the read fell back to "
            f"{min(reads):,}–{max(reads):,} tokens; old results were replaced when they were sent"
        )
        return evidence
    growth = ((last.divergence_index or 0) - (first.divergence_index or 0)) / span
    stubs = sum(row.new_stubs for row in rows) / (span + 1)
    case = Case(ledger, first)
    place = f"moves from {first.divergence_index} to {last.divergence_index}"
    if growth == 0:
        place = f"stays {first.divergence_index}, where older ones are dropped"
    evidence |= {
        "summary": f"{len(rows)} breaks in steps {first.step}–{last.step}: the first changed message "
        f"{place} ({growth:.1f} messages a "
        f"step, {stubs:.2f} parts stubbed or shortened a step); {min(reads):,} tokens are still read, and "
        f"{writes[0]:,} → {writes[-1]:,} tokens are written again at each step",
        "first_message": first.divergence_index,
        "last_message": last.divergence_index,
        "index_growth_per_step": round(growth, 3),
        "stubs_per_step": round(stubs, 3),
        "first_change": f"was {describe(case.was)}, is {describe(case.now)}",
        **pinned(case.was, case.now),
    }
    return evidence
