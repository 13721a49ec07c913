"""The prefix map: what stood at each message position of each step, against the step before.

A window that slides over old messages shows as a diagonal: the first changed message moves on with
every step, and everything behind it is paid again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from analyzer.ledger import LaneLedger, StepRow
from analyzer.model import Lane, Prompt

ABSENT, KEPT, BEHIND, STUB, NEW, CHANGED = range(6)
"""Larger stands above smaller where one cell stands for several messages or steps. `BEHIND` is
kept content behind the first change: equal, and yet not readable from the cache."""

MAX_ROWS = 400
MAX_COLUMNS = 800

Cells: TypeAlias = npt.NDArray[np.int8]
Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PrefixMap:
    """A grid of states: one row a step (or a few), one column a message position (or a few)."""

    cells: Cells
    """States by [row, column]; column 0 is tools and system together."""
    first_step: int
    steps_per_row: int
    messages_per_column: int
    """Message positions that a column after the first one stands for."""
    n_messages: int
    n_steps: int
    """Steps of the lane with a known prompt."""
    rebuilt: bool
    """Prompts come from a transcript: what was replaced when it was sent does not show."""

    def column_of(self, message: int) -> int:
        """The column of an index into the messages array (-1: tools and system)."""
        return 0 if message < 0 else 1 + message // self.messages_per_column

    def row_of(self, step: int) -> int:
        """The row of a step."""
        return (step - self.first_step) // self.steps_per_row


def prefix_map(
    ledger: LaneLedger, max_rows: int = MAX_ROWS, max_columns: int = MAX_COLUMNS
) -> PrefixMap | None:
    """The map of a lane; None where no step has a known prompt.

    Memory is bound by the grid and one prompt, however long the lane is.
    """
    known = [row for row in ledger.rows if row.record.prompt is not None]
    if not known:
        return None
    width = max(row.n_messages or 0 for row in known)
    first, last = known[0].step, known[-1].step
    per_row = -(-(last - first + 1) // max_rows)
    per_column = max(1, -(-width // max_columns))
    shape = ((last - first) // per_row + 1, 1 + -(-width // per_column))
    cells = np.zeros(shape, dtype=np.int8)
    view = _PoolView(ledger)
    for row in known:
        line = cells[(row.step - first) // per_row]
        messages, states = view.states(row)
        columns = np.where(messages < 0, 0, 1 + messages // per_column)
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        if len(starts):
            seen = np.maximum.reduceat(states, starts)
            line[columns[starts]] = np.maximum(line[columns[starts]], seen)
    rebuilt = any(row.record.prompt is not None and not row.record.prompt.recorded for row in known)
    return PrefixMap(cells, first, per_row, per_column, width, len(known), rebuilt)


class _PoolView:
    """A lane's pool as arrays, so that a prompt is judged without a loop over its parts."""

    def __init__(self, ledger: LaneLedger) -> None:
        pool = ledger.lane.pool
        self.stub = np.fromiter(ledger.index.stubs, dtype=bool, count=len(pool))
        self.starts = np.fromiter((p.starts_message for p in pool), dtype=bool, count=len(pool))
        self.in_messages = np.fromiter(
            (p.section == "messages" for p in pool), dtype=bool, count=len(pool)
        )
        self.identity = _identities(ledger.lane)

    def states(self, row: StepRow) -> tuple[Indices, Cells]:
        """For each part of a step's prompt: its message index, and its state."""
        prompt = row.record.prompt
        assert prompt is not None
        parts = _parts(prompt)
        message = np.where(self.in_messages[parts], np.cumsum(self.starts[parts]) - 1, -1)
        old = row.previous.prompt if row.previous else None
        if old is None:
            states = np.where(self.stub[parts], STUB, NEW)
            return message, states.astype(np.int8)
        before = _parts(old)
        held = np.zeros(len(self.stub), dtype=bool)
        held[before] = True
        named = np.zeros(int(self.identity.max(initial=-1)) + 2, dtype=bool)
        named[self.identity[before]] = True
        named[-1] = False  # parts without a call id all share the identity -1
        kept = held[parts]
        position = np.arange(len(parts))
        common = row.divergence.common if row.divergence else None
        replaced = named[self.identity[parts]] | (position == (-1 if common is None else common))
        behind = position >= (len(parts) if common is None else common)
        same = np.where(self.stub[parts], STUB, np.where(behind, BEHIND, KEPT))
        states = np.where(kept, same, np.where(replaced, CHANGED, NEW))
        return message, states.astype(np.int8)


def _parts(prompt: Prompt) -> Indices:
    if not prompt.ranges:
        return np.empty(0, dtype=np.int64)
    starts, stops = np.array(prompt.ranges, dtype=np.int64).T
    sizes = stops - starts
    ends = np.cumsum(sizes)
    shift = np.repeat(starts - ends + sizes, sizes)
    indices: Indices = np.arange(ends[-1], dtype=np.int64) + shift
    return indices


def _identities(lane: Lane) -> Indices:
    """A number for each (call id, kind) of the pool; -1 for parts without a call id."""
    numbers: dict[tuple[str, str], int] = {}
    found = [
        numbers.setdefault((part.call_id, part.kind), len(numbers)) if part.call_id else -1
        for part in lane.pool
    ]
    return np.array(found, dtype=np.int64)
