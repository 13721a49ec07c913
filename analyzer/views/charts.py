"""The charts of the product, as Plotly figures that suit a light and a dark page.

A title says the finding and is made of numbers and our own words; what comes from a trace is
escaped, since Plotly reads a part of HTML in labels and hover text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analyzer.comparison import Comparison, Outcome
from analyzer.diagnose import Finding, SessionDiagnosis, Verdict
from analyzer.ledger import StepRow
from analyzer.replay import Saving
from analyzer.views.overview import lane_sentence, map_sentence
from analyzer.views.palette import (
    ACCENT,
    CHEAPER,
    DEARER,
    GRID,
    NEUTRAL,
    OTHER_VERDICT,
    READ,
    STATE_STYLE,
    UNCACHED,
    VERDICT_STYLE,
    WATERMARKS,
    WRITE,
    Chart,
    escape,
    place,
)
from analyzer.views.policies import policy_title
from analyzer.views.prefix_map import BEHIND, CHANGED, KEPT, NEW, STUB, PrefixMap
from analyzer.views.replay import verdict_text
from analyzer.views.table import show, usd

TEXT_CELLS = 150_000
"""Cells up to which each one carries its state's name for the hover text."""
MANY_STEPS = 600
"""Steps above which the stacked bars become stacked areas, which draw as one shape each."""


def _layout(figure: Any, height: int, **more: Any) -> Any:
    figure.update_layout(
        height=height,
        margin={"l": 70, "r": 24, "t": 48, "b": 56},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        separators=".,",
        hoverlabel={"namelength": -1},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0, "xanchor": "left"}
        | {"traceorder": "normal"},
        bargap=0.12,
        **more,
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True)
    return figure


# -- dollars by cause ----------------------------------------------------------------------------


def waste_by_cause(causes: Sequence[Mapping[str, Any]], cost_usd: float | None) -> Chart | None:
    """Dollars lost by cause; rows of the store's query `causes`. None where nothing was lost."""
    sums: dict[str, float] = {}
    steps: dict[str, int] = {}
    for row in causes:
        if row["wasted_usd"]:
            kind = str(row["kind"])
            sums[kind] = sums.get(kind, 0.0) + float(row["wasted_usd"])
            steps[kind] = steps.get(kind, 0) + int(row["n_steps"] or 0)
    if not sums:
        return None
    order = sorted(sums, key=lambda kind: sums[kind])
    top, total = order[-1], sum(sums.values())
    values = [sums[kind] for kind in order]
    figure = go.Figure(
        go.Bar(
            x=values,
            y=[escape(kind) for kind in order],
            orientation="h",
            marker_color=[VERDICT_STYLE.get(kind, OTHER_VERDICT)[0] for kind in order],
            text=[usd(v) for v in values],
            textposition="outside",
            cliponaxis=False,
            customdata=[[usd(sums[k]), f"{sums[k] / total:.1%}", f"{steps[k]:,}"] for k in order],
            hovertemplate="%{y}<br>%{customdata[0]} lost (%{customdata[1]} of all loss)"
            "<br>%{customdata[2]} broken steps<extra></extra>",
        )
    )
    _layout(figure, 110 + 34 * len(order), showlegend=False)
    figure.update_layout(margin={"t": 12, "r": 80})
    figure.update_xaxes(title_text="lost in breaks (USD)", tickprefix="$", tickformat=",~g")
    figure.update_xaxes(range=[0, max(values) * 1.12], nticks=8)
    figure.update_yaxes(showgrid=False)
    share = f", {total / cost_usd:.0%} of what the sessions cost" if cost_usd else ""
    title = f"{usd(total)} lost in breaks{share}; {sums[top] / total:.0%} of it by {top}"
    return Chart(title, figure, f"Dollars lost by cause, most by {top}")


# -- one lane, step by step ----------------------------------------------------------------------


def lane_steps(diagnosis: SessionDiagnosis, lane: str) -> Chart:
    """Tokens of each step by how they were billed, with breaks, window pressure and stubs below."""
    pairs = [(row, verdict) for row, verdict in diagnosis.rows if row.lane == lane]
    rows = [row for row, _ in pairs]
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, row_heights=[0.6, 0.22, 0.18], vertical_spacing=0.045
    )
    for trace in token_traces(rows):
        figure.add_trace(trace, row=1, col=1)
    _break_markers(figure, pairs)
    _pressure(figure, rows)
    _stub_line(figure, rows)
    _layout(figure, 620, barmode="stack")
    figure.update_layout(margin={"r": 44})
    figure.update_yaxes(title_text="prompt (tokens)", tickformat=",~s", row=1, col=1)
    figure.update_yaxes(title_text="window used", tickformat=".0%", row=2, col=1)
    most = max((row.n_stubs or 0 for row in rows), default=0)
    figure.update_yaxes(title_text="stubs", tickformat=",d", range=[0, max(1, most * 1.1)], row=3)
    if most < 5:
        figure.update_yaxes(dtick=1, row=3)
    figure.update_xaxes(title_text="step", tickformat=",d", row=3, col=1)
    if rows:
        figure.update_xaxes(range=[rows[0].step - 0.7, rows[-1].step + 0.7])
    title = lane_sentence(pairs)
    return Chart(title, figure, "Tokens of each step read, written and uncached; breaks marked")


def token_traces(rows: Sequence[StepRow]) -> list[Any]:
    """Stacked tokens of each step by how they were billed: bars, or areas where they are many."""
    steps = [row.step for row in rows]
    series = (
        ("read from the cache", READ, [row.usage.cache_read for row in rows]),
        ("written to the cache", WRITE, [row.usage.cache_write for row in rows]),
        ("uncached", UNCACHED, [row.usage.input for row in rows]),
    )
    traces = []
    for name, colour, values in series:
        common = {"x": steps, "y": values, "name": name}
        common["hovertemplate"] = "%{y:,} " + name + "<extra>step %{x:,}</extra>"
        if len(rows) > MANY_STEPS:
            line = {"shape": "hv", "width": 0.5, "color": colour}
            area = {"mode": "lines", "stackgroup": "tokens", "fillcolor": colour}
            traces.append(go.Scatter(**common, **area, line=line))
        else:
            traces.append(go.Bar(**common, marker={"color": colour, "line": {"width": 0}}))
    return traces


def _break_markers(figure: Any, pairs: Sequence[tuple[StepRow, Verdict]]) -> None:
    """One trace a cause, above the bars; breaks and compactions only."""
    marked: dict[str, list[tuple[StepRow, Verdict]]] = {}
    for row, verdict in pairs:
        if row.is_break or verdict.kind == "compaction":
            marked.setdefault(verdict.kind, []).append((row, verdict))
    peak = max((row.prompt_tokens or 0 for row, _ in pairs), default=0)
    for kind, steps in marked.items():
        colour, symbol = VERDICT_STYLE.get(kind, OTHER_VERDICT)
        figure.add_trace(
            go.Scatter(
                x=[row.step for row, _ in steps],
                y=[(row.prompt_tokens or 0) + peak * 0.035 for row, _ in steps],
                mode="markers",
                name=f"break: {escape(kind)}",
                marker={"color": colour, "symbol": symbol, "size": 7 if len(pairs) < 250 else 5},
                customdata=[_break_hover(row) for row, _ in steps],
                hovertemplate="<b>step %{x:,}</b>: " + escape(kind) + "<br>%{customdata[0]} prompt"
                " tokens, %{customdata[1]} lost<br>%{customdata[2]} wasted"
                "<br>first changed message: %{customdata[3]}<extra></extra>",
            ),
            row=1,
            col=1,
        )


def _break_hover(row: StepRow) -> list[str]:
    return [
        show(row.prompt_tokens, "count"),
        show(row.lost_tokens, "count"),
        usd(row.wasted_usd),
        place(row.divergence_index),
    ]


def _pressure(figure: Any, rows: Sequence[StepRow]) -> None:
    shares = [row.window_used for row in rows]
    figure.add_trace(
        go.Scatter(
            x=[row.step for row in rows],
            y=shares,
            mode="lines",
            name="share of the window",
            line={"color": READ, "width": 2},
            hovertemplate="%{y:.1%} of the window<extra>step %{x:,}</extra>",
            showlegend=False,
        ),
        row=2,
        col=1,
    )
    for mark in WATERMARKS:
        figure.add_hline(
            y=mark,
            row=2,
            col=1,
            line={"color": ACCENT, "width": 1, "dash": "dot"},
            annotation={"text": f"{mark:.0%}", "font": {"size": 10, "color": ACCENT}},
            annotation_position="right",
        )
    top = max([s for s in shares if s is not None], default=0.0)
    figure.update_yaxes(range=[0, max(1.02, top * 1.05)], row=2, col=1)
    figure.update_yaxes(tickvals=[0, 0.25, 0.5, 0.75, 1], row=2, col=1)


def _stub_line(figure: Any, rows: Sequence[StepRow]) -> None:
    figure.add_trace(
        go.Scatter(
            x=[row.step for row in rows],
            y=[row.n_stubs for row in rows],
            mode="lines",
            name="stubs",
            line={"color": STATE_STYLE[STUB][1], "width": 2, "shape": "hv"},
            hovertemplate="%{y:,} stubs in the prompt<extra>step %{x:,}</extra>",
            showlegend=False,
        ),
        row=3,
        col=1,
    )


# -- the prefix map ------------------------------------------------------------------------------


def prefix_map_chart(
    grid: PrefixMap, rows: Sequence[StepRow], findings: Sequence[Finding] = ()
) -> Chart:
    """Step × message position, coloured by what became of each message."""
    height, width = grid.cells.shape
    x = [-1] + [column * grid.messages_per_column for column in range(width - 1)]
    y = [grid.first_step + row * grid.steps_per_row for row in range(height)]
    figure = go.Figure(_heat(grid, x, y))
    for state in (KEPT, BEHIND, STUB, CHANGED, NEW):
        name, colour = STATE_STYLE[state]
        if (grid.cells == state).any():
            figure.add_trace(_legend_entry(name, colour))
    figure.add_trace(_first_changes(rows))
    _layout(figure, 560)
    figure.update_xaxes(title_text="position in the messages array (−1: tools and system)")
    figure.update_xaxes(
        tickformat=",d", showgrid=False, range=[-1.5, max(grid.n_messages, 1) + 0.5]
    )
    figure.update_yaxes(title_text="step", tickformat=",d", showgrid=False)
    figure.update_yaxes(range=[y[-1] + grid.steps_per_row - 0.5, y[0] - 0.5])
    return Chart(
        map_sentence(rows, findings, rebuilt=grid.rebuilt),
        figure,
        "Which messages each step kept or changed",
    )


def _heat(grid: PrefixMap, x: list[int], y: list[int]) -> Any:
    states = len(STATE_STYLE)
    scale = []
    for state, (_, colour) in STATE_STYLE.items():
        scale += [[state / states, colour], [(state + 1) / states, colour]]
    names = np.array([name for name, _ in STATE_STYLE.values()])
    small = grid.cells.size <= TEXT_CELLS
    return go.Heatmap(
        z=grid.cells,
        x=x,
        y=y,
        zmin=-0.5,
        zmax=states - 0.5,
        colorscale=scale,
        showscale=False,
        text=names[grid.cells] if small else None,
        hovertemplate="step %{y:,}, message %{x:,}"
        + (": %{text}" if small else "")
        + "<extra></extra>",
    )


def _legend_entry(name: str, colour: str) -> Any:
    return go.Scatter(
        x=[None],
        y=[None],
        mode="markers",
        name=name,
        marker={"color": colour, "symbol": "square", "size": 12},
        hoverinfo="skip",
    )


def _first_changes(rows: Sequence[StepRow]) -> Any:
    diverged = [row for row in rows if row.divergence is not None]
    return go.Scatter(
        x=[row.divergence_index for row in diverged],
        y=[row.step for row in diverged],
        mode="markers",
        name="first changed message",
        marker={
            "symbol": "diamond",
            "color": ACCENT,
            "size": 7 if len(rows) <= 250 else 5,
            "line": {"width": 1, "color": "#FFFFFF"},
        },
        customdata=[_break_hover(row) for row in diverged],
        hovertemplate="<b>step %{y:,}</b>: message %{customdata[3]} changed"
        "<br>%{customdata[1]} tokens lost, %{customdata[2]} wasted<extra></extra>",
    )


# -- policies ------------------------------------------------------------------------------------


def policy_costs(comparison: Comparison) -> Chart | None:
    """What each policy would have cost, with the error of the replay; None where no price is known."""
    bill = comparison.recorded.cost_usd
    known = [(o, o.result.cost_usd) for o in comparison.outcomes if o.result.cost_usd is not None]
    if bill is None or not known:
        return None
    band = comparison.band or 0.0
    names = [escape(o.spec, 60) for o, _ in known]
    figure = go.Figure(
        go.Bar(
            x=[cost for _, cost in known],
            y=names,
            orientation="h",
            marker_color=[_policy_colour(o.saving) for o, _ in known],
            error_x={"type": "constant", "value": bill * band, "color": NEUTRAL},
            text=[_claim(cost, o) for o, cost in known],
            textposition="inside",
            insidetextanchor="start",
            insidetextfont={"color": "#FFFFFF", "size": 13},
            customdata=[f"{o.result.breaks:,} breaks" for o, _ in known],
            hovertemplate="%{y}<br>%{text}<br>%{customdata}<extra></extra>",
        )
    )
    _layout(figure, 130 + 40 * len(known), showlegend=False)
    figure.update_layout(margin={"t": 32, "r": 40})
    figure.add_vline(
        x=bill,
        line={"color": ACCENT, "width": 2, "dash": "dash"},
        annotation={
            "text": f"recorded {usd(bill)}",
            "font": {"color": ACCENT},
            "yanchor": "bottom",
        },
        annotation_position="top",
    )
    figure.update_xaxes(title_text="cost of the session (USD)", tickprefix="$", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return Chart(policy_title(comparison), figure, "Cost of each policy beside the recorded bill")


def _claim(cost: float, outcome: Outcome) -> str:
    said = verdict_text(outcome)
    return f"{usd(cost)}: {said}" if said else usd(cost)


def _policy_colour(found: Saving | None) -> str:
    if found is None or not found.shown:
        return OTHER_VERDICT[0]
    return CHEAPER if found.usd > 0 else DEARER
