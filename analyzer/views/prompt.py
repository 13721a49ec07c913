"""One request as its parts, and the difference between two requests of a lane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from analyzer.diagnose import excerpts
from analyzer.ledger import LaneLedger
from analyzer.model import Part, Prompt
from analyzer.views.table import Column, Row, Table, one_line, plural

Change = Literal["kept", "stub", "changed", "new", "gone"]

PART_COLUMNS: tuple[Column, ...] = (
    Column("position", "#", "count"),
    Column("message", "msg", "count"),
    Column("section", "section", shown=False),
    Column("role", "role"),
    Column("kind", "kind"),
    Column("tool", "tool", width=16),
    Column("tokens", "tokens", "count"),
    Column("stub", "stub"),
    Column("mark", "mark"),
    Column("change", "vs previous"),
    Column("content", "content", width=70),
)


@dataclass(frozen=True, slots=True)
class PartView:
    """One part of a prompt, placed and compared with the previous prompt."""

    position: int
    message: int
    index: int
    part: Part
    tokens: int
    stub: bool
    change: Change
    mark: str | None = None


def prompt_parts(ledger: LaneLedger, step: int) -> list[PartView]:
    """The parts of a step's prompt in order; empty where no prompt was recorded."""
    row = ledger.rows[step]
    prompt = row.record.prompt
    if prompt is None:
        return []
    old = row.previous.prompt if row.previous else None
    held = set(old.indices()) if old else None
    calls = _identities(ledger, old) if old else set()
    common = row.divergence.common if row.divergence else (len(old) if old else 0)
    marks = {b.position: b.ttl for b in prompt.breakpoints}
    views = []
    message = -1
    for position, index in enumerate(prompt.indices()):
        part = ledger.lane.pool[index]
        message += part.starts_message
        stub = ledger.index.stubs[index]
        change: Change = "kept"
        if held is None or index not in held:
            replaced = position < common or (part.call_id, part.kind) in calls
            change = ("stub" if stub else "changed") if replaced else "new"
            if row.divergence and position == row.divergence.common and change == "new":
                change = "stub" if stub else "changed"
        views.append(
            PartView(
                position,
                message if part.section == "messages" else -1,
                index,
                part,
                ledger.sizes.parts[index],
                stub,
                change,
                marks.get(position),
            )
        )
    return views


def _identities(ledger: LaneLedger, prompt: Prompt) -> set[tuple[str | None, str]]:
    pool = ledger.lane.pool
    return {(pool[i].call_id, pool[i].kind) for i in prompt.indices() if pool[i].call_id}


def parts_table(ledger: LaneLedger, step: int) -> Table:
    """The prompt of a step as a table of parts."""
    views = prompt_parts(ledger, step)
    rows: list[Row] = [
        {
            "position": v.position,
            "message": v.message,
            "section": v.part.section,
            "role": v.part.role,
            "kind": v.part.kind,
            "tool": v.part.tool,
            "tokens": v.tokens,
            "stub": "stub" if v.stub else "",
            "mark": v.mark or "",
            "change": "" if v.change == "kept" else v.change,
            "content": v.part.body,
        }
        for v in views
    ]
    row = ledger.rows[step]
    hidden = ledger.sizes.hidden[step]
    note = ""
    if row.record.prompt is not None and not row.record.prompt.recorded:
        note = (
            f"rebuilt from a transcript: about {hidden:,} more tokens were sent that it does not show "
            "(system prompt, tools), and content shown here may have been replaced when it was sent"
        )
    note = "; ".join(filter(None, (note, _not_kept(v.part for v in views))))
    title = f"Step {step} of {one_line(ledger.lane.name, 30)}: {len(views)} parts"
    return Table(title, PART_COLUMNS, rows, note)


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two prompts differ."""

    change: Literal["replaced", "dropped", "added"]
    message: int
    was: Part | None
    now: Part | None

    @property
    def excerpt(self) -> dict[str, str | None]:
        """Was/now texts around the first differing character."""
        return excerpts(self.was, self.now)


def compare_steps(ledger: LaneLedger, first: int, second: int) -> list[Difference]:
    """What the second step's prompt changed of the first's, in order; what only follows is added."""
    a, b = ledger.rows[first].record.prompt, ledger.rows[second].record.prompt
    return compare_prompts(ledger.lane.pool, a, b)


def compare_prompts(pool: Sequence[Part], a: Prompt | None, b: Prompt | None) -> list[Difference]:
    """What prompt b changed of prompt a, both in ranges of one pool; nothing where one is unknown."""
    if a is None or b is None:
        return []
    old, new = list(a.indices()), list(b.indices())
    kept = set(new) & set(old)
    by_call = {(pool[i].call_id, pool[i].kind): i for i in new if pool[i].call_id and i not in kept}
    out: list[Difference] = []
    paired: set[int] = set()
    queue = _unmatched(new, kept)
    messages = _messages(pool, old), _messages(pool, new)
    anchor = -1
    for place, i in enumerate(old):
        if i in kept:
            anchor = i
            continue
        twin = by_call.get((pool[i].call_id, pool[i].kind)) if pool[i].call_id else None
        if twin is None:
            twin = queue.get(anchor)
            if twin is not None and (twin in paired or pool[twin].kind != pool[i].kind):
                twin = None
        if twin is not None:
            paired.add(twin)
        out.append(
            Difference(
                "dropped" if twin is None else "replaced",
                messages[0][place],
                pool[i],
                None if twin is None else pool[twin],
            )
        )
    for place, i in enumerate(new):
        if i not in kept and i not in paired:
            out.append(Difference("added", messages[1][place], None, pool[i]))
    return out


def _unmatched(new: Sequence[int], kept: set[int]) -> dict[int, int]:
    """For each kept part: the first new part that follows it directly."""
    out: dict[int, int] = {}
    anchor = -1
    for i in new:
        if i in kept:
            anchor = i
        else:
            out.setdefault(anchor, i)
    return out


def _messages(pool: Sequence[Part], indices: Sequence[int]) -> list[int]:
    """For each part its index in the messages array; -1 for tools and system."""
    begun = accumulate(pool[i].starts_message for i in indices)
    return [
        n - 1 if pool[i].section == "messages" else -1 for i, n in zip(indices, begun, strict=True)
    ]


def differences_table(ledger: LaneLedger, first: int, second: int) -> Table:
    """The difference of two steps as a table."""
    found = compare_steps(ledger, first, second)
    rows: list[Row] = []
    for d in found:
        part = d.now or d.was
        assert part is not None
        excerpt = d.excerpt
        rows.append(
            {
                "change": d.change,
                "message": d.message,
                "role": part.role,
                "kind": part.kind,
                "tool": part.tool,
                "was": excerpt["was"],
                "now": excerpt["now"],
            }
        )
    columns = (
        Column("change", "change"),
        Column("message", "msg", "count"),
        Column("role", "role"),
        Column("kind", "kind"),
        Column("tool", "tool", width=14),
        Column("was", "was", width=60),
        Column("now", "now", width=60),
    )
    edits = sum(d.change != "added" for d in found)
    shown = f"{plural(edits, 'change')} to what step {first} had sent"
    shown = shown if edits else "no change is recorded in what was sent before"
    title = (
        f"Step {second} against step {first}: {shown}, {plural(len(found) - edits, 'part')} added"
    )
    said = [*_beside(ledger, first, second), _not_kept(p for d in found for p in (d.was, d.now))]
    return Table(title, columns, rows, "; ".join(filter(None, said)))


def _not_kept(parts: Iterable[Part | None]) -> str:
    """What to say where a store holds sizes and digests alone."""
    return (
        "the content was not kept" if any(p is not None and p.body is None for p in parts) else ""
    )


def _beside(ledger: LaneLedger, first: int, second: int) -> list[str]:
    """What else differs between two requests, and what their recording cannot show."""
    was, now = ledger.rows[first].record, ledger.rows[second].record
    said = []
    if was.model != now.model:
        said.append(f"the model changed from {was.model} to {now.model}")
    if was.prompt is not None and now.prompt is not None:
        old, new = dict(was.prompt.settings), dict(now.prompt.settings)
        changed = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
        if changed:
            said.append(f"request parameters changed: {', '.join(changed)}")
        if not now.prompt.recorded:
            said.append("the system prompt and the tools are not in this recording")
    if now.miss_reason:
        said.append(f"the provider says: {one_line(now.miss_reason, 60)}")
    return said
