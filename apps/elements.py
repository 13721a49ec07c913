"""Pieces of pages. Text of a trace is shown as text: in code blocks, plain text and table cells."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

import streamlit as st

from analyzer.views.frames import to_frame
from analyzer.views.palette import Chart
from analyzer.views.table import UNKNOWN, Column, Table, clean, one_line

if TYPE_CHECKING:
    from streamlit.elements.lib.column_types import ColumnConfig

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_CHART_OPTIONS = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}
MAX_CELL = 300
MAX_CODE = 200_000
"""Characters of one content shown at once; a browser freezes on much more."""


def literal(text: str) -> str:
    """Our own sentence for an element that reads Markdown: dollars and dashes stay themselves."""
    return _PUNCTUATION.sub(r"\\\1", text)


def heading(sentence: str) -> None:
    """A finding as a heading; never text of a trace."""
    st.subheader(literal(sentence), anchor=False)


def chart(shown: Chart, key: str) -> None:
    """A chart under the sentence that it shows."""
    heading(shown.title)
    st.plotly_chart(shown.figure, width="stretch", key=key, alt=shown.alt, config=_CHART_OPTIONS)


def step_chart(shown: Chart, key: str, axis: Literal["x", "y"]) -> int | None:
    """A chart whose marks lie at steps along an axis; the step that was clicked."""
    heading(shown.title)
    event = st.plotly_chart(
        shown.figure,
        width="stretch",
        key=key,
        alt=shown.alt,
        config=_CHART_OPTIONS,
        on_select="rerun",
        selection_mode="points",
    )
    points = event.selection.points
    return int(points[0][axis]) if points else None


def content(text: str | None, key: str, missing: str = "The content was not kept.") -> None:
    """Content of a trace, as it is."""
    if text is None:
        st.caption(missing)
        return
    if not text:
        st.caption("empty")
        return
    shown = clean(text[:MAX_CODE])
    long = shown.count("\n") > 18 or len(shown) > 2_500
    st.code(shown, language=None, wrap_lines=True, height=420 if long else "content")
    if len(text) > MAX_CODE:
        st.caption(f"The first {MAX_CODE:,} of {len(text):,} characters.")
        st.download_button("All of it", text, file_name="content.txt", key=f"{key}:download")


def missing(part: object | None) -> str:
    """Why there is no text to show: there is no such part, or its content was not kept."""
    return "not there" if part is None else "The content was not kept (only its size and digest)."


def table(shown: Table, key: str, *, select: bool = False, height: int | None = None) -> int | None:
    """A table of known columns; with `select` the row that was clicked."""
    columns = [c for c in shown.columns if c.shown]
    frame = to_frame(_clipped(shown)).select([c.key for c in columns])
    settings = {c.key: _column(c, shown) for c in columns}
    size: int | Literal["auto"] = height or "auto"
    if not select:
        st.dataframe(
            frame,
            height=size,
            hide_index=True,
            column_config=settings,
            key=key,
            placeholder=UNKNOWN,
            alt=shown.title,
        )
        return None
    event = st.dataframe(
        frame,
        height=size,
        hide_index=True,
        column_config=settings,
        key=key,
        on_select="rerun",
        selection_mode=("single-row", "single-cell"),
        placeholder=UNKNOWN,
        alt=shown.title,
    )
    if event.selection.rows:
        return int(event.selection.rows[0])
    if event.selection.cells:
        return int(event.selection.cells[0][0])
    return None


def _clipped(shown: Table) -> Table:
    """Texts on one line and short: a cell is a preview, and every cell is sent to the browser."""
    rows = [
        {k: one_line(v, MAX_CELL) if isinstance(v, str) else v for k, v in row.items()}
        for row in shown.rows
    ]
    return Table(shown.title, shown.columns, rows, shown.note)


def _column(column: Column, shown: Table) -> ColumnConfig:
    config = st.column_config
    match column.style:
        case "usd":
            values = [r.get(column.key) for r in shown.rows]
            small = all(abs(float(v)) < 10 for v in values if isinstance(v, int | float | Decimal))
            form = "$%.4f" if small else "dollar"
            return config.NumberColumn(column.heading, format=form)
        case "share":
            return config.NumberColumn(column.heading, format="percent")
        case "count":
            return config.NumberColumn(column.heading, format="localized")
        case "seconds":
            return config.NumberColumn(f"{column.heading} (s)", format="%.1f")
        case "time":
            return config.DatetimeColumn(
                column.heading, format="YYYY-MM-DD HH:mm:ss", timezone="UTC"
            )
        case _:
            return config.TextColumn(column.heading)
