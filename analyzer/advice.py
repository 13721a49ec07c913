"""Which marks, and for how long, the recorded prompts should have had: placements side by side.

The prompts stay as recorded; what changes is what they ask to be cached. Open-loop as every replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.caching import (
    CACHES,
    Hint,
    Lifetimes,
    hints,
    lifetimes,
    parse_placement,
    placement_spec,
)
from analyzer.caching.placement import AS_RECORDED, MIXED, Placement, RecordedMarks
from analyzer.comparison import LeftOut, band_of, lanes_by_rule
from analyzer.diagnose import SessionDiagnosis
from analyzer.errors import UsageError
from analyzer.model import SessionKey, Ttl
from analyzer.policies import Recorded
from analyzer.pricing import PriceBook
from analyzer.replay import (
    Events,
    Fidelity,
    ReplayLane,
    ReplayResult,
    Saving,
    backtest,
    losses,
    replay,
    saving,
)

CANDIDATES = ("recorded", "end", "system-end", "turn-end", "every")
"""Placements that are tried with each lifetime; no mark at all is tried besides."""


@dataclass(frozen=True, slots=True)
class RecordedUse:
    """Which marks the recording asked for."""

    steps: int
    unmarked: int
    """Steps of lanes whose recording shows no mark at all; a transcript hides them."""
    shapes: tuple[tuple[str, int], ...]
    """Where marks stood and for how long, with the steps that had them; most steps first."""


@dataclass(frozen=True, slots=True)
class Option:
    """One placement, or another setting of the client, over all recorded prompts."""

    placement: str | None
    """Spec; None where the marks stay and the hint changes another setting."""
    words: str
    """What to do, as a sentence without its end."""
    result: ReplayResult
    saving: Saving | None
    """Against the recorded bill; None where a price is unknown."""
    same: bool
    """Request by request the usage that the model gives the recorded marks: no difference at all."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What the lanes that one cache rule serves could have asked for."""

    cache: str
    lifetimes: Lifetimes | None
    """None for a cache to which marks mean nothing."""
    sessions: tuple[SessionKey, ...]
    recorded: ReplayResult
    use: RecordedUse
    fidelity: Fidelity
    options: tuple[Option, ...]
    """Cheapest first; those without a price last."""
    hints: tuple[Hint, ...]
    band: float | None
    """Relative error around every saving: the blind error of the bill, or what the model makes of
    the recorded marks themselves where that is farther off. None where nothing could be compared."""

    @property
    def best(self) -> Option | None:
        """The cheapest option, if it saves more than the replay's error; None if none does."""
        claims = [(o.saving.usd, o) for o in self.options if o.saving and o.saving.shown]
        cheaper = [(usd, option) for usd, option in claims if usd > 0 and not option.same]
        return max(cheaper, key=lambda pair: pair[0])[1] if cheaper else None


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Lanes of one cache rule, and what their recording shows and no model foresees."""

    cache: str
    lanes: tuple[ReplayLane, ...]
    events: Events
    book: PriceBook

    def run(self, placement: Placement) -> ReplayResult:
        return replay(
            self.lanes,
            Recorded(),
            CACHES[self.cache],
            self.book,
            placement=placement,
            events=self.events,
        )

    def foreseen(self, cache: str) -> ReplayResult:
        """The recorded marks under another rule: nothing of the recorded usage is taken over."""
        return replay(
            self.lanes,
            Recorded(),
            CACHES[cache],
            self.book,
            placement=AS_RECORDED,
            events=self.events,
            measured=False,
        )


def advise(
    diagnoses: Sequence[SessionDiagnosis], book: PriceBook, *, cache: str | None = None
) -> tuple[tuple[Advice, ...], tuple[LeftOut, ...]]:
    """Price the recorded prompts under every placement and lifetime; one `Advice` per cache rule.

    The rule is the provider's own, since an automatic stand-in knows no marks; `cache` names
    another. Raises `UsageError` where no session can be replayed.
    """
    if cache is not None and cache not in CACHES:
        raise UsageError.unknown("cache", cache, CACHES)
    found, left_out = lanes_by_rule(diagnoses, book)
    if not found:
        reasons = "; ".join(f"{o.lane}: {o.reason}" for o in left_out[:3])
        raise UsageError(f"none of the {len(diagnoses)} sessions can be replayed ({reasons})")
    groups: dict[str, list[ReplayLane]] = {}
    for rule, lanes in found.items():
        groups.setdefault(cache or rule, []).extend(lanes)
    return tuple(_advice(name, lanes, book) for name, lanes in groups.items()), left_out


def _advice(cache: str, lanes: Sequence[ReplayLane], book: PriceBook) -> Advice:
    group = _Lanes(cache, tuple(lanes), losses(lanes, CACHES[cache], book), book)
    fidelity = backtest(lanes, CACHES[cache], book, events=group.events)
    recorded = group.run(AS_RECORDED)
    own = group.foreseen(cache)
    band = _band(fidelity, recorded, own)
    named = lifetimes(cache)
    marked = any(lane.marked for lane in lanes)

    def option(placement: str | None, words: str, result: ReplayResult) -> Option:
        bill, cost, claim = recorded.cost_usd, result.cost_usd, None
        if bill is not None and cost is not None and band is not None:
            claim = saving(bill, cost, band)
        return Option(placement, words, result, claim, _usage(result) == _usage(own))

    options: list[Option] = []
    if named is not None:
        options += [
            option(shown_spec(p, named), in_words(p, named), group.run(p))
            for p in candidates(named, marked)
        ]
    options += [
        option(None, hint.text, group.foreseen(hint.variant))
        for hint in hints(cache)
        if hint.variant
    ]
    options.sort(key=lambda o: (o.result.cost_usd is None, o.result.cost_usd or 0.0))
    sessions = tuple(dict.fromkeys(lane.key.session for lane in lanes))
    use = recorded_use(lanes, named)
    return Advice(
        cache, named, sessions, recorded, use, fidelity, tuple(options), hints(cache), band
    )


def _band(fidelity: Fidelity, recorded: ReplayResult, own: ReplayResult) -> float | None:
    blind, bill, cost = band_of([fidelity]), recorded.cost_usd, own.cost_usd
    if blind is None or not bill or cost is None:
        return blind
    return max(blind, abs(cost / bill - 1))


def _usage(result: ReplayResult) -> list[tuple[list[int], ...]]:
    return [(out.read, out.write_5m, out.write_1h, out.input) for out in result.lanes]


def candidates(named: Lifetimes, marked: bool) -> list[Placement]:
    """Every placement worth a price; the recorded places only where the recording shows some."""
    ttls = ["5m", "1h", MIXED] if named.long else ["5m"]
    found = [parse_placement("none")]
    for name in CANDIDATES:
        if name == "recorded" and not marked:
            continue
        fitting = [t for t in ttls if not (name == "end" and t == MIXED)]
        found += [parse_placement(f"{name}:ttl={ttl}") for ttl in fitting]
    return found


def recorded_use(lanes: Sequence[ReplayLane], named: Lifetimes | None) -> RecordedUse:
    """Which marks the recording asked for, step by step."""
    shapes: Counter[str] = Counter()
    unmarked = 0
    for lane in lanes:
        if not lane.marked:
            unmarked += len(lane.steps)
            continue
        for step in lane.steps:
            last = len(lane.heads[step.head].parts) - 1
            shapes[_shape(step.anchors, last, named)] += 1
    steps = sum(len(lane.steps) for lane in lanes)
    return RecordedUse(steps, unmarked, tuple(shapes.most_common()))


def _shape(anchors: Sequence[tuple[str, int, Ttl]], last: int, named: Lifetimes | None) -> str:
    places = {"end": "end", "base": "history"}
    words = [
        f"{places.get(where, 'system' if place == last else 'tools or system')} {_name(ttl, named)}"
        for where, place, ttl in anchors
    ]
    return ", ".join(dict.fromkeys(words)) or "none"


def _name(ttl: str, named: Lifetimes | None) -> str:
    if named is None:
        return ttl
    return {"5m": named.short, "1h": named.long or "1h"}.get(ttl, ttl)


def shown_spec(placement: Placement, named: Lifetimes | None) -> str:
    """The spec with the provider's own names of the lifetimes; `parse_placement` reads it."""
    spec = placement_spec(placement)
    head, equals, ttl = spec.rpartition("ttl=")
    return f"{head}ttl={_name(ttl, named)}" if equals else spec


def in_words(placement: Placement, named: Lifetimes) -> str:
    """What a placement asks for, as a sentence without its end."""
    ttl = getattr(placement, "ttl", "")
    short, long = (f"a {_name(t, named)} mark" for t in ("5m", "1h"))
    first, last = (long, short) if ttl == MIXED else (long, long) if ttl == "1h" else (short, short)
    match placement.name:
        case "none":
            only = "leave marks out; the provider's implicit one stays"
            return only if named.implicit else "ask for no caching at all"
        case "end":
            return f"put {last} at the end of the prompt"
        case "system-end":
            return f"put {first} behind the system prompt and {last} at the end"
        case "turn-end":
            opener = "behind the user message that opened the turn"
            return f"put {first} {opener} and {last} at the end"
        case "every":
            k = getattr(placement, "k", 0)
            return f"put {first} behind every {k}th part (the last three) and {last} at the end"
    if isinstance(placement, RecordedMarks) and ttl == MIXED:
        return f"keep the marks where they are, make all but the last {long.removeprefix('a ')}s"
    return f"keep the marks where they are, each as {last}"
