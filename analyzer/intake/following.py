"""Files followed while they grow: what is appended is in the store within two seconds.

Each changed file that lies open for appending has a reader that stays (`live`); what else changes
is read like a new file. A growth is one transaction: the file's provisional tail goes, what came
takes its place, and a kill leaves the one or the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event

from analyzer.content import Mode
from analyzer.errors import ReaderLostError
from analyzer.intake.live import Growth, LiveFile
from analyzer.intake.once import Options, run
from analyzer.intake.planning import Found, Plan, recognised
from analyzer.intake.sink import IngestReport, Progress, refused
from analyzer.intake.watching import Watch, mark_of
from analyzer.reading import Answer, Job
from analyzer.sources.base import DEFAULT_PROJECT, Source
from analyzer.store import Store

LIVE_FILES = 6
"""Readers that stay; each is a process. The one that grew last longest ago makes room."""
RECENT_S = 3600.0
"""A file that changed so recently when following begins may still grow."""
JOINT_SHARE = 10
"""Files that are read jointly are read whole again, so that may take one part in so many of the
time."""
Judge = Callable[[Store], object]


def follow(
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
    judge: Judge | None = None,
    stop: Event | None = None,
) -> Iterator[IngestReport]:
    """Ingest files and folders, then what they grow by, until `stop`; a report each time.

    The options are those of `ingest`; `judge` is given the store before each state is published.
    Raises what `ingest` raises; with `strict` also for a problem in what comes later.
    """
    options = Options.of(source, sources, project, user, content, strict)
    stop = stop or Event()
    with Watch(paths) as watch:
        following = _Following(Path(store_path), options, watch, judge, waiting)
        try:
            yield following.start(progress)
            while not stop.is_set():
                report = following.turn()
                if report is not None:
                    yield report
        finally:
            following.close()


class _Following:
    def __init__(
        self,
        store_path: Path,
        options: Options,
        watch: Watch,
        judge: Judge | None,
        waiting: Callable[[str], None] | None,
    ) -> None:
        self._store_path = store_path
        self._options = options
        self._watch = watch
        self._judge = judge
        self._waiting = waiting
        self._files: dict[Path, LiveFile] = {}
        self._joint_late: dict[str, Source] = {}
        self._joint_not_before: dict[str, float] = {}

    def start(self, progress: Callable[[Progress], None] | None) -> IngestReport:
        """Everything that is there."""
        found = self._watch.found()
        since_ns = (time.time() - RECENT_S) * 1e9
        marks = {file.path: mark_of(file.path) for file in found}
        recent = [path for path, mark in marks.items() if mark and mark.changed_ns >= since_ns]
        return self._read(found, recent, progress)

    def turn(self) -> IngestReport | None:
        """What changed since the last turn; None if nothing did that counts."""
        changed = self._watch.changed()
        self._follow_renames(changed)
        growths: list[tuple[LiveFile, Growth]] = []
        others: list[Found] = []
        for found in changed:
            live = self._files.get(found.path)
            if live is None:
                others.append(found)
                continue
            goes_on = live.goes_on()
            growth = self._grown(live) if goes_on or live.was_replaced() else None
            if growth is not None:
                growths.append((live, growth))
            if not goes_on or live.state is None:
                self._drop(live)
                others.append(found)
        growths += self._last_growths()
        reports = [self._store_growths(growths, others)] if growths else []
        reports += self._read_others(others)
        told = [report for report in reports if report.files or report.problems]
        return _sum(told) if told else None

    def close(self) -> None:
        """End every reader."""
        for live in list(self._files.values()):
            self._drop(live)

    # -- growth -------------------------------------------------------------------------------

    def _follow_renames(self, changed: Sequence[Found]) -> None:
        """A file that was rotated away goes on under its new name."""
        marks = {found.path: mark_of(found.path) for found in changed}
        moved = [
            (live, path)
            for live in self._files.values()
            for path, mark in marks.items()
            if mark is not None and live.path != path and live.is_at(mark)
        ]
        # Rotations come in chains (1 becomes 2, the newest becomes 1), so all go before any comes.
        for live, _ in moved:
            self._files.pop(live.path, None)
        for live, path in moved:
            if path in self._files:
                self._drop(self._files[path])
            self._files[path] = live
            live.path = path

    def _last_growths(self) -> list[tuple[LiveFile, Growth]]:
        """What files got before they went away."""
        out = []
        for live in list(self._files.values()):
            if mark_of(live.path) is None:
                growth = self._grown(live)
                if growth is not None:
                    out.append((live, growth))
                self._drop(live)
        return out

    def _grown(self, live: LiveFile) -> Growth | None:
        try:
            return live.grow()
        except ReaderLostError:
            live.state = None
            return None

    def _store_growths(
        self, growths: Sequence[tuple[LiveFile, Growth]], others: list[Found]
    ) -> IngestReport:
        """Write what files grew by; files that the store knows otherwise by now go to `others`."""
        report = IngestReport()
        had = 0
        with Store.open(self._store_path, "write", waiting=self._waiting) as store:
            before = store.settle()
            for live, growth in growths:
                assert live.state is not None
                for problem in growth.problems if self._options.strict else ():
                    raise refused(problem)
                row, former = growth.state.row, live.state
                batch = store.batch()
                if not batch.cut(former.row, former.tails, former.problems):
                    batch.rollback()
                    self._drop(live)
                    others.append(Found(live.path, row.size, named=False))
                    continue
                batch.add(growth.chunks)
                batch.add_files([row])
                batch.commit()
                live.state = growth.state
                report.content = live.content
                report.files += 1
                report.sessions += growth.sessions
                report.parts += row.n_parts - former.row.n_parts
                report.problems += growth.problems
                had += row.n_steps - former.row.n_steps
            report.steps = max(0, store.settle() - before)
            self._judged(store)
        report.duplicates = max(0, had - report.steps)
        return report

    def _judged(self, store: Store) -> None:
        if self._judge is not None and not store.is_empty():
            self._judge(store)

    # -- other changes ------------------------------------------------------------------------

    def _read_others(self, others: Sequence[Found]) -> list[IngestReport]:
        """Read new, rotated and rewritten files, and sets of jointly read files."""
        alone = []
        for found in others:
            source, _ = recognised(found, self._options.sources, self._options.forced)
            if getattr(source, "joint", False):
                assert source is not None
                self._joint_late[source.name] = source
            elif source is not None or found.named:
                alone.append(found)
        reports = [self._read(alone, [found.path for found in alone])] if alone else []
        for name, source in list(self._joint_late.items()):
            begun = time.monotonic()
            if begun >= self._joint_not_before.get(name, 0.0):
                del self._joint_late[name]
                reports.append(self._read(self._members(source), []))
                took = time.monotonic() - begun
                self._joint_not_before[name] = begun + JOINT_SHARE * took
        return reports

    def _members(self, source: Source) -> list[Found]:
        options = self._options
        return [
            found
            for found in self._watch.all_files()
            if recognised(found, options.sources, options.forced)[0] is source
        ]

    def _read(
        self,
        found: list[Found],
        growing: Sequence[Path],
        progress: Callable[[Progress], None] | None = None,
    ) -> IngestReport:
        """Read files whole; the newest of `growing` get readers that stay."""
        newest = sorted(growing, key=_changed_ns, reverse=True)[:LIVE_FILES]
        for path in newest:
            if path in self._files:
                self._drop(self._files[path])
        oldest = sorted(self._files.values(), key=lambda live: live.used)
        for live in oldest[: max(0, len(oldest) + len(newest) - LIVE_FILES)]:
            self._drop(live)
        with Store.open(self._store_path, "write", waiting=self._waiting) as store:
            report = run(
                store, found, self._options, progress=progress, live=newest, begin=self._begin
            )
            self._judged(store)
        return report

    def _begin(self, job: Job, plan: Plan) -> Iterator[Answer]:
        live = LiveFile(Path(os.fsdecode(job.paths[0])), plan.of(job).files[0])
        self._files[live.path] = live
        yield from live.begin(job)
        if live.state is None:
            self._drop(live)

    def _drop(self, live: LiveFile) -> None:
        self._files.pop(live.path, None)
        live.close()


def _changed_ns(path: Path) -> int:
    mark = mark_of(path)
    return mark.changed_ns if mark is not None else 0


def _sum(reports: Sequence[IngestReport]) -> IngestReport:
    total = IngestReport()
    for report in reports:
        total.files += report.files
        total.sessions += report.sessions
        total.steps += report.steps
        total.parts += report.parts
        total.duplicates += report.duplicates
        total.problems += report.problems
        total.unchanged += report.unchanged
        total.known_problems += report.known_problems
        total.content = report.content
        total.holding_more = report.holding_more
    return total
