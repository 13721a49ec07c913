"""The dashboard's entry: `streamlit run apps/app.py` with ANALYZER_DB naming the store."""

from __future__ import annotations

import streamlit as st

from apps import shared

# A drawing of our own: the symbol of a page would be fetched from elsewhere for the browser's tab.
ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>"
    "<rect width='16' height='16' rx='3' fill='#3B8BC4'/>"
    "<path d='M2 5 L14 13 L14 7 L6 2 Z' fill='#E69F00'/></svg>"
)
st.set_page_config(page_title="Agent trace analyzer", page_icon=ICON, layout="wide")

page = st.navigation(
    [
        st.Page(
            shared.SESSIONS,
            title="Sessions",
            icon=":material/list:",
            default=True,
            help="What all sessions cost, what was lost, and which sessions lost most.",
        ),
        st.Page(
            shared.SESSION,
            title="Session",
            icon=":material/timeline:",
            help="One session step by step: where the cache broke, why, and what it cost.",
        ),
        st.Page(
            shared.STEP,
            title="Step",
            icon=":material/difference:",
            help="One request: its parts, and what it changed of what was sent before.",
        ),
        st.Page(
            shared.POLICIES,
            title="Policies",
            icon=":material/compare_arrows:",
            help="What other compaction policies would have cost on the recorded steps.",
        ),
        st.Page(
            shared.HEALTH,
            title="Ingest health",
            icon=":material/health_and_safety:",
            help="Files that were read, and records that could not be read.",
        ),
    ],
    position="top",
)
page.run()
