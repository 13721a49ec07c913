"""The prefix map against a walk over every part, its size bounds, and the charts made of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from analyzer.diagnose import SessionDiagnosis
from analyzer.intake import ingest
from analyzer.ledger import LaneLedger, lane_ledger
from analyzer.model import Lane, Part, Prompt, Range, SessionKey, Step, Usage
from analyzer.pricing import PriceBook
from analyzer.views import charts
from analyzer.views.prefix_map import (
    ABSENT,
    BEHIND,
    CHANGED,
    KEPT,
    NEW,
    STUB,
    PrefixMap,
    prefix_map,
)
from analyzer.views.prompt import prompt_parts
from analyzer.workspace import Workspace
from tests.apps.traces import START, Trace, write


def diagnosed(folder: Path, trace: Trace) -> SessionDiagnosis:
    """A trace, ingested and judged."""
    store = folder / "store.duckdb"
    ingest([write(folder / "trace.jsonl", trace)], store)
    space = Workspace.open(store)
    return space.diagnose(space.keys()[0])


def walked(ledger: LaneLedger) -> dict[tuple[int, int], int]:
    """The state of each (step, message) by looking at one part after the other."""
    states: dict[tuple[int, int], int] = {}
    for row in ledger.rows:
        common = row.divergence.common if row.divergence else None
        for view in prompt_parts(ledger, row.step):
            if row.previous is None:
                state = STUB if view.stub else NEW
            elif view.change in ("changed", "stub"):
                state = CHANGED
            elif view.change == "new":
                state = NEW
            elif view.stub:
                state = STUB
            else:
                state = KEPT if common is None or view.position < common else BEHIND
            place = (row.step, view.message)
            states[place] = max(states.get(place, ABSENT), state)
    return states


@pytest.mark.parametrize("keep", [2, 4, 99])
def test_the_map_says_of_every_message_what_a_walk_over_the_parts_says(
    tmp_path: Path, keep: int
) -> None:
    ledger = diagnosed(tmp_path, Trace("s", steps=12, keep=keep)).lanes[0].ledger
    grid = prefix_map(ledger)
    assert grid is not None
    expected = walked(ledger)
    for row in range(grid.cells.shape[0]):
        for column in range(grid.cells.shape[1]):
            state = expected.get((grid.first_step + row, column - 1), ABSENT)
            assert grid.cells[row, column] == state, (row, column)
    assert (grid.cells == CHANGED).any() == (keep != 99)


def test_a_sliding_window_is_a_diagonal_of_changes(tmp_path: Path) -> None:
    ledger = diagnosed(tmp_path, Trace("s", steps=16, keep=3)).lanes[0].ledger
    grid = prefix_map(ledger)
    assert grid is not None
    changed = [(int(r), int(c)) for r, c in np.argwhere(grid.cells == CHANGED)]
    assert len(changed) == 12
    steps = np.diff(np.array(changed), axis=0)
    assert (steps == [1, 2]).all(), "one step on, the message two places further is the changed one"
    for row in ledger.rows:
        if row.divergence_index is not None:
            at = grid.column_of(row.divergence_index)
            assert grid.cells[grid.row_of(row.step), at] == CHANGED


def long_lane(steps: int, added: int) -> Lane:
    """A lane that appends some messages at each step and replaces one of the older ones."""
    pool = tuple(
        Part("messages", "user", "text", i.to_bytes(16, "big"), 40, 10, starts_message=True)
        for i in range(steps * (added + 1))
    )
    records = []
    spare = steps * added
    for n in range(steps):
        end = (n + 1) * added
        at = max(0, end - 20)
        ranges = (Range(0, at), Range(spare + n, spare + n + 1), Range(at + 1, end))
        prompt = Prompt(tuple(r for r in ranges if r.start < r.stop))
        usage = Usage(input=3, cache_read=at * 10, cache_write=(end - at) * 10, output=5)
        records.append(
            Step(
                key=str(n),
                lane="main",
                at=START + timedelta(seconds=n),
                ended_at=None,
                model="claude-sonnet-4-5",
                usage=usage,
                prompt=prompt,
            )
        )
    return Lane(SessionKey("p", "", "long"), "main", tuple(records), pool)


def test_a_long_lane_is_drawn_within_bounds_and_keeps_its_diagonal() -> None:
    ledger = lane_ledger(long_lane(900, 2), PriceBook.default())
    grid = prefix_map(ledger, max_rows=100, max_columns=120)
    assert grid is not None
    assert grid.cells.shape[0] <= 100
    assert grid.cells.shape[1] <= 121
    assert (grid.steps_per_row, grid.messages_per_column) == (9, 15)
    for row in ledger.rows[20:]:
        if row.divergence_index is not None:
            cell = grid.cells[grid.row_of(row.step), grid.column_of(row.divergence_index)]
            assert cell == CHANGED


def test_a_lane_without_prompts_has_no_map() -> None:
    lane = long_lane(3, 2)
    bare = Lane(
        lane.session,
        "main",
        tuple(Step(s.key, s.lane, s.at, None, s.model, s.usage, None) for s in lane.steps),
        (),
    )
    assert prefix_map(lane_ledger(bare, PriceBook.default())) is None


def test_charts_say_the_finding_and_hold_the_steps(tmp_path: Path) -> None:
    diagnosis = diagnosed(tmp_path, Trace("s", steps=12, keep=3))
    judged = diagnosis.lanes[0]
    steps = charts.lane_steps(diagnosis, "main")
    broken = [row for row in judged.ledger.rows if row.is_break]
    assert steps.title.startswith(f"The cache broke at {len(broken)} of 12 steps")
    named = {trace.name: trace for trace in steps.figure.data}
    assert list(named["read from the cache"].y) == [r.usage.cache_read for r in judged.ledger.rows]
    assert list(named["break: sliding-stubs"].x) == [row.step for row in broken]
    assert steps.figure.layout.yaxis.title.text == "prompt (tokens)"
    grid = prefix_map(judged.ledger)
    assert isinstance(grid, PrefixMap)
    drawn = charts.prefix_map_chart(grid, judged.ledger.rows, judged.findings)
    assert drawn.title.startswith("The first change slides from message")
    figure = drawn.figure.to_plotly_json()
    assert figure["layout"]["xaxis"]["title"]["text"].startswith("position in the messages array")


def test_many_steps_are_drawn_as_areas_and_unknown_counts_stay_gaps() -> None:
    ledger = lane_ledger(long_lane(charts.MANY_STEPS + 1, 2), PriceBook.default())
    assert {trace.type for trace in charts.token_traces(ledger.rows)} == {"scatter"}
    few = lane_ledger(long_lane(5, 2), PriceBook.default())
    assert {trace.type for trace in charts.token_traces(few.rows)} == {"bar"}


def test_text_of_a_trace_is_literal_in_a_chart() -> None:
    assert charts.escape("<a href='x'>y</a>\n<b>&") == (
        "&lt;a href=&#x27;x&#x27;&gt;y&lt;/a&gt; &lt;b&gt;&amp;"
    )
    rows = [{"kind": "<b>bold</b>", "wasted_usd": 2.0, "n_steps": 3}]
    shown = charts.waste_by_cause(rows, 8.0)
    assert shown is not None
    assert list(shown.figure.data[0].y) == ["&lt;b&gt;bold&lt;/b&gt;"]
    assert (
        shown.title
        == "$2.00 lost in breaks, 25% of what the sessions cost; 100% of it by <b>bold</b>"
    )


def test_nothing_lost_has_no_chart() -> None:
    assert charts.waste_by_cause([], 8.0) is None
    assert charts.waste_by_cause([{"kind": "x", "wasted_usd": None, "n_steps": 1}], None) is None
