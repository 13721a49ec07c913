"""Advice on cache marks as a table, as words and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from analyzer.advice import Advice, Option
from analyzer.comparison import LeftOut
from analyzer.views.replay import OPEN_LOOP, fidelity_document, result_row
from analyzer.views.table import Column, Row, Table, usd

COLUMNS: tuple[Column, ...] = (
    Column("cache", "cache"),
    Column("placement", "marks", width=40),
    Column("cost_usd", "cost", "usd"),
    Column("verdict", "against recorded", width=40),
    Column("saving_usd", "saving", "usd", shown=False),
    Column("saving", "share", "share", shown=False),
    Column("band", "band", "share", shown=False),
    Column("cache_read_tokens", "read", "count"),
    Column("cache_write_tokens", "write", "count"),
    Column("input_tokens", "uncached", "count"),
    Column("breaks", "breaks", "count"),
    Column("words", "what to do", width=60, shown=False),
)


def verdict(advice: Advice) -> str:
    """What may be claimed, in one sentence."""
    bill, band = usd(advice.recorded.cost_usd), advice.band
    if not advice.options:
        return "there is nothing to place: this cache is automatic"
    if advice.recorded.cost_usd is None or band is None:
        return "no saving can be told: a price or the recorded usage is unknown"
    best = advice.best
    if best is None or best.saving is None:
        return f"no difference shown: nothing is cheaper than {bill} by more than ± {band:.1%}"
    cost = usd(best.result.cost_usd)
    return f"{best.words}: {cost} instead of {bill}, {best.saving.text}"


def used(advice: Advice) -> str:
    """Which marks the recording asked for."""
    if advice.lifetimes is None:
        return "marks mean nothing to this cache"
    use = advice.use
    seen = [f"{shape} ({steps} steps)" for shape, steps in use.shapes[:3]]
    if len(use.shapes) > 3:
        seen.append(f"{len(use.shapes) - 3} other ways")
    if use.unmarked:
        seen.append(
            f"none shown at {use.unmarked} steps, which are taken to mark system and end with the "
            "lifetime that usage shows"
        )
    return "; ".join(seen)


def _option(advice: Advice, option: Option) -> dict[str, object]:
    found = option.saving
    row = result_row(option.placement or "", option.result)
    return {
        **{k: v for k, v in row.items() if k not in ("policy", "spec", "red_lines", "unrecovered")},
        "cache": advice.cache,
        "placement": option.placement or "as recorded, other setting",
        "words": option.words,
        "saving": found.share if found else None,
        "saving_usd": found.usd if found else None,
        "band": found.band if found else None,
        "verdict": "as recorded" if option.same else found.text if found else None,
        "same_as_recorded": option.same,
    }


def advice_table(advices: Sequence[Advice], left_out: Sequence[LeftOut] = ()) -> Table:
    """Every option of every cache rule, cheapest first, behind the recorded bill."""
    rows: list[Row] = []
    for advice in advices:
        bill = result_row("recorded", advice.recorded)
        shown: list[dict[str, object]] = [
            {**bill, "cache": advice.cache, "placement": "as recorded", "verdict": ""}
        ]
        shown += [_option(advice, option) for option in advice.options]
        rows += [cast("Row", {c.key: row.get(c.key) for c in COLUMNS}) for row in shown]
    title = "; ".join(f"{a.cache}: {verdict(a)}" for a in advices)
    note = OPEN_LOOP
    if left_out:
        note += f"; {len(left_out)} lanes left out: {left_out[0].reason}"
    return Table(title, COLUMNS, rows, note)


def advice_text(advices: Sequence[Advice]) -> str:
    """What the recording did, and what else helps, as lines."""
    lines: list[str] = []
    for advice in advices:
        lines += ["", f"{advice.cache}: marks recorded: {used(advice)}"]
        lines += [f"  - {hint.text} ({hint.source})" for hint in advice.hints]
    return "\n".join(lines[1:])


def advice_document(
    advices: Sequence[Advice], left_out: Sequence[LeftOut] = ()
) -> dict[str, object]:
    """Advice as JSON; one entry a cache rule, options cheapest first, unknown is null."""
    return {
        "advice": [_document(advice) for advice in advices],
        "fidelity": fidelity_document([a.fidelity for a in advices], left_out),
        "note": OPEN_LOOP,
    }


def _document(advice: Advice) -> dict[str, object]:
    best = advice.best
    return {
        "cache": advice.cache,
        "automatic": advice.lifetimes is None,
        "sessions": [key.session_id for key in advice.sessions],
        "verdict": verdict(advice),
        "best": _option(advice, best) if best else None,
        "band": advice.band,
        "recorded": {
            **result_row("recorded", advice.recorded),
            "steps": advice.use.steps,
            "unmarked_steps": advice.use.unmarked,
            "marks": [{"marks": shape, "steps": steps} for shape, steps in advice.use.shapes],
        },
        "options": [_option(advice, option) for option in advice.options],
        "hints": [
            {"text": hint.text, "source": hint.source, "variant": hint.variant}
            for hint in advice.hints
        ],
    }
