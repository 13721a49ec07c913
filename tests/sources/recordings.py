"""What the tests of agents' recordings share: writing small ones, reading and summing real ones."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from analyzer.model import LaneSteps, Problem, Step
from analyzer.sources.base import Context, Source

FIELDS = ("input", "cache_read", "cache_write", "output", "reasoning")


def plain(path: Path) -> str:
    """The text of a file, unpacked."""
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "surrogatepass")


def rows(path: Path) -> list[dict[str, Any]]:
    """The records of a journal, by plain JSON."""
    return [json.loads(line) for line in plain(path).split("\n") if line.strip()]


def write_document(path: Path, value: Any) -> Path:
    """A recording of one JSON document."""
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return path


def real(folder: Path, *patterns: str) -> list[Path]:
    """The real recordings below a folder."""
    found = sorted(path for pattern in patterns for path in folder.rglob(pattern))
    assert found, f"no recording in {folder}"
    return found


def totals(source: Source, paths: list[Path]) -> tuple[Counter[str], int]:
    """Sums of our usage over some files, and the number of steps; every file reads cleanly."""
    steps: dict[str, Step] = {}
    for path in paths:
        for entry in source.read(path, Context()):
            assert not isinstance(entry, Problem), entry
            assert isinstance(entry, LaneSteps)
            for step in entry.steps:
                old = steps.get(step.key)
                steps[step.key] = step if old is None or old.usage is None else old
    sums: Counter[str] = Counter()
    for step in steps.values():
        for field in FIELDS:
            sums[field] += getattr(step.usage, field, None) or 0
        sums["cost"] += round((step.reported_cost or 0) * 1_000_000)  # type: ignore[assignment]
    return sums, len(steps)
