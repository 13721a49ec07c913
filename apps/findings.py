"""A finding as a card: cause, steps, dollars, evidence, remedy, and the way to the message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import streamlit as st

from analyzer import Finding
from analyzer.views.overview import finding_sentence
from analyzer.views.table import Column, Row, Table, clean, one_line
from apps import elements, shared

_TOLD = ("summary", "was", "now", "content", "steps", "worst_step")
"""Evidence that the card itself shows."""


def finding_card(finding: Finding, bill: Decimal | None, link: Mapping[str, str], key: str) -> None:
    """One finding; `link` leads to the message that changed."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.badge(elements.literal(finding.kind), color="orange", icon=":material/warning:")
            if finding.expected and finding.is_loss:
                st.badge("expected", color="gray", help="The price of a choice, not avoidable.")
            if finding.inferred:
                st.badge("inferred", color="gray", help="Seen in the usage only, not in content.")
        st.markdown(f"**{elements.literal(finding_sentence(finding, bill))}**")
        summary = finding.evidence.get("summary")
        if isinstance(summary, str):
            st.text(clean(summary))
        _excerpts(finding)
        st.text("→ " + finding.remedy.replace("`", ""))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.page_link(
                shared.STEP,
                label="Open the message that changed" if "message" in link else "Open the step",
                icon=":material/difference:",
                query_params=link,
                help="",
            )
        more = _evidence_rows(finding.evidence)
        if more:
            with st.expander("Evidence"):
                columns = (Column("name", "what"), Column("value", "value"))
                elements.table(Table("Evidence", columns, more), f"{key}:evidence")


def _excerpts(finding: Finding) -> None:
    was, now = finding.evidence.get("was"), finding.evidence.get("now")
    if not isinstance(was, str) and not isinstance(now, str):
        if "content" in finding.evidence:
            st.caption("The content was not kept.")
        return
    before, after = st.columns(2)
    for place, word, text in ((before, "was", was), (after, "now", now)):
        with place:
            st.caption(word)
            if isinstance(text, str):
                st.code(clean(text), language=None, wrap_lines=True)
            else:
                st.caption("The content was not kept.")


def _evidence_rows(evidence: Mapping[str, object]) -> list[Row]:
    return [
        {"name": name.replace("_", " "), "value": _worded(value)}
        for name, value in evidence.items()
        if name not in _TOLD and value is not None
    ]


def _worded(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return one_line(", ".join(str(part) for part in value), 300)
    return one_line(str(value), 300)
