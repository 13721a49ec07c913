"""Reads one file into chunks, in this process or in a worker that speaks over its pipes.

A worker is a plain Python process, never a fork: the parent may hold a database and threads. Each
frame is a length (8 bytes, little endian) and a message; a chunk that is the last ends its job. A
worker that follows a growing file reads on from there each time it is told to (`growing`, `live`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import Full, Queue
from threading import Event, Lock
from typing import NamedTuple, Self, cast

import msgspec

from analyzer.content import Mode, keeping
from analyzer.errors import InputError, ReaderLostError
from analyzer.model import LaneSteps, Problem
from analyzer.reading.frames import read_frame, write_frame
from analyzer.reading.growing import Growth
from analyzer.reading.process import BOOT, Reader
from analyzer.records import Chunk, Flattener, to_bytes
from analyzer.sources.base import Context, JointSource, Source

__all__ = [
    "BOOT",
    "Answer",
    "Job",
    "Reader",
    "Workers",
    "as_problem",
    "encode",
    "read",
    "reference",
    "serve",
]


class Job(msgspec.Struct, array_like=True):
    """One file to read, or all files of a source that reads them jointly."""

    paths: list[bytes]
    """As the file system has them; they need not be text."""
    source: tuple[str, str]
    """Module and class of the source."""
    file_id: int
    project: str
    user: str
    content: Mode
    key: bytes
    """Makes the stand-ins for what is not kept."""
    joint: bool = False
    live: bool = False
    """Read on when the file grows: the worker stays, and answers once more for each frame."""


def encode(job: Job) -> bytes:
    """A job as the message that asks a worker for it."""
    return msgspec.msgpack.encode(job)


def reference(source: Source) -> tuple[str, str]:
    """How a worker finds a source: its module and the name of its class."""
    kind = type(source)
    return kind.__module__, kind.__qualname__


def read(job: Job, source: Source, growth: Growth | None = None) -> Iterator[bytes]:
    """The encoded chunks of one job; the last one always comes, whatever the file holds."""
    with_bodies = job.content != "none"
    flat = Flattener(job.file_id, keep_bodies=with_bodies)
    context = Context(job.project, job.user, with_bodies)
    keep = keeping(job.content, job.key)
    paths = [Path(os.fsdecode(path)) for path in job.paths]
    if growth is not None:
        paths = [growth.follow(paths[0], flat)]

    def encoded(chunk: Chunk) -> bytes:
        return to_bytes(chunk if growth is None else growth.stamped(chunk))

    try:
        for entry in map(keep, _entries(job, source, paths, context)):
            if isinstance(entry, Problem):
                flat.problem(entry)
            else:
                flat.add(entry)
            if flat.ready():
                yield encoded(flat.take())
    except (OSError, InputError) as error:
        lost = Problem(str(paths[0]), None, "$", f"the file cannot be read: {error}")
        flat.problem(as_problem(keep(lost)))
    yield encoded(flat.take(last=True))


def as_problem(entry: LaneSteps | Problem) -> Problem:
    """What a mode of content makes of a problem is one."""
    assert isinstance(entry, Problem)
    return entry


def _entries(
    job: Job, source: Source, paths: Sequence[Path], context: Context
) -> Iterator[LaneSteps | Problem]:
    if job.joint:
        return cast("JointSource", source).read_many(paths, context)
    return source.read(paths[0], context)


def serve() -> None:
    """Read the jobs that come on standard input until it ends."""
    out = os.fdopen(os.dup(1), "wb")
    # A plug-in that prints must not write into the frames.
    os.dup2(2, 1)
    sources: dict[tuple[str, str], Source] = {}
    decoder = msgspec.msgpack.Decoder(Job)
    try:
        while (frame := read_frame(sys.stdin.buffer)) is not None:
            job = decoder.decode(frame)
            if job.source not in sources:
                module, name = job.source
                sources[job.source] = _resolve(module, name)
            growth = Growth(out, sys.stdin.buffer) if job.live else None
            for message in read(job, sources[job.source], growth):
                write_frame(out, message)
            if growth is not None:
                # In the child of a fork; or the reading ended early, and there is nothing to go on.
                os._exit(0)
    except (BrokenPipeError, KeyboardInterrupt):
        # The parent is gone or going; it says what there is to say.
        pass


def _resolve(module: str, name: str) -> Source:
    kind: object = import_module(module)
    for attribute in name.split("."):
        kind = getattr(kind, attribute)
    return cast("type[Source]", kind)()


class Answer(NamedTuple):
    """A chunk of a job, or the end of the process that read it."""

    job: Job
    message: bytes | None
    exit_code: int | None = None


class Workers:
    """Some reading processes, and their answers in the order in which they come.

    Pipes and the queue are short, so readers wait for the one who takes the answers: memory stays
    bounded. Use it as a context manager; leaving it ends the processes.
    """

    def __init__(self, jobs: Iterator[Job], count: int) -> None:
        self._jobs = jobs
        self._pulling = Lock()
        self._stop = Event()
        self._queue: Queue[Answer | None] = Queue(maxsize=2 * count)
        self._readers: set[Reader] = set()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="reader")
        self._done = [self._threads.submit(self._run) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for reader in list(self._readers):
            reader.kill()
        self._threads.shutdown()

    def __iter__(self) -> Iterator[Answer]:
        """The answers; raises what the iterator of jobs raised."""
        open_threads = len(self._done)
        while open_threads:
            answer = self._queue.get()
            if answer is None:
                open_threads -= 1
            else:
                yield answer
        for future in self._done:
            future.result()

    def _run(self) -> None:
        reader: Reader | None = None
        try:
            while not self._stop.is_set():
                with self._pulling:
                    job = next(self._jobs, None)
                if job is None:
                    return
                if reader is None:
                    reader = Reader()
                    self._readers.add(reader)
                if not self._ask(reader, job):
                    self._end(reader)
                    reader = None
        finally:
            if reader is not None:
                self._end(reader)
            self._put(None)

    def _end(self, reader: Reader) -> None:
        self._readers.discard(reader)
        reader.close()

    def _ask(self, reader: Reader, job: Job) -> bool:
        """Have a job read; whether the process lived to its end."""
        try:
            for message in reader.ask(encode(job)):
                self._put(Answer(job, message))
        except ReaderLostError as lost:
            self._put(Answer(job, None, lost.exit_code))
            return False
        return True

    def _put(self, answer: Answer | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(answer, timeout=0.2)
            except Full:
                continue
            return
