from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.comparison import compare_policies, fidelity_of
from analyzer.diagnose import SessionDiagnosis, diagnose_session
from analyzer.errors import UsageError
from analyzer.model import Session
from analyzer.pricing import PriceBook
from analyzer.sources.anthropic_log import AnthropicLogSource
from tests.builders import anthropic_records, keep_newest, log_of, write_lines
from tests.reading import lanes

BOOK = PriceBook.default()


class SmallWindow(PriceBook):
    """A book in which every model has a window of 30,000 tokens."""

    def window(self, model: str | None, provider: str | None = None) -> int | None:
        return 30_000


@pytest.fixture
def churn(tmp_path: Path) -> SessionDiagnosis:
    path = write_lines(tmp_path / "churn.jsonl", anthropic_records(24, shape=keep_newest(8)))
    found = tuple(lanes(AnthropicLogSource(), path).values())
    return diagnose_session(Session(found[0].session, found), BOOK)


def test_a_policy_that_outgrows_the_window_is_not_feasible_and_claims_nothing(churn) -> None:
    book = SmallWindow.default()
    recorded = max(row.prompt_tokens for row, _ in churn.rows)
    assert recorded < 30_000
    raw, stubs = compare_policies([churn], ["raw", "sliding-stubs:keep=8"], book).outcomes
    assert stubs.overflow is None
    assert stubs.saving is not None
    assert raw.saving is None
    assert raw.overflow is not None
    assert raw.overflow.prompt_tokens > 30_000
    prompts = raw.result.lanes[0].prompt
    assert prompts[raw.overflow.step - 1] <= 30_000 < prompts[raw.overflow.step]


def test_what_was_answered_is_no_overflow_whatever_the_window_is_said_to_be(churn) -> None:
    class Tiny(SmallWindow):
        def window(self, model: str | None, provider: str | None = None) -> int | None:
            return 10_000

    (same,) = compare_policies([churn], ["recorded"], Tiny.default()).outcomes
    assert same.overflow is None


def test_without_usage_nothing_is_replayed_and_the_reason_is_said(tmp_path) -> None:
    rows = [r["request"] for r in anthropic_records(4)]
    path = write_lines(tmp_path / "bodies.jsonl", rows)
    found = tuple(lanes(AnthropicLogSource(), path).values())
    bare = diagnose_session(Session(found[0].session, found), BOOK)
    with pytest.raises(UsageError, match="no usage was recorded"):
        compare_policies([bare], ["raw"], BOOK)


def test_sessions_that_cannot_be_replayed_are_named_beside_those_that_can(churn, tmp_path) -> None:
    rows = [r["request"] for r in anthropic_records(4)]
    path = write_lines(tmp_path / "bodies.jsonl", rows)
    found = tuple(lanes(AnthropicLogSource(), path).values())
    bare = diagnose_session(Session(found[0].session, found), BOOK)
    fidelity, left_out = fidelity_of([churn, bare], BOOK)
    assert [log_of(s.session.session_id) for f in fidelity for s in f.sessions] == ["churn"]
    assert [(log_of(o.session.session_id), o.lane) for o in left_out] == [("bodies", "main")]


def test_an_advisor_leaves_its_lane_fit_for_a_replay(tmp_path) -> None:
    records = anthropic_records(6)
    usage = records[3]["response"]["usage"]
    counts = {k: v for k, v in usage.items() if k.endswith("_tokens")}
    usage["iterations"] = [
        {"type": "advisor_message", "model": "claude-opus-5", **dict.fromkeys(counts, 900)},
        {"type": "message", **counts},
    ]
    path = write_lines(tmp_path / "run.jsonl", records)
    found = tuple(lanes(AnthropicLogSource(), path).values())
    advised = diagnose_session(Session(found[0].session, found), BOOK)
    assert [row.record.is_aside for row, _ in advised.rows].count(True) == 1
    compared = compare_policies([advised], ["raw"], BOOK)
    assert compared.left_out == ()
    own = [row.prompt_tokens for row, _ in advised.rows if not row.record.is_aside]
    recorded = compared.recorded
    assert recorded.read_tokens + recorded.write_tokens + recorded.input_tokens == sum(own)
