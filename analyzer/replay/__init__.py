"""Replays recorded lanes under other policies: what would the caches and the bill have been.

Open-loop: recorded outputs and times stay, only the prompts change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from analyzer.caching import AS_RECORDED, Placement, placement_spec
from analyzer.policies import Policy, Recorded, spec
from analyzer.replay.base import (
    BreakpointRule,
    CacheFactory,
    Event,
    Events,
    LaneKey,
    LaneState,
    Prices,
    ReplayLane,
    ReplayStep,
)
from analyzer.replay.context import build_lane
from analyzer.replay.engine import Run
from analyzer.replay.fast import fast_state
from analyzer.replay.fast.marked import marked_run
from analyzer.replay.fast.recorded import recorded_run
from analyzer.replay.fidelity import (
    CAUSES,
    ErrorCause,
    Fidelity,
    Saving,
    SessionFidelity,
    Spread,
    compare,
    read_distance,
    saving,
)
from analyzer.replay.naive import NaiveLane
from analyzer.replay.result import LaneReplay, ReplayResult
from analyzer.replay.warmth import warm_beginnings

__all__ = [
    "CAUSES",
    "Engine",
    "ErrorCause",
    "Event",
    "Events",
    "Fidelity",
    "LaneKey",
    "LaneReplay",
    "Placement",
    "ReplayLane",
    "ReplayResult",
    "ReplayStep",
    "Saving",
    "SessionFidelity",
    "Spread",
    "backtest",
    "build_lane",
    "choose_cache",
    "losses",
    "replay",
    "saving",
    "warm_beginnings",
]

Engine = Literal["fast", "naive"]


def replay(
    lanes: Sequence[ReplayLane],
    policy: Policy,
    cache: CacheFactory,
    book: Prices,
    *,
    placement: Placement = AS_RECORDED,
    carried: bool = True,
    events: Events | None = None,
    warm: Mapping[LaneKey, int] | None = None,
    engine: Engine = "fast",
    measured: bool = True,
) -> ReplayResult:
    """Send lanes again under a policy, all of them over one fresh cache, in time order.

    A carried replay takes recorded usage as long as a lane's prompts are those that were recorded,
    then the model's prediction with the recorded `events` (see `losses`). A blind one predicts
    everything, as do one with another `placement` than the recorded and one that is not `measured`;
    `warm` is what others keep of a lane's beginning (see `warm_beginnings`). Raises `LawError`.
    """
    model = cache()
    measured = measured and carried and placement == AS_RECORDED
    done: dict[int, LaneReplay] = {}
    if engine == "fast" and measured and isinstance(policy, Recorded):
        recorded = recorded_run(lanes, policy, placement, book)
        done.update(enumerate(recorded or ()))
    elif engine == "fast" and isinstance(model, BreakpointRule):
        struck = {key for (key, _), e in (events or {}).items() if not e.own} if carried else set()
        # What comes from outside the lanes (a loss, a warm beginning) takes the other engine.
        struck |= (warm or {}).keys()
        for group in _strangers(lanes):
            members = [lanes[k] for k in group]
            if not struck.isdisjoint(lane.key for lane in members):
                continue
            out = marked_run(members, policy, placement, model, book, measured)
            done.update(zip(group, out or (), strict=False))
    rest = [k for k in range(len(lanes)) if k not in done]
    others = [lanes[k] for k in rest]
    run = Run(
        model,
        book,
        carried=carried,
        events=events or {},
        measured=measured,
        placed=placement != AS_RECORDED,
        warm=warm,
    )
    done.update(zip(rest, run.run(others, _states(others, policy, placement, engine)), strict=True))
    replayed = tuple(done[k] for k in range(len(lanes)))
    return ReplayResult(spec(policy), model.name, placement_spec(placement), carried, replayed)


def _strangers(lanes: Sequence[ReplayLane]) -> list[list[int]]:
    """Groups of lanes that can never meet in a cache: no prompt of one begins like another's."""
    group_of: dict[tuple[str, int], list[int]] = {}
    for k, lane in enumerate(lanes):
        keys = {(lane.key.session.project, first) for first in lane.openings}
        met = {id(g): g for key in keys if (g := group_of.get(key)) is not None}
        mine, *others = sorted(met.values(), key=len, reverse=True) or [[]]
        mine.append(k)
        for other in others:
            mine.extend(other)
        merged = {id(other) for other in others}
        if merged:
            group_of = {key: mine if id(g) in merged else g for key, g in group_of.items()}
        group_of.update(dict.fromkeys(keys, mine))
    return [sorted(group) for group in {id(g): g for g in group_of.values()}.values()]


def losses(lanes: Sequence[ReplayLane], cache: CacheFactory, book: Prices) -> Events:
    """The reads that the recording shows and the cache model does not foresee.

    Evictions, routing, changes of the prefix out of sight; or a prefix that others kept warm. Any
    policy would have met them, but for those at steps where the recording's own policy cut content.
    """
    found: dict[tuple[LaneKey, int], Event] = {}
    run = Run(cache(), book, carried=False, events={}, learn=found)
    run.run(lanes, _states(lanes, Recorded(), AS_RECORDED, "fast"))
    return found


def backtest(
    lanes: Sequence[ReplayLane],
    cache: CacheFactory,
    book: Prices,
    *,
    events: Events | None = None,
    others: Sequence[ReplayLane] = (),
) -> Fidelity:
    """How well the cache model gives the recorded bill back, session by session.

    `events` are the losses to carry; None takes those of `losses`. `others` are lanes of other
    sessions, which tell what was warm at a session's first request.
    """
    carry = losses(lanes, cache, book) if events is None else events
    recorded = replay(lanes, Recorded(), cache, book)
    warm = warm_beginnings(lanes, others)
    blind = replay(lanes, Recorded(), cache, book, carried=False, warm=warm)
    model = cache()
    run = Run(model, book, carried=True, events=carry, measured=False)
    out = run.run(lanes, _states(lanes, Recorded(), AS_RECORDED, "fast"))
    carried = ReplayResult("recorded", model.name, placement_spec(AS_RECORDED), True, out)
    return compare(lanes, recorded, blind, carried, [key.session for key, _ in carry])


def choose_cache(
    lanes: Sequence[ReplayLane], candidates: Mapping[str, CacheFactory], book: Prices
) -> str:
    """Name of the cache rule whose predicted reads are nearest to the recorded ones.

    The first candidate wins ties, so the provider's own rule comes first: recordings without a
    break cannot tell rules apart.
    """
    distance = {
        name: read_distance(lanes, replay(lanes, Recorded(), cache, book, carried=False))
        for name, cache in candidates.items()
    }
    return min(distance, key=distance.__getitem__)


def _states(
    lanes: Sequence[ReplayLane], policy: Policy, placement: Placement, engine: Engine
) -> list[LaneState]:
    if engine == "naive":
        return [NaiveLane(lane, policy, placement) for lane in lanes]
    return [fast_state(lane, policy, placement) for lane in lanes]
