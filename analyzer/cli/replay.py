"""`replay`, `backtest`, `simulate`, `policies`, `prices`: what another policy would have cost."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from analyzer.caching import CACHES, PLACEMENTS, simulate
from analyzer.cli.base import (
    Format,
    chosen,
    emit_table,
    format_option,
    progress_bar,
    sessions_argument,
    settings_of,
    workspace,
)
from analyzer.pricing import APART, PER_MTOK, PER_THOUSAND, SEARCHES, PriceBook, PriceRow
from analyzer.sources.decode import parse
from analyzer.views.policies import presets_table
from analyzer.views.replay import (
    comparison_document,
    comparison_table,
    fidelity_document,
    fidelity_table,
)
from analyzer.views.table import Column, Row, Table, to_json

cache_option = click.option(
    "--cache",
    type=click.Choice(sorted(CACHES)),
    help="Cache rule to replay with.  [default: the one that fits the recordings]",
)


@click.command("replay")
@sessions_argument
@click.option(
    "--policy",
    "policies",
    multiple=True,
    required=True,
    metavar="SPEC",
    help="name, name:key=value,…, a recipe file, or module:Class; may be repeated.",
)
@cache_option
@click.option(
    "--placement",
    default="recorded",
    show_default=True,
    metavar="SPEC",
    help="Where the prompts are marked and for how long: "
    + ", ".join(PLACEMENTS)
    + "; ttl is 5m, 1h or mixed, as in system-end:ttl=1h or every:k=18,ttl=mixed.",
)
@format_option
@click.pass_context
def replay_command(
    ctx: click.Context,
    sessions: tuple[str, ...],
    everything: bool,
    policies: tuple[str, ...],
    cache: str | None,
    placement: str,
    form: Format,
) -> None:
    """What SESSIONS would have cost under other policies; the replay's error beside each saving."""
    with workspace(ctx) as space, progress_bar("replaying"):
        keys = space.keys(chosen(space, sessions, everything))
        comparison = space.compare(keys, policies, cache, placement)
    emit_table(comparison_table(comparison), form, comparison_document(comparison))


@click.command("backtest")
@sessions_argument
@cache_option
@format_option
@click.pass_context
def backtest_command(
    ctx: click.Context,
    sessions: tuple[str, ...],
    everything: bool,
    cache: str | None,
    form: Format,
) -> None:
    """How well a replay of the recorded policy gives the recorded bill back."""
    with workspace(ctx) as space, progress_bar("replaying"):
        keys = space.keys(chosen(space, sessions, everything))
        fidelity, left_out = space.backtest(keys, cache)
    document = fidelity_document(fidelity, left_out)
    emit_table(fidelity_table(fidelity, left_out), form, document)


@click.command("simulate")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@format_option
def simulate_command(file: Path, form: Format) -> None:
    """Serve the raw prompts of FILE by a cache model: reads, writes and cost of each step."""
    results = simulate(parse(file.read_bytes()))
    rows: list[Row] = [
        {"name": r["name"], "step": n, **cast("Row", step)}
        for r in results
        for n, step in enumerate(r["steps"])
    ]
    columns = (
        Column("name", "example", width=50),
        Column("step", "step", "count"),
        Column("cache_read", "read", "count"),
        Column("cache_write_5m", "write 5m", "count"),
        Column("cache_write_1h", "write 1h", "count"),
        Column("cache_write", "write", "count"),
        Column("input", "input", "count"),
        Column("cost_usd", "cost", "usd"),
    )
    if form == "json":
        click.echo(to_json(results))
    else:
        emit_table(Table(f"{len(results)} examples", columns, rows), form)


@click.command("policies")
@format_option
def policies_command(form: Format) -> None:
    """List the policies that can be named, with their parameters and defaults."""
    emit_table(presets_table(), form)


@click.command("prices")
@click.argument("model", required=False)
@format_option
@click.pass_context
def prices_command(ctx: click.Context, model: str | None, form: Format) -> None:
    """The prices that are used, and from when; of models whose name holds MODEL."""
    book = PriceBook.default(settings_of(ctx).prices)
    wanted = (model or "").lower()
    rows = [_price(entry) for entry in book.table() if wanted in entry.model.lower()]
    columns = (
        Column("model", "model", width=40),
        Column("provider", "provider", width=14),
        Column("starts", "from"),
        Column("hours", "hours (UTC)", shown=False),
        Column("term", "billed as"),
        Column("factor", "times"),
        Column("above", "prompts above", "count"),
        Column("input", "input", "usd"),
        Column("read", "read", "usd"),
        Column("write_5m", "write", "usd"),
        Column("write_1h", "long write", "usd"),
        Column("output", "output", "usd"),
        *(Column(name, name.replace("_", " "), "usd", shown=False) for name in APART),
        Column("source", "source", width=40),
    )
    unit = "USD per million tokens (searches: per thousand)"
    title = f"{len(rows)} prices, {unit}; the first that knows a price wins"
    emit_table(Table(title, columns, rows), form)


def _price(entry: PriceRow) -> Row:
    rates = entry.rates
    per = {
        name: None if (rate := getattr(rates, name)) is None else rate * PER_MTOK
        for name in ("input", "read", "write_5m", "write_1h", "output")
    }
    apart = {
        name: rate * (PER_THOUSAND if name == SEARCHES else PER_MTOK) for name, rate in rates.apart
    }
    return {
        "model": entry.model,
        "provider": entry.provider,
        "starts": entry.starts.isoformat() if entry.starts else None,
        "hours": entry.hours or None,
        "term": entry.term,
        "factor": None if entry.factor is None else str(entry.factor),
        "above": entry.above,
        **per,
        **apart,
        "source": rates.source,
    }
