"""`sessions`, `steps`, `show`, `diff`: the facts, without a judgement."""

from __future__ import annotations

import click

from analyzer.cli.base import Format, emit_table, format_option, refresh, settings_of, workspace
from analyzer.diagnose import SessionDiagnosis
from analyzer.errors import UsageError
from analyzer.ledger import LaneLedger
from analyzer.views.frames import sessions_table, steps_table
from analyzer.views.prompt import differences_table, parts_table


@click.command("sessions")
@format_option
@click.pass_context
def sessions_command(ctx: click.Context, form: Format) -> None:
    """List the sessions of the store: cost, hit ratio, waste and its dearest cause."""
    refresh(settings_of(ctx))
    with workspace(ctx) as space:
        emit_table(sessions_table(space.sessions()), form)


@click.command("steps")
@click.argument("session")
@click.option("--lane", help="Only this lane (`main` is the main loop).")
@format_option
@click.pass_context
def steps_command(ctx: click.Context, session: str, lane: str | None, form: Format) -> None:
    """The step table of a SESSION: reads, writes, stubs, verdict and waste of each step."""
    with workspace(ctx) as space:
        diagnosis = space.diagnose(space.keys([session])[0])
        if lane is not None:
            _lane(diagnosis, lane)
        emit_table(steps_table(diagnosis, lane), form)


@click.command("show")
@click.argument("session")
@click.argument("step", type=int)
@click.option("--lane", default="main", show_default=True, help="Lane of the step.")
@format_option
@click.pass_context
def show_command(ctx: click.Context, session: str, step: int, lane: str, form: Format) -> None:
    """The parts of one STEP's prompt, each compared with the prompt before."""
    with workspace(ctx) as space:
        ledger = _lane(space.diagnose(space.keys([session])[0]), lane)
        _check(ledger, step)
        emit_table(parts_table(ledger, step), form)


@click.command("diff")
@click.argument("session")
@click.argument("step", type=int)
@click.argument("step2", type=int, required=False)
@click.option("--lane", default="main", show_default=True, help="Lane of the steps.")
@format_option
@click.pass_context
def diff_command(
    ctx: click.Context, session: str, step: int, step2: int | None, lane: str, form: Format
) -> None:
    """What STEP's prompt changed of the one before; with STEP2, of STEP's."""
    with workspace(ctx) as space:
        ledger = _lane(space.diagnose(space.keys([session])[0]), lane)
        _check(ledger, step)
        if step2 is None and step == 0:
            raise UsageError("step 0 has no step before it; give two steps to compare")
        first, second = (step, step2) if step2 is not None else (step - 1, step)
        _check(ledger, second)
        emit_table(differences_table(ledger, first, second), form)


def _lane(diagnosis: SessionDiagnosis, lane: str) -> LaneLedger:
    ledgers = {d.ledger.lane.name: d.ledger for d in diagnosis.lanes}
    if lane not in ledgers:
        raise UsageError.unknown("lane", lane, ledgers)
    return ledgers[lane]


def _check(ledger: LaneLedger, step: int) -> None:
    if not 0 <= step < len(ledger.rows):
        raise UsageError(
            f"expected a step from 0 to {len(ledger.rows) - 1} of lane {ledger.lane.name!r}, got {step}"
        )
