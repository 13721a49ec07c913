"""`advise`: which marks, and for how long, the recorded prompts should have had."""

from __future__ import annotations

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
from analyzer.cli.replay import cache_option
from analyzer.views.advice import advice_document, advice_table, advice_text


@click.command("advise")
@sessions_argument
@cache_option
@format_option
@click.pass_context
def advise_command(
    ctx: click.Context,
    sessions: tuple[str, ...],
    everything: bool,
    cache: str | None,
    form: Format,
) -> None:
    """Cache marks and lifetimes that would have been cheaper for SESSIONS, with the replay's error."""
    with workspace(ctx) as space, progress_bar("pricing placements"):
        keys = space.keys(chosen(space, sessions, everything))
        advices, left_out = space.advise(keys, cache)
    emit_table(advice_table(advices, left_out), form, advice_document(advices, left_out))
    if form == "text":
        emit(advice_text(advices))
