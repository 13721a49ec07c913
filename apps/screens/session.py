"""One session, step by step: where the cache broke, why, and what it cost."""

from __future__ import annotations

import streamlit as st

from analyzer.views.charts import lane_steps, prefix_map_chart
from analyzer.views.frames import findings_table, steps_table
from analyzer.views.overview import bill_sentence, write_cost
from analyzer.views.prefix_map import prefix_map
from analyzer.views.table import UNKNOWN, one_line, usd
from apps import elements, shared
from apps.findings import finding_card

CARDS = 8

st.title("Session", anchor=False)
seen = shared.view()
key = shared.current(seen)
diagnosis = shared.judged(seen, key)

st.code(key.session_id, language=None)
owner = " · ".join(one_line(word, 80) for word in (key.project, key.user) if word)
about = f"{diagnosis.session.source or 'unknown source'} · {owner}"
st.text(f"{about} · {one_line(diagnosis.session.title, 120)}" if diagnosis.session.title else about)
elements.heading(bill_sentence(diagnosis))

written = write_cost(diagnosis)
with st.container(horizontal=True):
    st.metric("Cost", usd(diagnosis.cost_usd), border=True)
    st.metric("Lost in breaks", usd(diagnosis.wasted_usd), border=True)
    st.metric("Of it avoidable", usd(diagnosis.avoidable_usd), border=True)
    share = f"{written / diagnosis.cost_usd:.0%}" if written and diagnosis.cost_usd else UNKNOWN
    st.metric("Cache writes", usd(written), border=True, help=f"{share} of the bill.")
    hit = UNKNOWN if diagnosis.hit_ratio is None else f"{diagnosis.hit_ratio:.1%}"
    st.metric("Read from the cache", hit, border=True, help="Share of all prompt tokens.")

lanes = {lane.ledger.lane.name: lane for lane in diagnosis.lanes}
if not lanes:
    st.info("This session holds no request.")
    st.stop()
lane = diagnosis.findings[0].lane if diagnosis.findings else next(iter(lanes))
if len(lanes) > 1:
    lane = shared.from_link("lane", list(lanes), lane, "Lane")
judged = lanes[lane]
rows = judged.ledger.rows
if not rows:
    st.info("This lane holds no request.")
    st.stop()

# Losses come first, contradictions in what was recorded after them.
findings = sorted(judged.findings, key=lambda finding: not finding.is_loss)
for number, finding in enumerate(findings):
    if number == 0 or finding.is_loss != findings[number - 1].is_loss:
        elements.heading(
            "Why the cache broke" if finding.is_loss else "What the recorded figures contradict"
        )
    if number == CARDS:
        st.caption(f"{len(findings) - CARDS:,} smaller findings are in a table further down.")
        break
    worst = finding.evidence.get("worst_step")
    step = worst if isinstance(worst, int) else finding.first_step
    message = rows[step].divergence_index
    link = shared.address(key, lane=lane, step=step, message=message)
    finding_card(finding, diagnosis.cost_usd, link, f"finding:{number}")
st.page_link(
    shared.POLICIES,
    label="What another policy would have cost",
    icon=":material/compare_arrows:",
    query_params=shared.address(key),
    help="",
)

clicked: int | None = None
if all(row.prompt_tokens is None for row in rows):
    elements.heading("No usage was recorded for these steps")
    st.caption("Without token counts there is neither a bill nor a break to show.")
else:
    clicked = elements.step_chart(lane_steps(diagnosis, lane), f"steps-chart:{lane}", "x")
    st.caption("Click a bar or a break to open the step.")

grid = prefix_map(judged.ledger)
if grid is None:
    elements.heading("No prompts were recorded for these steps")
    st.caption(
        "The prefix map needs what each request sent. Usage alone still tells that the cache "
        "broke and what it cost, but not which message changed."
    )
else:
    drawn = prefix_map_chart(grid, rows, judged.findings)
    on_map = elements.step_chart(drawn, f"prefix-map:{lane}", "y")
    clicked = on_map if clicked is None else clicked
    if grid.rebuilt:
        st.caption(
            "Rebuilt from a transcript: content that was replaced only when it was sent does not "
            "show here, and the system prompt and tools are unknown."
        )
    if grid.steps_per_row > 1 or grid.messages_per_column > 1:
        st.caption(
            f"Each cell stands for {grid.steps_per_row:,} steps and {grid.messages_per_column:,} "
            "messages, and shows the strongest change among them."
        )

if len(judged.findings) > CARDS:
    elements.heading("Every finding of the session")
    elements.table(findings_table([diagnosis]), "findings")
elements.heading("Every step")
st.caption("Click a row to open the step.")
at = elements.table(steps_table(diagnosis, lane), f"steps:{lane}", select=True, height=420)
at = clicked if at is None else at
if at is not None and 0 <= at < len(rows):
    where = shared.address(key, lane=lane, step=at, message=rows[at].divergence_index)
    st.switch_page(shared.STEP, query_params=where)
