"""`ingest`, `validate`, `sources`: what comes in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import click

from analyzer.cli.base import (
    Format,
    Settings,
    emit_table,
    format_option,
    progress_bar,
    refresh,
    settings_of,
    stderr,
    tell,
)
from analyzer.content import MODES, Mode
from analyzer.errors import InputError
from analyzer.intake import IngestReport, follow, ingest
from analyzer.intake.planning import SkippedKind
from analyzer.model import Problem
from analyzer.sources import SOURCES, load_plugins
from analyzer.sources.steps_schema import validate_file
from analyzer.store import Store
from analyzer.views.table import Column, Row, Table, one_line, plural
from analyzer.workspace import judge_stale

SHOWN_PROBLEMS = 20
JUDGED_STEPS = 5_000
"""Up to so many new steps are judged at once, so that an open dashboard shows them; a bulk import
would spend most of its time on that."""


@click.command("ingest")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--source", help="Read as this source instead of detecting it (`analyzer sources`).")
@click.option("--as-project", default="default", show_default=True, help="Project of the sessions.")
@click.option("--as-user", default="", help="User of the sessions, where the files do not say.")
@click.option(
    "--content",
    type=click.Choice(MODES),
    default=None,
    help="Keep all text, all but secrets and personal data, or only digests and sizes. "
    "Without it: as the store kept it last (full at first).",
)
@click.option(
    "--follow", is_flag=True, help="Stay, and read what is appended and what is new, until Ctrl-C."
)
@click.option("--strict", is_flag=True, help="Stop at the first record that cannot be read.")
@format_option
@click.pass_context
def ingest_command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    source: str | None,
    as_project: str,
    as_user: str,
    content: Mode | None,
    follow: bool,
    strict: bool,
    form: Format,
) -> None:
    """Read files or folders into the store. Reading the same again changes nothing.

    What --content says holds for what is read, also where it was read before in another way.
    """
    settings = settings_of(ctx)
    load_plugins()
    options = _Reading(
        source=source,
        project=as_project,
        user=as_user,
        content=content,
        strict=strict,
        waiting=tell,
    )
    if follow:
        _follow(paths, settings, options, form)
        return
    with progress_bar("reading files") as advance:
        report = ingest(
            paths, settings.db, progress=lambda p: advance(p.bytes, p.total_bytes), **options
        )
    _say(report)
    _say_content(report, asked=content is not None)
    if report.steps > JUDGED_STEPS:
        tell("so many steps are judged at the first question (`analyzer sessions`, `dashboard`)")
    elif settings.db.exists():
        refresh(settings)
    emit_table(report_table(report), form, report_document(report))
    if strict and report.known_problems:
        raise InputError(
            f"{report.known_problems} records of files that were read before could not be read"
        )
    if report.problems and not (report.steps or report.duplicates):
        raise InputError("nothing could be read")
    if report.skipped_kinds and not (report.files or report.unchanged):
        raise InputError(
            "nothing could be read: no source recognises any file (`analyzer sources`)"
        )


class _Reading(TypedDict):
    """The options of `ingest` and `follow` that a command line gives."""

    source: str | None
    project: str
    user: str
    content: Mode | None
    strict: bool
    waiting: Callable[[str], None]


def _follow(paths: tuple[Path, ...], settings: Settings, options: _Reading, form: Format) -> None:
    """Report what is there as `ingest` does, then each growth on a line of its own."""

    def judge(store: Store) -> None:
        judge_stale(store, prices=settings.prices)

    with contextlib.suppress(KeyboardInterrupt):
        reports = follow(paths, settings.db, judge=judge, **options)
        first = next(reports)
        _say(first)
        _say_content(first, asked=options["content"] is not None)
        if form == "json":
            click.echo(_json_line(first))
        else:
            emit_table(report_table(first), form, report_document(first))
        tell("following; Ctrl-C ends it")
        for report in reports:
            _say(report)
            click.echo(_json_line(report) if form == "json" else _growth_line(report))


def _json_line(report: IngestReport) -> str:
    return json.dumps(report_document(report), ensure_ascii=False)


def _growth_line(report: IngestReport) -> str:
    at = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
    steps = plural(report.steps, "new step")
    return f"{at}  {steps} in {plural(report.sessions, 'session')}, {plural(report.parts, 'part')}"


def report_table(report: IngestReport) -> Table:
    """An ingest in one row."""
    columns = tuple(
        Column(key, key, "count")
        for key in ("files", "sessions", "steps", "parts", "duplicates", "problems")
    )
    row: Row = {
        "files": report.files,
        "sessions": report.sessions,
        "steps": report.steps,
        "parts": report.parts,
        "duplicates": report.duplicates,
        "problems": len(report.problems),
    }
    return Table(f"{report.steps:,} new steps of {report.sessions:,} sessions", columns, [row])


def report_document(report: IngestReport) -> dict[str, object]:
    """An ingest as JSON."""
    return {
        "files": report.files,
        "sessions": report.sessions,
        "steps": report.steps,
        "parts": report.parts,
        "duplicates": report.duplicates,
        "unchanged": report.unchanged,
        "content": report.content,
        "holding_more": report.holding_more,
        "known_problems": report.known_problems,
        "problems": [
            {"path": p.path, "line": p.line, "pointer": p.pointer, "message": p.message}
            for p in report.problems
        ],
        "skipped": [kind._asdict() for kind in report.skipped_kinds],
    }


def _say(report: IngestReport) -> None:
    console = stderr()
    for problem in report.problems[:SHOWN_PROBLEMS]:
        console.print(problem_line(problem), style="yellow")
    rest = len(report.problems) - SHOWN_PROBLEMS
    if rest > 0:
        console.print(f"… and {rest} more problems; --format json lists all", style="yellow")
    for kind in report.skipped_kinds[:SHOWN_PROBLEMS]:
        console.print(skipped_line(kind), style="dim")
    more = len(report.skipped_kinds) - SHOWN_PROBLEMS
    if more > 0:
        console.print(f"… and {plural(more, 'more kind')}; --format json lists all", style="dim")


def skipped_line(kind: SkippedKind) -> str:
    """Files of one kind that no source recognises, on one line: how many, and one of them."""
    name = kind.suffix or "no suffix"
    return (
        f"not recognised: {plural(kind.files, 'file')} ({one_line(name, 20)}, beginning with "
        f"{one_line(kind.head, 20)!r}), such as {one_line(kind.example, 120)}"
    )


def _say_content(report: IngestReport, *, asked: bool) -> None:
    """What a run without all content should not leave unsaid."""
    if report.content != "full" and not asked:
        tell(f"content: {report.content}, as before in this store; --content full would keep all")
    if report.holding_more:
        stderr().print(
            f"{plural(report.holding_more, 'file')} of this store still hold more content than "
            f"{report.content!r} keeps: name them in such an ingest, or begin another store",
            style="yellow",
        )


def problem_line(problem: Problem) -> str:
    """A problem on one line: place, pointer, message."""
    where = one_line(problem.path, 120) + (f":{problem.line}" if problem.line else "")
    return f"{where} {one_line(problem.pointer, 60)}: {one_line(problem.message, 200)}"


@click.command("validate")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@format_option
def validate_command(file: Path, form: Format) -> None:
    """Check a step JSONL FILE against the published schema."""
    problems = validate_file(file)
    rows: list[Row] = [
        {"path": p.path, "line": p.line, "pointer": p.pointer, "message": p.message}
        for p in problems
    ]
    columns = (
        Column("path", "file", shown=False),
        Column("line", "line", "count"),
        Column("pointer", "pointer", width=50),
        Column("message", "message", width=100),
    )
    shown = rows if form != "text" else rows[:SHOWN_PROBLEMS]
    rest = len(rows) - len(shown)
    title = plural(len(problems), "problem") if problems else "the file is valid"
    note = f"… and {rest} more (--format json lists them)" if rest else ""
    emit_table(Table(title, columns, shown, note), form)
    if problems:
        raise InputError(f"{len(problems)} places do not fit the schema (docs/step-jsonl.md)")


@click.command("sources")
@format_option
def sources_command(form: Format) -> None:
    """List the formats that can be read."""
    load_plugins()
    rows: list[Row] = [{"name": s.name, "title": s.title} for s in SOURCES.values()]
    columns = (Column("name", "source"), Column("title", "reads"))
    emit_table(Table(f"{len(rows)} sources", columns, rows), form)
