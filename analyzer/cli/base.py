"""What every command shares: where the store is, the output format, and how things are printed.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from analyzer.store import Scope
from analyzer.views.table import Table, to_csv, to_json, to_markdown
from analyzer.views.text import table_text
from analyzer.workspace import Workspace, analyse

Format = Literal["text", "json", "csv", "md"]
F = TypeVar("F", bound=Callable[..., Any])

UNBOUNDED = 4_000
"""Columns of output that goes to a file or a pipe: nothing is cut and nothing is padded."""


@dataclass
class Settings:
    """What the options before the command said."""

    db: Path
    scope: Scope
    prices: Path | None


def default_db() -> Path:
    """The store in the user's data folder."""
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "analyzer" / "analyzer.duckdb"


def settings_of(ctx: click.Context) -> Settings:
    """The settings that the main command put into the context."""
    return cast("Settings", ctx.find_root().obj)


def format_option(command: F) -> F:
    """Adds `--format`."""
    choice = click.Choice(["text", "json", "csv", "md"])
    return click.option(
        "--format", "form", type=choice, default="text", help="Form of the output."
    )(command)


def sessions_argument(command: F) -> F:
    """Adds `[SESSION...|--all]`."""
    command = click.option("--all", "everything", is_flag=True, help="All sessions of the store.")(
        command
    )
    return click.argument("sessions", nargs=-1)(command)


def stdout() -> Console:
    """A console for results."""
    wide = None if sys.stdout.isatty() else UNBOUNDED
    return Console(file=sys.stdout, width=wide, highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """A console for progress and messages."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def emit_table(table: Table, form: Format, document: object | None = None) -> None:
    """Print a table in the form asked for; `document` is its JSON where that is more than rows."""
    match form:
        case "json":
            click.echo(to_json(document if document is not None else _rows(table)))
        case "csv":
            click.echo(to_csv(table), nl=False)
        case "md":
            click.echo(to_markdown(table), nl=False)
        case _:
            emit(table_text(table, stdout().width))


def _rows(table: Table) -> list[dict[str, object]]:
    return [{c.key: row.get(c.key) for c in table.columns} for row in table.rows]


def emit(renderable: RenderableType) -> None:
    """Print something on stdout; lines in a file or a pipe end where their text ends."""
    console = stdout()
    if sys.stdout.isatty():
        console.print(renderable)
        return
    with console.capture() as captured:
        console.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().split("\n")), nl=False)


def tell(message: str) -> None:
    """Print a message on stderr."""
    stderr().print(message, style="dim")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, shown only where that is a terminal."""
    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


@contextmanager
def workspace(ctx: click.Context) -> Iterator[Workspace]:
    """The store of this command, open for reading, with its facts up to date."""
    settings = settings_of(ctx)
    if not settings.db.exists():
        raise click.ClickException(
            f"there is no store at {settings.db}; `analyzer ingest PATH` makes one, "
            "`analyzer demo` makes one of the sample traces"
        )
    space = Workspace.open(settings.db, settings.scope, settings.prices)
    try:
        yield space
    finally:
        space.close()


def refresh(settings: Settings) -> None:
    """Judge what was ingested since the last analysis."""
    with progress_bar("judging sessions") as advance:
        analyse(settings.db, advance, settings.prices)


def chosen(space: Workspace, sessions: tuple[str, ...], everything: bool) -> tuple[str, ...]:
    """The names given, or none for all. Raises `click.UsageError` where nothing was chosen."""
    if everything and sessions:
        raise click.UsageError("give sessions or --all, not both")
    if not everything and not sessions and len(space.keys()) != 1:
        raise click.UsageError(
            f"the store holds {len(space.keys())} sessions: name some "
            "(`analyzer sessions` lists them) or give --all"
        )
    return sessions
