"""Which files changed: told by the operating system, and looked up from time to time.

`watchfiles` does the first on every system; the second is for network folders and for events that
were lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import NamedTuple

import watchfiles

from analyzer.intake.planning import PASSED_BY, Found, found_files

TOGETHER_MS = 200
"""Changes that come in such a time are told together."""
LOOK_EVERY_S = 10.0
_POLL_MS = 300

_log = logging.getLogger("analyzer")


class Mark(NamedTuple):
    """What tells two states of a file apart without reading it."""

    device: int
    inode: int
    size: int
    changed_ns: int


def mark_of(path: Path) -> Mark | None:
    """The mark of a file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Mark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Watch:
    """Watches files and folders from the moment it is made. Use it as a context manager."""

    def __init__(self, paths: Sequence[Path | str]) -> None:
        """`paths` exist. A file is watched in its folder, so that a rotated one is seen."""
        self._paths = [Path(path).absolute() for path in paths]
        self._stop = Event()
        self._queue: Queue[set[Path]] = Queue()
        self._looked = time.monotonic()
        self._marks: dict[Path, Mark | None] = {}
        folders = {path for path in self._paths if path.is_dir()}
        singles = {path.parent for path in self._paths if not path.is_dir()}
        ready = []
        for tops, deep in ((folders, True), (singles, False)):
            if tops:
                ready.append(Event())
                # A daemon: a stuck network folder must not keep the process from ending.
                Thread(target=self._run, args=(tops, deep, ready[-1]), daemon=True).start()
        for event in ready:
            event.wait()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _run(self, tops: set[Path], deep: bool, ready: Event) -> None:
        for polling in (None, True):
            try:
                self._watch(tops, deep, ready, polling)
                return
            except OSError as error:
                _log.warning("the system does not tell of changes (%s); looking for them", error)
        ready.set()

    def _watch(self, tops: set[Path], deep: bool, ready: Event, polling: bool | None) -> None:
        for changes in watchfiles.watch(
            *tops,
            watch_filter=None,
            debounce=TOGETHER_MS,
            stop_event=self._stop,
            rust_timeout=_POLL_MS,
            yield_on_timeout=True,
            recursive=deep,
            force_polling=polling,
            ignore_permission_denied=True,
        ):
            # The first turn, even without a change, says that watching has begun.
            ready.set()
            if changes:
                self._queue.put({Path(path) for _, path in changes})

    def found(self) -> list[Found]:
        """All files there are now, whose changes from now on are told."""
        files = self.all_files()
        for file in files:
            self._marks[file.path] = mark_of(file.path)
        return files

    def changed(self) -> list[Found]:
        """Files that are new or changed since they were last told, after a moment's waiting."""
        named = {path for path in self._paths if not path.is_dir()}
        paths = {path for path in self._next() if self._is_ours(path, named)}
        if time.monotonic() - self._looked >= LOOK_EVERY_S:
            paths |= {file.path for file in self.all_files()} | self._marks.keys()
            self._looked = time.monotonic()
        out = []
        for path in sorted(paths):
            mark = mark_of(path)
            if mark != self._marks.get(path):
                self._marks[path] = mark
                if mark is not None and path.is_file():
                    out.append(Found(path, mark.size, path in named))
        return out

    def all_files(self) -> list[Found]:
        """All files there are now."""
        return found_files([path for path in self._paths if path.exists()])

    def _is_ours(self, path: Path, named: set[Path]) -> bool:
        if path in named:
            return True
        for top in self._paths:
            if top not in named and path.is_relative_to(top):
                return not PASSED_BY.intersection(path.relative_to(top).parts)
        return False

    def _next(self) -> set[Path]:
        """What was told, in not much more than the time of one poll."""
        try:
            paths = set(self._queue.get(timeout=1.0))
        except Empty:
            return set()
        while not self._queue.empty():
            paths |= self._queue.get()
        return paths
