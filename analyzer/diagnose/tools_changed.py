"""The set, order or schema of the tools changed: the very head of the prefix."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.diagnose.variation import drift, pinned
from analyzer.ledger import lifetime
from analyzer.model import Part, Prompt


class ToolsChanged:
    """Read off the tool list where it is recorded, else off a read of exactly zero."""

    kind: ClassVar[str] = "tools-changed"
    remedy: ClassVar[str] = (
        "Send the same tools in the same order with the same bytes at every step: sort them by name, "
        "connect MCP servers before the first request, and load late tools through deferred loading."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        return self._recorded(case) if case.recorded else self._inferred(case)

    def _recorded(self, case: Case) -> Verdict | None:
        before, now = case.row.previous, case.row.record
        if before is None or before.prompt is None or now.prompt is None:
            return None
        was, is_ = _tools(case, before.prompt), _tools(case, now.prompt)
        if len(was) == len(is_) and all(_same(a, b) for a, b in zip(was, is_, strict=True)):
            return None
        old, new = _names(was), _names(is_)
        added = sorted(set(new) - set(old))
        removed = sorted(set(old) - set(new))
        if added or removed:
            change = "; ".join(
                f"{word} {', '.join(names)}"
                for word, names in (("added", added), ("removed", removed))
                if names
            )
        elif sorted(p.digest for p in was) == sorted(p.digest for p in is_):
            change = "the order changed"
        else:
            held = {p.digest for p in was}
            change = "definitions changed: " + ", ".join(
                _names([p for p in is_ if p.digest not in held])
            )
        return Verdict(
            self.kind,
            {
                "summary": f"the tool list changed ({change})",
                "added": added,
                "removed": removed,
                "position": next(
                    (i for i, (a, b) in enumerate(zip(was, is_, strict=False)) if not _same(a, b)),
                    min(len(was), len(is_)),
                ),
                **pinned(case.was, case.now),
            },
        )

    def _inferred(self, case: Case) -> Verdict | None:
        # With explicit breakpoints an entry lives for a stated time, and tools and system have one
        # of their own. Reading nothing at all within that time means that their bytes changed.
        row = case.row
        if case.told is not None:
            return (
                case.says(self.kind, "the tools changed") if case.told == "tools_changed" else None
            )
        if row.usage.cache_read != 0 or lifetime(row) is None:
            return None
        return Verdict(
            self.kind,
            {
                "summary": "nothing at all was read within the lifetime of the entries: the first "
                "level of the prefix (tools, or the system prompt behind them) changed; the "
                "transcript does not show it, so an eviction cannot be ruled out",
                "gap_s": row.gap_s,
            },
            inferred=True,
        )


def _tools(case: Case, prompt: Prompt) -> list[Part]:
    out = []
    for i in prompt.indices():
        part = case.ledger.lane.pool[i]
        if part.section != "tools":
            break
        out.append(part)
    return out


def _same(was: Part, now: Part) -> bool:
    """Whether two definitions say the same; other bytes for it are another cause."""
    return was.digest == now.digest or drift(was, now) is not None


def _names(parts: list[Part]) -> list[str]:
    return [part.tool or "?" for part in parts]
