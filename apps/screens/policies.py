"""Recorded against other policies, replayed over the recorded steps."""

from __future__ import annotations

import streamlit as st

from analyzer import AnalyzerError
from analyzer.views.charts import policy_costs
from analyzer.views.policies import (
    allowed_specs,
    fidelity_sentence,
    policy_names,
    policy_title,
    presets_table,
)
from analyzer.views.replay import comparison_table
from apps import elements, shared

st.title("Policies", anchor=False)
seen = shared.view()
key = shared.current(seen)
st.code(key.session_id, language=None)
st.caption(
    "Open-loop: recorded outputs and times stay, only the prompts change. An agent that no longer "
    "sees a result may act differently, and this does not show that."
)

USUAL = ("raw", "sliding-stubs", "watermarks")

known = policy_names()
usual = [name for name in USUAL if name in known]
with st.form("policies"):
    names = st.multiselect("Named policies", known, default=usual, key="policy")
    typed = st.text_area(
        "Policies with parameters, one a line",
        placeholder="watermarks:snip_at=0.5,protect_tokens=16000\nsliding-stubs:keep=12",
        height=100,
        key="specs",
    )
    st.form_submit_button("Compare", type="primary", icon=":material/compare_arrows:")
with st.expander("What each policy does and takes"):
    elements.table(presets_table(), "presets")

try:
    specs = allowed_specs(names, typed or "")
except AnalyzerError as error:
    shared.refuse("This policy cannot be used.", error)
if not specs:
    st.info("Choose at least one policy.")
    st.stop()
try:
    with st.spinner("Replaying the session"):
        comparison = seen.compare(key, tuple(specs))
except AnalyzerError as error:
    shared.refuse("This session cannot be replayed.", error)

chart = policy_costs(comparison)
if chart is not None:
    elements.chart(chart, "policy-costs")
else:
    elements.heading(policy_title(comparison))
    st.caption("A price is unknown, so the policies are compared in tokens only.")
st.caption(elements.literal(fidelity_sentence(comparison)))
table = comparison_table(comparison)
elements.table(table, "comparison")
st.text(table.note)
