"""Which old entries a request's breakpoints can see, counted in positions."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.caching import collapsed_runs
from analyzer.diagnose.base import Case
from analyzer.model import Part, Prompt
from analyzer.ranges import common_parts


@dataclass(frozen=True, slots=True)
class Reach:
    """Old entries against new breakpoints, both as numbers of parts from the prompt's start."""

    entry: int
    """The longest entry of the previous request on the prefix that both prompts share."""
    mark: int | None
    """The first breakpoint of this request at or behind that entry; None if none stands there."""
    last_mark: int | None
    """The last breakpoint of this request; None without any."""
    positions: int | None
    """Positions from that breakpoint back to the entry, both counted."""
    end: int
    """Parts of this request's prompt."""


def collapses(case: Case) -> bool:
    """Whether a run of calls, or of results, counts as one position (Bedrock counts every block)."""
    return "bedrock" not in (case.row.record.provider or "").lower()


def positions_of(case: Case, parts: list[Part]) -> int:
    """Look-back positions that some parts take."""
    shared = collapsed_runs([part.kind for part in parts]).count(True) if collapses(case) else 0
    return len(parts) - shared


def reach(case: Case) -> Reach | None:
    """None where the breakpoints of either request were not recorded."""
    before, now = case.before, case.prompt
    if before is None or now is None or not case.recorded or not before.breakpoints:
        return None
    if not now.breakpoints and not _marks_are_recorded(case):
        return None
    common = common_parts(before, now)
    entries = [mark.position + 1 for mark in before.breakpoints if mark.position < common]
    if not entries:
        return None
    entry = max(entries)
    marks = sorted(mark.position + 1 for mark in now.breakpoints)
    nearest = next((mark for mark in marks if mark >= entry), None)
    positions = None if nearest is None else _between(case, now, entry, nearest)
    return Reach(entry, nearest, marks[-1] if marks else None, positions, len(now))


def _marks_are_recorded(case: Case) -> bool:
    """Whether the lane's other requests show breakpoints, so that their absence means something."""
    steps = case.ledger.lane.steps
    return any(s.prompt is not None and s.prompt.breakpoints for s in steps)


def _between(case: Case, prompt: Prompt, entry: int, mark: int) -> int:
    pool = case.ledger.lane.pool
    chosen = [pool[i] for n, i in enumerate(prompt.indices()) if entry <= n + 1 <= mark]
    return positions_of(case, chosen)
