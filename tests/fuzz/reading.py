"""Reads a file as an ingest does, within a bound of time, and checks all that comes out."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType

from analyzer.model import Compaction, LaneSteps, Part, Problem, Range, Step, Usage
from analyzer.records import Flattener, from_bytes, to_bytes
from analyzer.sources import SOURCES
from analyzer.sources.base import Context, read_head

SECONDS = 20
LARGEST = 1 << 53
COUNTS = ("input", "cache_read", "cache_write", "cache_write_5m", "cache_write_1h", "output")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in what takes longer."""

    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still reading after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read(source: str, path: Path) -> tuple[int, int]:
    """Steps and problems of a file; raises `AssertionError` where something is not as promised."""
    with within(SECONDS):
        head = read_head(path)
        for other in SOURCES.values():
            other.detect(head)
        entries = list(SOURCES[source].read(path, Context()))
        return check(entries)


def check(entries: list[LaneSteps | Problem]) -> tuple[int, int]:
    flat = Flattener(1, keep_bodies=True)
    sizes: dict[tuple[object, str], int] = {}
    steps = problems = 0
    for entry in entries:
        if isinstance(entry, Problem):
            problems += 1
            _problem(entry)
            flat.problem(entry)
            continue
        assert isinstance(entry, LaneSteps), entry
        assert all(isinstance(name, str) for name in entry.session), entry.session
        assert entry.session.session_id, "a session without a name"
        assert entry.lane, "a lane without a name"
        place = (entry.session, entry.lane)
        for step in entry.steps:
            steps += 1
            sizes[place] = sizes.get(place, 0) + len(step.new_parts)
            assert step.lane == entry.lane
            _step(step, sizes[place])
            _parts(step.new_parts)
        _parts(entry.tail_parts)
        sizes[place] = sizes.get(place, 0) + len(entry.tail_parts)
        flat.add(entry)
    from_bytes(to_bytes(flat.take(last=True)))
    return steps, problems


def _problem(problem: Problem) -> None:
    assert problem.message
    assert problem.pointer.startswith("$")
    assert problem.line is None or problem.line >= 1
    assert len(problem.raw) <= 1 << 20


def _step(step: Step, size: int) -> None:
    assert isinstance(step.key, str)
    assert step.key
    for at in (step.at, step.ended_at):
        assert at is None or _is_utc(at), at
    for name in ("model", "provider", "miss_reason", "stop_reason", "error", "copied_from"):
        text = getattr(step, name)
        assert text is None or isinstance(text, str), (name, text)
    assert step.line is None or (type(step.line) is int and step.line >= 1)
    assert type(step.human) is bool
    cost = step.reported_cost
    assert cost is None or (isinstance(cost, int | float) and math.isfinite(cost)), cost
    assert cost is None or cost >= 0, cost
    assert step.labels == tuple(sorted(step.labels))
    assert all(isinstance(text, str) for pair in step.labels for text in pair), step.labels
    if step.usage is not None:
        _usage(step.usage)
    if step.compaction is not None:
        _compaction(step.compaction)
    _ranges(step.response, size)
    if step.prompt is not None:
        _ranges(step.prompt.ranges, size)
        positions = [mark.position for mark in step.prompt.breakpoints]
        assert positions == sorted(positions)
        assert all(0 <= position < len(step.prompt) for position in positions)
        assert {mark.ttl for mark in step.prompt.breakpoints} <= {"5m", "1h"}
        assert all(isinstance(text, str) for pair in step.prompt.settings for text in pair)


def _is_utc(at: datetime) -> bool:
    return at.utcoffset() == timedelta(0)


def _usage(usage: Usage) -> None:
    for name in (*COUNTS, "reasoning"):
        value = getattr(usage, name)
        assert value is None or (type(value) is int and 0 <= value <= 4 * LARGEST), (name, value)
    split = (usage.cache_write_5m or 0) + (usage.cache_write_1h or 0)
    assert usage.cache_write is not None or not split, usage
    assert usage.cache_write is None or split <= usage.cache_write, usage


def _compaction(compaction: Compaction) -> None:
    for name in ("pre_tokens", "post_tokens", "snipped", "pruned", "tokens_saved"):
        value = getattr(compaction, name)
        assert value is None or (type(value) is int and 0 <= value <= LARGEST), (name, value)
    assert compaction.trigger is None or isinstance(compaction.trigger, str)


def _ranges(ranges: tuple[Range, ...], size: int) -> None:
    assert all(0 <= r.start < r.stop <= size for r in ranges), (ranges, size)


def _parts(parts: tuple[Part, ...]) -> None:
    for part in parts:
        assert len(part.digest) == 16
        assert part.chars >= 0
        assert part.estimate >= 0
        assert part.envelope >= 0
        for text in (part.role, part.kind, part.section):
            assert isinstance(text, str)
        for name in ("body", "tool", "call_id"):
            text = getattr(part, name)
            assert text is None or isinstance(text, str), (name, text)
