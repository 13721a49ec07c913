"""Reads files into lanes without a store, for tests of sources, ledger and rules."""

from __future__ import annotations

from pathlib import Path

from analyzer.ledger import lane_ledger
from analyzer.model import Lane, LaneSteps, Part, Problem, Step
from analyzer.pricing import PriceBook
from analyzer.sources.base import Context, Source


def batches(source: Source, path: Path) -> tuple[list[LaneSteps], list[Problem]]:
    """Everything that a source yields for a file."""
    entries = list(source.read(path, Context()))
    return (
        [e for e in entries if isinstance(e, LaneSteps)],
        [e for e in entries if isinstance(e, Problem)],
    )


def lanes(source: Source, path: Path) -> dict[str, Lane]:
    """The lanes of a file by name."""
    steps: dict[str, list[Step]] = {}
    pools: dict[str, list[Part]] = {}
    last: dict[str, LaneSteps] = {}
    for batch in batches(source, path)[0]:
        steps.setdefault(batch.lane, []).extend(batch.steps)
        pools.setdefault(batch.lane, []).extend(p for s in batch.steps for p in s.new_parts)
        pools[batch.lane].extend(batch.tail_parts)
        last[batch.lane] = batch
    return {
        name: Lane(last[name].session, name, tuple(own), tuple(pools[name]), last[name].parent)
        for name, own in steps.items()
    }


def ledger(source: Source, path: Path, lane: str = "main"):  # type: ignore[no-untyped-def]
    """The ledger of one lane of a file."""
    return lane_ledger(lanes(source, path)[lane], PriceBook.default())
