"""The lane's entries once lived an hour, and then five minutes: a pause now ends them."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.diagnose.lifetimes import LONG, SHORT
from analyzer.ledger import StepRow


class TtlDowngrade:
    """Read off the split of the writes by lifetime; an hour would have covered the pause."""

    kind: ClassVar[str] = "ttl-downgrade"
    remedy: ClassVar[str] = (
        "Find out why the 1 h lifetime is no longer asked for (a client update, a setting, usage beyond "
        "the plan), and ask for it again in every request: the entry of the hour was lost with it."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        row = case.row
        if row.gap_s is None or not SHORT < row.gap_s <= LONG or row.ttl != "5m":
            return None
        since = _last_hour(case)
        if since is None:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"{row.gap_s:,.0f} s since the last request; step {since.step} still wrote for "
                f"1 h, the steps since then for 5 min, which ended in this pause",
                "gap_s": round(row.gap_s, 1),
                "ttl_s": SHORT,
                "last_1h_step": since.step,
                "person_away": row.record.human,
            },
        )


def _last_hour(case: Case) -> StepRow | None:
    """The latest earlier step that wrote for an hour."""
    earlier = reversed(case.ledger.rows[: case.row.step])
    return next((row for row in earlier if row.usage.cache_write_1h), None)
