"""Laws that hold for every cache model, and the breakpoint rule against a naive rendering of it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.caching import CACHES, Request, Served, make_cache
from analyzer.caching.automatic import PrefixCache
from analyzer.caching.base import bill, key_of
from analyzer.caching.breakpoints import BreakpointCache
from analyzer.model import TTL_SECONDS, Ttl
from tests.caching.requests import request

_EACH = settings(max_examples=30, deadline=None)
_ALL = settings(max_examples=150, deadline=None)
_SHORT = st.integers(1, 6)
_PROMPT = st.lists(_SHORT, min_size=1, max_size=8)


@st.composite
def _history(draw: st.DrawFn, longest_gap: int = 900) -> list[Request]:
    """Requests over few part contents, so that prefixes, edits and forks recur."""
    at = 0.0
    steps: list[Request] = []
    for parts in draw(st.lists(_PROMPT, min_size=1, max_size=12)):
        at += draw(st.integers(0, longest_gap))
        system = draw(st.integers(0, min(2, len(parts))))
        marks = sorted({n for n in (system, len(parts)) if n})
        scope = draw(st.sampled_from(["", "", "b"]))
        choice = draw(st.sampled_from(["", "", "tool_choice=any"]))
        ready = draw(st.sampled_from([0.5, 400.0]))
        steps.append(
            request(
                parts,
                at,
                marks=marks,
                tokens=[600 * p for p in parts],
                system_end=system,
                scope=scope,
                settings=("", "", choice),
                ready_in=ready,
            )
        )
    return steps


@pytest.mark.parametrize("name", sorted(CACHES))
@_EACH
@given(history=_history())
def test_peek_changes_nothing_and_equals_what_serve_bills(
    name: str, history: list[Request]
) -> None:
    looked, untouched = make_cache(name), make_cache(name)
    for step in history:
        before = [looked.peek(other) for other in history]
        assert [looked.peek(other) for other in history] == before
        assert looked.peek(step) == looked.serve(step) == untouched.serve(step)


@pytest.mark.parametrize("name", sorted(CACHES))
@_EACH
@given(history=_history())
def test_every_prompt_token_is_billed_once(name: str, history: list[Request]) -> None:
    cache = make_cache(name)
    for step in history:
        served = cache.serve(step)
        parts = (served.read, served.write_5m, served.write_1h, served.input)
        assert min(parts) >= 0
        assert sum(parts) == step.prefix.tokens(len(step.prefix))


@pytest.mark.parametrize("name", sorted(CACHES))
@_EACH
@given(history=_history(), tokens=st.integers(0, 6000))
def test_nothing_longer_than_what_was_kept_is_read_after_forgetting(
    name: str, history: list[Request], tokens: int
) -> None:
    cache = make_cache(name)
    for step in history:
        cache.serve(step)
    cache.forget(history[-1], tokens)
    assert cache.peek(history[-1]).read <= tokens


@_ALL
@given(history=_history(), extra=st.floats(1, 5))
def test_a_longer_lifetime_never_reads_less_from_an_automatic_cache(
    history: list[Request], extra: float
) -> None:
    short, long = PrefixCache(ttl=300), PrefixCache(ttl=300 * extra)
    assert all(short.serve(step).read <= long.serve(step).read for step in history)


@_ALL
@given(prompts=st.lists(st.tuples(_PROMPT, st.integers(0, 900)), min_size=1, max_size=12))
def test_a_longer_lifetime_never_reads_less_from_equal_prompts_with_the_same_marks(
    prompts: list[tuple[list[int], int]],
) -> None:
    reads: dict[Ttl, list[int]] = {}
    ttls: tuple[Ttl, Ttl] = ("5m", "1h")
    for ttl in ttls:
        cache, at = BreakpointCache(minimum=1), 0
        reads[ttl] = []
        for parts, gap in prompts:
            at += gap
            prompt = [0, *parts]
            step = request(prompt, at, marks=[1, len(prompt)], ttl=ttl, system_end=1)
            reads[ttl].append(cache.serve(step).read)
    assert all(a <= b for a, b in zip(reads["5m"], reads["1h"], strict=True))


@dataclass
class _Naive:
    """The minimal simulator of the specification: every entry is looked at, every time."""

    minimum: int = 1
    entries: dict[tuple[str, int, int], list[float]] = field(default_factory=dict)

    def serve(self, step: Request) -> Served:
        view, at = step.prefix, step.at

        def live(n: int) -> list[float] | None:
            entry = self.entries.get((step.scope, n, key_of(step, n)))
            if entry is None or entry[0] > at or at - entry[1] >= entry[2]:
                return None
            return entry

        hit = 0
        for mark in reversed(step.marks):
            window = [
                n
                for n in range(mark.parts, 0, -1)
                if view.position(mark.parts) - view.position(n) < 20
            ]
            hit = next((n for n in window if live(n)), 0)
            if hit:
                break
        for n in range(1, hit + 1):
            entry = live(n)
            if entry is not None:
                entry[1] = max(entry[1], at)
        written = [m for m in step.marks if m.parts > hit and view.tokens(m.parts) >= self.minimum]
        for mark in written:
            where = (step.scope, mark.parts, key_of(step, mark.parts))
            old = self.entries.get(where)
            ready = step.ready_at
            if old is not None and at - old[1] < old[2]:
                ready = min(ready, old[0])
            self.entries[where] = [ready, at, float(TTL_SECONDS[mark.ttl])]
        ends = [(view.tokens(m.parts), m.ttl) for m in written]
        return bill(view.tokens(len(view)), view.tokens(hit), ends, hit)


@_ALL
@given(history=_history(longest_gap=20))
def test_inside_the_lifetime_any_history_is_served_as_the_naive_rule_does(
    history: list[Request],
) -> None:
    cache, naive = BreakpointCache(minimum=1), _Naive()
    for step in history:
        assert cache.serve(step) == naive.serve(step)


@_ALL
@given(
    growth=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 24), st.integers(0, 700)), max_size=30
    ),
    ttl=st.sampled_from(["5m", "1h"]),
)
def test_growing_lanes_with_pauses_are_served_as_the_naive_rule_does(
    growth: list[tuple[int, int, int]], ttl: Ttl
) -> None:
    """Three lanes share a system prompt and grow by up to 24 parts after pauses."""
    cache, naive = BreakpointCache(minimum=1), _Naive()
    lanes: list[list[int]] = [[1, 2], [1, 2], [1, 2]]
    at = 0
    for turn, (lane, added, gap) in enumerate(growth):
        at += gap
        lanes[lane] += [1000 * turn + n for n in range(added)]
        parts = lanes[lane]
        step = request(parts, at, marks=[1, 2, len(parts)], ttl=ttl, tools_end=1, system_end=2)
        assert cache.serve(step) == naive.serve(step)


def test_a_copied_cache_goes_its_own_way() -> None:
    cache = make_cache("anthropic")
    cache.serve(request([1, 2], 0, marks=[2]))
    other = copy.deepcopy(cache)
    other.serve(request([1, 2, 3], 10, marks=[3]))
    assert cache.peek(request([1, 2, 3], 20, marks=[3])).read == 4000
    assert other.peek(request([1, 2, 3], 20, marks=[3])).read == 6000
