"""Where marks stand, spec by spec."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.caching import PLACEMENTS, Mark, make_cache, parse_placement, placement_spec
from analyzer.caching.placement import Layout, markable, turn_start
from analyzer.errors import UsageError
from analyzer.model import Kind, Part, Ttl
from analyzer.sources.blocks import make_part
from tests.caching.requests import marked, request


def _part(role: str, kind: Kind = "text", text: str = "x y", starts: bool = True) -> Part:
    section = "system" if role == "system" else "messages"
    return make_part(section, role, kind, text, starts_message=starts and section == "messages")


SYSTEM = _part("system")
TURN = [
    SYSTEM,
    _part("user", text="do it"),
    _part("assistant", "thinking"),
    _part("assistant", "tool_use", starts=False),
    _part("user", "tool_result"),
]


def _layout(
    parts: list[Part], head: int = 1, ttl: Ttl = "5m", recorded: tuple[Mark, ...] | None = None
) -> Layout:
    own = (lambda: recorded) if recorded is not None else None
    return Layout(parts, len(parts), head, ttl, own)


def _marks(spec: str, layout: Layout) -> list[tuple[int, str]]:
    return [tuple(mark) for mark in parse_placement(spec).marks(layout)]


@pytest.mark.parametrize(
    ("spec", "marks"),
    [
        ("none", []),
        ("end", [(5, "1h")]),
        ("end:ttl=5m", [(5, "5m")]),
        ("system-end", [(1, "1h"), (5, "1h")]),
        ("system-end:ttl=mixed", [(1, "1h"), (5, "5m")]),
        ("turn-end:ttl=mixed", [(2, "1h"), (5, "5m")]),
        ("every:k=1", [(2, "1h"), (4, "1h"), (5, "1h")]),
        ("every:k=2", [(2, "1h"), (4, "1h"), (5, "1h")]),
        ("every:k=9", [(5, "1h")]),
        ("recorded", [(3, "5m")]),
        ("recorded:ttl=1h", [(3, "1h")]),
    ],
)
def test_each_placement_marks_what_it_says(spec: str, marks: list[tuple[int, str]]) -> None:
    assert _marks(spec, _layout(TURN, ttl="1h", recorded=(Mark(3, "5m"),))) == marks


def test_marks_never_exceed_four_and_the_newest_stay() -> None:
    prompt = _layout([SYSTEM, *[_part("user") for _ in range(99)]])
    assert [n for n, _ in _marks("every:k=10", prompt)] == [70, 80, 90, 100]


@pytest.mark.parametrize(("k", "places"), [(5, [5, 10]), (10, [10]), (9, [9, 10])])
def test_the_end_itself_is_no_extra_multiple(k: int, places: list[int]) -> None:
    prompt = _layout([_part("user") for _ in range(10)], head=0)
    assert [n for n, _ in _marks(f"every:k={k}", prompt)] == places


def test_a_mark_steps_back_over_parts_that_cannot_carry_one() -> None:
    empty = [_part("user"), _part("user", text=""), _part("assistant", "thinking")]
    assert markable(_layout(empty, head=0), 3) == 1
    assert markable(_layout(empty[1:], head=0), 2) == 0


def test_a_turn_begins_with_what_a_person_wrote_not_with_results_or_reminders() -> None:
    assert turn_start(_layout(TURN)) == 2
    reminder = _part("user", text="<system-reminder>Today</system-reminder>")
    assert reminder.markup
    assert turn_start(_layout([*TURN, reminder])) == 2
    beside = [*TURN, _part("user", text="go on", starts=False)]
    assert turn_start(_layout(beside)) == 2
    assert turn_start(_layout([*TURN, _part("user", text="now this")])) == 6
    assert turn_start(_layout([SYSTEM])) == 0


def test_without_recorded_marks_the_recorded_placement_is_the_usual_one() -> None:
    bare = _layout(TURN)
    assert _marks("recorded", bare) == _marks("system-end", bare) == [(1, "5m"), (5, "5m")]
    assert _marks("recorded", _layout(TURN, recorded=())) == []
    assert _marks("system-end", _layout(TURN, head=0)) == [(5, "5m")]


@pytest.mark.parametrize("spec", [*PLACEMENTS, "every:k=3,ttl=mixed", "end:ttl=1h"])
def test_a_placement_written_and_read_again_is_the_same(spec: str) -> None:
    placement = parse_placement(spec)
    assert placement_spec(placement) == spec
    assert parse_placement(placement_spec(placement)) == placement


def test_the_lifetimes_of_openai_stand_in_the_same_places() -> None:
    assert parse_placement("end:ttl=12h") == parse_placement("end:ttl=1h")
    assert parse_placement("end:ttl=30m") == parse_placement("end:ttl=5m")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ends", "no placement 'ends'; known: end, every"),
        ("end:ttl=2h", "'ttl' of 5m, 1h, 30m, 12h, mixed, got '2h'"),
        ("end:ttl=mixed", "one mark"),
        ("every:k=0", "'k' of 1 or more, got 0"),
        ("none:ttl=5m", "placement 'none' has no parameter 'ttl'; it takes: none"),
    ],
)
def test_a_wrong_placement_is_refused_with_what_there_is(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_placement(spec)


@settings(max_examples=80, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 900)), min_size=1, max_size=10),
    name=st.sampled_from(["end", "system-end", "every"]),
)
def test_a_longer_lifetime_never_reads_less_under_any_placement(
    steps: list[tuple[int, int]], name: str
) -> None:
    reads: dict[str, list[int]] = {}
    for ttl in ("5m", "1h"):
        cache, at, parts = make_cache("anthropic"), 0, [0]
        reads[ttl] = []
        for added, gap in steps:
            at += gap
            parts = [*parts, *range(len(parts), len(parts) + added)]
            prompt = [SYSTEM, *[_part("user") for _ in parts[1:]]]
            marks = parse_placement(f"{name}:ttl={ttl}").marks(_layout(prompt))
            step = marked(request(parts, at, system_end=1), *marks)
            assert cache.peek(step) == cache.peek(step)
            reads[ttl].append(cache.serve(step).read)
    assert all(a <= b for a, b in zip(reads["5m"], reads["1h"], strict=True))
