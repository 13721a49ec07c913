from __future__ import annotations

import pytest

from analyzer.caching import collapsed_runs, make_cache, minimum
from analyzer.caching.base import bill
from analyzer.caching.breakpoints import BreakpointCache
from analyzer.errors import LawError
from tests.caching.requests import marked, request


@pytest.mark.parametrize(("size", "written"), [(1023, 0), (1024, 1024)])
def test_a_prefix_is_stored_from_the_minimum_on(size: int, written: int) -> None:
    cache = BreakpointCache(minimum=1024)
    first = cache.serve(request([1], tokens=size, marks=[1]))
    again = cache.serve(request([1], 10, tokens=size, marks=[1]))
    assert (first.write_5m, first.input) == (written, size - written)
    assert again.read == written


def test_the_registered_rule_takes_its_minimum_from_the_model() -> None:
    for model, least in (("claude-opus-5", 512), ("claude-haiku-4-5-20251001", 4096)):
        assert minimum(model).tokens == least
        cache = make_cache("anthropic")
        below = request([1], tokens=least - 1, marks=[1], model=model)
        assert cache.serve(below).write == 0
        assert cache.serve(request([2], tokens=least, marks=[1], model=model)).write == least


def test_a_model_in_no_table_gets_an_assumed_minimum() -> None:
    assert minimum("claude-quartet-9").assumed
    assert not minimum("claude-opus-4-8").assumed


@pytest.mark.parametrize(("gap", "read"), [(299, 4000), (301, 0)])
def test_a_short_entry_lives_five_minutes_from_the_start_of_its_last_use(
    gap: int, read: int
) -> None:
    cache = BreakpointCache()
    cache.serve(request([1, 2], 0, marks=[2], ready_in=200))
    cache.serve(request([1, 2], 250, marks=[2]))
    assert cache.serve(request([1, 2], 250 + gap, marks=[2])).read == read


@pytest.mark.parametrize(("gap", "read"), [(3599, 4000), (3601, 0)])
def test_a_long_entry_lives_an_hour(gap: int, read: int) -> None:
    cache = BreakpointCache()
    cache.serve(request([1, 2], 0, marks=[2], ttl="1h"))
    assert cache.serve(request([1, 2], gap, marks=[2], ttl="1h")).read == read


def test_a_read_refreshes_for_the_lifetime_of_the_write_not_of_the_reading_mark() -> None:
    cache = BreakpointCache()
    cache.serve(request([1, 2], 0, marks=[2], ttl="5m"))
    cache.serve(request([1, 2], 100, marks=[2], ttl="1h"))
    assert cache.peek(request([1, 2], 399, marks=[2])).read == 4000
    assert cache.peek(request([1, 2], 401, marks=[2])).read == 0


def test_the_grey_zone_is_a_tenth_of_the_lifetime_and_off_by_default() -> None:
    for grace, read in ((False, 0), (True, 4000)):
        cache = BreakpointCache(grace=grace)
        cache.serve(request([1, 2], 0, marks=[2]))
        assert cache.peek(request([1, 2], 329, marks=[2])).read == read
        assert cache.peek(request([1, 2], 331, marks=[2])).read == 0


@pytest.mark.parametrize(("added", "read"), [(18, 4000), (19, 4000), (20, 0)])
def test_look_back_sees_twenty_positions_with_the_mark_itself(added: int, read: int) -> None:
    cache = BreakpointCache()
    cache.serve(request([1, 2], 0, marks=[2]))
    longer = list(range(1, 3 + added))
    assert cache.serve(request(longer, 10, marks=[len(longer)])).read == read


def test_an_earlier_mark_opens_a_window_of_its_own() -> None:
    cache = BreakpointCache()
    cache.serve(request(list(range(15)), 0, marks=[15]))
    prompt = list(range(35))
    assert cache.peek(request(prompt, 10, marks=[35])).read == 0
    assert cache.peek(request(prompt, 10, marks=[15, 35])).read == 30_000


def test_runs_of_calls_and_results_are_one_position_each_where_the_view_collapses_them() -> None:
    kinds = ["text", "text"] + ["tool_use"] * 25 + ["tool_result"] * 25
    parts = list(range(len(kinds)))
    for collapsed, read in ((collapsed_runs(kinds), 4000), (None, 0)):
        cache = BreakpointCache()
        cache.serve(request(parts[:2], 0, marks=[2]))
        step = request(parts, 10, marks=[len(parts)], collapsed=collapsed)
        assert cache.serve(step).read == read


def test_nothing_is_stored_where_there_was_no_mark() -> None:
    cache = BreakpointCache()
    cache.serve(request([1, 2, 3, 4], 0, marks=[4]))
    assert cache.serve(request([1, 2, 9], 10, marks=[3])).read == 0


def test_mixed_lifetimes_are_billed_by_the_highest_hit_long_mark_and_last_mark() -> None:
    cache = BreakpointCache()
    prompt = request([1, 2, 3, 4], 0, tokens=[3000, 4000, 1000, 500], system_end=2)
    first = cache.serve(marked(prompt, (1, "1h"), (2, "1h"), (3, "5m")))
    assert (first.read, first.write_1h, first.write_5m, first.input) == (0, 7000, 1000, 500)
    later = request([1, 2, 5], 600, tokens=[3000, 4000, 800], system_end=2)
    second = cache.serve(marked(later, (1, "1h"), (2, "1h"), (3, "5m")))
    assert (second.read, second.write_1h, second.write_5m) == (7000, 0, 800)
    third = request([1, 2, 5, 6], 660, tokens=[3000, 4000, 800, 700], system_end=2)
    grown = cache.serve(marked(third, (1, "1h"), (4, "1h")))
    assert (grown.read, grown.write_1h, grown.write_5m) == (7800, 700, 0)


def test_a_bill_that_cannot_add_up_is_an_error_of_ours() -> None:
    with pytest.raises(LawError, match="read 500"):
        bill(400, 500, [])


def test_an_entry_can_be_read_only_after_its_answer_has_begun() -> None:
    cache = BreakpointCache()
    fan_out = [cache.serve(request([1, n], 0.1 * n, marks=[1, 2], ready_in=2)) for n in range(2, 5)]
    assert [s.read for s in fan_out] == [0, 0, 0]
    assert cache.serve(request([1, 9], 2.3, marks=[1, 2])).read == 2000


def test_scopes_models_and_settings_do_not_share() -> None:
    cache = BreakpointCache()
    cache.serve(request([1, 2, 3], 0, marks=[1, 2, 3], tools_end=1, system_end=2))

    def read(**other: object) -> int:
        step = request([1, 2, 3], 10, marks=[1, 2, 3], tools_end=1, system_end=2, **other)  # type: ignore[arg-type]
        return cache.peek(step).read

    assert read() == 6000
    assert read(scope="other") == 0
    assert read(model="claude-sonnet-4-5") == 0
    assert read(settings=("", "", "tool_choice=any")) == 4000
    assert read(settings=("", "speed=fast", "")) == 2000
    assert read(settings=("beta", "", "")) == 0


def test_reading_keeps_the_entries_before_it_warm_even_unmarked_ones() -> None:
    cache = BreakpointCache()
    parts = [1, 2]
    for step in range(8):
        cache.serve(request(parts, step * 100, marks=[len(parts)]))
        parts = [*parts, 10 + step]
    rewound = cache.serve(request([1, 2, 99], 750, marks=[3]))
    assert rewound.read == 4000


def test_a_branch_does_not_keep_the_other_branch_warm() -> None:
    cache = BreakpointCache()
    cache.serve(request([1, 2], 0, marks=[1, 2]))
    for step in range(1, 5):
        cache.serve(request([1, 3], step * 100, marks=[1, 2]))
    assert cache.peek(request([1, 3], 450, marks=[1, 2])).read == 4000
    assert cache.peek(request([1, 2], 450, marks=[1, 2])).read == 2000


def test_forgetting_drops_only_what_is_longer_on_this_path() -> None:
    cache = BreakpointCache()
    cache.serve(request([1, 2, 3], 0, marks=[1, 2, 3]))
    cache.serve(request([1, 9, 9], 5, marks=[1, 2, 3]))
    cache.forget(request([1, 2, 3], 6), 3000)
    assert cache.peek(request([1, 2, 3], 10, marks=[1, 2, 3])).read == 2000
    assert cache.peek(request([1, 9, 9], 10, marks=[1, 2, 3])).read == 6000


def test_memory_follows_the_live_entries() -> None:
    cache = BreakpointCache()
    for step in range(9000):
        cache.serve(request([step], step * 60, marks=[1]))
    forest = cache._forests.open(request([0]))
    assert len(forest.entries()) < 2100
