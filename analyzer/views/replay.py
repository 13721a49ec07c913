"""Comparisons of policies and fidelity as tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

from analyzer.comparison import Comparison, LeftOut, Outcome
from analyzer.replay import CAUSES, Fidelity, ReplayResult, SessionFidelity, Spread
from analyzer.views.table import Column, Row, Table, usd

POLICY_COLUMNS: tuple[Column, ...] = (
    Column("spec", "policy", width=46),
    Column("cost_usd", "cost", "usd"),
    Column("verdict", "against recorded", width=50),
    Column("saving", "saving", "share", shown=False),
    Column("band", "band", "share", shown=False),
    Column("prompt_tokens", "prompt", "count"),
    Column("cache_read_tokens", "read", "count"),
    Column("cache_write_tokens", "write", "count"),
    Column("input_tokens", "uncached", "count"),
    Column("output_tokens", "output", "count", shown=False),
    Column("breaks", "breaks", "count"),
    Column("peak_window", "peak prompt", "count"),
    Column("summary_calls", "summaries", "count", shown=False),
    Column("red_lines", "red lines", "count"),
)
CENT = 0.01
WORST = 10
"""Sessions that are listed with the reason of their error."""
OPEN_LOOP = "open-loop: recorded outputs and times stay, only prompts change (docs/replay.md)"


def result_row(name: str, result: ReplayResult) -> dict[str, object]:
    """One replay: tokens, breaks, dollars."""
    prompt = result.read_tokens + result.write_tokens + result.input_tokens
    return {
        "policy": name.split(":", 1)[0] if not name.endswith(".toml") else name,
        "spec": name,
        "prompt_tokens": prompt,
        "input_tokens": result.input_tokens,
        "cache_read_tokens": result.read_tokens,
        "cache_write_tokens": result.write_tokens,
        "output_tokens": result.output_tokens,
        "summary_calls": result.summary_calls,
        "breaks": result.breaks,
        "peak_window": result.peak_window,
        "cost_usd": result.cost_usd,
        "red_lines": result.red_lines.total,
        "unrecovered": result.unrecovered,
    }


def _outcome(outcome: Outcome) -> dict[str, object]:
    found = outcome.saving
    return {
        **result_row(outcome.spec, outcome.result),
        "saving": found.share if found else None,
        "saving_usd": found.usd if found else None,
        "band": found.band if found else None,
        "verdict": verdict_text(outcome),
        "feasible": outcome.overflow is None,
        "overflow": asdict(outcome.overflow) if outcome.overflow else None,
    }


def verdict_text(outcome: Outcome) -> str | None:
    """What may be claimed of a policy: a saving with its error, nothing, or that it cannot work."""
    if outcome.overflow is not None:
        return f"not feasible: outgrows the window at step {outcome.overflow.step}"
    return outcome.saving.text if outcome.saving else None


def comparison_document(comparison: Comparison) -> dict[str, object]:
    """A comparison as JSON. What is not measured yet (loss, bound) is null."""
    unknown_loss = {"visible": None, "recoverable": None, "silent": None}
    return {
        "sessions": [key.session_id for key in comparison.sessions],
        "caches": dict(comparison.caches),
        "placement": comparison.placement,
        "fidelity": fidelity_document(comparison.fidelity, comparison.left_out),
        "recorded": result_row("recorded", comparison.recorded),
        "policies": [
            {
                **_outcome(outcome),
                "loss": unknown_loss,
                "refetch_usd": {"p0": None, "p50": None, "p100": None},
            }
            for outcome in comparison.outcomes
        ],
        "bound": {"lower_usd": None, "upper_usd": None},
        "note": OPEN_LOOP,
    }


def comparison_table(comparison: Comparison) -> Table:
    """A comparison as a table: the recorded bill first, then each policy."""
    rows: list[Row] = [_shown({**result_row("as recorded", comparison.recorded), "verdict": ""})]
    rows += [_shown(_outcome(outcome)) for outcome in comparison.outcomes]
    best = comparison.best
    bill = usd(comparison.recorded.cost_usd)
    title = f"Recorded {bill}; no policy is shown to be cheaper"
    if best is not None:
        title = f"Recorded {bill}; {best.spec} would have cost {usd(best.result.cost_usd)}"
    rules = ", ".join(f"{name} ({why})" for name, why in comparison.caches.items())
    note = f"cache: {rules}; {OPEN_LOOP}"
    if comparison.placement != "recorded":
        note = f"marks of the policies: {comparison.placement}; {note}"
    if comparison.left_out:
        note += f"; {len(comparison.left_out)} lanes left out: {comparison.left_out[0].reason}"
    return Table(title, POLICY_COLUMNS, rows, note)


def _shown(row: dict[str, object]) -> Row:
    return cast("Row", {c.key: row.get(c.key) for c in POLICY_COLUMNS})


def fidelity_document(
    fidelity: Sequence[Fidelity], left_out: Sequence[LeftOut] = ()
) -> dict[str, object]:
    """Fidelity as JSON; errors are relative and unsigned, the outer ones blind."""
    sessions = [(f.cache, s) for f in fidelity for s in f.sessions]
    agreed = [(f.verdict_agreement, f.steps) for f in fidelity if f.verdict_agreement is not None]
    steps = sum(n for _, n in agreed)
    return {
        "sessions": len(sessions),
        "steps": sum(s.steps for _, s in sessions),
        "cost_error": _spread(Spread.of(s.cost_error for _, s in sessions)),
        "read_error": _spread(Spread.of(s.read_error for _, s in sessions)),
        "verdict_agreement": sum(a * n for a, n in agreed) / steps if steps else None,
        "carried": {
            "cost_error": _spread(Spread.of(s.carried_cost_error for _, s in sessions)),
            "events": sum(s.events for _, s in sessions),
        },
        "per_session": [
            {
                "session_id": s.session.session_id,
                "project": s.session.project,
                "cache": cache,
                "steps": s.steps,
                "recorded_usd": s.recorded_usd,
                "cost_error": s.cost_error,
                "read_error": s.read_error,
                "verdict_agreement": s.verdict_agreement,
                "carried_cost_error": s.carried_cost_error,
                "carried_events": s.events,
                "error_usd": dict(s.error_usd),
                "main_cause": s.main_cause,
            }
            for cache, s in sessions
        ],
        "estimator": {
            "groups": sum(len(f.raw_errors) for f in fidelity),
            "raw": _spread(Spread.of(e for f in fidelity for e in f.raw_errors)),
            "calibrated": _spread(Spread.of(e for f in fidelity for e in f.calibrated_errors)),
        },
        "error_usd": _causes([s for _, s in sessions]),
        "worst": [_worst(s) for s in worst_sessions(fidelity)],
        "left_out": [
            {"session_id": o.session.session_id, "lane": o.lane, "reason": o.reason}
            for o in left_out
        ],
    }


def worst_sessions(fidelity: Sequence[Fidelity]) -> list[SessionFidelity]:
    """The sessions with the largest blind cost error, worst first; those without one left out."""
    sessions = [s for f in fidelity for s in f.sessions if s.cost_error]
    return sorted(sessions, key=lambda s: -(s.cost_error or 0))[:WORST]


def _worst(session: SessionFidelity) -> dict[str, object]:
    cause = session.main_cause
    return {
        "session_id": session.session.session_id,
        "steps": session.steps,
        "cost_error": session.cost_error,
        "main_cause": cause,
        "reason": CAUSES[cause] if cause else None,
    }


def _causes(sessions: Sequence[SessionFidelity]) -> dict[str, float]:
    """USD by which the blind bills are off, unsigned, by cause over all sessions."""
    totals: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
    for session in sessions:
        for cause, usd_off in session.error_usd.items():
            totals[cause] += abs(usd_off)
    return totals


def _spread(spread: Spread) -> dict[str, float | None]:
    return asdict(spread)


def fidelity_table(fidelity: Sequence[Fidelity], left_out: Sequence[LeftOut] = ()) -> Table:
    """Fidelity as a table, worst session first."""
    sessions = sorted(
        ((f.cache, s) for f in fidelity for s in f.sessions), key=lambda p: -(p[1].cost_error or 0)
    )
    rows: list[Row] = [
        {
            "session_id": s.session.session_id,
            "cache": cache,
            "steps": s.steps,
            "recorded_usd": s.recorded_usd,
            "cost_error": s.cost_error,
            "read_error": s.read_error,
            "verdict_agreement": s.verdict_agreement,
            "carried_cost_error": s.carried_cost_error,
            "carried_events": s.events,
            "main_cause": s.main_cause,
        }
        for cache, s in sessions
    ]
    columns = (
        Column("session_id", "session", width=40),
        Column("cache", "cache"),
        Column("steps", "steps", "count"),
        Column("recorded_usd", "recorded", "usd"),
        Column("cost_error", "cost error", "share"),
        Column("read_error", "read error", "share"),
        Column("verdict_agreement", "verdicts agree", "share"),
        Column("carried_cost_error", "carried error", "share"),
        Column("carried_events", "events", "count"),
        Column("main_cause", "blind error from"),
    )
    cost = Spread.of(s.cost_error for _, s in sessions)
    carried = Spread.of(s.carried_cost_error for _, s in sessions)
    title = (
        f"{len(sessions)} sessions: blind cost error median {_percent(cost.median)}, "
        f"p95 {_percent(cost.p95)}; carried {_percent(carried.median)}, {_percent(carried.p95)}"
    )
    return Table(title, columns, rows, _fidelity_note(fidelity, left_out))


def _fidelity_note(fidelity: Sequence[Fidelity], left_out: Sequence[LeftOut]) -> str:
    """What blind bills are off by and why, how good estimated sizes are, what is missing."""
    notes = []
    off = _causes([s for f in fidelity for s in f.sessions])
    causes = [f"{usd(amount)} ({cause})" for cause, amount in off.items() if amount >= CENT / 2]
    if causes:
        notes.append(f"blind bills are off by {', '.join(causes)}")
    sizes = Spread.of(e for f in fidelity for e in f.calibrated_errors)
    if sizes.median is not None:
        notes.append(f"sizes of parts, estimated: error {sizes.median:.0%}, p95 {sizes.p95:.0%}")
    if left_out:
        notes.append(f"{len(left_out)} lanes left out: {left_out[0].reason}")
    return "; ".join(notes)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"
