"""All sessions of the scope: what they cost, what was lost, and by what."""

from __future__ import annotations

import streamlit as st

from analyzer import SessionKey
from analyzer.views.charts import waste_by_cause
from analyzer.views.frames import sessions_table
from analyzer.views.overview import choices, counted, dearest_first, matching, totals
from analyzer.views.table import UNKNOWN, usd
from apps import elements, shared

MAX_ROWS = 2_000

st.title("Sessions", anchor=False)
seen = shared.view()
overview = seen.overview

with st.container(horizontal=True, vertical_alignment="bottom"):
    text = st.text_input(
        "Session, title, project or user", key="q", bind="query-params", type="search", width=320
    )
    sources = st.multiselect(
        "Source", choices(overview, "source"), key="source", bind="query-params", width=240
    )
    causes = st.multiselect(
        "Top cause", choices(overview, "top_cause"), key="cause", bind="query-params", width=240
    )

chosen = matching(overview, text or "", sources, causes)
sums = totals(chosen)
with st.container(horizontal=True):
    st.metric("Cost", usd(sums.cost_usd), border=True)
    st.metric("Lost in breaks", usd(sums.wasted_usd), border=True)
    hit = UNKNOWN if sums.hit_ratio is None else f"{sums.hit_ratio:.1%}"
    st.metric("Read from the cache", hit, border=True, help="Share of all prompt tokens.")
    st.metric("Sessions", f"{sums.sessions:,}", border=True)
    st.metric("Steps", f"{sums.steps:,}", border=True)
if sums.unjudged:
    st.warning(
        f"{sums.unjudged:,} sessions were ingested after the last analysis and show no money yet; "
        "`analyzer diagnose --all` judges them.",
        icon=":material/pending:",
    )

if chosen.height == overview.height:
    chart = waste_by_cause(seen.causes.to_dicts(), sums.cost_usd)
    if chart is not None:
        elements.chart(chart, "waste")
    else:
        elements.heading("Nothing was lost in breaks")

shown = dearest_first(chosen, MAX_ROWS)
elements.heading(f"{counted(chosen.height, 'session')}, those that lost most first")
if chosen.is_empty():
    st.info("No session matches. Clear a filter to see more.")
    st.stop()
st.caption("Click a row to open the session.")
if shown.height < chosen.height:
    st.caption(f"The first {shown.height:,} are listed; narrow the filters to reach the others.")
row = elements.table(sessions_table(shown), "sessions", select=True)
if row is not None:
    names = shown.select("project", "user_id", "session_id").row(row)
    st.switch_page(shared.SESSION, query_params=shared.address(SessionKey(*names)))
