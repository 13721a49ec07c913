"""Ingest of generated transcripts: speed, memory and store size, beside merely parsing the lines.

    python benchmarks/ingest.py [--megabytes 200] [--sessions 50] [--paths DIR]

Prints one JSON object. `ratio` is the speed of a whole ingest, to a published store, over that of
`msgspec.json.decode` on the same lines in the same run, without keeping a result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

WORDS = "def return import self value error index table request cache prefix token policy window"
INGEST = """
import json, sys
from analyzer.intake import ingest
report = ingest([sys.argv[1]], sys.argv[2], content=sys.argv[3])
print(json.dumps({"steps": report.steps, "parts": report.parts, "problems": len(report.problems)}))
"""


def transcript(path: Path, size: int, seed: int) -> None:
    """One session in the form of a Claude Code transcript, of about `size` bytes."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS.split(), k=3000)) for _ in range(20)]
    at = datetime(2026, 11, 1, tzinfo=UTC)
    session, parent, prompt, written, number = path.stem, None, 18_000, 0, 0

    def text(n: int) -> str:
        source = chance.choice(texts)
        start = chance.randrange(len(source) // 2)
        return source[start : start + n]

    with path.open("w", encoding="utf-8") as out:
        while written < size:
            number += 1
            at += timedelta(seconds=chance.uniform(4, 25))
            answer, result = text(chance.randint(100, 900)), text(chance.randint(2000, 9000))
            usage = {
                "input_tokens": 3,
                "cache_read_input_tokens": prompt,
                "cache_creation_input_tokens": len(result) // 4,
                "output_tokens": len(answer) // 4,
            }
            call = f"toolu_{seed}_{number}"
            message = {
                "id": f"msg_{seed}_{number}",
                "role": "assistant",
                "model": "claude-sonnet-4-5-20250929",
                "content": [
                    {"type": "text", "text": answer},
                    {"type": "tool_use", "id": call, "name": "Read", "input": {"path": "f.py"}},
                ],
                "usage": usage,
            }
            block = {"type": "tool_result", "tool_use_id": call, "content": result}
            for kind, body in (
                ("assistant", message),
                ("user", {"role": "user", "content": [block]}),
            ):
                row = {
                    "parentUuid": parent,
                    "isSidechain": False,
                    "sessionId": session,
                    "type": kind,
                    "message": body,
                    "uuid": f"{seed}-{number}-{kind}",
                    "timestamp": at.isoformat().replace("+00:00", "Z"),
                }
                if kind == "assistant":
                    row["requestId"] = f"req_{seed}_{number}"
                parent = row["uuid"]
                line = json.dumps(row, separators=(",", ":")) + "\n"
                out.write(line)
                written += len(line)
            prompt = (prompt + len(result) // 4) % 160_000


def memory_of_tree(root: int) -> int:
    """Resident bytes of a process and its descendants, now."""
    parents, sizes = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                resident = int((entry / "statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
            parents[int(entry.name)] = int(stat[1])
            sizes[int(entry.name)] = resident * os.sysconf("SC_PAGE_SIZE")

    def inside(pid: int) -> bool:
        while pid not in (0, root):
            pid = parents.get(pid, 0)
        return pid == root

    return sum(size for pid, size in sizes.items() if inside(pid))


def measure(folder: Path, store: Path, content: str) -> dict[str, float]:
    """One ingest in a process of its own."""
    start = time.perf_counter()
    running = subprocess.Popen(
        [sys.executable, "-c", INGEST, str(folder), str(store), content],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    peak = 0
    while running.poll() is None:
        peak = max(peak, memory_of_tree(running.pid))
        time.sleep(0.05)
    wall = time.perf_counter() - start
    if running.returncode:
        raise SystemExit(f"the ingest ended with code {running.returncode}")
    assert running.stdout is not None
    return {"wall_s": wall, "peak_rss_mb": peak / 1e6, **json.loads(running.stdout.read())}


def parse_speed(files: list[Path]) -> float:
    """MB/s of parsing every line and keeping nothing, one process, reading included."""
    decode = msgspec.json.Decoder().decode
    start = time.perf_counter()
    for file in files:
        with file.open("rb") as stream:
            for line in stream:
                decode(line)
    return sum(file.stat().st_size for file in files) / 1e6 / (time.perf_counter() - start)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=float, default=200)
    arguments.add_argument("--sessions", type=int, default=50)
    arguments.add_argument(
        "--paths", type=Path, help="a folder of *.jsonl instead of generated ones"
    )
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.paths or Path(scratch, "traces")
        if given.paths is None:
            folder.mkdir()
            for seed in range(given.sessions):
                size = int(given.megabytes * 1e6 / given.sessions)
                transcript(folder / f"session-{seed}.jsonl", size, seed)
        files = [p for p in folder.rglob("*.jsonl") if p.is_file()]
        total = sum(file.stat().st_size for file in files)
        parsing = parse_speed(files)
        out: dict[str, object] = {"megabytes": total / 1e6, "parse_mb_per_s": parsing}
        for content in ("full", "none"):
            store = Path(scratch, f"{content}.duckdb")
            figures = measure(folder, store, content)
            speed = total / 1e6 / figures["wall_s"]
            figures |= {
                "mb_per_s": speed,
                "ratio": speed / parsing,
                "store_share": store.stat().st_size / total,
            }
            out[content] = {name: round(value, 3) for name, value in figures.items()}
        print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
