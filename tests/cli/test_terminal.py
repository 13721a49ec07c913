"""What a person at a terminal sees, and a pipe does not."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.builders import anthropic_records, write_lines


def command(folder: Path) -> list[str]:
    program = [sys.executable, "-m", "analyzer", "--db", str(folder / "store.duckdb")]
    return [*program, "ingest", str(folder)]


def everything(terminal: int) -> bytes:
    """What was written to a terminal until nobody holds it any more."""
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 1 << 16):
            shown += piece
    return shown


def test_progress_is_shown_on_stderr_where_that_is_a_terminal(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", anthropic_records(3))
    above, below = pty.openpty()
    with subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, stderr=below) as process:
        os.close(below)
        shown = everything(above)
        out, _ = process.communicate()
    os.close(above)
    assert process.returncode == 0
    assert b"reading files" in shown
    assert b"\x1b[" in shown
    assert b"3 new steps" in out
    assert b"reading files" not in out
    assert b"\x1b[" not in out


def test_a_pipe_gets_no_progress(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", anthropic_records(3))
    done = subprocess.run(command(tmp_path), capture_output=True, check=True)
    assert done.stderr == b""
