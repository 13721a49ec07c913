"""Requests that ran side by side wrote the same prefix, since none could read the other's yet."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.ledger import StepRow
from analyzer.ranges import common_parts, head

LEAST_TOKENS = 2_000
TOGETHER_SECONDS = 1.0
"""Without the end of a request, starts this close are known to precede its first token."""


class Concurrency:
    """An entry can be read once the response that writes it has begun, and not before."""

    kind: ClassVar[str] = "concurrency"
    remedy: ClassVar[str] = (
        "Send one request first (`max_tokens: 0` writes the prefix and answers nothing), wait until its "
        "answer begins, and only then start the others."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        twins = [(twice, row) for row in _beside(case) if (twice := _twice(case, row))]
        if not twins:
            return None
        twice, twin = max(twins, key=lambda pair: pair[0])
        rates = case.row.rates
        extra = twice * (rates.write_5m - rates.read) if rates is not None else None
        return Verdict(
            self.kind,
            {
                "summary": f"step {twin.step} was still unanswered when this request started; both wrote "
                f"the same {twice:,} tokens",
                "beside_step": twin.step,
                "written_twice_tokens": twice,
                "one_first_saves_usd": None if extra is None else float(extra),
            },
        )


def _beside(case: Case) -> list[StepRow]:
    """Earlier rows of the lane that had not begun to answer when this request started."""
    at = case.row.at
    if at is None or not case.row.usage.cache_write:
        return []
    out = []
    for row in reversed(case.ledger.rows[: case.row.step]):
        if row.at is None or row.record is case.row.previous:
            break
        end = row.record.ended_at
        seconds = (at - row.at).total_seconds()
        open_still = seconds < TOGETHER_SECONDS if end is None else at < end
        if seconds >= 0 and open_still and row.usage.cache_write:
            out.append(row)
    return out


def _twice(case: Case, row: StepRow) -> int:
    """Tokens that both wrote; 0 where the prompts were not recorded, or share too little."""
    mine, other = case.prompt, row.record.prompt
    if mine is None or other is None or not (mine.recorded and other.recorded):
        return 0
    shared = case.ledger.sizes.of(head(mine, common_parts(mine, other)))
    stored = (row.usage.cache_read or 0) + (row.usage.cache_write or 0)
    read = case.row.usage.cache_read or 0
    twice = min(shared, stored, read + (case.row.usage.cache_write or 0)) - read
    return twice if twice >= LEAST_TOKENS else 0
