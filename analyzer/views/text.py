"""What a terminal shows: Rich renderables made of plain text, never of markup from a trace."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from analyzer.diagnose import Finding, SessionDiagnosis, total
from analyzer.views.frames import wasted_by_kind
from analyzer.views.table import Column, Row, Table, clean, one_line, plural, show, usd

_GOOD = {"healthy", "first"}
_QUIET = {"none", "compaction"}
MAX_FINDINGS = 8
MAX_CHANGES = 3


def table_text(table: Table, width: int | None = None) -> RenderableType:
    """A table with its title above and its notes below; on a narrow terminal without spare columns."""
    if not table.rows:
        return Text(table.title, style="bold")
    columns, hidden = _fitting(table, width)
    grid = RichTable(title=Text(table.title, style="bold"), title_justify="left", box=None)
    for column in columns:
        words = column.style == "text"
        # A number that is cut off is a wrong number: only words give way.
        grid.add_column(
            Text(column.heading),
            justify="left" if column.style in ("text", "time") else "right",
            no_wrap=True,
            min_width=None if words else _width(table, column),
            header_style="dim",
        )
    for row in table.rows:
        grid.add_row(*(_cell(row, column) for column in columns))
    notes = [table.note] if table.note else []
    if hidden:
        names = ", ".join(column.heading for column in hidden)
        notes.append(f"not shown for want of room: {names} (wider terminal, or --format csv)")
    return Group(grid, *(Text(note, style="dim") for note in notes)) if notes else grid


def _fitting(table: Table, width: int | None) -> tuple[list[Column], list[Column]]:
    """The columns that fit, and those that had to go."""
    columns = [c for c in table.columns if c.shown]
    hidden: list[Column] = []
    while width is not None and sum(_width(table, c) + 2 for c in columns) > width:
        spare = max(columns, key=lambda c: c.spare)
        if not spare.spare:
            break
        columns.remove(spare)
        hidden.append(spare)
    return columns, hidden


def _width(table: Table, column: Column) -> int:
    longest = max((len(_cell(row, column)) for row in table.rows), default=0)
    return max(longest, len(column.heading))


def _cell(row: Row, column: Column) -> Text:
    text = show(row.get(column.key), column.style, column.width)
    style = ""
    if column.key == "verdict":
        style = "green" if text in _GOOD else ("dim" if text in _QUIET else "bold red")
    elif column.key == "wasted_usd" and row.get(column.key):
        style = "red"
    return Text(text, style=style)


def headline(diagnosis: SessionDiagnosis) -> Text:
    """One sentence: what the session cost, how much was lost, and mostly why."""
    d = diagnosis
    text = Text()
    text.append(f"{one_line(d.session.key.session_id, 60)}: ", style="bold")
    more = f" (and {d.unpriced_steps} steps without a known price)" if d.unpriced_steps else ""
    text.append(f"{plural(len(d.rows), 'step')} cost {usd(d.cost_usd)}{more}")
    if d.hit_ratio is not None:
        text.append(f", {d.hit_ratio:.1%} of prompt tokens read from the cache")
    if not d.breaks:
        known = d.wasted_usd is not None
        text.append("; no break of the cache" if known else "; no cache counts were recorded")
        return text
    text.append("; ")
    text.append(f"{usd(d.wasted_usd)} lost in {plural(d.breaks, 'break')}", style="bold red")
    if d.avoidable_usd != d.wasted_usd:
        text.append(f" ({usd(d.avoidable_usd)} of it avoidable)")
    return text


def diagnosis_text(diagnosis: SessionDiagnosis, limit: int = MAX_FINDINGS) -> RenderableType:
    """The answer in one screen: cause, steps, message, dollars, remedy."""
    blocks: list[RenderableType] = [headline(diagnosis)]
    blocks += [
        Padding(finding_text(finding, diagnosis.cost_usd), (1, 0, 0, 2), expand=False)
        for finding in diagnosis.findings[:limit]
    ]
    rest = len(diagnosis.findings) - limit
    if rest > 0:
        blocks.append(Text(f"\n  … {rest} more findings (--format json lists all)", style="dim"))
    return Group(*blocks)


def finding_text(finding: Finding, bill: Decimal | None) -> RenderableType:
    """One finding as a paragraph."""
    head = Text()
    if finding.is_loss:
        head.append(usd(finding.wasted_usd), style="bold red")
        if bill and finding.wasted_usd:
            head.append(f" ({finding.wasted_usd / bill:.0%} of the bill)")
        head.append("  ")
    head.append(finding.kind, style="bold")
    head.append(f"  {_where(finding)}")
    marks = [
        word
        for word, on in (("inferred from usage", finding.inferred), ("expected", finding.expected))
        if on and finding.is_loss
    ]
    if marks:
        head.append(f"  [{', '.join(marks)}]", style="dim")
    lines: list[RenderableType] = [head]
    summary = finding.evidence.get("summary")
    if isinstance(summary, str):
        lines.append(Padding(Text(clean(summary)), (0, 0, 0, 2), expand=False))
    also = finding.evidence.get("also")
    if isinstance(also, list) and also:
        names = ", ".join(str(kind) for kind in also)
        lines.append(Padding(Text(f"also: {names}"), (0, 0, 0, 2), expand=False))
    if isinstance(fell := finding.evidence.get("survived"), str):
        lines.append(Padding(Text(f"still read: {clean(fell)}"), (0, 0, 0, 2), expand=False))
    lines += [
        Padding(
            Text(f"differs at {one_line(change, 120)}", style="cyan"), (0, 0, 0, 2), expand=False
        )
        for change in _texts(finding, "changed")[:MAX_CHANGES]
    ]
    if said := _texts(finding, "provider_says"):
        told = f"the provider says: {one_line(', '.join(said), 100)}"
        lines.append(Padding(Text(told), (0, 0, 0, 2), expand=False))
    lines += _compared(finding)
    lines.append(Padding(Text(f"→ {finding.remedy}", style="italic"), (0, 0, 0, 2), expand=False))
    return Group(*lines)


def _compared(finding: Finding) -> list[RenderableType]:
    """The excerpts before and after a change, or that they were not kept."""
    lines: list[RenderableType] = []
    for word in ("was", "now"):
        excerpt = finding.evidence.get(word)
        if isinstance(excerpt, str):
            lines.append(
                Padding(
                    Text(f"{word}: {one_line(excerpt, 110)}", style="cyan"),
                    (0, 0, 0, 2),
                    expand=False,
                )
            )
    if "content" in finding.evidence:
        told = f"the content that changed was {finding.evidence['content']}"
        lines.append(Padding(Text(told, style="dim"), (0, 0, 0, 2), expand=False))
    return lines


def _texts(finding: Finding, key: str) -> list[str]:
    """A list of evidence as texts; empty where the finding has none."""
    found = finding.evidence.get(key)
    return [str(entry) for entry in found] if isinstance(found, list) else []


def _where(finding: Finding) -> str:
    n = len(finding.steps)
    lane = "" if finding.lane == "main" else f" of lane {one_line(finding.lane, 20)}"
    if n == 1:
        return f"at step {finding.first_step}{lane}"
    return f"at {n} steps, {finding.first_step} to {finding.last_step}{lane}"


def bar(share: float, width: int = 24) -> str:
    """A share of 0..1 as a bar of block characters."""
    full = round(max(0.0, min(1.0, share)) * width)
    return "█" * full + "░" * (width - full)


def overview_text(diagnoses: Sequence[SessionDiagnosis]) -> RenderableType:
    """Sums over sessions, by cause."""
    cost = total(d.cost_usd for d in diagnoses)
    wasted = total(d.wasted_usd for d in diagnoses)
    text = Text(f"{len(diagnoses)} sessions cost {usd(cost)}; {usd(wasted)} was lost in breaks\n")
    causes = wasted_by_kind(diagnoses)
    for kind, dollars in sorted(causes.items(), key=lambda kv: -(kv[1] or 0)):
        share = float(dollars / wasted) if wasted and dollars else 0.0
        text.append(f"  {kind:22} {usd(dollars):>10}  {bar(share)} {share:.0%}\n")
    return text
