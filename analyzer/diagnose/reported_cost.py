"""Costs that a recording states, against what its counts cost at dated prices.

Where the two differ by more than rounding, the usual mistakes are tried: the one that gives the
stated figures at nearly all of the steps is the explanation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from analyzer.diagnose.base import Evidence, total
from analyzer.ledger import StepRow
from analyzer.model import ITERATION, Usage
from analyzer.pricing import Rates

ROUNDING = Decimal("0.000001")
"""USD that stated costs are commonly rounded to."""
CENT = Decimal("0.01")
NOISE = Decimal("0.005")
"""Share of a cost within which two price lists are called equal."""
EXPLAINED = 0.9
"""Share of the differing steps that an explanation must hold for."""
MARKUP_STEPS = 3
FLAT_PLANS_UNLIKELY = ("langfuse",)
"""Sources whose cost comes from a list of prices. An agent states 0 for what a flat plan covers too,
so there a lane of nothing but zeros contradicts nothing."""


@dataclass(frozen=True, slots=True)
class Story:
    """Steps whose stated cost differs in one way."""

    rows: tuple[StepRow, ...]
    tokens: int
    """Tokens that were priced wrongly; 0 where that is not known."""
    evidence: Evidence
    remedy: str


@dataclass(frozen=True, slots=True)
class _Bill:
    """What was stated of one response, and what all its requests cost."""

    row: StepRow
    rates: Rates
    stated: Decimal
    right: Decimal
    earlier: Decimal
    """Part of `right` that came before the request that answered."""


@dataclass(frozen=True, slots=True)
class _Mistake:
    name: str
    words: str
    off: Callable[[Usage, Rates], Decimal]
    """What the mistake adds to the right cost; USD."""
    tokens: Callable[[Usage], int]
    remedy: str


def _read(u: Usage) -> int:
    return u.cache_read or 0


def _write(u: Usage) -> int:
    return u.cache_write or 0


def _hour(u: Usage) -> int:
    return u.cache_write_1h or 0


def _paid_write(u: Usage, r: Rates) -> Decimal:
    return (_write(u) - _hour(u)) * r.write_5m + _hour(u) * r.write_1h


_SPLIT = "Price each count at its own rate: input, reads, writes by lifetime, output."
_MISTAKES = (
    _Mistake(
        "hour_writes_as_short",
        "1-hour cache writes were priced as 5-minute ones",
        lambda u, r: _hour(u) * (r.write_5m - r.write_1h),
        _hour,
        "Price 1-hour writes at 2x the input price.",
    ),
    _Mistake(
        "reads_as_input",
        "cache reads were priced as uncached input",
        lambda u, r: _read(u) * (r.input - r.read),
        _read,
        _SPLIT,
    ),
    _Mistake(
        "writes_as_input",
        "cache writes were priced as plain input",
        lambda u, r: _write(u) * r.input - _paid_write(u, r),
        _write,
        _SPLIT,
    ),
    _Mistake(
        "cache_as_input",
        "cache reads and writes were priced as plain input",
        lambda u, r: _read(u) * (r.input - r.read) + _write(u) * r.input - _paid_write(u, r),
        lambda u: _read(u) + _write(u),
        _SPLIT,
    ),
    _Mistake(
        "cache_counted_twice",
        "cached tokens were paid as input and then again as cached ones",
        lambda u, r: (_read(u) + _write(u)) * r.input,
        lambda u: _read(u) + _write(u),
        "Take the cached tokens off the input before it is priced.",
    ),
    _Mistake(
        "writes_counted_twice",
        "written tokens were paid as input and then again as writes",
        lambda u, r: _write(u) * r.input,
        _write,
        "Take the written tokens off the input before it is priced.",
    ),
    _Mistake(
        "reads_left_out",
        "cache reads were not priced at all",
        lambda u, r: -_read(u) * r.read,
        _read,
        "Give the key of the cache reads a price.",
    ),
    _Mistake(
        "writes_left_out",
        "cache writes were not priced at all",
        lambda u, r: -_paid_write(u, r),
        _write,
        "Give the keys of the cache writes a price.",
    ),
    _Mistake(
        "cache_left_out",
        "cache reads and writes were not priced at all",
        lambda u, r: -_read(u) * r.read - _paid_write(u, r),
        lambda u: _read(u) + _write(u),
        "Give the keys of the cached tokens prices.",
    ),
    _Mistake(
        "reasoning_twice",
        "reasoning tokens were paid twice: they are part of the output",
        lambda u, r: (u.reasoning or 0) * r.output,
        lambda u: u.reasoning or 0,
        "Do not add reasoning to an output that includes it.",
    ),
    _Mistake(
        "reasoning_left_out",
        "reasoning tokens were not priced: they were taken off the output",
        lambda u, r: -(u.reasoning or 0) * r.output,
        lambda u: u.reasoning or 0,
        "Price reasoning tokens as output.",
    ),
)
_ROUNDS = "earlier requests inside the response (a fallback, a compaction) were left out"
_ZERO = "nothing was stated for requests that have a price"


def reported_costs(rows: Sequence[StepRow], source: str = "") -> list[Story]:
    """What the stated costs of a lane's steps get wrong."""
    bills = _bills(rows)
    digit = _digit(bills)
    wrong = [bill for bill in bills if not _equal(bill.stated, bill.right, digit)]
    if not wrong:
        return []
    zero = [bill for bill in wrong if not bill.stated]
    if len(zero) == len(bills) and source not in FLAT_PLANS_UNLIKELY:
        return []
    stories = [_told("priced_zero", zero, _ZERO, "Give the model a price.")] if zero else []
    rest = [bill for bill in wrong if bill.stated]
    return stories + ([_explained(rest, digit)] if rest else [])


def _bills(rows: Sequence[StepRow]) -> list[_Bill]:
    bills: list[_Bill] = []
    earlier: Decimal | None = Decimal(0)
    for row in rows:
        cost = row.cost_usd
        if any(name == ITERATION for name, _ in row.record.labels):
            earlier = None if cost is None or earlier is None else earlier + cost
            continue
        stated = row.record.reported_cost
        if stated is not None and cost is not None and earlier is not None and row.rates:
            exact = Decimal(str(stated))
            bills.append(_Bill(row, row.rates, exact, cost + earlier, earlier))
        earlier = Decimal(0)
    return bills


def _digit(bills: Sequence[_Bill]) -> Decimal:
    """Half of the last digit that the stated costs of a lane were written with, USD."""
    places = [
        exponent
        for bill in bills
        if bill.stated and isinstance(exponent := bill.stated.as_tuple().exponent, int)
    ]
    if not places:
        return ROUNDING
    # Floats lose the zeros at their end: what is written in dimes or dollars may be in cents.
    last = min(Decimal(1).scaleb(min(places)), CENT)
    return max(ROUNDING, last / 2)


def _equal(a: Decimal, b: Decimal, digit: Decimal) -> bool:
    """Whether two costs agree, as far as the digits go that they are stated with."""
    return abs(a - b) <= max(ROUNDING, digit, NOISE * min(a, b))


def _explained(bills: Sequence[_Bill], digit: Decimal) -> Story:
    """The mistake that nearly all differing steps agree on; else what is stated beside what is right."""
    votes = Counter(
        m.name
        for bill in bills
        for m in _MISTAKES
        if _equal(bill.stated, bill.right + m.off(bill.row.usage, bill.rates), digit)
    )
    best = max(_MISTAKES, key=lambda m: votes[m.name])
    if votes[best.name] >= EXPLAINED * len(bills):
        return _told(best.name, bills, best.words, best.remedy, best.tokens)
    if all(b.earlier and _equal(b.stated, b.right - b.earlier, digit) for b in bills):
        return _told("rounds_left_out", bills, _ROUNDS, "Sum the cost over all iterations.")
    ratios = sorted(bill.stated / bill.right for bill in bills if bill.right)
    if len(ratios) >= MARKUP_STEPS and ratios[-1] - ratios[0] <= NOISE * ratios[0]:
        words = f"every price is {ratios[len(ratios) // 2]:.3g} times the list price"
        return _told("other_prices", bills, words, "Compare the sender's prices with the list.")
    words = "no usual mistake explains it; the sender's prices may be others than the list's"
    return _told("cost_differs", bills, words, "Compare the sender's prices with the list.")


def _usd(amount: Decimal) -> str:
    return f"${amount:,.6f}" if amount < 1 else f"${amount:,.4f}"


def _told(
    name: str,
    bills: Sequence[_Bill],
    words: str,
    remedy: str,
    tokens: Callable[[Usage], int] = lambda u: 0,
) -> Story:
    stated = sum((b.stated for b in bills), Decimal(0))
    right = total(b.right for b in bills) or Decimal(0)
    evidence: Mapping[str, str | int | float | list[int]] = {
        "summary": f"the recording states {_usd(stated)} where its counts cost {_usd(right)}: {words}",
        "contradiction": name,
        "stated_usd": float(stated),
        "right_usd": float(right),
        "steps": [b.row.step for b in bills[:50]],
    }
    rows = tuple(b.row for b in bills)
    return Story(rows, sum(tokens(b.row.usage) for b in bills), evidence, remedy)
