"""Paths in, a published store out: walk, recognise, read in worker processes, write.

Owns what makes a repeated run harmless: a file is its bytes, so the same bytes are skipped under
any name, a file that grew replaces what was read of it before, and a rotated one is new.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.content import Mode, keeping
from analyzer.errors import InputError, UsageError
from analyzer.intake.planning import Plan, SkippedKind, found_files
from analyzer.intake.retention import Retention
from analyzer.model import Problem, SessionKey
from analyzer.reading import Answer, Job, Workers, as_problem, read
from analyzer.records import Chunk, from_bytes
from analyzer.sources import SOURCES
from analyzer.sources.base import DEFAULT_PROJECT, Source
from analyzer.store import Batch, Scope, Store

IN_PROCESS_BYTES = 8 << 20
"""Runs up to this size are read in this process: starting workers would take longer."""
BATCH_BYTES = 6 << 20
"""Files are written together up to this size, and larger ones in pieces of it."""
BATCH_SECONDS = 1.0
PUBLISH_SECONDS = 30.0
PUBLISH_SHARE = 10
"""Publishing copies the store, so it may take at most one part in this many of the time."""

_log = logging.getLogger("analyzer")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an ingest is; what it counts is committed."""

    files: int
    total_files: int
    bytes: int
    total_bytes: int


@dataclass(slots=True)
class IngestReport:
    """What one run did. `steps + duplicates` is the number of step records it met."""

    files: int = 0
    """Files (or jointly read sets) that were read and stored."""
    sessions: int = 0
    """Sessions that those files hold."""
    steps: int = 0
    """Steps that the store counts now and did not before."""
    parts: int = 0
    """Parts stored."""
    duplicates: int = 0
    """Step records that were already known: copies, and steps of files met before."""
    problems: list[Problem] = field(default_factory=list)
    """Without their bytes, which are in the store."""
    unchanged: int = 0
    """Files whose bytes were already stored."""
    known_problems: int = 0
    """Records of these that could not be read when they were met first."""
    skipped_kinds: list[SkippedKind] = field(default_factory=list)
    """Files in folders that no source recognises, one entry a kind."""
    content: Mode = "full"
    """What was kept of the content."""
    holding_more: int = 0
    """Files of the store that hold more content than that: they were not met in this run."""


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
    known = SOURCES if sources is None else sources
    if source is not None and source not in known:
        raise UsageError.unknown("source", source, known)
    found = found_files(paths)
    chosen = {source: known[source]} if source is not None else known
    report = IngestReport()
    with Store.open(store_path, "write", waiting=waiting) as store:
        before = store.settle()
        kept = Retention.choose(store, content)
        plan = Plan(found, chosen, source is not None, project, user, kept.mode, kept.key)
        if not store.is_empty():
            plan.learn(store.query("files", Scope(project, user)).iter_rows(named=True))
        sink = _Sink(store, plan, report, kept, strict=strict, progress=progress)
        try:
            for answer in _answers(plan, known, workers):
                sink.take(answer)
            sink.finish()
        except InputError:
            # With `strict`: what was whole before the problem stays.
            sink.finish()
            store.publish()
            raise
        report.steps = max(0, store.settle() - before)
        report.holding_more = kept.holding_more(store)
    return _complete(report, plan, sink)


def _complete(report: IngestReport, plan: Plan, sink: _Sink) -> IngestReport:
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
    return report


def _answers(plan: Plan, known: Mapping[str, Source], workers: int | None) -> Iterator[Answer]:
    jobs = plan.jobs()
    if workers is None:
        workers = 0 if plan.total_bytes < IN_PROCESS_BYTES else os.cpu_count() or 1
    if workers == 0:
        for job in jobs:
            for message in read(job, known[plan.of(job).files[0].source]):
                yield Answer(job, message)
        return
    with Workers(jobs, workers) as running:
        yield from running


class _Sink:
    """Takes chunks as they come and writes whole files, many small ones to a transaction."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        report: IngestReport,
        kept: Retention,
        *,
        strict: bool,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.sessions: set[SessionKey] = set()
        self.steps_of: dict[int, int] = {}
        self._store = store
        self._plan = plan
        self._report = report
        self._kept = kept
        self._strict = strict
        self._progress = progress
        self._pending: dict[int, list[Chunk]] = {}
        self._in_pieces: set[int] = set()
        self._counts: dict[int, list[int]] = {}
        self._whole: list[tuple[Job, list[Chunk]]] = []
        self._whole_bytes = 0
        self._since = self._published = time.monotonic()
        self._publishing = 0.0
        self._done_bytes = 0

    def take(self, answer: Answer) -> None:
        """One chunk of some file. Raises `InputError` for a problem, with `strict`."""
        job = answer.job
        if answer.message is None:
            self._lost(job, answer.exit_code)
            return
        chunk = from_bytes(answer.message)
        self._problems(chunk)
        counts = self._counts.setdefault(job.file_id, [0, 0, 0])
        for i, table in enumerate(("steps", "parts", "problems")):
            counts[i] += chunk.rows(table)
        pending = self._pending.setdefault(job.file_id, [])
        pending.append(chunk)
        if chunk.last:
            self._file_done(job, chunk)
        elif sum(c.size() for c in pending) >= BATCH_BYTES:
            self._spill(job)

    def finish(self) -> None:
        """Write the files that are whole, and leave no trace of others."""
        self._flush()

        self._store.purge()

    def _problems(self, chunk: Chunk) -> None:
        columns = chunk.columns.get("problems", [[]] * 6)
        for _, path, line, pointer, message, _ in zip(*columns, strict=True):
            assert line is None or isinstance(line, int)
            problem = Problem(str(path), line, str(pointer), str(message))
            if self._strict:
                raise InputError(
                    f"{problem.path}:{line or '?'}: {problem.message} (at {problem.pointer}); "
                    "nothing of this file was stored; without --strict such records are kept "
                    "apart and the rest is read"
                )
            self._report.problems.append(problem)

    def _lost(self, job: Job, exit_code: int | None) -> None:
        """The process that read a file ended: the file is as if it had not been met."""
        self._pending.pop(job.file_id, None)
        self._counts.pop(job.file_id, None)
        path = self._plan.of(job).files[0].path
        message = f"the process that read this file ended with code {exit_code}; it was left out"
        if self._strict:
            raise InputError(f"{path}: {message}")
        self._report.problems.append(Problem(path, None, "$", message))

    def _spill(self, job: Job) -> None:
        """Write a piece of a large file; it counts for nothing before its last piece."""
        batch = self._batch()
        if job.file_id not in self._in_pieces:
            batch.begin_pieces(job.file_id)
            self._in_pieces.add(job.file_id)
        batch.add(self._pending[job.file_id])
        batch.commit()
        self._pending[job.file_id].clear()

    def _file_done(self, job: Job, chunk: Chunk) -> None:
        for _, _, project, user, session, *_ in zip(
            *chunk.columns.get("recordings", []), strict=True
        ):
            self.sessions.add(SessionKey(str(project), str(user), str(session)))
        pending = self._pending.pop(job.file_id)
        self._whole.append((job, pending))
        self._whole_bytes += sum(c.size() for c in pending)
        late = time.monotonic() - self._since > BATCH_SECONDS
        if self._whole_bytes >= BATCH_BYTES or late:
            self._flush()

    def _record(self, batch: Batch, jobs: Iterable[Job]) -> None:
        """The rows of `files`, in the transaction of their content."""
        rows = []
        for job in jobs:
            planned = self._plan.of(job)
            steps, parts, problems = self._counts[job.file_id]
            first, *members = planned.files
            rows.append(first._replace(n_steps=steps, n_parts=parts, n_problems=problems))
            rows += members
        batch.add_files(rows)

    def _batch(self) -> Batch:
        # Before anything else is written: a store without these notes would forget its mode.
        self._kept.note(self._store)
        return self._store.batch()

    def _flush(self) -> None:
        if self._whole:
            batch = self._batch()
            jobs = [job for job, _ in self._whole]
            plans = [self._plan.of(job) for job in jobs]
            batch.remove_files(
                [own for planned in plans for own in planned.replaces],
                forget=any(planned.forgets for planned in plans),
            )
            batch.add(chunk for _, chunks in self._whole for chunk in chunks)
            self._record(batch, jobs)
            batch.commit()
            self._whole, self._whole_bytes = [], 0
            self._committed(jobs)
        self._since = time.monotonic()

    def _committed(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            planned = self._plan.of(job)
            steps, parts, _ = self._counts.pop(job.file_id)
            self.steps_of[job.file_id] = steps
            self._report.files += 1
            self._report.parts += parts
            self._done_bytes += planned.size
        _log.debug("committed %d files, %d bytes", self._report.files, self._done_bytes)
        if self._progress is not None:
            plan = self._plan
            self._progress(
                Progress(self._report.files, plan.total_files, self._done_bytes, plan.total_bytes)
            )
        self._publish_in_time()

    def _publish_in_time(self) -> None:
        wait = max(PUBLISH_SECONDS, PUBLISH_SHARE * self._publishing)
        now = time.monotonic()
        if now - self._published >= wait:
            self._store.publish()
            self._published = time.monotonic()
            self._publishing = self._published - now
