"""The same content came in other bytes: keys in another order, other whitespace, another form."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict, describe
from analyzer.diagnose.variation import drift, pinned


class SerialisationDrift:
    """Told apart from change by comparing the values; needs the bodies."""

    kind: ClassVar[str] = "serialisation-drift"
    remedy: ClassVar[str] = (
        "Keep the bytes of what was sent and send them again, or serialise with sorted keys and fixed "
        "separators; maps of Go and Swift have no fixed order."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        diverged = case.row.divergence
        if not case.recorded or diverged is None:
            return None
        how = drift(case.was, case.now)
        if how is None:
            return None
        place = f"message {diverged.index}" if diverged.index >= 0 else "the head of the prompt"
        return Verdict(
            self.kind,
            {
                "summary": f"{place} holds the same content in other bytes: {how} differs in "
                f"{describe(case.now)}",
                "differs": how,
                "message": diverged.index,
                **pinned(case.was, case.now),
            },
        )
