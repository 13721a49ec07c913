"""Sentences that say what a session cost and what a chart shows, and sums over sessions."""

from __future__ import annotations

import pytest

from analyzer.diagnose import SessionDiagnosis, diagnose_session
from analyzer.intake import ingest
from analyzer.model import Session
from analyzer.pricing import PriceBook
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.views.overview import (
    NO_CAUSE,
    bill_sentence,
    choices,
    counted,
    dearest_first,
    lane_sentence,
    map_sentence,
    matching,
    totals,
)
from analyzer.workspace import Workspace, analyse
from tests.apps.traces import Trace, write
from tests.builders import anthropic_records, keep_newest, write_lines
from tests.reading import lanes


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Three sessions: one that churns, one that is healthy, one without usage."""
    folder = tmp_path_factory.mktemp("overview")
    file = write(
        folder / "traces.jsonl",
        Trace("churning", title="Fix [the] build", user="Ann"),
        Trace("healthy", keep=99, steps=5),
        Trace("silent", usage=False, steps=3),
    )
    ingest([file], folder / "store.duckdb", project="demo")
    analyse(folder / "store.duckdb")
    return Workspace.open(folder / "store.duckdb")


def judged(space: Workspace) -> dict[str, SessionDiagnosis]:
    """The sessions by their ids."""
    keys = space.keys()
    return {key.session_id: space.diagnose(key) for key in keys}


def test_sums_leave_unknown_sessions_out_and_stay_unknown_where_nothing_is_known(
    space: Workspace,
) -> None:
    frame = space.sessions()
    sums = totals(frame)
    assert (sums.sessions, sums.steps, sums.unjudged) == (3, 22, 0)
    diagnoses = judged(space)
    known = [d for d in diagnoses.values() if d.cost_usd is not None]
    assert sums.cost_usd == pytest.approx(float(sum(d.cost_usd for d in known if d.cost_usd)))
    assert sums.wasted_usd == pytest.approx(float(diagnoses["churning"].wasted_usd or 0))
    silent = totals(matching(frame, "silent"))
    assert (silent.cost_usd, silent.wasted_usd, silent.hit_ratio) == (None, None, None)


def test_breaks_without_a_price_are_not_called_unknown(tmp_path) -> None:
    records = anthropic_records(24, shape=keep_newest(8))
    for record in records:
        record["response"]["model"] = "claude-nobody-1"
    file = write_lines(tmp_path / "run.jsonl", records)
    lane = lanes(AnthropicLogSource(), file)["main"]
    found = diagnose_session(Session(lane.session, (lane,)), PriceBook.default())
    sentence = bill_sentence(found)
    assert "– was lost in 15 breaks, mostly by sliding-stubs" in sentence
    assert found.findings[0].evidence["unpriced_steps"] == 15


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {"churning", "healthy", "silent"}),
        ("[THE]", {"churning"}),
        ("ann", {"churning"}),
        ("demo", {"churning", "healthy", "silent"}),
        ("%", set()),
        ("a.*", set()),
    ],
)
def test_a_filter_is_literal_text_in_any_case(space: Workspace, text: str, found: set[str]) -> None:
    assert set(matching(space.sessions(), text)["session_id"]) == found


def test_sessions_without_a_finding_are_chosen_by_their_own_word(space: Workspace) -> None:
    frame = space.sessions()
    assert set(choices(frame, "top_cause")) == {"sliding-stubs", NO_CAUSE}
    assert set(matching(frame, causes=[NO_CAUSE])["session_id"]) == {"healthy", "silent"}
    assert matching(frame, sources=["steps"]).height == 3
    assert dearest_first(frame, 1)["session_id"].to_list() == ["churning"]


def test_a_session_is_told_in_a_sentence(space: Workspace) -> None:
    said = {name: bill_sentence(found) for name, found in judged(space).items()}
    assert said["churning"].startswith("14 steps cost $")
    assert said["churning"].endswith("breaks, mostly by sliding-stubs")
    assert said["healthy"].endswith("; the cache never broke")
    assert "since no cache counts were recorded" in said["silent"]
    assert (counted(1, "break"), counted(0, "break"), counted(1200, "step")) == (
        "1 break",
        "0 breaks",
        "1,200 steps",
    )


def test_what_a_transcript_cannot_show_is_not_claimed(space: Workspace) -> None:
    churning, healthy = (judged(space)[name] for name in ("churning", "healthy"))
    rows = churning.lanes[0].ledger.rows
    assert "slides from message" in map_sentence(rows, churning.findings)
    unseen = [row for row in rows if row.divergence is None]
    assert map_sentence(unseen, churning.findings) == (
        "Every prompt kept the one before as its prefix"
    )
    assert "As far as the transcript shows" in map_sentence(unseen, (), rebuilt=True)
    assert lane_sentence(healthy.rows) == "The cache held through all 5 steps"
    assert lane_sentence(churning.rows).startswith("The cache broke at ")
