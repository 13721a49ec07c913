"""Policies side by side over recorded sessions, with the error of the replay beside every saving.

Ties diagnosis and replay together: which steps the recording's own policy had cut, which cache rule
the recordings follow, and how well the replay gives the recorded bill back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from analyzer.caching import CACHES, cache_for, parse_placement, rule_for
from analyzer.caching.placement import AS_RECORDED, Placement, placement_spec
from analyzer.diagnose import LaneDiagnosis, SessionDiagnosis
from analyzer.errors import UsageError
from analyzer.model import SessionKey
from analyzer.policies import Policy, parse_spec
from analyzer.pricing import PriceBook
from analyzer.replay import (
    Events,
    Fidelity,
    ReplayLane,
    ReplayResult,
    Saving,
    backtest,
    build_lane,
    choose_cache,
    losses,
    replay,
    saving,
)

OWN_CUTS = ("sliding-stubs", "sliding-window", "history-mutated")
"""Verdicts that are the doing of the recording's own policy; another policy would not have met them."""
FALLBACK = "prefix"


@dataclass(frozen=True)
class LeftOut:
    """A lane that cannot be replayed, and why."""

    session: SessionKey
    lane: str
    reason: str


@dataclass(frozen=True)
class Overflow:
    """The first step whose prompt outgrows the model's context window, in tokens."""

    session: SessionKey
    lane: str
    step: int
    prompt_tokens: int
    window: int


@dataclass(frozen=True)
class Outcome:
    """One policy over all sessions."""

    spec: str
    """As it was asked for."""
    result: ReplayResult
    saving: Saving | None
    """Against the recorded bill; None where a price is unknown or the policy is not feasible."""
    overflow: Overflow | None
    """Where the policy is not feasible: no request of this size would have been answered."""


@dataclass(frozen=True)
class Comparison:
    """Recorded against chosen policies. Open-loop: recorded outputs and times stay."""

    sessions: tuple[SessionKey, ...]
    caches: Mapping[str, str]
    """Cache rule -> why it was taken."""
    fidelity: tuple[Fidelity, ...]
    """One for each cache rule."""
    recorded: ReplayResult
    outcomes: tuple[Outcome, ...]
    left_out: tuple[LeftOut, ...]
    placement: str = "recorded"
    """Which marks the outcomes ask for, as a spec; the recorded bill has its own."""

    @cached_property
    def band(self) -> float | None:
        """Blind relative error of the whole bill; None where nothing could be compared."""
        return band_of(self.fidelity)

    @property
    def best(self) -> Outcome | None:
        """The policy that saves most, of those whose saving is beyond the error; None if none is."""
        claims = [(o.saving.usd, o) for o in self.outcomes if o.saving and o.saving.shown]
        cheaper = [(usd, outcome) for usd, outcome in claims if usd > 0]
        return max(cheaper, key=lambda pair: pair[0])[1] if cheaper else None


@dataclass(frozen=True)
class _Group:
    """Lanes that one cache rule serves."""

    cache: str
    lanes: tuple[ReplayLane, ...]
    events: Events
    others: tuple[ReplayLane, ...]
    """Of other sessions: they tell what was warm at a session's first request."""


def compare_policies(
    diagnoses: Sequence[SessionDiagnosis],
    specs: Sequence[str],
    book: PriceBook,
    *,
    cache: str | None = None,
    placement: str = "recorded",
    evidence: Sequence[SessionDiagnosis] = (),
) -> Comparison:
    """Replay sessions under policies, all with the marks of one `placement` (its spec).

    `cache` names the rule; without it the provider's own or an automatic prefix cache is taken,
    whichever gives the recorded reads back better over these sessions and the `evidence`. Raises
    `UsageError` for unknown names and `LawError` where a law of the replay does not hold.
    """
    policies: list[tuple[str, Policy]] = [(text, parse_spec(text)) for text in specs]
    marks = parse_placement(placement)
    groups, caches, left_out = _grouped(diagnoses, book, cache, evidence)
    fidelity = tuple(_fidelity(g, book) for g in groups)
    recorded = _joined([_run(g, parse_spec("recorded"), book) for g in groups])
    outcomes = []
    for text, policy in policies:
        result = _joined([_run(g, policy, book, marks) for g in groups])
        overflow = _overflow(groups, result, book)
        claim = None if overflow else _saving(recorded, result, fidelity)
        outcomes.append(Outcome(text, result, claim, overflow))
    return Comparison(
        tuple(d.session.key for d in diagnoses),
        caches,
        fidelity,
        recorded,
        tuple(outcomes),
        left_out,
        placement_spec(marks),
    )


def fidelity_of(
    diagnoses: Sequence[SessionDiagnosis],
    book: PriceBook,
    *,
    cache: str | None = None,
    evidence: Sequence[SessionDiagnosis] = (),
) -> tuple[tuple[Fidelity, ...], tuple[LeftOut, ...]]:
    """How well the replay gives recorded sessions back; one `Fidelity` for each cache rule."""
    groups, _, left_out = _grouped(diagnoses, book, cache, evidence)
    return tuple(_fidelity(g, book) for g in groups), left_out


def _fidelity(group: _Group, book: PriceBook) -> Fidelity:
    cache = CACHES[group.cache]
    return backtest(group.lanes, cache, book, events=group.events, others=group.others)


def _grouped(
    diagnoses: Sequence[SessionDiagnosis],
    book: PriceBook,
    cache: str | None,
    evidence: Sequence[SessionDiagnosis],
) -> tuple[list[_Group], dict[str, str], tuple[LeftOut, ...]]:
    if cache is not None and cache not in CACHES:
        raise UsageError.unknown("cache", cache, CACHES)
    lanes, left_out = lanes_by_rule(diagnoses, book)
    if not lanes:
        reasons = "; ".join(f"{o.lane}: {o.reason}" for o in left_out[:3])
        raise UsageError(f"none of the {len(diagnoses)} sessions can be replayed ({reasons})")
    chosen = {d.session.key for d in diagnoses}
    others, _ = lanes_by_rule([d for d in evidence if d.session.key not in chosen], book)
    groups: dict[str, list[ReplayLane]] = {}
    strangers: dict[str, list[ReplayLane]] = {}
    reasons_of: dict[str, str] = {}
    for rule, members in lanes.items():
        name, reason = _rule(rule, [*members, *others.get(rule, ())], book, cache)
        groups.setdefault(name, []).extend(members)
        strangers.setdefault(name, []).extend(others.get(rule, ()))
        reasons_of.setdefault(name, reason)
    made = [
        _Group(n, tuple(m), losses(m, CACHES[n], book), tuple(strangers[n]))
        for n, m in groups.items()
    ]
    return made, reasons_of, left_out


def _rule(
    rule: str, lanes: Sequence[ReplayLane], book: PriceBook, cache: str | None
) -> tuple[str, str]:
    """The cache rule for some lanes, and why."""
    if cache is not None:
        return cache, "named"
    if rule == FALLBACK:
        return rule, "no provider is known"
    name = choose_cache(lanes, {rule: CACHES[rule], FALLBACK: CACHES[FALLBACK]}, book)
    if name == rule:
        return name, f"the provider's own rule{_assumed(lanes)}"
    return name, f"fits the recorded reads better than {rule!r} over {len(lanes)} lanes"


def _assumed(lanes: Sequence[ReplayLane]) -> str:
    """Models that no table of cache rules names, so that their provider's stands in."""
    used = {(s.provider, s.model) for lane in lanes for s in lane.steps if s.model}
    strange = sorted({m for provider, m in used if rule_for(provider, m).by == "provider"})
    return f"; no table names the model {', '.join(strange[:3])}" if strange else ""


def lanes_by_rule(
    diagnoses: Sequence[SessionDiagnosis], book: PriceBook
) -> tuple[dict[str, list[ReplayLane]], tuple[LeftOut, ...]]:
    """Lanes by their provider's cache rule, and what cannot be replayed."""
    found: dict[str, list[ReplayLane]] = {}
    left_out = []
    for diagnosis in diagnoses:
        for lane in diagnosis.lanes:
            reason = _unfit(lane)
            if reason:
                name = lane.ledger.lane.name
                left_out.append(LeftOut(diagnosis.session.key, name, reason))
                continue
            step = next(s for s in lane.ledger.lane.steps if s.usage is not None)
            rule = cache_for(step.provider, step.model)
            rule = rule if rule != "none" else FALLBACK
            found.setdefault(rule, []).append(_replay_lane(lane, book))
    return found, tuple(left_out)


def _unfit(lane: LaneDiagnosis) -> str | None:
    steps = lane.ledger.lane.steps
    if any(step.prompt is None and not step.is_aside for step in steps):
        return "prompts of some steps were not recorded"
    if not any(step.usage is not None and step.usage.prompt is not None for step in steps):
        return "no usage was recorded, so nothing can be sized or priced"
    return None


def _replay_lane(lane: LaneDiagnosis, book: PriceBook) -> ReplayLane:
    recorded, sizes = lane.ledger.lane, lane.ledger.sizes
    judged = list(zip(recorded.steps, lane.verdicts, strict=True))
    own = [(step, verdict) for step, verdict in judged if not step.is_aside]
    cuts = {number for number, (_, verdict) in enumerate(own) if verdict.kind in OWN_CUTS}
    if len(own) == len(judged):
        return build_lane(recorded, sizes, cuts=cuts, window=book.window)
    # What an advisor was asked is no prompt of this lane: no policy over the lane changes it.
    recorded = replace(recorded, steps=tuple(step for step, _ in own))
    return build_lane(recorded, cuts=cuts, window=book.window)


def _run(
    group: _Group, policy: Policy, book: PriceBook, placement: Placement = AS_RECORDED
) -> ReplayResult:
    return replay(
        group.lanes,
        policy,
        CACHES[group.cache],
        book,
        placement=placement,
        events=group.events,
    )


def _joined(results: Sequence[ReplayResult]) -> ReplayResult:
    """Results of several cache rules as one."""
    first = results[0]
    caches = " + ".join(dict.fromkeys(r.cache for r in results))
    lanes = tuple(lane for r in results for lane in r.lanes)
    return ReplayResult(first.policy, caches, first.placement, first.carried, lanes)


def band_of(fidelity: Sequence[Fidelity]) -> float | None:
    """Blind error of the sum of all bills: each session's error, weighted by its bill."""
    known = [
        (s.cost_error, s.recorded_usd)
        for f in fidelity
        for s in f.sessions
        if s.cost_error is not None and s.recorded_usd
    ]
    bill = sum(usd for _, usd in known)
    return sum(error * usd for error, usd in known) / bill if bill else None


def _saving(
    recorded: ReplayResult, result: ReplayResult, fidelity: Sequence[Fidelity]
) -> Saving | None:
    band = band_of(fidelity)
    if recorded.cost_usd is None or result.cost_usd is None or band is None:
        return None
    return saving(recorded.cost_usd, result.cost_usd, band)


def _overflow(groups: Sequence[_Group], result: ReplayResult, book: PriceBook) -> Overflow | None:
    """The first prompt that is larger than its model's window.

    A recording may itself be beyond the window that is known for its model (a beta, a deployment of
    one's own); what was answered is no overflow.
    """
    lanes = [lane for group in groups for lane in group.lanes]
    for lane, out in zip(lanes, result.lanes, strict=True):
        answered = max((s.usage.prompt or 0 for s in lane.steps if s.usage), default=0)
        for n, (step, prompt) in enumerate(zip(lane.steps, out.prompt, strict=True)):
            window = book.window(step.model, step.provider)
            if window is not None and prompt > max(window, answered):
                return Overflow(lane.key.session, lane.key.lane, n, prompt, window)
    return None
