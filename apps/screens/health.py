"""What was read, and what could not be read; places and reasons, never content."""

from __future__ import annotations

import streamlit as st

from analyzer.views.health import files_table, health_sums, problems_table, sources_table
from apps import elements, shared

MAX_ROWS = 2_000

st.title("Ingest health", anchor=False)
seen = shared.view(needs_sessions=False)
files, problems = seen.files, seen.problems
if files.is_empty():
    st.info("No file was ingested in this scope. `analyzer ingest PATH` adds some.")
    st.stop()

sums = health_sums(files)
with st.container(horizontal=True):
    st.metric("Files", f"{sums.files:,}", border=True)
    st.metric("Megabytes read", f"{sums.bytes / 1e6:,.1f}", border=True)
    st.metric("Steps", f"{sums.steps:,}", border=True)
    st.metric("Unreadable records", f"{problems.height:,}", border=True)

if problems.is_empty():
    elements.heading("Every record could be read")
else:
    elements.heading(f"{problems.height:,} records could not be read and are kept in quarantine")
    st.caption("The rest of each file was read. Contents are not shown here.")
    elements.table(problems_table(problems, MAX_ROWS), "problems")
    if problems.height > MAX_ROWS:
        st.caption(f"The first {MAX_ROWS:,} are listed.")

elements.heading("By source")
elements.table(sources_table(files), "sources")
elements.heading("Files, newest first")
elements.table(files_table(files, MAX_ROWS), "files", height=420)
if files.height > MAX_ROWS:
    st.caption(f"The newest {MAX_ROWS:,} are listed.")
