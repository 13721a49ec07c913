"""What a rule is, what it sees of a broken step, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from analyzer.caching import cache_for
from analyzer.ledger import LaneLedger, StepRow
from analyzer.model import Part, Prompt, Range
from analyzer.pricing import canonical
from analyzer.ranges import appended_ranges

Evidence: TypeAlias = "Mapping[str, str | int | float | bool | list[str] | list[int] | None]"

ACCOUNTING = "accounting"
"""Kind of the findings that claim a contradiction in the recorded figures, and no waste."""
LOOKBACK_POSITIONS = 20
"""Positions that a breakpoint checks, itself the first. Source: Anthropic, prompt caching, 2026-09."""
SILENT_REASONS = frozenset({"unavailable", "previous_message_not_found", ""})
NOISE_SHARE = 0.12
NOISE_TOKENS = 60
"""Sizes of appended text that no total confirms are estimates; a difference below this is noise."""


@dataclass(frozen=True, slots=True)
class Case:
    """One broken step, with its lane around it."""

    ledger: LaneLedger
    row: StepRow

    @property
    def recorded(self) -> bool:
        """Whether both prompts were recorded as sent, so that the content itself can be compared."""
        before, now = self.row.previous, self.row.record
        if before is None or before.prompt is None or now.prompt is None:
            return False
        return before.prompt.recorded and now.prompt.recorded

    @property
    def told(self) -> str | None:
        """The provider's own reason, where the content itself cannot be compared.

        Reasons that say nothing of the cause (`unavailable`, `previous_message_not_found`) are None.
        """
        reason = self.row.record.miss_reason
        return None if self.recorded or reason in SILENT_REASONS else reason

    def says(self, kind: str, what: str) -> Verdict:
        """A verdict on the provider's word."""
        return Verdict(
            kind,
            {
                "summary": f"{what}; the provider says so ({self.told}), the transcript does not show it",
                "provider": self.told,
                "read_floor": self.row.usage.cache_read,
            },
            inferred=True,
        )

    @property
    def was(self) -> Part | None:
        """The part that stood at the divergence before."""
        d = self.row.divergence
        return self.ledger.lane.pool[d.was] if d and d.was is not None else None

    @property
    def now(self) -> Part | None:
        """The part that stands at the divergence now."""
        d = self.row.divergence
        return self.ledger.lane.pool[d.now] if d else None

    @property
    def before(self) -> Prompt | None:
        """The previous prompt."""
        return self.row.previous.prompt if self.row.previous else None

    @property
    def prompt(self) -> Prompt | None:
        """This step's prompt."""
        return self.row.record.prompt

    @property
    def appended(self) -> tuple[Range, ...] | None:
        """What stands behind the previous prompt; None where that is no prefix, or not known."""
        if self.before is None or self.prompt is None:
            return None
        return appended_ranges(self.before, self.prompt)

    @property
    def cache(self) -> str:
        """Name of the provider's cache rule."""
        return cache_for(self.row.record.provider, self.row.record.model)

    @property
    def model(self) -> str:
        """The model in its canonical spelling; empty where it is unknown."""
        return canonical(self.row.record.model) if self.row.record.model else ""

    @property
    def uncached(self) -> bool:
        """Whether the provider counted that this request neither read nor wrote anything."""
        return self.row.usage.cache_read == 0 and self.row.usage.cache_write == 0

    def parts(self, ranges: Iterable[Range]) -> list[Part]:
        """The parts of some ranges of the lane's pool."""
        return [part for r in ranges for part in self.ledger.lane.pool[r.start : r.stop]]

    @property
    def cut_is_real(self) -> bool:
        """Whether more content is gone than the estimate of what was appended can be wrong by."""
        cut, appended = self.row.cut_tokens, self.row.appended_tokens
        if cut is None or appended is None:
            return False
        return cut > max(NOISE_TOKENS, appended * NOISE_SHARE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a step's read fell short."""

    kind: str
    """An id of the taxonomy (docs/causes.md)."""
    evidence: Evidence = field(default_factory=dict)
    inferred: bool = False
    """True where only usage shows it; False where it was read off the content."""
    expected: bool = False
    """The break is the price of a choice (a summary, a person away), not avoidable churn."""
    remedy: str | None = None
    """What to change, where the rule's usual advice would not have helped."""


class Rule(Protocol):
    """One cause. `judge` looks at one broken step; the first rule that answers wins."""

    kind: ClassVar[str]
    remedy: ClassVar[str]
    """What to change, in words."""

    def judge(self, case: Case) -> Verdict | None:
        """The verdict, or None where this rule does not apply."""
        ...


@runtime_checkable
class Totalling(Protocol):
    """A rule that adds evidence of the whole lane to the finding of its steps."""

    def total(self, ledger: LaneLedger, rows: Sequence[StepRow]) -> Totalled:
        """Evidence and advice of all of a finding's steps together."""
        ...


class LaneRule(Protocol):
    """A property of a whole lane that is no break."""

    kind: ClassVar[str]
    remedy: ClassVar[str]

    def find(self, ledger: LaneLedger) -> Finding | None:
        """The finding, or None where this rule does not apply."""
        ...


@dataclass(frozen=True, slots=True)
class Totalled:
    """What only all steps of a finding together can show."""

    evidence: Evidence = field(default_factory=dict)
    advice: str = ""
    """Added to the remedy."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim: a cause, the steps it touched, the evidence, the money and the remedy."""

    kind: str
    lane: str
    steps: tuple[int, ...]
    tokens: int
    """Lost tokens over all its steps; for a contradiction, by how much the figures differ."""
    wasted_usd: Decimal | None
    evidence: Evidence
    remedy: str
    inferred: bool
    expected: bool

    @property
    def is_loss(self) -> bool:
        """Whether it claims that something was paid again; other findings only tell what would help."""
        return self.kind != ACCOUNTING and (self.tokens > 0 or bool(self.wasted_usd))

    @property
    def first_step(self) -> int:
        """First step that it touched."""
        return self.steps[0]

    @property
    def last_step(self) -> int:
        """Last step that it touched."""
        return self.steps[-1]


def total(values: Iterable[Decimal | None]) -> Decimal | None:
    """Sum of the known values; None if there is none."""
    known = [v for v in values if v is not None]
    return sum(known, Decimal(0)) if known else None


def unpriced(rows: Sequence[StepRow]) -> dict[str, int]:
    """Evidence of steps that a finding's dollars leave out; empty where all have a price."""
    missing = sum(row.wasted_usd is None for row in rows)
    return {"unpriced_steps": missing} if missing else {}


def describe(part: Part | None) -> str:
    """A part in words: its kind, tool and size."""
    if part is None:
        return "nothing"
    of = f" of {part.tool}" if part.tool else ""
    stub = ", a placeholder" if part.placeholder else ""
    return f"{part.role} {part.kind.replace('_', ' ')}{of} ({part.chars:,} characters{stub})"
