"""Following a growing file: from the append to the store that a reader opens, and what it costs.

    python benchmarks/follow.py [--megabytes 20] [--growths 40]

Prints one JSON object: seconds from an append of some rows until a reader sees their steps, for a
file that already has `--megabytes`; the bytes that the process which reads the file took from it
and its pipes for one growth; the size of the store against that of one made in a single run.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from queue import Queue
from statistics import median
from threading import Event, Thread

from ingest import transcript

from analyzer.intake import IngestReport, follow, ingest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--growths", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), options.megabytes, options.growths), indent=1))


def measure(folder: Path, megabytes: int, growths: int) -> dict[str, object]:
    source = folder / "whole.jsonl"
    transcript(source, megabytes << 20, 1)
    lines = source.read_bytes().splitlines(keepends=True)
    path = folder / "in" / "session.jsonl"
    path.parent.mkdir()
    tail = lines[-4 * growths :]
    path.write_bytes(b"".join(lines[: -4 * growths]))
    reports: Queue[IngestReport] = Queue()
    stop = Event()
    store = folder / "s.duckdb"

    def run() -> None:
        for report in follow([path], store, stop=stop):
            reports.put(report)

    thread = Thread(target=run)
    thread.start()
    reports.get()
    before = _bytes_read()
    waits = []
    for start in range(0, len(tail), 4):
        begun = time.perf_counter()
        with path.open("ab") as out:
            out.write(b"".join(tail[start : start + 4]))
        reports.get()
        waits.append(time.perf_counter() - begun)
    read = _bytes_read() - before
    stop.set()
    thread.join()
    ingest([path], folder / "once.duckdb")
    size, once = store.stat().st_size, (folder / "once.duckdb").stat().st_size
    waits.sort()
    return {
        "file_mb": round(path.stat().st_size / 1e6, 1),
        "growths": len(waits),
        "seconds": {
            "median": round(median(waits), 2),
            "p95": round(waits[int(len(waits) * 0.95)], 2),
            "worst": round(waits[-1], 2),
        },
        "bytes_appended_a_growth": sum(map(len, tail)) // len(waits),
        "bytes_read_a_growth": read // len(waits),
        "store_of_one_run_ratio": round(size / once, 2),
    }


def _bytes_read() -> int:
    """Bytes that the processes below this one have read (Linux)."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            total += int(Path(f"/proc/{child}/io").read_text().split()[1])
    return total


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "2")
    main()
