"""How far a replay is trusted: errors, bands, and which cache rule a recording followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.caching import CACHES
from analyzer.model import Lane
from analyzer.policies import parse_spec
from analyzer.pricing import PriceBook
from analyzer.replay import (
    Event,
    LaneKey,
    Spread,
    backtest,
    build_lane,
    choose_cache,
    losses,
    replay,
    saving,
)
from analyzer.tokens import measure
from tests.replay.recordings import agent, keep_newest, with_usage

BOOK = PriceBook.default()
RULES = {"anthropic": CACHES["anthropic"], "prefix": CACHES["prefix"]}


def lost_at(lane: Lane, number: int) -> Lane:
    """The lane with one step whose cache entry was gone."""
    steps = list(lane.steps)
    usage = steps[number].usage
    assert usage is not None
    whole = usage.prompt or 0
    steps[number] = replace(
        steps[number],
        usage=replace(
            usage,
            cache_read=0,
            cache_write=whole - 4,
            cache_write_5m=whole - 4,
            cache_write_1h=0,
            input=4,
        ),
    )
    return replace(lane, steps=tuple(steps))


@pytest.mark.parametrize("rule", list(RULES))
def test_a_recording_of_a_rule_gives_its_own_bill_back(rule: str) -> None:
    for lane in (agent(30), agent(30, seed=2, compact=keep_newest(4))):
        out = backtest([build_lane(with_usage(lane, rule))], RULES[rule], BOOK)
        assert out.steps == 30
        assert out.cost_error.p95 == pytest.approx(0, abs=0.005)
        assert out.verdict_agreement == 1
        assert [s.events for s in out.sessions] == [0]


@pytest.mark.parametrize("rule", list(RULES))
def test_the_rule_of_a_churning_recording_is_told_by_its_reads(rule: str) -> None:
    lanes = [
        build_lane(with_usage(agent(20), rule)),
        build_lane(with_usage(agent(30, seed=2, compact=keep_newest(4)), rule)),
    ]
    assert choose_cache(lanes, RULES, BOOK) == rule


def test_recordings_that_cannot_tell_leave_the_providers_own_rule() -> None:
    lanes = [build_lane(with_usage(agent(20), "prefix"))]
    assert choose_cache(lanes, RULES, BOOK) == "anthropic"


def test_an_eviction_is_a_blind_error_that_the_carried_replay_takes_away() -> None:
    lane = build_lane(lost_at(with_usage(agent(30)), 20))
    events = losses([lane], CACHES["anthropic"], BOOK)
    assert events == {(lane.key, 20): Event(0)}
    out = backtest([lane], CACHES["anthropic"], BOOK)
    (session,) = out.sessions
    assert session.cost_error is not None
    assert session.cost_error > 0.02
    assert session.carried_cost_error == pytest.approx(0, abs=0.001)
    assert session.events == 1
    assert session.verdict_agreement == pytest.approx(29 / 30)


def test_a_loss_where_the_recordings_own_policy_cut_is_not_carried_to_other_policies() -> None:
    lane = with_usage(agent(30, compact=keep_newest(4)))
    for number in (10, 15):
        lane = lost_at(lane, number)
    built = build_lane(lane)
    assert all(built.steps[n].cut for n in (10, 15))
    events = losses([built], CACHES["anthropic"], BOOK)
    assert events == {(built.key, n): Event(0, own=True) for n in (10, 15)}
    raw = [
        replay([built], parse_spec("raw"), CACHES["anthropic"], BOOK, events=known)
        for known in (events, {})
    ]
    assert raw[0].cost_usd == raw[1].cost_usd
    assert backtest([built], CACHES["anthropic"], BOOK).carried_cost_error.p95 == pytest.approx(
        0, abs=0.001
    )


def test_a_prefix_that_others_kept_warm_is_carried() -> None:
    lane = with_usage(agent(20))
    first = lane.steps[0]
    assert first.usage is not None
    pairs = zip(lane.pool, measure(lane).parts, strict=True)
    head = sum(size for part, size in pairs if part.section != "messages")
    warm = replace(first.usage, cache_read=head, cache_write=(first.usage.cache_write or 0) - head)
    split = replace(warm, cache_write_5m=warm.cache_write)
    built = build_lane(replace(lane, steps=(replace(first, usage=split), *lane.steps[1:])))
    events = losses([built], CACHES["anthropic"], BOOK)
    assert events == {(built.key, 0): Event(head)}
    (session,) = backtest([built], CACHES["anthropic"], BOOK).sessions
    assert session.cost_error is not None
    assert session.cost_error > 0.001
    assert session.carried_cost_error == pytest.approx(0, abs=0.0005)
    out = replay([built], parse_spec("raw"), CACHES["anthropic"], BOOK, events=events)
    assert out.lanes[0].read[0] == head


def test_a_lane_without_usage_has_no_errors_and_not_errors_of_zero() -> None:
    lane = agent(5)
    bare = replace(lane, steps=tuple(replace(s, usage=None) for s in lane.steps))
    out = backtest([build_lane(bare)], CACHES["anthropic"], BOOK)
    assert out.sessions[0].cost_error is None
    assert out.cost_error == Spread(None, None)
    assert out.verdict_agreement is None


def test_a_step_without_usage_is_left_out_and_the_session_is_still_scored() -> None:
    lane = with_usage(agent(10))
    steps = list(lane.steps)
    steps[4] = replace(steps[4], usage=None)
    (session,) = backtest(
        [build_lane(replace(lane, steps=tuple(steps)))], CACHES["anthropic"], BOOK
    ).sessions
    assert session.steps == 9
    assert session.cost_error == pytest.approx(0, abs=0.01)


def test_a_saving_within_the_error_is_not_shown() -> None:
    small = saving(10.0, 9.9, 0.02)
    assert small is not None
    assert not small.shown
    assert small.text == "no difference shown"
    large = saving(10.0, 6.0, 0.02)
    assert large is not None
    assert large.shown
    assert large.text == "saves 40.0% (± 2.0%)"
    worse = saving(10.0, 16.0, 0.02)
    assert worse is not None
    assert worse.text == "costs 60.0% more (± 2.0%)"
    assert saving(0.0, 1.0, 0.0) is None


def test_the_95th_percentile_is_a_value_that_was_measured() -> None:
    assert Spread.of([n / 100 for n in range(1, 101)]) == Spread(0.505, 0.95)
    assert Spread.of([0.2, None]) == Spread(0.2, 0.2)


def test_a_lane_is_known_by_its_session_and_name() -> None:
    lane = build_lane(agent(2))
    assert lane.key == LaneKey(lane.key.session, "main")
