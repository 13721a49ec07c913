"""What each table of the product holds: column specs, and rows from the values of the core.

JSON field names here are a stable interface: fields are added freely and never renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import polars as pl

from analyzer.diagnose import (
    Finding,
    SessionDiagnosis,
    Verdict,
    provider_reasons,
    total,
)
from analyzer.ledger import StepRow
from analyzer.views.table import Column, Row, Table, Value, plural, usd

STEP_COLUMNS: tuple[Column, ...] = (
    Column("lane", "lane", width=12, spare=2),
    Column("step", "step", "count"),
    Column("at", "at", "time", shown=False),
    Column("model", "model", width=22, shown=False),
    Column("n_messages", "msgs", "count", spare=1),
    Column("n_stubs", "stubs", "count", spare=4),
    Column("last_stub_index", "last stub", "count", spare=4),
    Column("prompt_tokens", "prompt", "count"),
    Column("input_tokens", "input", "count", spare=3),
    Column("cache_read_tokens", "read", "count"),
    Column("cache_write_tokens", "write", "count"),
    Column("cache_write_5m_tokens", "write 5m", "count", shown=False),
    Column("cache_write_1h_tokens", "write 1h", "count", shown=False),
    Column("output_tokens", "output", "count", spare=2),
    Column("cost_usd", "cost", "usd"),
    Column("gap_s", "gap", "seconds", spare=2),
    Column("window_used", "window", "share", spare=3),
    Column("shared_prefix_tokens", "shared", "count", spare=4),
    Column("divergence_index", "diverges", "count", spare=1),
    Column("verdict", "verdict"),
    Column("inferred", "inferred", shown=False),
    Column("wasted_usd", "wasted", "usd"),
    Column("expected_read_tokens", "expected read", "count", shown=False),
    Column("lost_tokens", "lost", "count", shown=False),
    Column("miss_reason", "provider says", shown=False),
    Column("billed_as", "billed as", shown=False),
    Column("reported_usd", "cost stated", "usd", shown=False),
    Column("unpriced", "no price because", shown=False),
    Column("assumed_write_ttl", "writes taken as", shown=False),
    Column("error", "error", shown=False),
    Column("retries", "retries", "count", shown=False),
)

SESSION_COLUMNS: tuple[Column, ...] = (
    Column("session_id", "session", width=40),
    Column("project", "project", width=16, shown=False),
    Column("user_id", "user", width=12, shown=False),
    Column("source", "source", width=14, spare=2),
    Column("title", "title", width=30, shown=False),
    Column("started_at", "started", "time", spare=3),
    Column("ended_at", "ended", "time", shown=False),
    Column("n_lanes", "lanes", "count", spare=4),
    Column("n_steps", "steps", "count"),
    Column("cost_usd", "cost", "usd"),
    Column("hit_ratio", "hit ratio", "share"),
    Column("peak_tokens", "longest prompt", "count", shown=False),
    Column("wasted_usd", "wasted", "usd"),
    Column("avoidable_usd", "avoidable", "usd", shown=False),
    Column("top_cause", "top cause"),
)


def step_row(row: StepRow, verdict: Verdict) -> dict[str, Value]:
    """One row of the step table."""
    usage = row.usage
    return {
        "lane": row.lane,
        "step": row.step,
        "at": row.at,
        "model": row.record.model,
        "n_messages": row.n_messages,
        "n_stubs": row.n_stubs,
        "last_stub_index": row.last_stub_index,
        "prompt_tokens": row.prompt_tokens,
        "input_tokens": usage.input,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "cache_write_5m_tokens": usage.cache_write_5m,
        "cache_write_1h_tokens": usage.cache_write_1h,
        "output_tokens": usage.output,
        "cost_usd": row.cost_usd,
        "gap_s": row.gap_s,
        "window_used": row.window_used,
        "shared_prefix_tokens": row.shared_prefix_tokens,
        "divergence_index": row.divergence_index,
        "verdict": verdict.kind,
        "inferred": verdict.inferred,
        "wasted_usd": row.break_usd,
        "expected_read_tokens": row.expected_read,
        "lost_tokens": row.lost_tokens,
        "miss_reason": row.record.miss_reason,
        "billed_as": ", ".join(usage.terms) or None,
        "reported_usd": row.record.reported_cost,
        "unpriced": row.unpriced,
        "assumed_write_ttl": "5m" if row.cost is not None and row.cost.assumed_ttl else None,
        "error": row.record.error,
        "retries": _retries(row),
    }


def _retries(row: StepRow) -> int | None:
    """How often the request had failed before, where the recording tells of it."""
    found = dict(row.record.labels).get("retries")
    return int(found) if found and found.isdecimal() else None


def steps_table(diagnosis: SessionDiagnosis, lane: str | None = None) -> Table:
    """The step table of a session, or of one of its lanes."""
    chosen = [(r, v) for r, v in diagnosis.rows if lane is None or r.lane == lane]
    cost = total(r.cost_usd for r, _ in chosen)
    broken = [r.break_usd for r, _ in chosen if r.is_break]
    lost = usd(total(broken)) if broken else "nothing"
    title = f"{plural(len(chosen), 'step')} cost {usd(cost)}, of which {lost} was lost in breaks"
    models = list(dict.fromkeys(r.record.model or "an unknown model" for r, _ in chosen))
    columns = STEP_COLUMNS
    if len(models) > 1:
        # A switch of models explains a break, so the table must show it.
        columns = tuple(replace(c, shown=True) if c.key == "model" else c for c in columns)
    note = f"model: {models[0]}" if len(models) == 1 else ""
    return Table(title, columns, [step_row(r, v) for r, v in chosen], note)


def finding_document(finding: Finding) -> dict[str, object]:
    """A finding as JSON."""
    return {
        "kind": finding.kind,
        "lane": finding.lane,
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "n_steps": len(finding.steps),
        "tokens": finding.tokens,
        "wasted_usd": finding.wasted_usd,
        "avoidable": not finding.expected,
        "inferred": finding.inferred,
        "evidence": dict(finding.evidence),
        "remedy": finding.remedy,
    }


def diagnosis_document(diagnoses: Sequence[SessionDiagnosis]) -> dict[str, object]:
    """Findings of some sessions, and their totals, as JSON."""
    sessions = [
        {
            "session_id": d.session.key.session_id,
            "project": d.session.key.project,
            "user": d.session.key.user,
            "source": d.session.source,
            "steps": len(d.rows),
            "breaks": d.breaks,
            "hit_ratio": d.hit_ratio,
            "cost_usd": d.cost_usd,
            "unpriced_steps": d.unpriced_steps,
            "unpriced": d.unpriced,
            "assumed_ttl_steps": d.assumed_ttl_steps,
            "wasted_usd": d.wasted_usd,
            "avoidable_usd": d.avoidable_usd,
            "findings": [finding_document(f) for f in d.findings],
        }
        for d in diagnoses
    ]
    reasons = reasons_table(diagnoses).rows
    return {"sessions": sessions, "totals": _totals(diagnoses), "provider_reasons": reasons}


def reasons_table(diagnoses: Sequence[SessionDiagnosis]) -> Table:
    """The provider's own reasons beside our verdicts, over all steps of some sessions."""
    pairs = provider_reasons(pair for d in diagnoses for pair in d.rows)
    rows: list[Row] = [
        {
            "theirs": p.theirs,
            "ours": p.ours,
            "steps": p.steps,
            "agree": p.agree,
            "on_their_word": p.on_their_word,
        }
        for p in pairs
    ]
    columns = (
        Column("theirs", "provider says", width=30),
        Column("ours", "verdict"),
        Column("steps", "steps", "count"),
        Column("agree", "agree"),
        Column("on_their_word", "on its word", "count"),
    )
    judged = sum(p.steps for p in pairs if p.agree is not None)
    alone = sum(p.steps - p.on_their_word for p in pairs if p.agree)
    title = (
        f"the provider gave a reason at {plural(sum(p.steps for p in pairs), 'step')}: {judged} broke "
        f"and name a cause, at {alone} of them the content alone led to the same verdict"
    )
    return Table(title, columns, rows)


def _totals(diagnoses: Sequence[SessionDiagnosis]) -> dict[str, object]:
    return {
        "sessions": len(diagnoses),
        "steps": sum(len(d.rows) for d in diagnoses),
        "breaks": sum(d.breaks for d in diagnoses),
        "findings": sum(len(d.findings) for d in diagnoses),
        "cost_usd": total(d.cost_usd for d in diagnoses),
        "unpriced_steps": sum(d.unpriced_steps for d in diagnoses),
        "wasted_usd": total(d.wasted_usd for d in diagnoses),
        "avoidable_usd": total(d.avoidable_usd for d in diagnoses),
        "wasted_by_kind": wasted_by_kind(diagnoses),
    }


def wasted_by_kind(diagnoses: Sequence[SessionDiagnosis]) -> dict[str, Decimal | None]:
    """USD lost by cause over some sessions; None where no price is known."""
    found: dict[str, list[Decimal | None]] = {}
    for finding in (f for d in diagnoses for f in d.findings if f.is_loss):
        found.setdefault(finding.kind, []).append(finding.wasted_usd)
    return {kind: total(dollars) for kind, dollars in found.items()}


def findings_table(diagnoses: Sequence[SessionDiagnosis]) -> Table:
    """All findings of some sessions, dearest first."""
    rows: list[Row] = []
    pairs = [(d, f) for d in diagnoses for f in d.findings]
    for d, f in sorted(pairs, key=lambda pair: -(pair[1].wasted_usd or Decimal(0))):
        rows.append(
            {
                "session_id": d.session.key.session_id,
                "kind": f.kind,
                "lane": f.lane,
                "first_step": f.first_step,
                "last_step": f.last_step,
                "n_steps": len(f.steps),
                "tokens": f.tokens,
                "wasted_usd": f.wasted_usd,
                "avoidable": not f.expected,
                "inferred": f.inferred,
                "evidence": str(f.evidence.get("summary") or ""),
                "remedy": f.remedy,
            }
        )
    columns = (
        Column("session_id", "session", width=40),
        Column("kind", "cause"),
        Column("lane", "lane", width=12),
        Column("first_step", "first", "count"),
        Column("last_step", "last", "count"),
        Column("n_steps", "steps", "count"),
        Column("tokens", "lost tokens", "count"),
        Column("wasted_usd", "wasted", "usd"),
        Column("avoidable", "avoidable"),
        Column("inferred", "inferred"),
        Column("evidence", "evidence"),
        Column("remedy", "remedy"),
    )
    return Table(plural(len(rows), "finding"), columns, rows)


def sessions_table(frame: pl.DataFrame) -> Table:
    """The sessions overview, from the store's query of that name."""
    rows: list[Row] = [dict(row) for row in frame.to_dicts()]
    return Table(plural(len(rows), "session"), SESSION_COLUMNS, rows)


def to_frame(table: Table) -> pl.DataFrame:
    """A table as a Polars frame, all columns, money as Float64 USD."""
    data = {
        c.key: [float(v) if isinstance(v := r.get(c.key), Decimal) else v for r in table.rows]
        for c in table.columns
    }
    return pl.DataFrame(data, strict=False)
