"""What all records of one sender say together about the counts of each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from analyzer.sources.spans.usage import NormalisedUsage, Sender

_ENOUGH_RECORDS = 3
_SMALL_REMAINDER = 0.2
_DECISIVE = 0.25


def judge(
    records: Iterable[tuple[NormalisedUsage, int | None]], promise: bool | None = None
) -> Sender:
    """What the records of one sender say together.

    Each record comes with an estimate of its prompt in tokens, where the prompt is known. One
    record with less input than cached tokens proves an exclusive sender. `promise` is what the
    convention says of `input`; it holds until a record proves it broken.
    """
    rows = list(records)
    kinds = {row.evidence for row, _ in rows}
    proved = {"bare_total": False, "exclusive": False, "inclusive": True}
    verdicts = {proved[kind] for kind in kinds if kind in proved}
    inclusive: bool | None = None
    if promise is not None and len(verdicts) != 1:
        inclusive = promise and not verdicts
    elif len(verdicts) == 1:
        inclusive = verdicts.copy().pop()
    elif not verdicts and "doubtful" in kinds:
        inclusive = _weigh([(r, e) for r, e in rows if r.evidence == "doubtful"])
    return Sender(
        inclusive,
        any(r.reports_read for r, _ in rows),
        any(r.reports_write for r, _ in rows),
        "bare_total" in kinds,
        promised=bool(promise),
        by_convention=promise is not None and not verdicts,
    )


def _weigh(doubtful: list[tuple[NormalisedUsage, int | None]]) -> bool | None:
    """Judge by the prompts' sizes where they are known, else by how small the remainder stays."""
    leanings = [
        abs(math.log(size / (row.stated_input + row.cached)))
        - abs(math.log(size / row.stated_input))
        for row, size in doubtful
        if size and row.stated_input
    ]
    if leanings and abs(median(leanings)) >= _DECISIVE:
        return median(leanings) > 0
    if len(doubtful) < _ENOUGH_RECORDS:
        return None
    remainders = [(r.stated_input - r.cached) / r.stated_input for r, _ in doubtful]
    return True if median(remainders) <= _SMALL_REMAINDER else None
