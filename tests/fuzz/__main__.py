"""Spoils recordings for as long as one likes: `python -m tests.fuzz --seconds 600`.

Each finding is printed once a place in the code, and its file is kept; the exit code is 1 if there
was one. `--memory` (MB of address space) makes a reader that takes more fail.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analyzer.sources import detect
from analyzer.sources.base import open_bytes, read_head
from tests.fuzz.mutations import spoiled
from tests.fuzz.reading import read
from tests.samples import Form, Sample, samples

REAL_BYTES = 100_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--source", help="one source only")
    parser.add_argument("--memory", type=int, default=2_000, help="MB that reading may take")
    parser.add_argument("--keep", type=Path, help="folder for the files that failed")
    parser.add_argument("--data", type=Path, help="folder of real recordings, to spoil those too")
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (chosen.memory << 20,) * 2)
    made = [*samples(), *(real(chosen.data) if chosen.data else ())]
    made = [s for s in made if chosen.source in (None, s.source)]
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    kept = chosen.keep or Path(tempfile.mkdtemp(prefix="fuzz-"))
    print(f"seed {seed}, {len(made)} samples, {chosen.seconds:g} s")
    return hunt(made, random.Random(seed), chosen.seconds, kept)


def real(folder: Path) -> Iterator[Sample]:
    """The small files of a folder that a source recognises."""
    for path in sorted(folder.rglob("*")):
        source = detect(read_head(path)) if path.is_file() else None
        if source is None:
            continue
        with open_bytes(path) as stream:
            raw = stream.read(REAL_BYTES + 1)
        if len(raw) <= REAL_BYTES:
            yield Sample(source.name, path.name.removesuffix(".gz"), *value_of(raw))


def value_of(raw: bytes) -> tuple[Form, Any]:
    """How a file writes its records, and these; the bytes where they are no JSON."""
    try:
        return "document", json.loads(raw)
    except ValueError:
        pass
    try:
        return "lines", [json.loads(line) for line in raw.splitlines() if line.strip()]
    except ValueError:
        return "bytes", raw


def hunt(made: list[Sample], rng: random.Random, seconds: float, kept: Path) -> int:
    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            sample = rng.choice(made)
            path = Path(folder, sample.name)
            path.write_bytes(spoiled(rng, sample))
            counts["files"] += 1
            try:
                steps, problems = read(sample.source, path)
            except Exception as error:  # noqa: BLE001 - whatever a reader raises is the finding
                place = _place(sample, error)
                found[place] = found.get(place, 0) + 1
                if found[place] == 1:
                    _keep(kept, len(found), sample, path, error)
                continue
            counts["steps"] += steps
            counts["problems"] += problems
    print(", ".join(f"{n:,} {name}" for name, n in counts.items()))
    for place, times in found.items():
        print(f"FAILED {times} times: {place}")
    return 1 if found else 0


def _place(sample: Sample, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return f"{sample.source}: {type(error).__name__} at {last.filename}:{last.lineno}"


def _keep(kept: Path, number: int, sample: Sample, path: Path, error: Exception) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    copy = kept / f"{number:03}-{sample.source}-{path.name}"
    copy.write_bytes(path.read_bytes())
    print(f"{copy}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    traceback.print_exception(error, limit=-6, file=sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
