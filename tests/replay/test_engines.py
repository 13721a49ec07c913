"""The fast engine against the naive one, over random recordings, policies and caches."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.caching import CACHES
from analyzer.caching.placement import AS_RECORDED, parse_placement
from analyzer.model import Lane
from analyzer.policies import parse_spec
from analyzer.policies.base import RedLines
from analyzer.pricing import PriceBook
from analyzer.replay import Engine, LaneReplay, ReplayResult, build_lane, replay
from analyzer.replay.fast.marked import BreakpointRule, marked_run
from tests.replay.recordings import (
    STUB,
    Message,
    Recorder,
    agent,
    call,
    keep_newest,
    result,
    user,
    with_usage,
    words,
)

BOOK = PriceBook.default()
SEARCHED = (("web_searches", 2),)
ENGINES: tuple[Engine, ...] = ("fast", "naive")
PLACEMENTS = [
    *("recorded", "recorded", "recorded:ttl=1h", "recorded:ttl=mixed", "none", "end:ttl=5m"),
    *("system-end", "system-end:ttl=5m", "system-end:ttl=1h", "system-end:ttl=mixed"),
    *("turn-end", "turn-end:ttl=mixed", "every:k=7", "every:k=3,ttl=mixed"),
]
SPECS = [
    "recorded",
    "raw",
    "sliding-stubs:keep=2",
    "sliding-stubs:keep=0",
    "sliding-stubs:keep=5,placeholder=gone",
    "watermarks:window=6000,protect_tokens=900",
    "watermarks:window=4000,protect_tokens=300,summary_tokens=200",
    "watermarks:window=5000,snip_at=1.0,protect_tokens=0,summary_tokens=50",
    "watermarks:window=9000,snip_at=0.3,prune_at=0.4,summarize_at=0.5,protect_tokens=500,summary_tokens=9",
]


def random_lane(seed: int, steps: int, session: str) -> Lane:
    """A lane that does everything a recording may do: rewinds, own compaction, new tools, gaps."""
    r = random.Random(seed)
    recorder = Recorder(session=session, marked=r.random() < 0.7)
    messages: list[Message] = [user("Please do it. " + words(r, 20))]
    stubbed = False
    for n in range(steps):
        happening = r.random()
        if happening < 0.08:
            messages = keep_newest(r.randint(0, 3))(messages, n)
            stubbed = True
        elif happening < 0.14 and len(messages) > 6:
            messages = messages[: len(messages) - 2 * r.randint(1, 2)]
        elif happening < 0.2 and len(messages) > 6:
            summary = user("Summary of the conversation: " + words(r, 30))
            messages = [summary, *messages[-2 * r.randint(0, 2) or len(messages) :]]
        elif happening < 0.24:
            recorder.tools += 1
        elif happening < 0.28:
            recorder.system += "!"
        elif happening < 0.36:
            messages = [*messages, user("And also this: " + words(r, r.randint(3, 40)))]
        elif happening < 0.39 and len(messages) > 4:
            messages = [messages[0], *messages[3:]]
        share = r.choice([0.0, 0.3, 0.9])
        recorder.send(
            messages,
            gap=r.choice([3, 20, 200, 400, 4000]),
            model=r.choice(["claude-sonnet-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"]),
            output=r.randint(1, 100),
            human=r.random() < 0.2,
            read=lambda total, share=share: int(total * share),
        )
        calls = [f"{session}-{n}-{k}" for k in range(r.choice([1, 1, 2]))]
        answer: list[object] = []
        said: list[object] = [{"type": "text", "text": words(r, r.randint(1, 60)) + ". Then. So."}]
        tool = r.choice(["bash", "read", "Skill", "AskUserQuestion"])
        for call_id in calls:
            said += cast("list[object]", call(call_id, tool=tool)["content"])[-1:]
            text = STUB if stubbed and r.random() < 0.05 else words(r, r.randint(1, 400))
            answer += cast("list[object]", result(call_id, text)["content"])
        messages = [
            *messages,
            {"role": "assistant", "content": said},
            {"role": "user", "content": answer},
        ]
    return recorder.lane()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 24),
    spec=st.sampled_from(SPECS),
    cache=st.sampled_from(list(CACHES)),
    placement=st.sampled_from(PLACEMENTS),
    carried=st.booleans(),
)
def test_fast_and_naive_agree_to_the_token(
    seed: int, steps: int, spec: str, cache: str, placement: str, carried: bool
) -> None:
    lanes = [build_lane(random_lane(seed + k, steps, f"s{k}")) for k in range(2)]
    policy = parse_spec(spec)
    fast, naive = (
        replay(
            lanes,
            policy,
            CACHES[cache],
            BOOK,
            placement=parse_placement(placement),
            carried=carried,
            engine=engine,
        )
        for engine in ENGINES
    )
    assert columns(fast, spec) == columns(naive, spec)
    assert fast.cost_usd == naive.cost_usd


def columns(out: ReplayResult, spec: str) -> list[LaneReplay]:
    """What must agree. How the recording's own edits are counted depends on how they are aligned."""
    if spec == "recorded":
        return [replace(lane, edits=[], red_lines=RedLines()) for lane in out.lanes]
    return list(out.lanes)


@pytest.mark.parametrize("spec", SPECS)
def test_an_agent_without_a_recorded_policy_gives_equal_columns(spec: str) -> None:
    lane = build_lane(agent(60))
    fast, naive = (
        replay([lane], parse_spec(spec), CACHES["anthropic"], BOOK, engine=engine)
        for engine in ENGINES
    )
    assert columns(fast, spec) == columns(naive, spec)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 25))
def test_the_recorded_policy_reproduces_what_was_sent(seed: int, steps: int) -> None:
    recorded = random_lane(seed, steps, "s")
    lane = build_lane(recorded)
    for n, step in enumerate(recorded.steps):
        assert step.prompt is not None
        assert lane.recorded(n) == recorded.parts(step.prompt)
    out = replay([lane], parse_spec("recorded"), CACHES["anthropic"], BOOK, engine="naive")
    assert all(out.lanes[0].same)
    usages = [step.usage for step in recorded.steps]
    assert out.lanes[0].read == [u.cache_read for u in usages if u]
    assert out.lanes[0].prompt == [u.prompt for u in usages if u]


def steady_lane(seed: int, session: str, steps: int) -> Lane:
    """A lane that only appends, at every pace: the shape that whole columns are worked out for."""
    r = random.Random(seed)
    recorder = Recorder(
        session=session,
        marked=r.random() < 0.6,
        system="You are an agent. " * r.choice([3, 300, 300, 300]),
    )
    recorder.at += timedelta(seconds=r.choice([0, 1, 200, 299]))
    messages = [user(f"{session}, do it. {words(r, 30)}")]
    for n in range(steps):
        recorder.send(
            messages,
            gap=r.choice([0, 1, 1.5, 3, 20, 20, 100, 280, 300, 310]),
            output=r.randint(1, 300),
            read=lambda total: int(total * 0.9),
        )
        if r.random() < 0.1:
            continue
        for k in range(r.choice([1, 1, 1, 2, 6, 25]) if r.random() < 0.3 else 1):
            call_id = f"{session}-{n}-{k}"
            size = r.choice([1, 20, 300, 700])
            messages = [*messages, call(call_id, words(r, 9)), result(call_id, words(r, size))]
    return recorder.lane()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 30),
    lanes=st.sampled_from([1, 1, 3]),
    spec=st.sampled_from(
        [*SPECS, "watermarks:window=20000,protect_tokens=1000,summary_tokens=100"]
    ),
    cache=st.sampled_from(["anthropic", "anthropic-grace"]),
    placement=st.sampled_from(PLACEMENTS),
    carried=st.booleans(),
    served=st.booleans(),
)
def test_whole_columns_agree_with_one_request_after_the_other(
    seed: int,
    steps: int,
    lanes: int,
    spec: str,
    cache: str,
    placement: str,
    carried: bool,
    served: bool,
) -> None:
    recorded = [steady_lane(seed + k, f"s{k}", steps) for k in range(lanes)]
    built = [build_lane(with_usage(lane) if served else lane) for lane in recorded]
    fast, naive = (
        replay(
            built,
            parse_spec(spec),
            CACHES[cache],
            BOOK,
            placement=parse_placement(placement),
            carried=carried,
            engine=engine,
        )
        for engine in ENGINES
    )
    assert columns(fast, spec) == columns(naive, spec)


@pytest.mark.parametrize("spec", ["raw", "sliding-stubs:keep=3", "watermarks:window=9000"])
def test_an_ordinary_agent_is_worked_out_in_whole_columns(spec: str) -> None:
    cache = CACHES["anthropic"]()
    assert isinstance(cache, BreakpointRule)
    lanes = [build_lane(with_usage(agent(40, seed=n))) for n in (1, 2)]
    out = marked_run(lanes, parse_spec(spec), AS_RECORDED, cache, BOOK, True)
    assert out is not None
    assert [len(lane.prompt) for lane in out] == [40, 40]


def test_lanes_that_begin_alike_are_sent_request_by_request() -> None:
    cache = CACHES["anthropic"]()
    assert isinstance(cache, BreakpointRule)
    lanes = [build_lane(agent(10)), build_lane(agent(10))]
    assert marked_run(lanes, parse_spec("raw"), AS_RECORDED, cache, BOOK, True) is None
    fast, naive = (
        replay(lanes, parse_spec("raw"), CACHES["anthropic"], BOOK, carried=False, engine=engine)
        for engine in ENGINES
    )
    assert fast.lanes == naive.lanes


@pytest.mark.parametrize("spec", ["recorded", "raw", "sliding-stubs:keep=2"])
def test_both_engines_bill_on_the_terms_of_the_recording(spec: str) -> None:
    plain = steady_lane(7, "s", 12)
    terms = [replace(s.usage, terms=("batch",), apart=SEARCHED) for s in plain.steps if s.usage]
    billed = replace(
        plain,
        steps=tuple(replace(s, usage=u) for s, u in zip(plain.steps, terms, strict=True)),
    )
    fast, naive = (
        replay([build_lane(billed)], parse_spec(spec), CACHES["anthropic"], BOOK, engine=engine)
        for engine in ENGINES
    )
    usual = replay([build_lane(plain)], parse_spec(spec), CACHES["anthropic"], BOOK)
    assert fast.cost_usd == pytest.approx(naive.cost_usd)
    searches = 0.02 * len(billed.steps)
    assert fast.cost_usd == pytest.approx(cast("float", usual.cost_usd) / 2 + searches)
