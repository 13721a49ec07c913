"""What goes into the store comes out of it: sessions, content, hostile names."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import UsageError
from analyzer.model import (
    Breakpoint,
    Compaction,
    Doubt,
    Lane,
    LaneSteps,
    Part,
    Prompt,
    Range,
    Session,
    SessionKey,
    Step,
    Usage,
)
from analyzer.records import Flattener, from_bytes, to_bytes
from analyzer.store import FileRow, Scope, Store

KEY = SessionKey("team", "ann", "s-1")

names = st.text(max_size=12)
bodies = st.text(st.characters(), max_size=60)
counts = st.none() | st.integers(0, 2**53 - 1)
times = st.none() | st.datetimes(datetime(1999, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
pairs = st.lists(st.tuples(names, names), max_size=3).map(lambda p: tuple(sorted(p)))
parts = st.builds(
    Part,
    section=st.sampled_from(["tools", "system", "messages"]),
    role=names,
    kind=st.sampled_from(["text", "tool_use", "tool_result"]),
    digest=st.binary(min_size=16, max_size=16),
    chars=st.integers(0, 10**9),
    estimate=st.integers(0, 10**9),
    body=st.none() | bodies,
    tool=st.none() | names,
    call_id=st.none() | names,
    starts_message=st.booleans(),
    placeholder=st.booleans(),
    envelope=st.integers(0, 40),
    summary=st.booleans(),
    markup=st.booleans(),
)
compactions = st.builds(
    Compaction,
    kind=st.sampled_from(["summary", "clear", "other"]),
    trigger=st.none() | names,
    pre_tokens=counts,
    window_used=st.none() | st.floats(0, 1),
    summary_called=st.none() | st.booleans(),
)


doubts = st.builds(Doubt, names, counts, counts)
usages = st.builds(
    Usage,
    *[counts] * 7,
    terms=st.lists(names, max_size=2).map(tuple),
    apart=st.lists(st.tuples(names, st.integers(0, 2**53 - 1)), max_size=2).map(tuple),
    doubts=st.lists(doubts, max_size=2).map(tuple),
)


def ranges(size: int) -> st.SearchStrategy[tuple[Range, ...]]:
    bounds = st.tuples(st.integers(0, size), st.integers(0, size))
    return st.lists(bounds.map(lambda b: Range(min(b), max(b))), max_size=3).map(tuple)


@st.composite
def steps(draw: st.DrawFn, lane: str, size: int, key: str) -> Step:
    prompt = st.builds(
        Prompt,
        ranges=ranges(size),
        breakpoints=st.lists(
            st.builds(Breakpoint, st.integers(0, 99), st.sampled_from(["5m", "1h"])), max_size=3
        ).map(tuple),
        settings=pairs,
        recorded=st.booleans(),
    )
    return Step(
        key=key,
        lane=lane,
        at=draw(times),
        ended_at=draw(times),
        model=draw(st.none() | names),
        usage=draw(st.none() | usages),
        prompt=draw(st.none() | prompt),
        response=draw(ranges(size)),
        provider=draw(st.none() | names),
        human=draw(st.booleans()),
        compaction=draw(st.none() | compactions),
        miss_reason=draw(st.none() | names),
        stop_reason=draw(st.none() | names),
        error=draw(st.none() | names),
        labels=draw(pairs),
        line=draw(st.none() | st.integers(1, 10**9)),
        reported_cost=draw(st.none() | st.floats(0, 10**6)),
    )


@st.composite
def lanes(draw: st.DrawFn) -> list[tuple[Lane, list[LaneSteps]]]:
    """Lanes of one session, and the batches that a source would yield for them."""
    out = []
    for lane in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        parent = draw(st.none() | names)
        pool = draw(st.lists(parts, max_size=6))
        n_steps = draw(st.integers(0, 4))
        made = [draw(steps(lane, len(pool), f"{lane}/{i}")) for i in range(n_steps)]
        cuts = sorted(draw(st.lists(st.integers(0, len(pool)), min_size=n_steps, max_size=n_steps)))
        starts = [0, *cuts]
        batches = [
            LaneSteps(KEY, lane, (replace(step, new_parts=tuple(pool[a:b])),), parent)
            for step, a, b in zip(made, starts, cuts, strict=False)
        ]
        batches.append(LaneSteps(KEY, lane, (), parent, tail_parts=tuple(pool[starts[-1] :])))
        out.append((Lane(KEY, lane, tuple(made), tuple(pool), parent, "test"), batches))
    return out


def put(path: Path, batches: list[LaneSteps], *, keep: bool = True, number: int = 1) -> None:
    flat = Flattener(number, keep_bodies=keep)
    for batch in batches:
        flat.add(batch)
    with Store.open(path, "write") as store:
        written = store.batch()
        written.add([from_bytes(to_bytes(flat.take(last=True)))])
        digest = number.to_bytes(16, "big")
        written.add_files(
            [FileRow(number, number, "test", *KEY[:2], f"/{number}", 1, digest, "full")]
        )
        written.commit()


@settings(max_examples=25, deadline=None)
@given(lanes())
def test_a_session_comes_back_as_it_was(made: list[tuple[Lane, list[LaneSteps]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.duckdb")
        put(path, [batch for _, batches in made for batch in batches])
        with Store.open(path) as store:
            session = store.load_session(KEY, content=True)
            bare = store.load_session(KEY)
    assert {lane.name: lane for lane in session.lanes} == {lane.name: lane for lane, _ in made}
    for lane, whole in zip(bare.lanes, session.lanes, strict=True):
        assert lane.steps == whole.steps
        assert lane.pool == tuple(replace(part, body=None) for part in whole.pool)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.duckdb"


def text(body: str, digest: int = 1) -> Part:
    return Part("messages", "user", "text", digest.to_bytes(16, "big"), len(body), 1, body)


def step(key: str, at: int | None, stop: int, *new: Part, lane: str = "main") -> Step:
    when = None if at is None else datetime.fromtimestamp(1_700_000_000 + at, UTC)
    return Step(key, lane, when, when, "m", None, Prompt((Range(0, stop),)), new)


HOSTILE = [
    "'; DROP TABLE steps; --",
    "nul\0inside",
    "\ud800 lone surrogate",
    "%s {} $project",
    "é\u202e🙂" * 50,
]


def test_hostile_content_comes_back_to_the_byte(path: Path) -> None:
    bodies = [*HOSTILE, "x" * 1_500_000, "", "y" * 1_000_000]
    pool = [text(body, i) for i, body in enumerate(bodies)]
    put(path, [LaneSteps(KEY, "main", (step("k", 0, len(pool), *pool),))])
    with Store.open(path) as store:
        (lane,) = store.load_session(KEY, content=True).lanes
        assert [part.body for part in lane.pool] == bodies
        assert store.part_bodies(KEY, "main", [5, 2, 5]) == [bodies[5], bodies[2], bodies[5]]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_only_names(path: Path, name: str) -> None:
    # A lone surrogate has no place in a UTF-8 column: it is shown as an escape.
    shown = name.encode("utf-8", "backslashreplace").decode()
    key = SessionKey(name, name, name)
    made = replace(step(name, 0, 1, text("b"), lane=name), model=name, labels=((name, name),))
    put(path, [LaneSteps(key, name, (made,), name, name)])
    with Store.open(path) as store:
        session = store.load_session(SessionKey(shown, shown, shown), content=True)
        (row,) = store.sessions(Scope(shown, shown)).rows(named=True)
    assert (row["session_id"], row["title"], row["models"]) == (shown, shown, [shown])
    (lane,) = session.lanes
    assert (lane.name, lane.steps[0].key, lane.steps[0].model) == (shown, shown, shown)
    assert lane.steps[0].labels == ((name, name),)


def test_without_content_digests_and_sizes_stay(path: Path) -> None:
    put(path, [LaneSteps(KEY, "main", (step("k", 0, 1, text("secret", 7)),))], keep=False)
    assert b"secret" not in path.read_bytes()
    with Store.open(path) as store:
        (lane,) = store.load_session(KEY, content=True).lanes
        assert store.part_bodies(KEY, "main", [0]) == [None]
    assert lane.pool == (replace(text("secret", 7), body=None),)


def test_two_recordings_of_a_lane_become_one_with_one_pool(path: Path) -> None:
    a, b, c = text("a", 1), text("b", 2), text("c", 3)
    put(path, [LaneSteps(KEY, "main", (step("k1", 0, 1, a), step("k2", 10, 3, b, a)))], number=1)
    put(path, [LaneSteps(KEY, "main", (step("k3", 5, 2, b, c),))], number=2)
    with Store.open(path) as store:
        (lane,) = store.load_session(KEY, content=True).lanes
        assert store.part_bodies(KEY, "main", [3]) == ["c"]
    assert [s.key for s in lane.steps] == ["k1", "k3", "k2"]
    # The second `a` of the first recording is a part of its own; `b` is shared.
    assert [part.body for part in lane.pool] == ["a", "b", "a", "c"]
    prompts = [[p.body for p in lane.parts(s.prompt)] for s in lane.steps if s.prompt]
    assert prompts == [["a"], ["b", "c"], ["a", "b", "a"]]


def test_a_resumed_lane_knows_the_step_before_it(path: Path) -> None:
    a, b, c = text("a", 1), text("b", 2), text("c", 3)
    first, second = step("k1", 0, 1, a), step("k2", 1, 2, b)
    put(path, [LaneSteps(KEY, "main", (first, second))], number=1)
    resumed = KEY._replace(session_id="s-2")
    third = step("k3", 2, 3, c)
    put(path, [LaneSteps(resumed, "main", (first, second, third))], number=2)
    with Store.open(path) as store:
        (lane,) = store.load_session(resumed).lanes
        (whole,) = store.load_session(KEY).lanes
    assert [s.key for s in lane.steps] == ["k3"]
    assert lane.previous == replace(second, new_parts=())
    assert len(lane.pool) == 3
    assert (len(whole.steps), whole.previous) == (2, None)


def test_a_lane_of_nothing_but_copies_is_left_out(path: Path) -> None:
    put(path, [LaneSteps(KEY, "main", (step("k1", 0, 1, text("a")),))], number=1)
    copy = KEY._replace(session_id="z")
    put(path, [LaneSteps(copy, "main", (step("k1", 0, 1, text("a")),))], number=2)
    with Store.open(path) as store:
        assert store.load_session(copy).lanes == ()
        assert store.stale_sessions("1") == [KEY]


def test_an_unknown_session_lane_or_part_is_an_error_that_says_so(path: Path) -> None:
    put(path, [LaneSteps(KEY, "main", (step("k", 0, 1, text("a")),))])
    with Store.open(path) as store:
        with pytest.raises(UsageError, match="no session 'nope' in project 'team'"):
            store.load_session(KEY._replace(session_id="nope"))
        with pytest.raises(UsageError, match="no session 's-1' in project 'other'"):
            store.load_session(KEY._replace(project="other"))
        with pytest.raises(UsageError, match="no lane 'side'; known: main"):
            store.part_bodies(KEY, "side", [0])
        with pytest.raises(UsageError, match=r"from 0 to 0 in lane 'main', got \[1\]"):
            store.part_bodies(KEY, "main", [0, 1])


def test_sessions_of_the_same_name_in_two_projects_are_two(path: Path) -> None:
    other = SessionKey("other", "ann", "s-1")
    put(path, [LaneSteps(KEY, "main", (step("k", 0, 1, text("mine")),))], number=1)
    put(path, [LaneSteps(other, "main", (step("k", 0, 1, text("theirs", 2)),))], number=2)
    with Store.open(path) as store:
        for key, body in ((KEY, "mine"), (other, "theirs")):
            session: Session = store.load_session(key, content=True)
            assert [p.body for lane in session.lanes for p in lane.pool] == [body]
            assert len(session.lanes[0].steps) == 1
