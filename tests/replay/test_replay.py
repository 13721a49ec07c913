"""What a replay says about known recordings: prompts, reads, bills, red lines, laws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import pytest

from analyzer.caching import CACHES, ListPrefix, Mark, Request, Served
from analyzer.caching.placement import AS_RECORDED, SystemEnd
from analyzer.edits import Drop, Edit, Replace, ServerDelete, rewritten
from analyzer.errors import LawError
from analyzer.model import Breakpoint
from analyzer.policies import Turn, parse_spec
from analyzer.policies.base import Memory
from analyzer.pricing import PriceBook
from analyzer.replay import Engine, Event, ReplayLane, ReplayResult, build_lane, replay
from analyzer.replay.base import digest64
from analyzer.replay.fast import fast_state
from analyzer.replay.naive import NaiveLane
from tests.replay.recordings import (
    MODEL,
    agent,
    clear_at,
    keep_newest,
    summarize_at,
    with_usage,
)

BOOK = PriceBook.default()
KEEP = 4
ENGINES: tuple[Engine, ...] = ("fast", "naive")


def run(lane: ReplayLane, spec: str, **options: object) -> ReplayResult:
    return replay([lane], parse_spec(spec), CACHES["anthropic"], BOOK, **options)  # type: ignore[arg-type]


HEALTHY = build_lane(with_usage(agent(30)))
CHURN = build_lane(with_usage(agent(30, compact=keep_newest(KEEP))))
BATCH = build_lane(with_usage(agent(30, compact=clear_at(20, KEEP))))


def near(a: float | None, b: float | None) -> bool:
    assert a is not None
    assert b is not None
    return abs(a / b - 1) < 0.03


def test_the_recorded_policy_comes_out_at_the_recorded_bill() -> None:
    for lane in (HEALTHY, CHURN, BATCH):
        carried, blind = run(lane, "recorded"), run(lane, "recorded", carried=False)
        assert carried.lanes[0].read == [s.usage.cache_read for s in lane.steps if s.usage]
        assert carried.cost_usd == pytest.approx(blind.cost_usd)


def test_sliding_stubs_over_a_healthy_recording_cost_what_churn_was_recorded_to_cost() -> None:
    predicted = run(HEALTHY, f"sliding-stubs:keep={KEEP}")
    recorded = run(CHURN, "recorded")
    assert near(predicted.cost_usd, recorded.cost_usd)
    assert predicted.breaks == recorded.breaks > 15
    assert predicted.lanes[0].edits.count(1) == 30 - 1 - KEEP


def test_no_compaction_over_a_churning_recording_costs_what_the_healthy_one_did() -> None:
    healthy = run(HEALTHY, "recorded")
    for lane in (CHURN, BATCH):
        raw = run(lane, "raw")
        assert near(raw.cost_usd, healthy.cost_usd)
        assert raw.breaks == 0


def test_a_policy_that_did_what_was_recorded_takes_the_recorded_usage() -> None:
    same = run(CHURN, f"sliding-stubs:keep={KEEP}")
    assert all(same.lanes[0].same)
    assert same.cost_usd == run(CHURN, "recorded").cost_usd
    other = run(CHURN, f"sliding-stubs:keep={KEEP},placeholder=gone")
    assert other.lanes[0].same.index(False) == KEEP + 1


def test_keeping_decisions_breaks_the_cache_once_where_judging_anew_breaks_it_always() -> None:
    spec = "watermarks:window=12000,snip_at=1.0,prune_at=0.6,summarize_at=1.0,protect_tokens=2000"
    marks = run(HEALTHY, spec)
    sliding = run(HEALTHY, f"sliding-stubs:keep={KEEP}")
    assert 1 <= marks.breaks <= 5
    assert sliding.breaks > 4 * marks.breaks
    assert marks.cost_usd is not None
    assert sliding.cost_usd is not None
    assert marks.cost_usd < sliding.cost_usd


def test_after_a_summary_prompts_are_short_and_the_call_is_billed() -> None:
    spec = "watermarks:window=9000,snip_at=1.0,prune_at=1.0,protect_tokens=1500,summary_tokens=300"
    out = run(HEALTHY, spec)
    (lane,) = out.lanes
    assert out.summary_calls > 0
    assert out.output_tokens == sum(lane.output) + 300 * out.summary_calls
    assert lane.summary_input > 0
    assert out.peak_window < run(HEALTHY, "raw").peak_window / 1.5
    bare = sum(BOOK.cost_float(s.usage, MODEL, s.when) or 0 for s in HEALTHY.steps[:1] if s.usage)
    assert lane.cost[0] == pytest.approx(bare)
    assert out.red_lines.user_text == 0
    assert out.red_lines.protected_tail == 0
    assert out.red_lines.orphans == 0


def test_the_bill_is_the_sum_of_its_steps_at_dated_prices() -> None:
    (lane,) = run(HEALTHY, "raw").lanes
    rates = BOOK.rates(MODEL, HEALTHY.steps[0].when)
    assert rates is not None
    for n in range(len(lane.prompt)):
        expected = (
            lane.read[n] * float(rates.read)
            + lane.write_5m[n] * float(rates.write_5m)
            + lane.input[n] * float(rates.input)
            + lane.output[n] * float(rates.output)
        )
        assert lane.cost[n] == pytest.approx(expected)


def test_an_unknown_model_has_no_cost_and_not_a_cost_of_zero() -> None:
    lane = agent(3)
    steps = tuple(replace(step, model="nobody-knows-9") for step in lane.steps)
    out = run(build_lane(replace(lane, steps=steps)), "raw")
    assert out.cost_usd is None
    assert out.prompt_tokens > 0


def test_every_request_ends_with_the_recordings_few_uncached_tokens() -> None:
    assert HEALTHY.tail_input == 4
    (lane,) = run(HEALTHY, "sliding-stubs:keep=2").lanes
    assert set(lane.input) == {4}


def test_a_recorded_loss_is_carried_into_every_policy() -> None:
    key = (HEALTHY.key, 20)
    spec = "watermarks:window=9000,protect_tokens=1000"
    plain, struck = run(HEALTHY, spec), run(HEALTHY, spec, events={key: Event(0)})
    assert plain.lanes[0].read[20] > 0
    assert struck.lanes[0].read[20] == 0
    assert struck.lanes[0].read[21] == plain.lanes[0].read[21]
    assert (struck.cost_usd or 0) > (plain.cost_usd or 0)


def test_lanes_of_a_project_keep_each_others_system_prompt_warm() -> None:
    one = agent(3, seed=1)
    later = tuple(
        replace(s, at=s.at.replace(minute=s.at.minute + 2)) for s in agent(3, seed=2).steps if s.at
    )
    two = replace(agent(3, seed=2), steps=later)
    lanes = [build_lane(one), build_lane(two)]
    out = replay(lanes, parse_spec("raw"), CACHES["anthropic"], BOOK, carried=False)
    head = sum(lanes[0].tokens[i] for i in lanes[0].heads[0].parts)
    assert out.lanes[0].read[0] == 0
    assert out.lanes[1].read[0] == head


@dataclass(frozen=True)
class Oldest:
    """Does one thing to the oldest result, as soon as there are ten."""

    name: ClassVar[str] = "oldest"
    memory: ClassVar[Memory] = "persisted"
    act: str = "delete"

    def edits(self, turn: Turn) -> Iterable[Edit]:
        results = [i for i, part in enumerate(turn.prompt) if part.kind == "tool_result"]
        if len(results) < 10 or any(turn.edited):
            return []
        first = results[0]
        match self.act:
            case "delete":
                return [ServerDelete(first, "d")]
            case "drop-result":
                return [Drop(first, first + 1, "d")]
            case "drop-pair":
                return [Drop(first - 1, first + 1, "d")]
            case "user":
                return [Replace(3, rewritten(turn.prompt[3], "Do less."), "d")]
            case _:
                newest = results[-1]
                return [Replace(newest, rewritten(turn.prompt[newest], "cut"), "d")]


@pytest.mark.parametrize("act", ["delete", "drop-result", "drop-pair", "user", "newest"])
@pytest.mark.parametrize("memory", ["persisted", "recompute"])
def test_a_python_policy_gives_the_same_in_both_engines(act: str, memory: Memory) -> None:
    @dataclass(frozen=True)
    class Remembering(Oldest):
        pass

    Remembering.memory = memory
    lane = build_lane(agent(25, compact=keep_newest(12)))
    fast, naive = (
        replay([lane], Remembering(act), CACHES["anthropic"], BOOK, engine=engine)
        for engine in ENGINES
    )
    assert fast.lanes == naive.lanes
    assert sum(fast.lanes[0].edits) > 0


def test_what_the_provider_deletes_costs_no_break_and_no_tokens() -> None:
    raw = run(HEALTHY, "raw").lanes[0]
    out = replay([HEALTHY], Oldest(), CACHES["anthropic"], BOOK)
    lane = out.lanes[0]
    size = HEALTHY.tokens[next(i for i, p in enumerate(HEALTHY.parts) if p.kind == "tool_result")]
    assert out.breaks == 0
    assert raw.prompt[10] - lane.prompt[10] == size
    assert raw.read[11] - lane.read[11] == size


@pytest.mark.parametrize(
    ("act", "user", "tail", "orphans"),
    [
        ("drop-result", 0, 0, 1),
        ("drop-pair", 0, 0, 0),
        ("user", 1, 0, 0),
        ("newest", 0, 1, 0),
    ],
)
def test_red_lines_are_counted_by_what_they_are(
    act: str, user: int, tail: int, orphans: int
) -> None:
    lane = build_lane(agent(14, size=(1500, 1600)))
    for engine in ENGINES:
        lines = replay([lane], Oldest(act), CACHES["anthropic"], BOOK, engine=engine).red_lines
        assert min(lines.user_text, 1) == user
        assert min(lines.protected_tail, 1) == tail
        assert min(lines.orphans, 1) == orphans


class Overbilling:
    """A cache that is wrong: it reads more than was sent."""

    name: ClassVar[str] = "overbilling"

    def peek(self, request: Request) -> Served:
        return Served(request.prefix.tokens(len(request.prefix)) + 1, 0, 0, 0)

    serve = peek

    def forget(self, request: Request, tokens: int) -> None:
        return


class Watching(Overbilling):
    """Notes the marks of each request."""

    name: ClassVar[str] = "watching"
    seen: ClassVar[list[tuple[tuple[Mark, ...], int, int]]] = []

    def peek(self, request: Request) -> Served:
        return Served(0, 0, 0, request.prefix.tokens(len(request.prefix)))

    def serve(self, request: Request) -> Served:
        self.seen.append((request.marks, len(request.prefix), request.system_end))
        return self.peek(request)


def test_a_token_billed_twice_is_a_defect_that_stops_the_replay() -> None:
    with pytest.raises(LawError, match=r"read \+ write \+ input = prompt.*step 0 of lane 'main'"):
        replay([HEALTHY], parse_spec("raw"), Overbilling, BOOK, carried=False)


def test_recorded_marks_move_with_their_parts() -> None:
    lane = agent(16)
    steps = []
    for step in lane.steps:
        assert step.prompt is not None
        middle = Breakpoint(min(len(step.prompt) - 1, 9), "1h")
        marks = (Breakpoint(2, "1h"), middle, Breakpoint(len(step.prompt) - 1, "5m"))
        steps.append(
            replace(step, prompt=replace(step.prompt, breakpoints=tuple(dict.fromkeys(marks))))
        )
    built = build_lane(replace(lane, steps=tuple(steps)))
    Watching.seen.clear()
    replay([built], parse_spec("sliding-stubs:keep=2"), Watching, BOOK)
    marks, length, head = Watching.seen[-1]
    assert marks == (Mark(3, "1h"), Mark(10, "1h"), Mark(length, "5m"))
    assert head == 3
    Watching.seen.clear()
    replay([built], Oldest("drop-pair"), Watching, BOOK)
    marks, length, _ = Watching.seen[-1]
    # Its part is gone by now; behind the texts of two answers is the nearest place that is left.
    assert marks == (Mark(3, "1h"), Mark(6, "1h"), Mark(length, "5m"))
    Watching.seen.clear()
    replay([built], parse_spec("raw"), Watching, BOOK, placement=SystemEnd())
    marks, length, _ = Watching.seen[-1]
    assert [mark.parts for mark in marks] == [3, length]


def test_prompts_of_the_fast_engine_have_the_digests_of_real_prompts() -> None:
    policy = parse_spec("watermarks:window=5000,protect_tokens=900,summary_tokens=100")
    fast, naive = (make(HEALTHY, policy, AS_RECORDED) for make in (fast_state, NaiveLane))
    quiet = _Quiet()
    for n in range(len(HEALTHY.steps)):
        a, b = fast.advance(n, quiet).view, naive.advance(n, quiet).view
        assert isinstance(b, ListPrefix)
        assert len(a) == len(b)
        for k in range(len(b) + 1):
            assert (a.digest(k), a.tokens(k), a.position(k)) == (
                b.digest(k),
                b.tokens(k),
                b.position(k),
            )
    assert digest64(HEALTHY.parts[0]) == HEALTHY.digests[0]


class _Quiet:
    def peek(self, *_: object) -> int:
        return 0

    def summary(self, *_: object) -> None:
        return


def test_a_recorded_summary_is_undone_and_only_costs_itself() -> None:
    lane = build_lane(with_usage(agent(30, compact=summarize_at(20))))
    raw = run(lane, "raw")
    assert near(raw.cost_usd, run(HEALTHY, "recorded").cost_usd)
    assert all(a < b for a, b in pairwise(raw.lanes[0].prompt))
