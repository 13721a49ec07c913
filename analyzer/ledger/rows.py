"""The step table: what each step shared with the one before, read, wrote, lost and cost.

Definitions: docs/metrics.md. A loss is counted only for content that was sent again: tokens that
the new prompt no longer holds were not paid twice, and what is new had to be paid once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise

from analyzer.caching import cache_for, minimum_tokens
from analyzer.ledger.prefix import Divergence, PoolIndex, divergence
from analyzer.model import (
    TTL_SECONDS,
    Lane,
    Prompt,
    Step,
    Ttl,
    Usage,
)
from analyzer.pricing import Cost, PriceBook, Rates
from analyzer.ranges import appended_ranges, head, tail_ranges
from analyzer.tokens import Sizes, confirmed, measure

BREAK_SHARE = 0.05
BREAK_TOKENS = 2_000
AUTOMATIC_UNIT = 128
AUTOMATIC_MINIMUM = 1_024
"""Automatic caches report reads in units of 128 tokens from 1,024 on. Source: OpenAI's prompt
caching guide, read 2026-11; other automatic caches use smaller units, which this rounds down."""
UNPROMISED = ("none", "automatic", "xai", "kimi", "qwen", "minimax", "vllm", "sglang")
"""Cache rules of providers of which some have no cache, or have it switched off."""
ASKED = ("anthropic", "bedrock")
"""Cache rules that do nothing unless a request marks what to cache."""
UNSEEN_CUT = 60
"""Tokens that a broken step must have cut before its prompt is known to hold unseen stubs."""
COMPACTED = 0.5
"""A prompt that kept less than this share of the tokens before it was compacted."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a loss is a break: above both."""

    share: float = BREAK_SHARE
    """Of what could have been read, 0..1."""
    tokens: int = BREAK_TOKENS


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of one lane in the ledger. Tokens and USD; None is unknown."""

    lane: str
    step: int
    record: Step
    previous: Step | None
    """The request that this one is compared with."""
    usage: Usage
    prompt_tokens: int | None
    n_messages: int | None
    n_stubs: int | None
    last_stub_index: int | None
    gap_s: float | None
    """Seconds from the start of the previous request to the start of this one."""
    window_used: float | None
    """Prompt tokens as a share of the model's context window."""
    shared_prefix_tokens: int | None
    divergence: Divergence | None
    expected_read: int | None
    lost_tokens: int | None
    cut_tokens: int | None
    """Tokens of the previous prompt that are no longer in this one (negative: grew out of sight)."""
    appended_tokens: int | None
    new_stubs: int
    """Stubs and shortened calls that this prompt has more than the one before."""
    cost: Cost | None
    rates: Rates | None
    wasted_usd: Decimal | None
    is_break: bool
    compacted: bool
    """A summary or a large cut replaced the history before this step."""
    unpriced: str | None
    """Why there is no cost, in words; None where there is one."""
    ttl: Ttl | None
    """Lifetime that the previous request's writes had, where usage says it."""

    @property
    def cost_usd(self) -> Decimal | None:
        """USD of this step at dated prices; None where a price or a count is unknown."""
        return self.cost.total if self.cost else None

    @property
    def break_usd(self) -> Decimal | None:
        """USD lost at this step if it is a break, else 0; None where that is unknown."""
        if self.is_break:
            return self.wasted_usd
        return None if self.lost_tokens is None else Decimal(0)

    @property
    def divergence_index(self) -> int | None:
        """Index into the messages array; -1 for tools or system; None if nothing differs."""
        return self.divergence.index if self.divergence else None

    @property
    def at(self) -> datetime | None:
        """Start of the request."""
        return self.record.at


@dataclass(frozen=True)
class LaneLedger:
    """The rows of a lane with what they were derived from."""

    lane: Lane
    sizes: Sizes
    index: PoolIndex
    rows: tuple[StepRow, ...]


def lane_ledger(lane: Lane, book: PriceBook, thresholds: Thresholds = Thresholds()) -> LaneLedger:
    """Lay the steps of a lane side by side."""
    return _LedgerBuilder(lane, book, thresholds).run()


class _LedgerBuilder:
    def __init__(self, lane: Lane, book: PriceBook, thresholds: Thresholds) -> None:
        self.lane = lane
        self.book = book
        self.thresholds = thresholds
        self.sizes = measure(lane)
        self.index = PoolIndex(lane)
        self.automatic = _is_automatic(lane)
        self.ttl: Ttl | None = None
        self.cut_unseen = False

    def run(self) -> LaneLedger:
        rows: list[StepRow] = []
        done: list[Step] = [self.lane.previous] if self.lane.previous else []
        if self.lane.previous:
            self._learn_ttl(self.lane.previous)
        for number, step in enumerate(self.lane.steps):
            if step.is_aside:
                # Another model with a prompt of its own: nothing comes before it or goes on from it.
                rows.append(self._row(number, step, None))
                continue
            rows.append(self._row(number, step, _begun_before(step, done)))
            self._learn_ttl(step)
            done.append(step)
        return LaneLedger(self.lane, self.sizes, self.index, tuple(rows))

    def _learn_ttl(self, step: Step) -> None:
        usage = step.usage
        if usage is None:
            return
        if usage.cache_write_1h:
            self.ttl = "1h"
        elif usage.cache_write_5m:
            self.ttl = "5m"

    def _row(self, number: int, step: Step, before: Step | None) -> StepRow:
        usage = step.usage or Usage()
        prompt = step.prompt
        old = before.prompt if before else None
        diverged = divergence(self.index, old, prompt) if old and prompt else None
        appended = self._appended(number, step, before)
        cut = _cut(before, usage, appended)
        compacted = self._compacted(step, before, cut)
        expected = self._expected(before)
        shared = self._shared(step, before, diverged)
        lost = self._lost(step, expected, appended, shared if compacted else None)
        rates = self.book.rates(step.model, step.at, usage.prompt, step.provider, usage.terms)
        cost = self.book.cost(usage, step.model, step.at, step.provider)
        is_break = self._is_break(lost, expected)
        stubs = self._visible_stubs(prompt, is_break=is_break, cut=cut, compacted=compacted)
        return StepRow(
            lane=self.lane.name,
            step=number,
            record=step,
            previous=before,
            usage=usage,
            prompt_tokens=usage.prompt,
            n_messages=self.index.n_messages(prompt) if prompt else None,
            n_stubs=self.index.n_stubs(stubs) if stubs else None,
            last_stub_index=self.index.last_stub_index(stubs) if stubs else None,
            gap_s=_gap(before, step),
            window_used=self._window_used(step),
            shared_prefix_tokens=shared,
            divergence=diverged,
            expected_read=expected,
            lost_tokens=lost,
            cut_tokens=cut,
            appended_tokens=appended,
            new_stubs=self._new_stubs(old, prompt),
            cost=cost,
            unpriced=None if cost else self._why_not(step),
            rates=rates,
            wasted_usd=_wasted(usage, lost, rates),
            is_break=is_break,
            compacted=compacted,
            ttl=self.ttl,
        )

    def _why_not(self, step: Step) -> str | None:
        return self.book.why_not(step.usage, step.model, step.at, step.provider)

    def _appended(self, number: int, step: Step, before: Step | None) -> int | None:
        if step.prompt is None:
            return None
        beside = self.lane.steps[number - 1] if number else self.lane.previous
        if before is None or before is beside or before.prompt is None:
            return self.sizes.appended[number]
        return self.sizes.of(tail_ranges(before.prompt, step.prompt))

    def _visible_stubs(
        self, prompt: Prompt | None, *, is_break: bool, cut: int | None, compacted: bool
    ) -> Prompt | None:
        """The prompt whose stubs can be counted; None once content was replaced out of sight.

        A rebuilt prompt shows the content that was there, not the stub that was sent for it.
        """
        if prompt is None or prompt.recorded:
            return prompt
        if compacted:
            self.cut_unseen = False
        elif is_break and cut is not None and cut > UNSEEN_CUT:
            self.cut_unseen = True
        return None if self.cut_unseen else prompt

    def _new_stubs(self, old: Prompt | None, prompt: Prompt | None) -> int:
        if old is None or prompt is None:
            return 0
        return max(0, self.index.n_shrunk(prompt) - self.index.n_shrunk(old))

    def _window_used(self, step: Step) -> float | None:
        window = self.book.window(step.model, step.provider)
        prompt = step.usage.prompt if step.usage else None
        return prompt / window if window and prompt is not None else None

    def _compacted(self, step: Step, before: Step | None, cut: int | None) -> bool:
        if step.compaction is not None:
            return step.compaction.kind == "summary"
        was = before.usage.prompt if before and before.usage else None
        if before is None or was is None or cut is None or cut < self.thresholds.tokens:
            return False
        # What a rebuilt prompt seems to lack may stand in a file that was not read with it.
        return cut > was * COMPACTED and not confirmed(step, before)

    def _expected(self, before: Step | None) -> int | None:
        usage = before.usage if before else None
        if usage is None or usage.prompt is None or not usage.knows_cache:
            return None
        if not self.automatic:
            return (usage.cache_read or 0) + (usage.cache_write or 0)
        if usage.prompt < AUTOMATIC_MINIMUM:
            return 0
        return usage.prompt // AUTOMATIC_UNIT * AUTOMATIC_UNIT

    def _shared(self, step: Step, before: Step | None, diverged: Divergence | None) -> int | None:
        """Tokens of the leading parts that are equal to the previous prompt's."""
        old = before.prompt if before else None
        if old is None or step.prompt is None or before is None:
            return None
        was = before.usage.prompt if before.usage else None
        if step.prompt.recorded:
            if diverged is None:
                return min(self.sizes.of(old.ranges), self.sizes.of(step.prompt.ranges))
            return self.sizes.of(head(step.prompt, diverged.common))
        # A rebuilt prompt shows neither its system prompt nor what was replaced out of sight: only
        # the cache itself can confirm that the previous prompt is still the prefix.
        if diverged is None and confirmed(step, before):
            return was
        if step.compaction is not None or diverged is not None:
            return max(0, self.sizes.hidden[0]) if self.sizes.hidden else None
        return None

    def _lost(
        self, step: Step, expected: int | None, appended: int | None, cap: int | None
    ) -> int | None:
        usage = step.usage or Usage()
        prompt = usage.prompt
        if prompt is None or expected is None or usage.cache_read is None:
            return None
        could = min(expected, prompt)
        if appended is not None:
            could = min(could, max(0, prompt - appended))
        if cap is not None:
            could = min(could, cap)
        if could < self._least(step):
            return 0
        return max(0, could - usage.cache_read)

    def _least(self, step: Step) -> int:
        """Tokens below which the provider of this step stores, and so reads, nothing."""
        asked = step.model and cache_for(step.provider, step.model) == "anthropic"
        return minimum_tokens(step.model) if asked and step.model else 0

    def _is_break(self, lost: int | None, expected: int | None) -> bool:
        if lost is None or not expected:
            return False
        return lost >= self.thresholds.tokens and lost > expected * self.thresholds.share


def _begun_before(step: Step, done: list[Step]) -> Step | None:
    """The latest earlier request that had begun to answer when this one started."""
    for earlier in reversed(done):
        if earlier.usage is None and earlier.error is not None:
            continue
        if step.at is None or earlier.at is None:
            return earlier
        if earlier.at < step.at and (earlier.ended_at is None or earlier.ended_at <= step.at):
            return earlier
        if not _parallel(earlier, step):
            return earlier
    return None


def _continues(earlier: Step, step: Step) -> bool:
    if earlier.prompt is None or step.prompt is None:
        return False
    return bool(appended_ranges(earlier.prompt, step.prompt))


def _is_automatic(lane: Lane) -> bool:
    """Whether the provider caches without being asked: whole prompts, or not at all if False.

    A lane that wrote is cached where it was asked for. One that neither wrote nor read was either
    never marked, or its provider has no cache: then there is nothing to lose.
    """
    used = [step for step in lane.steps if step.usage is not None]
    if any(step.usage.cache_write for step in used if step.usage):
        return False
    if any(step.usage.cache_read for step in used if step.usage):
        return True
    rule = cache_for(used[0].provider, used[0].model) if used else "none"
    if rule in ASKED:
        return False
    return rule not in UNPROMISED or not any(
        _continues(before, now) for before, now in pairwise(used)
    )


def _parallel(earlier: Step, step: Step) -> bool:
    """Whether the content lets two requests run side by side.

    It does not where the later prompt holds the earlier response, or continues the earlier prompt.
    """
    if not earlier.response or step.prompt is None or _continues(earlier, step):
        return False
    held = step.prompt.ranges
    return not any(h.start <= r.start < h.stop for r in earlier.response for h in held)


def _gap(before: Step | None, step: Step) -> float | None:
    if before is None or before.at is None or step.at is None:
        return None
    return (step.at - before.at).total_seconds()


def _cut(before: Step | None, usage: Usage, appended: int | None) -> int | None:
    was = before.usage.prompt if before and before.usage else None
    if was is None or usage.prompt is None or appended is None:
        return None
    return was + appended - usage.prompt


def _wasted(usage: Usage, lost: int | None, rates: Rates | None) -> Decimal | None:
    """Lost tokens at the price they were paid at, less what reading them would have cost."""
    if lost is None:
        return None
    if lost == 0:
        return Decimal(0)
    if rates is None:
        return None
    written = min(lost, usage.cache_write or 0)
    hour = usage.cache_write_1h or 0
    in_hour = Decimal(written) * hour / Decimal(usage.cache_write or 1)
    paid = (written - in_hour) * rates.write_5m + in_hour * rates.write_1h
    paid += (lost - written) * rates.input
    return paid - lost * rates.read


def lifetime(row: StepRow) -> int | None:
    """Seconds that the previous request's entries were asked to live; None for automatic caches.

    Where writes were recorded without their lifetime, it is the one that Anthropic grants unasked.
    Source: Anthropic, prompt caching, 2026-09.
    """
    if row.ttl is not None:
        return TTL_SECONDS[row.ttl]
    usages = (row.usage, row.previous.usage if row.previous else None)
    wrote = any(usage and usage.cache_write for usage in usages)
    asked = cache_for(row.record.provider, row.record.model) in ASKED
    return TTL_SECONDS["5m"] if wrote and asked else None
