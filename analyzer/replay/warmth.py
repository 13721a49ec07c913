"""What others keep warm of a lane's beginning, learned from the other sessions at hand.

An agent's tools and system prompt are the same in many sessions, and a store sees few of those that
keep them warm. So a blind replay cannot start from an empty cache: what a lane reads at its first
request, and still reads after an expiry, is taken from the first requests of the sessions nearest
in time, never from the session itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low

from analyzer.model import SessionKey
from analyzer.replay.base import LaneKey, ReplayLane

NEAREST = 5
"""Sessions that are asked: few enough to be of the same release of the agent."""
MAIN = "main"


def warm_beginnings(
    lanes: Sequence[ReplayLane], others: Sequence[ReplayLane] = ()
) -> Mapping[LaneKey, int]:
    """Tokens of each lane's prompts that others are expected to keep warm.

    The low median of what the nearest lanes of other sessions read first: of the same project, of
    the same model, and main loops or sub-agents alike. Lanes that nothing is known of are left out.
    """
    firsts: dict[tuple[str, str, bool], list[tuple[float, SessionKey, int]]] = {}
    for lane in {lane.key: lane for lane in (*others, *lanes)}.values():
        usage = lane.steps[0].usage
        if usage is not None and usage.knows_cache:
            found = (lane.steps[0].at, lane.key.session, usage.cache_read or 0)
            firsts.setdefault(_kind(lane), []).append(found)
    warm = {}
    for lane in lanes:
        at = lane.steps[0].at
        strangers = [f for f in firsts.get(_kind(lane), ()) if f[1] != lane.key.session]
        nearest = sorted(strangers, key=lambda f: abs(f[0] - at))[:NEAREST]
        if nearest:
            warm[lane.key] = median_low(read for _, _, read in nearest)
    return {key: tokens for key, tokens in warm.items() if tokens}


def _kind(lane: ReplayLane) -> tuple[str, str, bool]:
    return lane.key.session.project, lane.steps[0].model, lane.key.lane == MAIN
