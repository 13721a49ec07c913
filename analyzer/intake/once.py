"""One run: the files that are there now, into the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.content import Mode, keeping
from analyzer.errors import InputError, UsageError
from analyzer.intake.planning import Found, Plan, found_files
from analyzer.intake.retention import Retention
from analyzer.intake.sink import IngestReport, Progress, Sink
from analyzer.reading import Answer, Job, Workers, as_problem, read
from analyzer.sources import SOURCES
from analyzer.sources.base import DEFAULT_PROJECT, Source
from analyzer.store import Scope, Store

IN_PROCESS_BYTES = 8 << 20
"""Runs up to this size are read in this process: starting workers would take longer."""

Begin = Callable[[Job, Plan], Iterator[Answer]]
"""Reads a file whose reader stays to read on."""


@dataclass(frozen=True, slots=True)
class Options:
    """How files are read, whichever way they are found."""

    sources: Mapping[str, Source]
    forced: bool
    """There is one source, named by a person: a named file is read without being recognised."""
    project: str = DEFAULT_PROJECT
    user: str = ""
    content: Mode | None = None
    strict: bool = False

    @classmethod
    def of(
        cls,
        source: str | None,
        sources: Mapping[str, Source] | None,
        project: str,
        user: str,
        content: Mode | None,
        strict: bool,
    ) -> Options:
        """Options with the named source, or all. Raises `UsageError` for an unknown name."""
        known = SOURCES if sources is None else sources
        if source is not None and source not in known:
            raise UsageError.unknown("source", source, known)
        chosen = known if source is None else {source: known[source]}
        return cls(chosen, source is not None, project, user, content, strict)


def ingest(
    paths: Sequence[Path | str],
    store_path: Path | str,
    *,
    source: str | None = None,
    project: str = DEFAULT_PROJECT,
    user: str = "",
    content: Mode | None = None,
    strict: bool = False,
    progress: Callable[[Progress], None] | None = None,
    waiting: Callable[[str], None] | None = None,
    sources: Mapping[str, Source] | None = None,
    workers: int | None = None,
) -> IngestReport:
    """Read files and folders into a store and publish it.

    `source` names the format instead of having it recognised; `content` says what is kept of the
    content, and without it what the store kept last (`full` at first); `strict` stops at the first
    problem and leaves that file out; `waiting` is told if another writer holds the store. Without
    `workers` each core has one, and a small run none.

    Raises `UsageError` (no such source or path), `InputError` (a problem, with `strict`) and
    `StoreError` (the store is busy, newer than this version, or damaged).
    """
    options = Options.of(source, sources, project, user, content, strict)
    found = found_files(paths)
    with Store.open(store_path, "write", waiting=waiting) as store:
        return run(store, found, options, progress=progress, workers=workers)


def run(
    store: Store,
    found: list[Found],
    options: Options,
    *,
    progress: Callable[[Progress], None] | None = None,
    workers: int | None = None,
    live: Collection[Path] = (),
    begin: Begin | None = None,
) -> IngestReport:
    """Read files into an open store. The files `live` are read by `begin`, after the others."""
    if workers is None:
        small = sum(file.size for file in found) < IN_PROCESS_BYTES
        workers = 0 if small else os.cpu_count() or 1
    report = IngestReport()
    before = store.settle()
    kept = Retention.choose(store, options.content)
    plan = Plan(
        found,
        options.sources,
        options.forced,
        options.project,
        options.user,
        kept.mode,
        kept.key,
        frozenset(live),
    )
    if not store.is_empty():
        scope = Scope(options.project, options.user)
        plan.learn(store.query("files", scope).iter_rows(named=True))
    sink = Sink(store, plan, report, kept, strict=options.strict, progress=progress)
    try:
        for answer in _answers(plan, options.sources, workers, begin):
            sink.take(answer)
        sink.finish()
    except InputError:
        # With `strict`: what was whole before the problem stays.
        sink.finish()
        store.publish()
        raise
    report.steps = max(0, store.settle() - before)
    report.holding_more = kept.holding_more(store)
    _complete(report, plan, sink)
    return report


def _complete(report: IngestReport, plan: Plan, sink: Sink) -> None:
    report.sessions = len(sink.sessions)
    report.unchanged = plan.unchanged
    report.known_problems = plan.known_problems
    report.skipped_kinds = plan.skipped_kinds()
    report.content = plan.content
    keep = keeping(plan.content, plan.key)
    report.problems += [as_problem(keep(problem)) for problem in plan.problems]
    again = plan.known_steps + sum(
        times * sink.steps_of.get(file_id, 0) for file_id, times in plan.again.items()
    )
    report.duplicates = again + max(0, sum(sink.steps_of.values()) - report.steps)


def _answers(
    plan: Plan, known: Mapping[str, Source], workers: int, begin: Begin | None
) -> Iterator[Answer]:
    live: list[Job] = []

    def others() -> Iterator[Job]:
        for job in plan.jobs():
            if job.live:
                live.append(job)
            else:
                yield job

    if workers == 0:
        for job in others():
            for message in read(job, known[plan.of(job).files[0].source]):
                yield Answer(job, message)
    else:
        with Workers(others(), workers) as running:
            yield from running
    for job in live:
        assert begin is not None
        yield from begin(job, plan)
