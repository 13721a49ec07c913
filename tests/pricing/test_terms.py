"""Service tiers, speeds, regions, prices apart, and the edges of long contexts."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from analyzer.errors import PriceError
from analyzer.model import Usage
from analyzer.pricing import PER_MTOK, PriceBook, Rates

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SPRING = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def book() -> PriceBook:
    return PriceBook.default()


def mtok(rates: Rates | None) -> tuple[str, ...] | None:
    """Input, read, short write, long write, output; USD per million tokens."""
    if rates is None:
        return None
    shown = (rates.input, rates.read, rates.write_5m, rates.write_1h, rates.output)
    return tuple(f"{(r * PER_MTOK).normalize():f}" for r in shown)


@pytest.mark.parametrize(
    ("model", "at", "terms", "expected"),
    [
        ("claude-opus-4-8", NOW, ("batch",), ("2.5", "0.25", "3.125", "5", "12.5")),
        ("claude-opus-4-8", SPRING, ("batch",), ("2.5", "0.25", "3.125", "5", "12.5")),
        ("claude-opus-4-1", SPRING, ("batch",), ("7.5", "0.75", "9.375", "15", "37.5")),
        ("claude-sonnet-5-5", SPRING, ("batch",), ("1", "0.1", "1.25", "2", "5")),
        ("claude-sonnet-5-5", NOW, ("batch",), ("1", "0.05", "1.25", "2", "5")),
        ("claude-opus-5-5", NOW, ("fast",), ("8", "0.4", "10", "16", "40")),
        ("claude-opus-5-5", NOW, ("us",), ("4.4", "0.22", "5.5", "8.8", "22")),
        ("claude-opus-5-5", NOW, ("batch", "us"), ("2.2", "0.11", "2.75", "4.4", "11")),
        ("gpt-5.4", NOW, ("flex",), ("1.25", "0.13", "1.25", "1.25", "7.5")),
        ("gpt-5.4", NOW, ("priority",), ("5", "0.5", "5", "5", "30")),
        ("gpt-5.6-sol", SPRING, ("flex",), ("2.5", "0.25", "3.125", "3.125", "15")),
        ("gpt-5.6-sol", NOW, ("priority",), ("8", "0.8", "10", "20", "40")),
    ],
)
def test_terms_reach_the_price(
    book: PriceBook, model: str, at: datetime, terms: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert mtok(book.rates(model, at, terms=terms)) == expected


@pytest.mark.parametrize(
    ("model", "terms"),
    [
        ("claude-opus-4-8", ("priority",)),
        ("claude-haiku-4-5", ("us",)),
        ("claude-opus-4-1", ("us",)),
        ("gpt-5.4", ("scale",)),
    ],
)
def test_terms_without_a_published_price_cost_an_unknown_sum(
    book: PriceBook, model: str, terms: tuple[str, ...]
) -> None:
    usage = Usage(input=1000, output=10, terms=terms)
    assert book.cost(usage, model, NOW) is None
    assert book.cost_float(usage, model, NOW) is None
    why = book.why_not(usage, model, NOW, None)
    assert why == f"{terms[0]} has no published price for {model}"


def test_why_a_cost_is_unknown_is_said_in_words(book: PriceBook) -> None:
    plain = Usage(input=1, output=1)
    assert book.why_not(plain, "claude-opus-4-8", NOW, None) is None
    assert book.why_not(plain, "foo-1", NOW, None) == "model foo-1 is in no price list"
    assert book.why_not(plain, None, NOW, None) == "no model was recorded"
    assert book.why_not(None, "foo-1", NOW, None) == "no token counts were recorded"
    missing = Usage(input=1, output=None)
    assert book.why_not(missing, "claude-opus-4-8", NOW, None) == "no output count was recorded"
    searched = Usage(input=1, output=1, apart=(("web_searches", 1),))
    assert "web searches" in (book.why_not(searched, "grok-4.5", NOW, None) or "")


def test_a_gateways_fast_model_is_the_fast_mode_of_the_model(book: PriceBook) -> None:
    fast = book.rates("anthropic/claude-opus-4.8-fast", NOW)
    assert mtok(fast) == mtok(book.rates("claude-opus-4-8", NOW, terms=("fast",)))
    assert mtok(fast) == ("10", "1", "12.5", "20", "50")


def test_web_searches_are_paid_by_the_request(book: PriceBook) -> None:
    plain = Usage(input=1000, output=100)
    searched = Usage(input=1000, output=100, apart=(("web_searches", 3),))
    before = book.cost(plain, "claude-opus-4-8", NOW)
    after = book.cost(searched, "claude-opus-4-8", NOW)
    assert before is not None
    assert after is not None
    assert after.tools == Decimal("0.03")
    assert after.total == before.total + Decimal("0.03")
    assert book.cost_float(searched, "claude-opus-4-8", NOW) == pytest.approx(float(after.total))


def test_searches_keep_their_price_in_a_batch(book: PriceBook) -> None:
    usage = Usage(input=0, output=0, terms=("batch", "us"), apart=(("web_searches", 1000),))
    cost = book.cost(usage, "claude-opus-4-8", NOW)
    assert cost is not None
    assert cost.total == 10


def test_audio_is_priced_apart_from_text(book: PriceBook) -> None:
    text = book.cost(Usage(input=1000, output=1000), "gpt-audio", NOW)
    spoken = book.cost(
        Usage(input=1000, output=1000, apart=(("audio_input", 600), ("audio_output", 400))),
        "gpt-audio",
        NOW,
    )
    rates = book.rates("gpt-audio", NOW)
    assert text is not None
    assert spoken is not None
    assert rates is not None
    prices = dict(rates.apart)
    more = 600 * (prices["audio_input"] - rates.input)
    more += 400 * (prices["audio_output"] - rates.output)
    assert more > 0
    assert spoken.total == text.total + more


def test_audio_without_a_price_of_its_own_costs_what_text_does(book: PriceBook) -> None:
    usage = Usage(input=1000, output=10)
    spoken = Usage(input=1000, output=10, apart=(("audio_input", 600),))
    assert book.cost(usage, "claude-opus-4-8", NOW) == book.cost(spoken, "claude-opus-4-8", NOW)


@pytest.mark.parametrize(
    ("model", "edge", "below", "above"),
    [
        ("claude-sonnet-4-5", 200_000, "3", "6"),
        ("claude-haiku-5-5", 100_000, "0.1", "0.5"),
        ("gemini-2.5-pro", 200_000, "1.25", "2.5"),
        ("gpt-5.4", 272_000, "2.5", "5"),
        ("gpt-6-sol", 272_000, "2", "4"),
        ("claude-opus-4-8", 200_000, "5", "5"),
        ("grok-4.5", 199_999, "2", "4"),
    ],
)
@pytest.mark.parametrize("shape", ["uncached", "read", "written"])
def test_the_whole_prompt_decides_the_tier_of_a_long_context(
    book: PriceBook, model: str, edge: int, below: str, above: str, shape: str
) -> None:
    for size, price in ((edge, below), (edge + 1, above)):
        usage = {
            "uncached": Usage(input=size, output=0),
            "read": Usage(input=1, cache_read=size - 1, output=0),
            "written": Usage(input=1, cache_write=size - 1, cache_write_5m=size - 1, output=0),
        }[shape]
        cost = book.cost(usage, model, NOW)
        rates = book.rates(model, NOW, size)
        assert cost is not None
        assert rates is not None
        assert mtok(rates)[0] == price  # type: ignore[index]
        assert cost.input == (usage.input or 0) * rates.input


def test_a_batch_has_the_tiers_of_its_model(book: PriceBook) -> None:
    short = book.rates("claude-sonnet-4-5", NOW, 200_000, terms=("batch",))
    long = book.rates("claude-sonnet-4-5", NOW, 200_001, terms=("batch",))
    assert (mtok(short), mtok(long)) == (
        ("1.5", "0.15", "1.875", "3", "7.5"),
        ("3", "0.3", "3.75", "6", "11.25"),
    )


def test_a_users_file_may_price_terms_and_what_stands_apart(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        """
[[price]]
model = "claude-opus-4-8"
term = "priority"
input = 4
output = 20
web_searches = 8

[[factor]]
model = "house-*"
term = "night"
factor = "0.25"

[[price]]
model = "house-model"
input = 8
output = 16
"""
    )
    book = PriceBook.default(path)
    own = book.rates("claude-opus-4-8", NOW, terms=("priority",))
    assert mtok(own) == ("4", "0.5", "6.25", "8", "20")
    assert dict(own.apart)["web_searches"] == Decimal("0.008")  # type: ignore[union-attr]
    assert mtok(book.rates("house-model", NOW, terms=("night",)))[0] == "2"  # type: ignore[index]
    assert mtok(book.rates("house-model", NOW))[0] == "8"  # type: ignore[index]
    shown = [row for row in book.table() if row.factor is not None and row.term == "night"]
    assert [(row.model, row.factor) for row in shown] == [("house-*", Decimal("0.25"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[factor]]\nmodel = "a"\nfactor = 2', r"factor\[0\]\.term"),
        ('[[factor]]\nmodel = "a"\nterm = "x"', r"factor\[0\]\.factor"),
        ('[[factor]]\nmodel = "a"\nterm = "x"\nfactor = -1', r"factor\[0\]\.factor"),
        ('[[factor]]\nterm = "x"\nfactor = 1', r"factor\[0\]\.model"),
    ],
)
def test_a_malformed_factor_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(PriceError, match=message):
        PriceBook.default(path)
