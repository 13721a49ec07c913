from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from analyzer.errors import PriceError
from analyzer.model import Usage
from analyzer.pricing import PER_MTOK, Cost, PriceBook, Rates

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return PriceBook.default()


def _mtok(rates: Rates | None) -> tuple[str, ...]:
    assert rates is not None
    values = (rates.input, rates.read, rates.write_5m, rates.write_1h, rates.output)
    return tuple(f"{v * PER_MTOK:f}".rstrip("0").rstrip(".") for v in values)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-4-8", ("5", "0.5", "6.25", "10", "25")),
        ("claude-opus-4", ("15", "1.5", "18.75", "30", "75")),
        ("claude-opus-5-5", ("4", "0.2", "5", "8", "20")),
        ("claude-fable-5-1", ("10", "0.25", "12.5", "20", "50")),
        ("claude-haiku-5-5", ("0.1", "0.01", "0.125", "0.2", "0.5")),
        ("gpt-4o", ("2.5", "1.25", "2.5", "2.5", "10")),
        ("gpt-5.6-sol", ("4", "0.4", "5", "10", "20")),
        ("gpt-6.2-sol", ("2", "0.1", "2.5", "5", "10")),
        ("gemini-2.5-pro", ("1.25", "0.125", "1.25", "1.25", "10")),
        ("gemini-2.5-flash-lite", ("0.1", "0.01", "0.1", "0.1", "0.4")),
        ("deepseek-v4-pro", ("0.66", "0.022", "0.66", "0.66", "1.98")),
        ("glm-5.3", ("1.4", "0.26", "1.4", "1.4", "4.4")),
    ],
)
def test_known_models_have_their_published_prices(
    book: PriceBook, model: str, expected: tuple[str, ...]
) -> None:
    assert _mtok(book.rates(model, NOW)) == expected


@pytest.mark.parametrize(
    "written",
    [
        "claude-opus-4-8-20260601",
        "claude-opus-4.8",
        "anthropic/claude-opus-4.8",
        "openrouter/anthropic/claude-opus-4.8",
        "global.anthropic.claude-opus-4-8-v1:0",
        "vertex_ai/claude-opus-4-8@20260601",
        "claude-opus-4-8[1m]",
    ],
)
def test_a_model_costs_the_same_however_it_is_written(book: PriceBook, written: str) -> None:
    assert _mtok(book.rates(written, NOW)) == _mtok(book.rates("claude-opus-4-8", NOW))


def test_a_regional_endpoint_costs_a_tenth_more(book: PriceBook) -> None:
    regional = book.rates("us.anthropic.claude-opus-4-8-v1:0", NOW)
    assert _mtok(regional) == ("5.5", "0.55", "6.875", "11", "27.5")


@pytest.mark.parametrize(
    "model", ["claude-opus-4-9", "claude-opus-4-10", "gpt-5.60", "no-such", "<synthetic>", "", None]
)
def test_an_unknown_model_has_no_price_and_a_prefix_never_lends_its_own(
    book: PriceBook, model: str | None
) -> None:
    assert book.rates(model, NOW) is None
    assert book.cost(Usage(input=1, output=1), model, NOW) is None
    assert book.cost_float(Usage(input=1, output=1), model, NOW) is None


@pytest.mark.parametrize(("prompt", "price"), [(200_000, "3"), (200_001, "6")])
def test_a_tier_begins_one_token_above_its_edge(book: PriceBook, prompt: int, price: str) -> None:
    rates = book.rates("claude-sonnet-4-5", NOW, prompt)
    assert _mtok(rates)[0] == price
    assert rates is not None
    assert rates.tier == ("standard" if price == "3" else ">200000")


def test_the_tier_follows_the_whole_prompt_reads_and_writes_included(book: PriceBook) -> None:
    usage = Usage(input=1, cache_read=150_000, cache_write=50_000, cache_write_5m=50_000, output=0)
    cost = book.cost(usage, "claude-sonnet-4-5", NOW)
    assert cost is not None
    assert cost.read == Decimal("0.09")
    assert cost.write == Decimal("0.375")


def test_a_cost_is_the_sum_of_its_kinds(book: PriceBook) -> None:
    usage = Usage(
        input=1000,
        cache_read=5000,
        cache_write=4000,
        cache_write_5m=3000,
        cache_write_1h=1000,
        output=0,
    )
    assert book.cost(usage, "claude-sonnet-4-5", NOW) == Cost(
        Decimal("0.003"),
        Decimal("0.0015"),
        Decimal("0.01725"),
        Decimal("0"),
        Decimal("0.02175"),
    )
    assert book.cost_float(usage, "claude-sonnet-4-5", NOW) == pytest.approx(0.02175)


def test_writes_of_unknown_lifetime_are_priced_as_short_and_say_so(book: PriceBook) -> None:
    unsplit = Usage(input=0, cache_read=0, cache_write=1_000_000, output=0)
    cost = book.cost(unsplit, "claude-opus-4-8", NOW)
    assert cost is not None
    assert (cost.write, cost.assumed_ttl) == (Decimal("6.25"), True)
    split = Usage(
        input=0, cache_read=0, cache_write=10, cache_write_5m=0, cache_write_1h=10, output=0
    )
    known = book.cost(split, "claude-opus-4-8", NOW)
    assert known is not None
    assert (known.write, known.assumed_ttl) == (Decimal("0.0001"), False)


def test_writes_are_plain_input_where_a_model_has_no_write_price(book: PriceBook) -> None:
    cost = book.cost(Usage(input=0, cache_write=1_000_000, output=0), "gpt-4o", NOW)
    assert cost is not None
    assert (cost.write, cost.assumed_ttl) == (Decimal("2.5"), False)


@pytest.mark.parametrize("usage", [Usage(output=5), Usage(input=5), Usage()])
def test_a_count_that_was_not_reported_gives_no_cost(book: PriceBook, usage: Usage) -> None:
    assert book.cost(usage, "claude-opus-4-8", NOW) is None
    assert book.cost_float(usage, "claude-opus-4-8", NOW) is None


@pytest.mark.parametrize(
    ("at", "read"),
    [
        (datetime(2026, 10, 6, 23, 59, tzinfo=UTC), "0.2"),
        (datetime(2026, 10, 7, tzinfo=UTC), "0.1"),
        (datetime(2026, 10, 7, 1, tzinfo=timezone(timedelta(hours=2))), "0.2"),
        (None, "0.1"),
    ],
)
def test_the_overlay_dates_a_price_by_the_utc_day(
    book: PriceBook, at: datetime | None, read: str
) -> None:
    assert _mtok(book.rates("claude-sonnet-5-5", at))[1] == read


def test_prices_of_the_package_are_dated_too(book: PriceBook) -> None:
    before = book.rates("gpt-5.6-sol", datetime(2026, 8, 20, tzinfo=UTC))
    after = book.rates("gpt-5.6-sol", datetime(2026, 8, 21, tzinfo=UTC))
    assert (_mtok(before)[0], _mtok(after)[0]) == ("5", "4")


def test_a_price_may_depend_on_the_hour(book: PriceBook) -> None:
    peak = book.rates("deepseek-v4-pro", NOW.replace(hour=2))
    calm = book.rates("deepseek-v4-pro", NOW.replace(hour=4))
    assert (_mtok(peak)[0], _mtok(calm)[0]) == ("1.32", "0.66")


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_file_wins_and_what_it_leaves_out_comes_from_below(tmp_path: Path) -> None:
    text = """
    [[price]]
    model = "claude-opus-4-*"
    input = 4
    [[price]]
    model = "claude-opus-4-8"
    input = "4.5"
    source = "contract"
    [[price]]
    model = "house-model"
    from = 2026-06-01
    input = 1
    output = 2
    [[price.tier]]
    above = 1000
    input = 3
    """
    book = PriceBook.default(_file(tmp_path, text))
    exact = book.rates("claude-opus-4-8-20260601", NOW)
    assert _mtok(exact) == ("4.5", "0.5", "6.25", "10", "25")
    assert exact is not None
    assert exact.source.startswith("contract; genai-prices")
    assert _mtok(book.rates("claude-opus-4-7", NOW))[0] == "4"
    assert book.rates("house-model", datetime(2026, 5, 31, tzinfo=UTC)) is None
    assert _mtok(book.rates("house-model", NOW, 1000)) == ("1", "1", "1", "1", "2")
    assert book.rates("house-model", NOW, 1001) is not None
    assert _mtok(book.rates("house-model", NOW, 1001)) == ("3", "3", "3", "3", "2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[price]\n", "expected TOML"),
        ("[[price]]\ninput = 1", r"prices.toml: price\[0\].model: expected a model name"),
        ('[[price]]\nmodel = "m"\ninput = "cheap"', r"price\[0\].input: expected USD .* 'cheap'"),
        ('[[price]]\nmodel = "m"\ninput = -1', r"price\[0\].input: expected USD .* got -1"),
        ('[[price]]\nmodel = "m"\ninput = true', r"price\[0\].input: expected USD"),
        ('[[price]]\nmodel = "m"\nin = 1', r"price\[0\].in: expected one of .*input"),
        ('[[price]]\nmodel = "m"\nfrom = "June"', r"price\[0\].from: expected a date"),
        ('[[price]]\nmodel = "m"\n[[price.tier]]\ninput = 1', r"tier\[0\].above: expected"),
        ("price = 3", "price: expected an array of tables"),
        ("prices = 3", "prices: expected one of the keys"),
    ],
)
def test_a_malformed_file_says_where_what_was_expected_and_what_came(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(PriceError, match=message):
        PriceBook.default(_file(tmp_path, text))


def test_a_missing_file_is_a_price_error(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match=r"absent\.toml"):
        PriceBook.default(tmp_path / "absent.toml")


def test_the_table_lists_every_list_with_dates_tiers_and_sources(book: PriceBook) -> None:
    rows = book.table()
    sonnet = [r for r in rows if r.model == "claude-sonnet-5-5" and r.starts and not r.term]
    assert [str(r.starts) for r in sonnet] == ["2026-10-07"]
    tiers = {r.above for r in rows if r.model == "claude-sonnet-4-5"}
    assert tiers == {0, 200_000}
    assert any(r.hours == "01:00-04:00" for r in rows if r.model == "deepseek-v4-pro")
    assert all(r.rates.source for r in rows)
