"""Recordings with known truth from the generators beside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.caching import CACHES
from analyzer.policies import parse_spec
from analyzer.pricing import PriceBook
from analyzer.replay import Engine, ReplayLane, backtest, choose_cache, replay
from tests.replay.recordings import read_lanes

pytestmark = pytest.mark.data
BOOK = PriceBook.default()
ENGINES: tuple[Engine, ...] = ("fast", "naive")
KINDS = ("healthy", "stub_churn", "watermark", "ts_system", "tools_changed")
RULES = {"anthropic": CACHES["anthropic"], "prefix": CACHES["prefix"]}


@pytest.fixture(
    scope="module",
    params=[
        (5, "marks"),
        (5, "prefix"),
        (7, "marks"),
        (7, "prefix"),
        (31, "marks"),
        (31, "prefix"),
    ],
    ids=lambda p: f"seed {p[0]}, rule {p[1]}",
)
def generated(
    request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, ReplayLane], str]:
    """One lane per kind, and the rule that their usage follows."""
    seed, rule = request.param
    out = tmp_path_factory.mktemp("requests")
    subprocess.run(  # the generator of the data set, with arguments of our own
        [sys.executable, str(shared_data / "generators" / "requests.py"), str(out)],
        env={**os.environ, "SEED": str(seed), "RULE": rule},
        check=True,
        capture_output=True,
    )
    lanes = {}
    for kind in KINDS:
        (lanes[kind],) = read_lanes(out / f"{kind}.rr.jsonl", "anthropic-log")
    return lanes, "prefix" if rule == "prefix" else "anthropic"


def bill(lane: ReplayLane) -> float:
    costs = [BOOK.cost_float(s.usage, s.model, s.when, s.provider) for s in lane.steps if s.usage]
    return sum(c for c in costs if c is not None)


def replayed(lane: ReplayLane, spec: str, rule: str) -> float:
    cost = replay([lane], parse_spec(spec), CACHES[rule], BOOK).cost_usd
    assert cost is not None
    return cost


def test_the_rule_is_found_from_all_recordings_together(
    generated: tuple[dict[str, ReplayLane], str],
) -> None:
    lanes, rule = generated
    assert choose_cache(list(lanes.values()), RULES, BOOK) == rule


def test_stubs_over_the_healthy_recording_cost_what_the_churning_one_did(
    generated: tuple[dict[str, ReplayLane], str],
) -> None:
    lanes, rule = generated
    predicted = replayed(lanes["healthy"], "sliding-stubs:keep=10", rule)
    assert predicted == pytest.approx(bill(lanes["stub_churn"]), rel=0.03)


@pytest.mark.parametrize("kind", ["stub_churn", "watermark"])
def test_compacted_recordings_without_compaction_cost_what_the_healthy_one_did(
    generated: tuple[dict[str, ReplayLane], str], kind: str
) -> None:
    lanes, rule = generated
    assert replayed(lanes[kind], "raw", rule) == pytest.approx(bill(lanes["healthy"]), rel=0.03)


def test_each_recording_gives_its_own_bill_back(
    generated: tuple[dict[str, ReplayLane], str],
) -> None:
    lanes, rule = generated
    for kind, lane in lanes.items():
        assert replayed(lane, "recorded", rule) == pytest.approx(bill(lane), rel=1e-9), kind
        (session,) = backtest([lane], CACHES[rule], BOOK).sessions
        assert session.cost_error is not None
        assert session.cost_error < (0.05 if kind == "ts_system" else 0.01), kind
        assert session.carried_cost_error == pytest.approx(0, abs=0.01), kind


def test_fast_and_naive_agree_on_generated_recordings(
    generated: tuple[dict[str, ReplayLane], str],
) -> None:
    lanes, rule = generated
    for spec in ("sliding-stubs:keep=10", "watermarks:window=50000,protect_tokens=4000"):
        fast, naive = (
            replay(list(lanes.values()), parse_spec(spec), CACHES[rule], BOOK, engine=engine)
            for engine in ENGINES
        )
        assert fast.lanes == naive.lanes
