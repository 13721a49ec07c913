"""Recorded usage and prices of a lane as columns, worked out once per price book."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from analyzer.model import Ttl, Usage
from analyzer.policies.base import Floats, Ints
from analyzer.pricing import Rates
from analyzer.replay.base import (
    BREAK_SHARE,
    BREAK_TOKENS,
    Prices,
    ReplayLane,
    ReplayStep,
    billed_as,
    split_writes,
)
from analyzer.replay.result import LaneReplay

HUGE = 10**15
"""A prompt beyond every tier of every price list."""


@dataclass(frozen=True)
class Columns:
    """One entry a step. Tokens, USD per token."""

    known: npt.NDArray[np.bool_]
    """Whether the recording says what was read."""
    read: Ints
    short: Ints
    long: Ints
    rest: Ints
    cost: Floats
    """USD of the recorded usage; NaN where it is not known."""
    rates: Floats
    """Rows of input, read, short write, long write, output; NaN where there is no price."""
    limit: Ints
    """Largest prompt that these rates hold for."""
    apart: Floats
    """USD of what is priced apart (audio, web searches) beyond the price of its tokens."""


_KNOWN: WeakKeyDictionary[ReplayLane, tuple[Prices, Columns]] = WeakKeyDictionary()


def columns(lane: ReplayLane, book: Prices) -> Columns:
    """The columns of a lane, kept as long as the lane and the book are the same."""
    found = _KNOWN.get(lane)
    if found is None or found[0] is not book:
        found = _KNOWN[lane] = (book, _columns(lane, book))
    return found[1]


def _columns(lane: ReplayLane, book: Prices) -> Columns:
    steps = lane.steps
    tokens = np.zeros((4, len(steps)), dtype=np.int64)
    known = np.zeros(len(steps), dtype=bool)
    cost = np.full(len(steps), np.nan)
    rates = np.full((5, len(steps)), np.nan)
    limit = np.full(len(steps), HUGE, dtype=np.int64)
    apart = np.zeros(len(steps))
    tiers: dict[int, tuple[Rates, int]] = {}
    for n, step in enumerate(steps):
        model = step.model or None
        if step.usage is not None and step.usage.knows_cache:
            known[n] = True
            writes = split_writes(step.usage, step.ttl)
            tokens[:, n] = (step.usage.cache_read or 0, *writes, step.usage.input or 0)
            paid = book.cost_float(step.usage, model, step.when, step.provider)
            cost[n] = np.nan if paid is None else paid
        if step.usage is not None and step.usage.apart:
            apart[n] = _apart(book, step.usage, model, step)
        terms = step.usage.terms if step.usage else ()
        price = book.rates(model, step.when, None, step.provider, terms)
        if price is None:
            continue
        if id(price) not in tiers:
            tiers[id(price)] = (price, _lowest_tier(book, model, step.when, step.provider, terms))
        rates[:, n] = (price.input, price.read, price.write_5m, price.write_1h, price.output)
        limit[n] = tiers[id(price)][1]
    read, short, long, left = tokens
    return Columns(known, read, short, long, left, cost, rates, limit, apart)


def _apart(book: Prices, usage: Usage, model: str | None, step: ReplayStep) -> float:
    whole = book.cost_float(usage, model, step.when, step.provider)
    plain = book.cost_float(replace(usage, apart=()), model, step.when, step.provider)
    return math.nan if whole is None or plain is None else whole - plain


def _lowest_tier(
    book: Prices,
    model: str | None,
    at: datetime | None,
    provider: str | None,
    terms: tuple[str, ...],
) -> int:
    """Prompt tokens up to which the lowest price holds."""
    limit = HUGE
    while True:
        price = book.rates(model, at, limit, provider, terms)
        if price is None or not price.tier.startswith(">"):
            return limit
        limit = int(price.tier[1:])


@dataclass(frozen=True)
class Predicted:
    """What a cache model says of a lane's requests, one entry a step; tokens."""

    total: Ints
    read: Ints
    rest: Ints
    """Neither read nor written."""
    same: npt.NDArray[np.bool_]
    """The prompt is the recorded one."""
    edits: list[int]
    ttl: Ttl
    measured: bool
    """Recorded usage stands for the prediction until the first prompt that differs."""


def assemble(lane: ReplayLane, said: Predicted, book: Prices) -> LaneReplay:
    """The lane's columns and their prices, step for step as the engine would bill them."""
    known = columns(lane, book)
    written = said.total - said.read - said.rest
    moved = np.minimum(written, np.maximum(0, lane.tail_input - said.rest))
    written, rest = written - moved, said.rest + moved
    wrong = (said.read < 0) | (said.read > said.total) | (rest < 0) | (written < 0)
    none = np.zeros_like(written)
    short, long = (none, written) if said.ttl == "1h" else (written, none)
    taken = known.known & ~np.logical_or.accumulate(~said.same) & said.measured
    read = np.where(taken, known.read, said.read)
    short = np.where(taken, known.short, short)
    long = np.where(taken, known.long, long)
    rest = np.where(taken, known.rest, rest)
    prompt = read + short + long + rest
    could = np.minimum(np.concatenate([[0], (prompt - rest)[:-1]]), prompt)
    lost = could - read
    out = LaneReplay(
        lane.key,
        prompt=prompt.tolist(),
        read=read.tolist(),
        write_5m=short.tolist(),
        write_1h=long.tolist(),
        input=rest.tolist(),
        output=lane.outputs.tolist(),
        edits=said.edits,
        breaks=((lost >= BREAK_TOKENS) & (lost > BREAK_SHARE * could)).tolist(),
        same=said.same.tolist(),
        unrecovered=lane.unrecovered,
    )
    for n in np.flatnonzero(wrong & ~taken).tolist():
        out.check(n, int(said.total[n]))
    _price(lane, out, known, taken, book)
    return out


def _price(
    lane: ReplayLane,
    out: LaneReplay,
    known: Columns,
    taken: npt.NDArray[np.bool_],
    book: Prices,
) -> None:
    p_in, p_read, p_short, p_long, p_out = known.rates
    rest, read = np.array(out.input), np.array(out.read)
    written = np.array(out.write_5m) * p_short + np.array(out.write_1h) * p_long
    cost = rest * p_in + read * p_read + written + lane.outputs * p_out + known.apart
    cost = np.where(taken, known.cost, cost)
    out.cost = [None if math.isnan(usd) else usd for usd in cost.tolist()]
    for n in np.flatnonzero((np.array(out.prompt) > known.limit) & ~taken).tolist():
        usage = Usage(
            input=out.input[n],
            cache_read=out.read[n],
            cache_write=out.write_5m[n] + out.write_1h[n],
            cache_write_5m=out.write_5m[n],
            cache_write_1h=out.write_1h[n],
            output=out.output[n],
        )
        step = lane.steps[n]
        usage = billed_as(usage, step.usage)
        out.cost[n] = book.cost_float(usage, step.model or None, step.when, step.provider)
