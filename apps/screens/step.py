"""One request: what it changed of what was sent before, and its parts."""

from __future__ import annotations

import streamlit as st

from analyzer.views.overview import counted
from analyzer.views.prompt import Difference
from analyzer.views.step import (
    changes_table,
    difference_label,
    part_label,
    part_table,
    step_view,
    verdict_sentence,
)
from analyzer.views.table import show, usd
from apps import elements, shared

st.title("Step", anchor=False)
seen = shared.view()
key = shared.current(seen)
diagnosis = shared.judged(seen, key)
lanes = {lane.ledger.lane.name: lane for lane in diagnosis.lanes if lane.ledger.rows}
if not lanes:
    st.info("This session holds no request.")
    st.stop()
st.code(key.session_id, language=None)
lane = next(iter(lanes))
if len(lanes) > 1:
    lane = shared.from_link("lane", list(lanes), lane, "Lane")
judged = lanes[lane]
rows = judged.ledger.rows


def go(to: int) -> None:
    """Make the address name another step of the lane."""
    message = rows[to].divergence_index
    st.query_params.from_dict(shared.address(key, lane=lane, step=to, message=message))


breaks = [row.step for row in rows if row.is_break]
with st.container(horizontal=True, vertical_alignment="bottom"):
    number = shared.number_from_link("step", len(rows), "step")
    places = {
        "Previous break": max((b for b in breaks if b < number), default=None),
        "Next break": min((b for b in breaks if b > number), default=None),
    }
    for label, place in places.items():
        icon = f":material/{'skip_previous' if label.startswith('Prev') else 'skip_next'}:"
        off = place is None
        st.button(label, icon=icon, disabled=off, on_click=go, args=(place,), key=label)
    st.page_link(
        shared.SESSION,
        label="The whole session",
        icon=":material/timeline:",
        query_params=shared.address(key, lane=lane),
        help="",
    )

view = step_view(judged, number)
elements.heading(verdict_sentence(view))
usage = view.row.usage
with st.container(horizontal=True):
    st.metric("Prompt", show(view.row.prompt_tokens, "count"), border=True)
    st.metric("Read", show(usage.cache_read, "count"), border=True)
    st.metric("Written", show(usage.cache_write, "count"), border=True)
    st.metric("Uncached", show(usage.input, "count"), border=True)
    st.metric("Output", show(usage.output, "count"), border=True)
    st.metric("Cost", usd(view.row.cost_usd), border=True)
    st.metric("Window used", show(view.row.window_used, "share"), border=True)
said = view.row.record.miss_reason
at = show(view.row.at, "time")
gap = show(view.row.gap_s, "seconds")
st.text(
    f"{view.row.record.model or 'unknown model'} · {at} UTC · {gap} after the request before"
    + (f" · the provider says: {said}" if said else "")
)


def texts(difference: Difference) -> None:
    """Was and now, the place of the difference first and the whole texts below."""
    st.text(difference_label(difference))
    excerpt = difference.excerpt
    before, after = st.columns(2)
    with before:
        st.caption("was")
        elements.content(excerpt["was"], "was", elements.missing(difference.was))
    with after:
        st.caption("now")
        elements.content(excerpt["now"], "now", elements.missing(difference.now))
    with st.expander("Full texts"):
        before, after = st.columns(2)
        with before:
            st.caption("was")
            body = difference.was.body if difference.was else None
            elements.content(body, "was:full", elements.missing(difference.was))
        with after:
            st.caption("now")
            body = difference.now.body if difference.now else None
            elements.content(body, "now:full", elements.missing(difference.now))


linked = shared.message_from_link()
if linked is None:
    linked = view.row.divergence_index
if not view.parts:
    elements.heading("The prompt of this step was not recorded")
    st.caption("Its usage is known, what it sent is not, so no message can be compared.")
    st.stop()

before = "the session before" if view.previous is None else f"step {view.previous:,}"
if view.changes:
    elements.heading(f"{counted(len(view.changes), 'change')} to what {before} had sent")
    place = next((i for i, d in enumerate(view.changes) if d.message == linked), 0)
    slot = st.container(border=True)
    if len(view.changes) > 1:
        st.caption("Click a row to see another change.")
        picked = elements.table(changes_table(view), f"changes:{lane}:{number}", select=True)
        place = place if picked is None else picked
    with slot:
        texts(view.changes[place])
elif view.row.previous is not None:
    seen_by = (
        "The transcript shows no change to what" if view.rebuilt else "Nothing changed of what"
    )
    elements.heading(f"{seen_by} {before} had sent")
if view.rebuilt:
    st.caption(
        "Rebuilt from a transcript: content that was replaced only when it was sent does not show "
        "here, and the system prompt and tools are unknown."
    )

elements.heading(f"The prompt: {counted(len(view.parts), 'part')}")
scopes = {
    "All parts": view.parts,
    "Changed and new": [v for v in view.parts if v.change != "kept"],
    "Stubs": [v for v in view.parts if v.stub],
}
which = st.segmented_control("Show", list(scopes), default="All parts", required=True, key="parts")
parts = scopes[which or "All parts"]
if not parts:
    st.caption("None.")
    st.stop()
st.caption("Click a row to read the part.")
chosen = elements.table(
    part_table(parts), f"parts:{lane}:{number}:{which}", select=True, height=380
)
if chosen is None:
    in_message = [i for i, v in enumerate(parts) if v.message == linked]
    chosen = next((i for i in in_message if parts[i].change != "kept"), None)
    chosen = in_message[0] if chosen is None and in_message else (chosen or 0)
part = parts[chosen]
st.text(part_label(part))
elements.content(part.part.body, "part", elements.missing(part.part))
