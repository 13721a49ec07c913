"""Takes the chunks of files as they come and writes whole files, many small ones at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from analyzer.content import Mode
from analyzer.errors import InputError
from analyzer.intake.planning import Plan, SkippedKind
from analyzer.intake.retention import Retention
from analyzer.model import Problem, SessionKey
from analyzer.reading import Answer, Job
from analyzer.records import Chunk, from_bytes
from analyzer.store import Batch, FileRow, Store

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


def counted(
    row: FileRow, steps: int, parts: int, problems: int, *, read: tuple[int, bytes] | None
) -> FileRow:
    """A file with what was read of it; `read` is its size and digest where its reader knows."""
    row = row._replace(n_steps=steps, n_parts=parts, n_problems=problems)
    return row if read is None else row._replace(size=read[0], digest=read[1])


def problems_of(chunk: Chunk) -> list[Problem]:
    """The problems in a chunk, without their bytes."""
    found = []
    for _, path, line, pointer, message, _ in zip(
        *chunk.columns.get("problems", [[]] * 6), strict=True
    ):
        assert line is None or isinstance(line, int)
        found.append(Problem(str(path), line, str(pointer), str(message)))
    return found


def refused(problem: Problem) -> InputError:
    """What a problem becomes with `strict`."""
    return InputError(
        f"{problem.path}:{problem.line or '?'}: {problem.message} (at {problem.pointer}); "
        "nothing of this file was stored; without --strict such records are kept "
        "apart and the rest is read"
    )


class Sink:
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
        self._read: dict[int, tuple[int, bytes]] = {}
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
            if chunk.read is not None:
                self._read[job.file_id] = chunk.read
            self._file_done(job, chunk)
        elif sum(c.size() for c in pending) >= BATCH_BYTES:
            self._spill(job)

    def finish(self) -> None:
        """Write the files that are whole, and leave no trace of others."""
        self._flush()

        self._store.purge()

    def _problems(self, chunk: Chunk) -> None:
        for problem in problems_of(chunk):
            if self._strict:
                raise refused(problem)
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
            first, *members = self._plan.of(job).files
            counts = self._counts[job.file_id]
            rows.append(counted(first, *counts, read=self._read.pop(job.file_id, None)))
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
