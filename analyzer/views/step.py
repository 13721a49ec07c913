"""One request as a page shows it: its bill, what it changed of what was sent before, its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.diagnose import LaneDiagnosis, Verdict
from analyzer.ledger import StepRow
from analyzer.views.prompt import PART_COLUMNS, Difference, PartView, compare_prompts, prompt_parts
from analyzer.views.table import Column, Row, Table, one_line, usd

PREVIEW_CHARS = 160


@dataclass(frozen=True)
class StepView:
    """A step with what it is compared with."""

    row: StepRow
    verdict: Verdict
    previous: int | None
    """Number of the step it is compared with; None at the start, or where that is in another session."""
    parts: Sequence[PartView]
    changes: Sequence[Difference]
    """Changes to what had been sent, the one at the divergence first; appended parts left out."""

    @property
    def rebuilt(self) -> bool:
        """Whether the prompt comes from a transcript and not from the request itself."""
        prompt = self.row.record.prompt
        return prompt is not None and not prompt.recorded


def step_view(judged: LaneDiagnosis, number: int) -> StepView:
    """A step of a lane by its number."""
    ledger = judged.ledger
    row = ledger.rows[number]
    before = row.previous
    previous = next((r.step for r in reversed(ledger.rows[:number]) if r.record is before), None)
    found = compare_prompts(ledger.lane.pool, before.prompt if before else None, row.record.prompt)
    return StepView(
        row, judged.verdicts[number], previous, prompt_parts(ledger, number), _changes(row, found)
    )


def _changes(row: StepRow, found: Sequence[Difference]) -> list[Difference]:
    edits = [d for d in found if d.change != "added"]
    if not edits and row.divergence is not None:
        # Nothing was taken away, so something was put in between.
        edits = [d for d in found if d.message == row.divergence.index][:1]
    first = row.divergence_index
    return sorted(edits, key=lambda d: d.message != first)


def verdict_sentence(view: StepView) -> str:
    """What happened to the cache at this step; without text of the trace."""
    row, kind = view.row, view.verdict.kind
    start = f"Step {row.step:,}: "
    if row.is_break:
        return (
            f"{start}the cache broke ({kind}): {row.lost_tokens or 0:,} tokens were paid again, "
            f"{usd(row.wasted_usd)}"
        )
    words = {
        "healthy": "the cache held",
        "first": "the first request of its lane",
        "none": "no cache counts were recorded, so nothing can be said about the cache",
        "compaction": "the history was compacted before this request",
    }
    return start + words.get(kind, kind)


CHANGE_COLUMNS: tuple[Column, ...] = (
    Column("message", "message", "count"),
    Column("change", "change"),
    Column("role", "role"),
    Column("kind", "kind"),
    Column("tool", "tool", width=24),
    Column("was_chars", "characters before", "count"),
    Column("now_chars", "characters now", "count"),
    Column("now", "now reads", width=PREVIEW_CHARS),
)


def changes_table(view: StepView) -> Table:
    """The changes of a step as a table, in the order of `StepView.changes`."""
    rows: list[Row] = []
    for d in view.changes:
        part = d.now or d.was
        assert part is not None
        rows.append(
            {
                "message": d.message,
                "change": d.change,
                "role": part.role,
                "kind": part.kind,
                "tool": part.tool,
                "was_chars": d.was.chars if d.was else None,
                "now_chars": d.now.chars if d.now else None,
                "now": _preview(d.now.body if d.now else None),
            }
        )
    return Table(f"{len(rows):,} changes to what had been sent", CHANGE_COLUMNS, rows)


def part_table(parts: Sequence[PartView]) -> Table:
    """Some parts of a prompt as a table, contents cut to a preview."""
    rows: list[Row] = [
        {
            "position": v.position,
            "message": v.message,
            "section": v.part.section,
            "role": v.part.role,
            "kind": v.part.kind,
            "tool": v.part.tool,
            "tokens": v.tokens,
            "stub": "stub" if v.stub else None,
            "mark": v.mark,
            "change": None if v.change == "kept" else v.change,
            "content": _preview(v.part.body),
        }
        for v in parts
    ]
    return Table(f"{len(rows):,} parts", PART_COLUMNS, rows)


def _preview(body: str | None) -> str | None:
    return None if body is None else one_line(body[: PREVIEW_CHARS * 4], PREVIEW_CHARS)


def part_label(view: PartView) -> str:
    """A part in words; its tool's name is text of the trace."""
    where = "tools or system" if view.message < 0 else f"message {view.message:,}"
    of = f" of {one_line(view.part.tool, 60)}" if view.part.tool else ""
    what = f"{view.part.role} {view.part.kind.replace('_', ' ')}{of}"
    return f"part {view.position:,}, {where}: {what}, {view.tokens:,} tokens, {view.change}"


def difference_label(difference: Difference) -> str:
    """A change in words; the tool's name is text of the trace."""
    part = difference.now or difference.was
    assert part is not None
    where = "tools or system" if difference.message < 0 else f"message {difference.message:,}"
    of = f" of {one_line(part.tool, 60)}" if part.tool else ""
    return f"{where}: {part.role} {part.kind.replace('_', ' ')}{of}, {difference.change}"
