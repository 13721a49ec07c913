"""Text that differs from request to request stands at the head of the prompt."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.diagnose.variation import pinned, volatile_kind
from analyzer.ledger import Divergence
from analyzer.model import Part


class VolatilePrefix:
    """The system prompt, or the first message, changed."""

    kind: ClassVar[str] = "volatile-prefix"
    remedy: ClassVar[str] = (
        "Move what varies (clock, ids, git status, memory) out of the head of the prompt to the end "
        "of the newest user message, or freeze it for the session."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        diverged = case.row.divergence
        if case.told == "system_changed":
            return case.says(self.kind, "the system prompt changed")
        if not case.recorded or diverged is None:
            return None
        now, was = case.now, case.was
        at_system = diverged.index == -1 and "tools" not in _sections(was, now)
        in_head = at_system or (diverged.index == 0 and now is not None and now.role != "tool")
        if not in_head or now is None or _moved_up(case, diverged):
            return None
        what = volatile_kind(was.body if was else None, now.body)
        where = "the system prompt" if diverged.index == -1 else "the first message"
        return Verdict(
            self.kind,
            {
                "summary": f"{where} changed" + (f": {what} differs" if what else ""),
                "position": diverged.common,
                **pinned(was, now),
            },
        )


def _moved_up(case: Case, diverged: Divergence) -> bool:
    """Whether the first message was dropped: what stands there now stood behind it before."""
    before = case.row.previous
    if diverged.index != 0 or before is None or before.prompt is None:
        return False
    return any(r.start <= diverged.now < r.stop for r in before.prompt.ranges)


def _sections(*parts: Part | None) -> set[str]:
    return {part.section for part in parts if part is not None}
