"""`diagnose`: causes, evidence, dollars, remedies; and the gate for CI."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import click

from analyzer.cli.base import (
    Format,
    chosen,
    emit,
    emit_table,
    format_option,
    progress_bar,
    sessions_argument,
    workspace,
)
from analyzer.diagnose import ACCOUNTING, KINDS, Finding, SessionDiagnosis, total
from analyzer.errors import GateError, UsageError
from analyzer.views.frames import diagnosis_document, findings_table, reasons_table
from analyzer.views.table import plural, to_json, usd
from analyzer.views.text import diagnosis_text, overview_text

SHOWN_SESSIONS = 10
_PRICES = "give the model's prices with --prices"


@click.command("diagnose")
@sessions_argument
@click.option(
    "--fail-on",
    multiple=True,
    metavar="KIND[:USD]",
    help="Exit with 3 if findings of this kind wasted more than so many dollars (0 without :USD); for "
    "`accounting`, if there is any, or if stated costs are off by more.",
)
@click.option(
    "--max-waste",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 3 if more than this share of the bill was avoidable waste.",
)
@format_option
@click.pass_context
def diagnose_command(
    ctx: click.Context,
    sessions: tuple[str, ...],
    everything: bool,
    fail_on: tuple[str, ...],
    max_waste: float | None,
    form: Format,
) -> None:
    """Why the cache broke in SESSIONS: cause, steps, message, dollars, remedy."""
    limits = [_limit(spec) for spec in fail_on]
    with workspace(ctx) as space, progress_bar("judging sessions") as advance:
        keys = space.keys(chosen(space, sessions, everything))
        diagnoses = []
        for done, key in enumerate(keys, 1):
            diagnoses.append(space.diagnose(key))
            advance(done, len(keys))
    _print(diagnoses, form)
    _gate(diagnoses, limits, max_waste)


def _print(diagnoses: list[SessionDiagnosis], form: Format) -> None:
    if form == "json":
        click.echo(to_json(diagnosis_document(diagnoses)))
    elif form != "text":
        emit_table(findings_table(diagnoses), form)
    else:
        if len(diagnoses) > 1:
            emit(overview_text(diagnoses))
        worst = sorted(diagnoses, key=lambda d: -(d.wasted_usd or Decimal(0)))
        shown = worst if len(worst) == 1 else [d for d in worst if d.findings][:SHOWN_SESSIONS]
        for diagnosis in shown:
            emit(diagnosis_text(diagnosis))
            emit("")
        reasons = reasons_table(diagnoses)
        if reasons.rows:
            emit_table(reasons, form)
        rest = sum(bool(d.findings) for d in diagnoses) - len(shown)
        if rest > 0:
            emit(
                f"… and {plural(rest, 'session')} with smaller losses (--format md, csv or json lists all)"
            )


def _limit(spec: str) -> tuple[str, Decimal]:
    kind, _, dollars = spec.partition(":")
    if kind not in KINDS:
        raise UsageError.unknown("kind of finding", kind, KINDS)
    try:
        limit = Decimal(dollars or "0")
    except InvalidOperation:
        limit = Decimal("NaN")
    if not limit.is_finite() or limit < 0:
        raise UsageError(f"expected dollars behind `{kind}:`, got {dollars!r}")
    return kind, limit


def _gate(
    diagnoses: list[SessionDiagnosis], limits: list[tuple[str, Decimal]], max_waste: float | None
) -> None:
    for kind, limit in limits:
        found = [f for d in diagnoses for f in d.findings if f.kind == kind]
        if kind == ACCOUNTING:
            _accounting_gate(found, limit)
            continue
        wasted = total(f.wasted_usd for f in found)
        if found and wasted is None:
            raise GateError(f"{len(found)} findings of {kind} have no known price; {_PRICES}")
        if wasted is not None and wasted > limit:
            raise GateError(
                f"{len(found)} findings of {kind} wasted {usd(wasted)}, more than {usd(limit)}"
            )
    if max_waste is None:
        return
    if any(d.breaks and d.wasted_usd is None for d in diagnoses):
        raise GateError(f"the share of waste is unknown: a broken session has no price; {_PRICES}")
    cost = total(d.cost_usd for d in diagnoses) or Decimal(0)
    waste = total(d.avoidable_usd for d in diagnoses) or Decimal(0)
    share = float(waste / cost * 100) if cost else 0.0
    if share > max_waste:
        raise GateError(
            f"{share:.1f} % of {usd(cost)} was avoidable waste, more than {max_waste:g} %"
        )


def _accounting_gate(found: list[Finding], limit: Decimal) -> None:
    """Contradictions waste nothing: any of them fails, or stated costs that are off by the limit."""
    off = Decimal(0)
    for finding in found:
        stated, right = (finding.evidence.get(key) for key in ("stated_usd", "right_usd"))
        if isinstance(stated, float) and isinstance(right, float):
            off += abs(Decimal(str(stated)) - Decimal(str(right)))
    if found and (not limit or off > limit):
        raise GateError(
            f"{len(found)} findings of {ACCOUNTING}; stated costs are off by {usd(off)} in all"
        )
