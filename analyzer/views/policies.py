"""Which policies a page may run, and what a comparison says in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.comparison import Comparison
from analyzer.errors import UsageError
from analyzer.policies import parse_spec, presets
from analyzer.specs import split
from analyzer.views.table import Column, Row, Table, usd

PRESET_COLUMNS: tuple[Column, ...] = (
    Column("name", "policy"),
    Column("title", "what it does", width=70),
    Column("parameters", "parameters and defaults", width=90),
    Column("source", "source", width=40),
)


def policy_names() -> list[str]:
    """Policies with a name, the recorded one left out."""
    return [preset.name for preset in presets() if preset.name != "recorded"]


def presets_table() -> Table:
    """What each named policy does and takes."""
    rows: list[Row] = [
        {
            "name": preset.name,
            "title": preset.title,
            "parameters": ", ".join(f"{k}={p.default}" for k, p in preset.parameters.items()),
            "source": preset.source,
        }
        for preset in presets()
    ]
    return Table(f"{len(rows)} named policies", PRESET_COLUMNS, rows)


def allowed_specs(names: Sequence[str], lines: str) -> list[str]:
    """Named policies and specs that a person typed, without doubles.

    Whoever uses a shared page must not make its server read a file or import a module, so a spec
    has to begin with the name of a preset. Raises `UsageError` for any other.
    """
    known = [preset.name for preset in presets()]
    chosen = dict.fromkeys([*names, *(line.strip() for line in lines.splitlines() if line.strip())])
    for text in chosen:
        name, _ = split(text)
        if name not in known:
            raise UsageError.unknown("policy", name, known)
        parse_spec(text)
    return list(chosen)


def policy_title(comparison: Comparison) -> str:
    """The best saving that is beyond the error, or that there is none."""
    bill = usd(comparison.recorded.cost_usd)
    best = comparison.best
    if best is None or best.saving is None:
        return f"Recorded {bill}; no policy is shown to be cheaper"
    name = best.spec.partition(":")[0]
    return (
        f"Recorded {bill}; {name} would have cost {usd(best.result.cost_usd)}: {best.saving.text}"
    )


def fidelity_sentence(comparison: Comparison) -> str:
    """How far the replay can be trusted."""
    if comparison.band is None:
        return (
            "How well the replay gives the recorded bill back is unknown: no cache counts were "
            "recorded, so no saving can be claimed"
        )
    return (
        f"The replay of what was recorded misses the recorded bill by {comparison.band:.1%}; "
        "a difference below that is reported as no difference shown"
    )
