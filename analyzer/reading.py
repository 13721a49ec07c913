"""Reads one file into chunks, in this process or in a worker that speaks over its pipes.

A worker is a plain Python process, never a fork: the parent may hold a database and threads. Each
frame is a length (8 bytes, little endian) and a message; a chunk that is the last ends its job.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import Full, Queue
from threading import Event, Lock
from typing import IO, NamedTuple, Self, cast

import msgspec

from analyzer.content import Mode, keeping
from analyzer.errors import InputError
from analyzer.model import LaneSteps, Problem
from analyzer.records import Flattener, to_bytes
from analyzer.sources.base import Context, JointSource, Source

BOOT = """
import importlib.util, sys, types
sys.path[:] = sys.argv[1:]
class Facade(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__") or "_loaded" in self.__dict__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self._loaded = True
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)
for name in ("analyzer", "analyzer.sources"):
    facade = Facade(name)
    facade.__spec__ = importlib.util.find_spec(name)
    sys.modules[name] = facade
    facade.__path__ = facade.__spec__.submodule_search_locations
from analyzer.reading import serve
serve()
"""
"""What a worker runs: the facades of the package and of its sources would load the database and
every format, which a reader of one format never uses, so they are loaded when a name is missed."""


TRUE = msgspec.msgpack.encode(True)


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


def reference(source: Source) -> tuple[str, str]:
    """How a worker finds a source: its module and the name of its class."""
    kind = type(source)
    return kind.__module__, kind.__qualname__


def read(job: Job, source: Source) -> Iterator[bytes]:
    """The encoded chunks of one job; the last one always comes, whatever the file holds."""
    with_bodies = job.content != "none"
    flat = Flattener(job.file_id, keep_bodies=with_bodies)
    context = Context(job.project, job.user, with_bodies)
    keep = keeping(job.content, job.key)
    try:
        for entry in map(keep, _entries(job, source, context)):
            if isinstance(entry, Problem):
                flat.problem(entry)
            else:
                flat.add(entry)
            if flat.ready():
                yield to_bytes(flat.take())
    except (OSError, InputError) as error:
        lost = Problem(os.fsdecode(job.paths[0]), None, "$", f"the file cannot be read: {error}")
        flat.problem(as_problem(keep(lost)))
    yield to_bytes(flat.take(last=True))


def as_problem(entry: LaneSteps | Problem) -> Problem:
    """What a mode of content makes of a problem is one."""
    assert isinstance(entry, Problem)
    return entry


def _entries(job: Job, source: Source, context: Context) -> Iterator[LaneSteps | Problem]:
    paths = [Path(os.fsdecode(path)) for path in job.paths]
    if job.joint:
        return cast("JointSource", source).read_many(paths, context)
    return source.read(paths[0], context)


def is_last(message: bytes) -> bool:
    """Whether an encoded chunk is the last of its job: it is the one that ends in a true flag."""
    return message[-1:] == TRUE


def write_frame(stream: IO[bytes], message: bytes) -> None:
    """Send one message."""
    stream.write(len(message).to_bytes(8, "little"))
    stream.write(message)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Receive one message; None at the end of the stream, even in the middle of a message."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    length = int.from_bytes(head, "little")
    message = stream.read(length)
    return message if len(message) == length else None


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
            for message in read(job, sources[job.source]):
                write_frame(out, message)
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
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="reader")
        self._done = [self._threads.submit(self._run) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for process in list(self._processes):
            process.kill()
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
        process: subprocess.Popen[bytes] | None = None
        try:
            while not self._stop.is_set():
                with self._pulling:
                    job = next(self._jobs, None)
                if job is None:
                    return
                process = process or self._start()
                if not self._ask(process, job):
                    self._end(process)
                    process = None
        finally:
            if process is not None:
                self._end(process)
            self._put(None)

    def _ask(self, process: subprocess.Popen[bytes], job: Job) -> bool:
        """Have a job read; whether the process lived to its end."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_frame(process.stdin, msgspec.msgpack.encode(job))
        except BrokenPipeError:
            self._put(Answer(job, None, process.wait()))
            return False
        while (message := read_frame(process.stdout)) is not None:
            self._put(Answer(job, message))
            if is_last(message):
                return True
        self._put(Answer(job, None, process.wait()))
        return False

    def _put(self, answer: Answer | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(answer, timeout=0.2)
            except Full:
                continue
            return

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", BOOT, *sys.path]
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and text
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._processes.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._processes.discard(process)
        # Closing its input is how a worker learns that there is no more work.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait()
