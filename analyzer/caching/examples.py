"""Raw prompts through a cache model: files in the format of the golden cache examples.

Owns the reading of that format: an array of examples, each with steps of blocks, breakpoints and
parameters. A block's id is its content. A step's output is given, not predicted; it is taken from
`output`, or from `expect.output` where the file carries expected results, and is otherwise 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypedDict

import msgspec
import xxhash

from analyzer.caching.base import (
    CacheModel,
    ListPrefix,
    Mark,
    Request,
    Served,
    collapsed_runs,
)
from analyzer.caching.example_file import (
    SECTIONS,
    SERVER_RESULTS,
    Block,
    Example,
    Iteration,
    Step,
    may_carry_mark,
    rendered,
)
from analyzer.caching.limits import scope_keys
from analyzer.caching.placement import MAX_MARKS
from analyzer.errors import InputError
from analyzer.model import TTL_SECONDS, Ttl
from analyzer.pricing import PER_MTOK, PriceBook, Rates, charge

_RULES = {
    "anthropic": "anthropic",
    "anthropic-per-block": "anthropic",
    "openai-classic": "openai",
    "openai-breakpoints": "openai-5.6",
    "deepseek-64": "deepseek",
    "deepseek-units": "deepseek-units",
    "gemini-implicit": "gemini",
    "gemini-explicit": "gemini-explicit",
    "paged-prefix-16": "vllm",
    "radix": "sglang",
    "accounting-only": "none",
}
"""Names of rules in example files; a longer name counts for the longest that it begins with."""

Build = Callable[[str, int | None], CacheModel]
Choose = Callable[[str | None, str | None], str]
Levels = Callable[[str, Mapping[str, str]], tuple[str, str, str]]


class StepResult(TypedDict):
    """One step as JSON; tokens, and USD."""

    cache_read: int
    cache_write_5m: int | None
    """None where the provider's lifetimes are not 5 minutes and an hour."""
    cache_write_1h: int | None
    cache_write: int
    input: int
    cost_usd: float | None


class Result(TypedDict):
    """One example as JSON."""

    name: str
    steps: list[StepResult]


@dataclass(frozen=True, slots=True)
class _Prices:
    """How an example's steps are priced: its own table, or the price book."""

    own: Mapping[str, Decimal] | None
    given: bool
    """The file has a price entry; a null there means that nothing is billed."""
    book: PriceBook
    provider: str | None

    def rates(self, model: str | None, prompt: int) -> Rates | None:
        if not self.given:
            return self.book.rates(model, None, prompt, self.provider)
        if self.own is None or "input" not in self.own or "output" not in self.own:
            return None
        own = _own_rates(self.own)
        # A table of list prices leaves the price of long prompts unsaid; the book knows it.
        usual = self.book.rates(model, None, 0)
        if usual is not None and _same(own, usual):
            longer = self.book.rates(model, None, prompt)
            if longer is not None and longer.tier != usual.tier:
                return longer
        return own

    def storage(self, token_hours: float) -> Decimal:
        price = (self.own or {}).get("storage_per_mtok_hour", Decimal(0))
        return price * Decimal(str(token_hours)) / PER_MTOK


def _own_rates(own: Mapping[str, Decimal]) -> Rates:
    price = own["input"]
    write = own.get("write_5m", own.get("write_30m", own.get("write", price)))
    long = own.get("write_1h", own.get("write_12h", write))
    read, output = own.get("read", price), own["output"]
    price, read, write, long, output = (v / PER_MTOK for v in (price, read, write, long, output))
    return Rates(price, read, write, long, output, "standard", "example")


def _same(a: Rates, b: Rates) -> bool:
    return (a.input, a.read, a.write_5m, a.output) == (b.input, b.read, b.write_5m, b.output)


def simulate(examples: object, build: Build, choose: Choose, levels: Levels) -> list[Result]:
    """Serve every example by its cache model; see `analyzer.caching.simulate`."""
    try:
        parsed = msgspec.convert(examples, list[Example], strict=True)
    except msgspec.ValidationError as error:
        raise InputError(f"expected an array of cache examples: {error}") from error
    book = PriceBook.default()
    return [
        _run(example, f"$[{i}]", build, choose, levels, book) for i, example in enumerate(parsed)
    ]


def _run(
    example: Example, where: str, build: Build, choose: Choose, levels: Levels, book: PriceBook
) -> Result:
    name = _rule(example, choose)
    cache = build(name, example.min_cacheable_tokens)
    given = example.prices_per_mtok
    own = _decimals(given, where) if given is not None else None
    prices = _Prices(own, given is not None or name in ("vllm", "sglang"), book, example.provider)
    steps: list[StepResult] = []
    for i, step in enumerate(example.steps):
        if step.iterations is not None:
            steps.append(_account(step.iterations, prices, example.model))
            continue
        request = _request(example, step, f"{where}.steps[{i}]", name, levels)
        served = build("none", None).serve(request) if _uncached(step) else cache.serve(request)
        steps.append(_result(served, step, request, prices, name))
    return Result(name=example.name, steps=steps)


def _rule(example: Example, choose: Choose) -> str:
    stated = example.rule or ""
    fits = [known for known in _RULES if stated.startswith(known)]
    if fits:
        return _RULES[max(fits, key=len)]
    return choose(example.provider, example.model)


def _decimals(given: Mapping[str, str | float | None], where: str) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for key, value in given.items():
        if value is None:
            continue
        try:
            found[key] = Decimal(str(value))
        except InvalidOperation:
            raise InputError(
                f"expected USD per million tokens, got {value!r} - at `{where}.prices_per_mtok.{key}`"
            ) from None
    return found


def _uncached(step: Step) -> bool:
    """OpenAI's explicit mode without a mark: nothing is looked up and nothing stored."""
    return step.settings.get("mode") == "explicit" and not step.breakpoints


def _request(example: Example, step: Step, where: str, name: str, levels: Levels) -> Request:
    for i, block in enumerate(step.blocks):
        if block.section not in SECTIONS or block.tokens < 0:
            raise InputError(
                f"expected a section of {', '.join(SECTIONS)} and tokens of 0 or more, got"
                f" {block.section!r} and {block.tokens} - at `{where}.blocks[{i}]`"
            )
    # Requests are hashed in the order in which the provider renders them.
    model = step.settings.get("model") or example.model or ""
    blocks = rendered(step.blocks, model)
    kinds = [b.kind for b in blocks]
    collapse = name in ("anthropic", "openai-5.6") and _collapses(example)
    settings = step.settings
    view = ListPrefix(
        [_digest(b) for b in blocks],
        [b.tokens for b in blocks],
        collapsed_runs(kinds) if collapse else None,
    )
    ready = step.at_s + (step.first_token_s or 0)
    return Request(
        at=step.at_s,
        # Without a time to the first token, only a request that starts later can read.
        ready_at=ready if ready > step.at_s else math.nextafter(step.at_s, math.inf),
        model=model,
        prefix=view,
        marks=_marks(step, blocks, where, name),
        scope="/".join(settings[k] for k in scope_keys(example.provider) if k in settings),
        tools_end=sum(b.section == "tools" for b in blocks),
        system_end=sum(b.section != "messages" for b in blocks),
        settings=levels(name, settings),
        implicit=settings.get("mode") != "explicit",
    )


def _digest(block: Block) -> int:
    text = f"{block.section}\0{block.kind}\0{block.id}"
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def _collapses(example: Example) -> bool:
    """Whether runs of calls or of results are one look-back position; Bedrock counts blocks."""
    if example.rule:
        return "per-block" not in example.rule
    return "bedrock" not in (example.provider or "").lower()


def _marks(step: Step, blocks: Sequence[Block], where: str, name: str) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    for i, point in enumerate(step.breakpoints or ()):
        place = f"{where}.breakpoints[{i}]"
        ends = [n for n, block in enumerate(blocks, 1) if block.id == point.block]
        if not ends:
            known = ", ".join(b.id for b in blocks[:8])
            raise InputError(
                f"expected the id of a block of this step ({known} …), got {point.block!r}"
                f" - at `{place}.block`"
            )
        # Content may recur; the mark stands on its last appearance.
        end = ends[-1]
        # An automatic mark that lands on a block which cannot carry one walks back silently.
        while point.auto and end > 0 and not may_carry_mark(blocks[end - 1]):
            end -= 1
        mark = Mark(end, _ttl(point.ttl, place))
        # An automatic mark on a block that is marked already changes nothing.
        if end and not (point.auto and mark in marks):
            marks.append(mark)
    marks.sort(key=lambda m: m.parts)
    if name in ("anthropic", "bedrock"):
        _check_marks(marks, where)
        marks = _with_server_marks(marks, blocks)
    return tuple(marks)


def _with_server_marks(marks: list[Mark], blocks: Sequence[Block]) -> list[Mark]:
    taken = {mark.parts for mark in marks}
    ends = [n for n, block in enumerate(blocks, 1) if block.kind in SERVER_RESULTS]
    added = [Mark(n, "5m") for n in ends if marks and n not in taken]
    return sorted([*marks, *added], key=lambda m: m.parts)


def _check_marks(marks: Sequence[Mark], where: str) -> None:
    """What the provider refuses with a 400 has no usage to predict."""
    if len(marks) > MAX_MARKS:
        raise InputError(
            f"expected at most {MAX_MARKS} breakpoints, got {len(marks)} - at `{where}.breakpoints`"
        )
    lifetimes = [TTL_SECONDS[m.ttl] for m in marks]
    if lifetimes != sorted(lifetimes, reverse=True):
        raise InputError(
            f"expected breakpoints of 1h before those of 5m, got {[m.ttl for m in marks]}"
            f" - at `{where}.breakpoints`"
        )


def _ttl(text: str, where: str) -> Ttl:
    lifetimes: dict[str, Ttl] = {"5m": "5m", "30m": "5m", "1h": "1h", "12h": "1h"}
    if text not in lifetimes:
        raise InputError(f"expected one of {', '.join(lifetimes)}, got {text!r} - at `{where}.ttl`")
    return lifetimes[text]


def _result(served: Served, step: Step, request: Request, prices: _Prices, name: str) -> StepResult:
    prompt = request.prefix.tokens(len(request.prefix))
    counts = (served.input, served.read, served.write_5m, served.write_1h, step.generated)
    rates = prices.rates(request.model, prompt)
    cost = None
    if rates is not None:
        total = charge(rates, counts).total
        if name == "gemini-explicit":
            hours = sum(
                request.prefix.tokens(m.parts) * TTL_SECONDS[m.ttl] / 3600 for m in request.marks
            )
            total += prices.storage(hours)
        cost = float(total)
    # Lifetimes of half an hour and of twelve are neither of the two classes of the format.
    split = name != "openai-5.6"
    return StepResult(
        cache_read=served.read,
        cache_write_5m=served.write_5m if split else None,
        cache_write_1h=served.write_1h if split else None,
        cache_write=served.write,
        input=served.input,
        cost_usd=cost,
    )


def _account(iterations: Sequence[Iteration], prices: _Prices, model: str | None) -> StepResult:
    """A response of several iterations: the bill is their sum, each in its own price tier."""
    total: Decimal | None = Decimal(0)
    for turn in iterations:
        counts = (
            turn.input,
            turn.cache_read,
            turn.cache_write_5m,
            turn.cache_write_1h,
            turn.output,
        )
        rates = prices.rates(model, sum(counts[:4]))
        total = None if rates is None or total is None else total + charge(rates, counts).total
    short = sum(turn.cache_write_5m for turn in iterations)
    long = sum(turn.cache_write_1h for turn in iterations)
    return StepResult(
        cache_read=sum(turn.cache_read for turn in iterations),
        cache_write_5m=short,
        cache_write_1h=long,
        cache_write=short + long,
        input=sum(turn.input for turn in iterations),
        cost_usd=float(total) if total is not None else None,
    )
