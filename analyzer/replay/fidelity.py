"""How far a replay can be trusted, and which saving may be claimed.

The recorded prompts are served by the cache model at the recorded times. Blind: usage is not looked
at; its error is the band around every saving. Carried: losses that the recording shows and no model
can know enter as dated events, and the recorded bill must come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from statistics import median
from typing import Literal

from analyzer.model import SessionKey
from analyzer.replay.base import ReplayLane
from analyzer.replay.result import LaneReplay, ReplayResult
from analyzer.tokens import Sizes

ErrorCause = Literal["unseen prefix", "lifetime", "provider side", "tokens"]
CAUSES: Mapping[ErrorCause, str] = {
    "unseen prefix": "what others kept warm before the first request, or kept warm later, is in no log",
    "lifetime": "the entry lived longer or shorter than its lifetime and the idle time say",
    "provider side": "less was read than the unchanged prompt promised, without an idle time to "
    "explain it: an eviction, routing, or a change of the prefix out of sight",
    "tokens": "sizes of parts, and what was written where",
}
SHORTEST_LIFETIME_S = 300.0
READ_TOLERANCE = 1024
"""Tokens of a read that sizes of parts and rounding may explain."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 95th percentile of relative, unsigned errors; None where nothing was measured."""

    median: float | None
    p95: float | None

    @classmethod
    def of(cls, errors: Iterable[float | None]) -> Spread:
        """Over the errors that are known."""
        known = sorted(e for e in errors if e is not None)
        if not known:
            return cls(None, None)
        # The smallest value that at least 95 % of all do not exceed.
        rank = max(0, -(-len(known) * 95 // 100) - 1)
        return cls(median(known), known[rank])


@dataclass(frozen=True, slots=True)
class SessionFidelity:
    """Errors of one session, relative and unsigned; None where the recording does not say."""

    session: SessionKey
    steps: int
    """Requests whose usage the recording tells."""
    recorded_usd: float | None
    cost_error: float | None
    """Blind."""
    read_error: float | None
    """Blind, of the tokens read over the session."""
    verdict_agreement: float | None
    """Share of steps at which model and recording agree whether the cache broke."""
    carried_cost_error: float | None
    events: int
    """Losses that were carried in, because no log can foresee them."""
    error_usd: Mapping[ErrorCause, float] = field(default_factory=dict)
    """The blind error by what caused it, signed (more than recorded is positive); causes without
    an error are left out."""

    @property
    def main_cause(self) -> ErrorCause | None:
        """What most of the blind error comes from."""
        return max(self.error_usd, key=lambda cause: abs(self.error_usd[cause]), default=None)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """All sessions. The outer errors are blind."""

    cache: str
    sessions: tuple[SessionFidelity, ...]
    raw_errors: tuple[float, ...] = ()
    """Of the estimator: relative error of each group of parts whose size the totals tell exactly."""
    calibrated_errors: tuple[float, ...] = ()
    """The same on the scale that the lane's other groups give."""

    @property
    def steps(self) -> int:
        """Requests compared."""
        return sum(s.steps for s in self.sessions)

    @property
    def cost_error(self) -> Spread:
        """Blind error of the bill over sessions."""
        return Spread.of(s.cost_error for s in self.sessions)

    @property
    def read_error(self) -> Spread:
        """Blind error of tokens read over sessions."""
        return Spread.of(s.read_error for s in self.sessions)

    @property
    def carried_cost_error(self) -> Spread:
        """Error of the bill over sessions once recorded losses are carried in."""
        return Spread.of(s.carried_cost_error for s in self.sessions)

    @property
    def verdict_agreement(self) -> float | None:
        """Share of all steps at which the verdicts agree."""
        known = [(s.verdict_agreement, s.steps) for s in self.sessions]
        total = sum(n for share, n in known if share is not None)
        return sum(share * n for share, n in known if share is not None) / total if total else None


@dataclass(frozen=True, slots=True)
class Saving:
    """What a policy would have saved of the recorded bill, with the error around it."""

    usd: float
    """Negative where the policy costs more."""
    share: float
    """Of the recorded bill."""
    band: float
    """Blind relative error of the bill."""

    @property
    def shown(self) -> bool:
        """Whether the difference is larger than the error."""
        return abs(self.share) > self.band

    @property
    def text(self) -> str:
        """The claim in words."""
        if not self.shown:
            return "no difference shown"
        verb = "saves" if self.share > 0 else "costs"
        more = "" if self.share > 0 else " more"
        return f"{verb} {abs(self.share):.1%}{more} (± {self.band:.1%})"


def saving(recorded_usd: float, policy_usd: float, band: float) -> Saving | None:
    """A saving against the recorded bill; None where that is nothing."""
    if recorded_usd <= 0:
        return None
    usd = recorded_usd - policy_usd
    return Saving(usd, usd / recorded_usd, band)


def compare(
    lanes: Sequence[ReplayLane],
    recorded: ReplayResult,
    blind: ReplayResult,
    carried: ReplayResult,
    lost: Sequence[SessionKey],
) -> Fidelity:
    """Hold replays of the recorded policy against the recording, session by session.

    `recorded` took the recorded usage, `blind` and `carried` are the model's word without and with
    the recorded losses; `lost` names the session of each of these.
    """
    rows: dict[SessionKey, list[int]] = {}
    for n, lane in enumerate(lanes):
        rows.setdefault(lane.key.session, []).append(n)
    return Fidelity(
        blind.cache,
        tuple(
            _session(
                key,
                [recorded.lanes[n] for n in members],
                [blind.lanes[n] for n in members],
                [carried.lanes[n] for n in members],
                lost.count(key),
                [_known(lanes[n]) for n in members],
                _errors([(lanes[n], blind.lanes[n], recorded.lanes[n]) for n in members]),
            )
            for key, members in rows.items()
        ),
        tuple(e for lane in lanes for e in _estimator_errors(lane, calibrated=False)),
        tuple(e for lane in lanes for e in _estimator_errors(lane, calibrated=True)),
    )


def _estimator_errors(lane: ReplayLane, *, calibrated: bool) -> list[float]:
    return lane.scale.errors(calibrated=calibrated) if isinstance(lane.scale, Sizes) else []


def _known(lane: ReplayLane) -> list[bool]:
    """Per step, whether the recording says what it read; only those are compared."""
    return [step.usage is not None and step.usage.knows_cache for step in lane.steps]


def _session(
    key: SessionKey,
    recorded: Sequence[LaneReplay],
    blind: Sequence[LaneReplay],
    carried: Sequence[LaneReplay],
    events: int,
    known: Sequence[Sequence[bool]],
    errors: Mapping[ErrorCause, float],
) -> SessionFidelity:
    steps = sum(map(sum, known))
    if not steps:
        return SessionFidelity(key, 0, None, None, None, None, None, events)
    bill = _sum([lane.cost for lane in recorded], known)
    read = _sum([lane.read for lane in recorded], known)
    verdicts = [
        mine == theirs
        for a, b, told in zip(blind, recorded, known, strict=True)
        for mine, theirs in compress(zip(a.breaks, b.breaks, strict=True), told)
    ]
    return SessionFidelity(
        session=key,
        steps=steps,
        recorded_usd=bill,
        cost_error=_error(_sum([lane.cost for lane in blind], known), bill),
        read_error=_error(_sum([lane.read for lane in blind], known), read),
        verdict_agreement=sum(verdicts) / len(verdicts),
        carried_cost_error=_error(_sum([lane.cost for lane in carried], known), bill),
        events=events,
        error_usd=errors,
    )


def _errors(
    lanes: Sequence[tuple[ReplayLane, LaneReplay, LaneReplay]],
) -> Mapping[ErrorCause, float]:
    """The difference of the blind bill from the recorded one, step by step, by cause."""
    found: dict[ErrorCause, float] = {}
    for lane, blind, recorded in lanes:
        for n, (told, mine, theirs) in enumerate(
            zip(_known(lane), blind.cost, recorded.cost, strict=True)
        ):
            if told and mine is not None and theirs is not None and mine != theirs:
                cause = _cause(n, lane.gaps[n], blind.read[n] - recorded.read[n])
                found[cause] = found.get(cause, 0.0) + mine - theirs
    return found


def _cause(step: int, gap_s: float, too_much: int) -> ErrorCause:
    """Why a predicted read is off by so many tokens."""
    if abs(too_much) <= READ_TOLERANCE:
        return "tokens"
    if step == 0:
        return "unseen prefix"
    if gap_s >= SHORTEST_LIFETIME_S:
        return "lifetime"
    return "provider side" if too_much > 0 else "unseen prefix"


def _sum(
    columns: Sequence[Sequence[float | None]], known: Sequence[Sequence[bool]]
) -> float | None:
    """Sum over the steps that are compared; None where one of them has no value."""
    values = [
        v for column, told in zip(columns, known, strict=True) for v in compress(column, told)
    ]
    return None if any(v is None for v in values) else sum(v for v in values if v is not None)


def _error(mine: float | None, theirs: float | None) -> float | None:
    if mine is None or theirs is None:
        return None
    if theirs == 0:
        return 0.0 if mine == 0 else 1.0
    return abs(mine / theirs - 1)


def read_distance(lanes: Sequence[ReplayLane], blind: ReplayResult) -> int:
    """Tokens by which predicted and recorded reads differ, summed over steps that report reads.

    Steps that changed tools or system say nothing about how messages are looked up, and rules
    differ in what they keep of a changed head; they are left out.
    """
    total = 0
    for lane, out in zip(lanes, blind.lanes, strict=True):
        before = None
        for step, read in zip(lane.steps, out.read, strict=True):
            known = step.usage is not None and step.usage.knows_cache
            if known and before in (None, step.head):
                assert step.usage is not None
                total += abs(read - (step.usage.cache_read or 0))
            before = step.head
    return total
