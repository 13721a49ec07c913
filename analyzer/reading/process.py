"""A reading process as its parent sees it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from analyzer.errors import ReaderLostError
from analyzer.reading.frames import is_last, read_frame, write_frame

BOOT = """
import importlib, importlib.util, sys, types
sys.path[:] = sys.argv[1:]
class Facade(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__") or "_loaded" in self.__dict__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        inner = f"{self.__name__}.{name}"
        if importlib.util.find_spec(inner) is not None:
            return importlib.import_module(inner)
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
every format, which a reader of one format never uses, so they are loaded when a name is missed
that is no module of theirs."""


class Reader:
    """A process that reads one job after the other, or one growing file on and on."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", BOOT, *sys.path]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and text
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, message: bytes = b"") -> Iterator[bytes]:
        """The encoded chunks that answer a job, or, to the empty message, a file's growth.

        Take them all before the next question. Raises `ReaderLostError`.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_frame(self._process.stdin, message)
        except BrokenPipeError:
            raise ReaderLostError(self._process.wait()) from None
        while (answer := read_frame(self._process.stdout)) is not None:
            yield answer
            if is_last(answer):
                return
        raise ReaderLostError(self._process.wait())

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()

    def close(self) -> None:
        """End the process when it has nothing more to do, and wait for that."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Closing its input is how a worker learns that there is no more work.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
