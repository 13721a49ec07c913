"""What others kept warm at a lane's first request is learned from other sessions, never its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from analyzer.caching import CACHES
from analyzer.model import Lane
from analyzer.policies import Recorded
from analyzer.pricing import PriceBook
from analyzer.replay import ReplayLane, backtest, build_lane, replay, warm_beginnings
from tests.replay.recordings import agent, with_usage

BOOK = PriceBook.default()
ANTHROPIC = CACHES["anthropic"]


def started(lane: Lane, days: float) -> Lane:
    """The lane at another time."""
    moved = [
        replace(
            step,
            at=step.at + timedelta(days=days) if step.at else None,
            ended_at=step.ended_at + timedelta(days=days) if step.ended_at else None,
        )
        for step in lane.steps
    ]
    return replace(lane, steps=tuple(moved))


def warm(lane: Lane, tokens: int) -> Lane:
    """The lane with a first request that read so much; it wrote that much less."""
    usage = lane.steps[0].usage
    assert usage is not None
    assert usage.cache_write is not None
    written = usage.cache_write - tokens
    first = replace(usage, cache_read=tokens, cache_write=written, cache_write_5m=written)
    return replace(lane, steps=(replace(lane.steps[0], usage=first), *lane.steps[1:]))


def recorded(number: int, read: int) -> ReplayLane:
    """One session of many that share a system prompt, a day after the one before."""
    lane = started(with_usage(agent(12, seed=number)), number)
    return build_lane(warm(lane, read))


HEAD = 1200
"""Less than tools and system prompt of these sessions take."""


def test_the_nearest_sessions_say_what_was_warm() -> None:
    lanes = [recorded(n, HEAD if n < 7 else 0) for n in range(1, 14)]
    found = warm_beginnings(lanes)
    assert {found.get(lane.key) for lane in lanes[:4]} == {HEAD}
    assert {found.get(lane.key) for lane in lanes[-4:]} == {None}


def test_a_session_tells_nothing_of_itself() -> None:
    lonely = recorded(1, HEAD)
    assert warm_beginnings([lonely]) == {}
    # What it read itself is nothing to it; what the others read is.
    others = [recorded(n, 0) for n in range(2, 6)]
    assert lonely.key not in warm_beginnings([lonely, *others])
    assert set(warm_beginnings(others, [lonely, recorded(7, HEAD), recorded(8, HEAD)])) == set()


def test_sub_agents_and_other_models_are_not_asked() -> None:
    lane = recorded(1, 0)
    sub = replace(recorded(2, HEAD), key=recorded(2, HEAD).key._replace(lane="explorer"))
    other = recorded(3, HEAD)
    other = replace(other, steps=tuple(replace(s, model="claude-haiku-4-5") for s in other.steps))
    assert warm_beginnings([lane], [sub, other]) == {}


def test_a_blind_replay_is_nearer_to_the_bill_with_it() -> None:
    lanes = [recorded(n, HEAD) for n in range(1, 6)]
    alone = [backtest([lane], ANTHROPIC, BOOK).sessions[0] for lane in lanes]
    together = backtest(lanes, ANTHROPIC, BOOK).sessions
    assert min(s.cost_error or 0 for s in alone) > 0.005
    assert max(s.cost_error or 0 for s in together) < 0.002
    assert {s.main_cause for s in alone} == {"unseen prefix"}
    given = backtest([lanes[0]], ANTHROPIC, BOOK, others=lanes[1:]).sessions[0]
    assert given == together[0]


def test_never_more_is_warm_than_tools_and_system_prompt() -> None:
    lane = recorded(1, 0)
    head = sum(lane.tokens[i] for i in lane.heads[0].parts)
    out = replay([lane], Recorded(), ANTHROPIC, BOOK, carried=False, warm={lane.key: 10**9})
    assert out.lanes[0].read[0] == head
    assert out.lanes[0].read[1:] == blind_reads(lane)[1:]


def blind_reads(lane: ReplayLane) -> list[int]:
    return replay([lane], Recorded(), ANTHROPIC, BOOK, carried=False).lanes[0].read
