"""Every page with data, without a store, with links that lead nowhere, and within a scope."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analyzer.intake import ingest
from tests.apps.conftest import APP, Open, build
from tests.apps.traces import Trace, write

SCREENS = ("session", "step", "policies", "health")


def words(app: AppTest) -> str:
    """All text that a page shows outside its tables and charts, without Markdown's escapes."""
    kinds = ("title", "subheader", "markdown", "caption", "text", "info", "error", "warning")
    blocks = [block.value for kind in kinds for block in app.get(kind)]
    return "\n".join([*blocks, *(code.value for code in app.code)]).replace("\\", "")


def test_the_list_of_sessions_shows_sums_and_names_the_dearest_cause(
    page: Open, store: Path
) -> None:
    app = page(store)
    assert not app.exception
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics["Sessions"] == "8"
    assert metrics["Lost in breaks"].startswith("$")
    assert metrics["Lost in breaks"] not in ("$0.00", "$0")
    assert re.search(r"\$\S+ lost in breaks, \d+% of .*; \d+% of it by sliding-stubs", words(app))
    assert app.dataframe[0].value["session_id"].iloc[0] == "churning"
    assert len(app.dataframe[0].value) == 8


def test_filters_narrow_the_list_and_its_sums(page: Open, store: Path) -> None:
    app = page(store)
    app.text_input(key="q").set_value("CHURN").run()
    assert list(app.dataframe[0].value["session_id"]) == ["churning"]
    assert {m.label: m.value for m in app.metric}["Steps"] == "24"
    app.text_input(key="q").set_value("nothing is called this").run()
    assert "No session matches" in words(app)
    app.text_input(key="q").set_value("").run()
    app.multiselect(key="cause").set_value(["none"]).run()
    assert "churning" not in list(app.dataframe[0].value["session_id"])
    assert not app.exception


def test_a_session_is_told_in_one_sentence_with_its_finding_and_the_way_to_the_message(
    page: Open, store: Path
) -> None:
    app = page(store, "session", project="demo", session="churning")
    assert not app.exception
    said = words(app)
    assert "24 steps cost $" in said
    assert "steps · demo · a long task" in said
    assert "mostly by sliding-stubs" in said
    assert "The first change slides from message" in said
    assert "[Old tool result content cleared]" in said
    assert "Decide once and keep the decision" in said
    assert len(app.dataframe[-1].value) == 24


def test_a_session_without_usage_says_so_instead_of_showing_zeros(page: Open, store: Path) -> None:
    app = page(store, "session", session="no-usage")
    assert not app.exception
    assert "No usage was recorded for these steps" in words(app)
    assert {m.label: m.value for m in app.metric}["Cost"] == "–"


def test_a_session_without_prompts_says_what_the_map_cannot_show(page: Open, store: Path) -> None:
    app = page(store, "session", session="no-prompts")
    assert not app.exception
    assert "No prompts were recorded for these steps" in words(app)
    app = page(store, "step", session="no-prompts", step="3")
    assert not app.exception
    assert "The prompt of this step was not recorded" in words(app)


def test_lanes_are_chosen_by_the_link_and_by_the_field(page: Open, store: Path) -> None:
    app = page(store, "session", session="two-lanes", lane="helper")
    assert app.selectbox[0].value == "helper"
    assert len(app.dataframe[-1].value) == 6
    app.selectbox[0].set_value("main").run()
    assert app.query_params["lane"] == "main"
    assert len(app.dataframe[-1].value) == 14
    app = page(store, "session", session="two-lanes", lane="nowhere")
    assert app.selectbox[0].value == "main"
    assert not app.exception


def test_a_step_shows_the_message_that_changed_before_and_after(page: Open, store: Path) -> None:
    app = page(store, "step", session="churning", step="6", message="4")
    assert not app.exception
    said = words(app)
    assert "Step 6: the cache broke (sliding-stubs)" in said
    assert "1 change to what step 5 had sent" in said
    assert "message 4: user tool result of read_file, replaced" in said
    was, now = app.code[1].value, app.code[2].value
    assert was.startswith("1: line of a file")
    assert now == "[Old tool result content cleared]"
    assert app.code[-1].value == "[Old tool result content cleared]"


def test_buttons_lead_from_break_to_break_and_keep_the_link_true(page: Open, store: Path) -> None:
    app = page(store, "step", session="churning", step="6")
    app.button(key="Next break").click().run()
    assert app.query_params["step"] == "7"
    assert "Step 7: the cache broke" in words(app)
    app.number_input[0].set_value(0).run()
    assert app.query_params["step"] == "0"
    assert "the first request of its lane" in words(app)
    assert app.button(key="Previous break").disabled
    assert not app.exception


@pytest.mark.parametrize("step", ["24", "-1", "x", "٣", "9" * 30])
def test_a_link_to_no_step_is_refused_in_words(page: Open, store: Path, step: str) -> None:
    app = page(store, "step", session="churning", step=step)
    assert not app.exception
    assert "This link names a step that is not here" in words(app)
    assert "expected a step from 0 to 23" in words(app)


def test_content_that_was_not_kept_is_named_so(page: Open, stores: Path) -> None:
    path = build(stores, "bare", Trace("churning"), content="none")
    app = page(path, "session", session="churning")
    assert not app.exception
    assert "sliding-stubs" in words(app)
    app = page(path, "step", session="churning", step="6")
    assert not app.exception
    assert "The content was not kept" in words(app)


def test_redacted_content_is_shown_with_its_stand_ins(page: Open, stores: Path) -> None:
    trace = Trace("churning", text="mail jane.roe@corp-mail.example ")
    path = build(stores, "redacted", trace, content="redacted")
    app = page(path, "session", session="churning")
    assert not app.exception
    assert "sliding-stubs" in words(app)
    app = page(path, "step", session="churning", step="6")
    assert not app.exception
    assert "<EMAIL:" in words(app)
    assert "jane.roe" not in words(app)


def test_health_lists_files_and_unreadable_records_without_their_content(
    page: Open, tmp_path: Path
) -> None:
    file = write(tmp_path / "broken.jsonl", Trace("fine"))
    with file.open("a", encoding="utf-8") as out:
        out.write('{"v":1,"session":"s","step":"TOP SECRET","usage":[}\n')
        out.write(json.dumps(Trace("fine", steps=1).lines()[0] | {"id": "again"}) + "\n")
    path = tmp_path / "health.duckdb"
    report = ingest([file], path)
    assert len(report.problems) == 1
    app = page(path, "health")
    assert not app.exception
    assert {m.label: m.value for m in app.metric}["Unreadable records"] == "1"
    problems = app.dataframe[0].value
    assert list(problems["line"]) == [15]
    assert "raw" not in problems.columns
    assert "TOP SECRET" not in problems.to_csv()


def test_policies_are_compared_with_the_recorded_bill_and_the_error_of_the_replay(
    page: Open, store: Path
) -> None:
    app = page(store, "policies", session="churning")
    assert not app.exception
    said = words(app)
    assert "Open-loop: recorded outputs and times stay" in said
    assert re.search(r"Recorded \$\S+; ", said)
    assert re.search(r"misses the recorded bill by \d+\.\d%", said)
    table = app.dataframe[-1].value
    assert list(table["spec"]) == ["as recorded", "raw", "sliding-stubs", "watermarks"]
    app.multiselect(key="policy").set_value(["raw"])
    app.text_area(key="specs").set_value("sliding-stubs:keep=4\n\nsliding-stubs:keep=4")
    app.button[0].click().run()
    assert not app.exception
    table = app.dataframe[-1].value
    assert list(table["spec"]) == ["as recorded", "raw", "sliding-stubs:keep=4"]
    same = table.set_index("spec").loc["sliding-stubs:keep=4", "verdict"]
    assert same == "no difference shown"


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ("os:system", "there is no policy 'os:system'"),
        ("watermarks:os:x=1", "there is no policy 'watermarks:os'"),
        ("../secrets.toml", "there is no policy '../secrets.toml'"),
        ("watermarks:nothing=1", "policy 'watermarks' has no parameter 'nothing'"),
    ],
)
def test_a_shared_page_runs_named_policies_only(
    page: Open, store: Path, spec: str, answer: str
) -> None:
    app = page(store, "policies", session="churning")
    app.text_area(key="specs").set_value(spec)
    app.button[0].click().run()
    assert not app.exception
    assert answer in app.code[-1].value


def test_a_session_that_cannot_be_replayed_says_why(page: Open, store: Path) -> None:
    app = page(store, "policies", session="no-prompts")
    assert not app.exception
    assert "This session cannot be replayed" in words(app)


@pytest.mark.parametrize("screen", [None, *SCREENS])
def test_without_a_store_every_page_says_which_command_makes_one(
    page: Open, tmp_path: Path, screen: str | None
) -> None:
    app = page(tmp_path / "missing.duckdb", screen)
    assert not app.exception
    assert "analyzer ingest PATH" in words(app)


@pytest.mark.parametrize("screen", ["session", "step"])
def test_an_unknown_session_in_a_link_is_refused_and_never_taken_for_markup(
    page: Open, store: Path, screen: str
) -> None:
    app = page(store, screen, session="**nobody** <b>x</b>")
    assert not app.exception
    assert [e.value for e in app.error] == ["This link names a session that is not here."]
    assert "there is no session '**nobody** <b>x</b>'" in app.code[0].value


@pytest.mark.parametrize("screen", ["session", "step"])
def test_a_page_without_a_session_asks_for_one(page: Open, store: Path, screen: str) -> None:
    app = page(store, screen)
    assert not app.exception
    assert "Choose a session first" in words(app)


def test_a_file_that_is_no_store_is_refused_in_words(page: Open, tmp_path: Path) -> None:
    path = tmp_path / "not.duckdb"
    path.write_bytes(b"this is a text" * 1000)
    app = page(path)
    assert not app.exception
    assert "The store cannot be opened" in words(app)


def test_a_scope_hides_other_projects_everywhere(
    page: Open, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = page(store, "session", session="of-others")
    assert "14 steps cost" in words(seen)
    monkeypatch.setenv("ANALYZER_PROJECT", "demo")
    app = page(store)
    assert "of-others" not in list(app.dataframe[0].value["session_id"])
    hidden = page(store, "session", project="secret", user="ann", session="of-others")
    unknown = page(store, "session", project="secret", user="ann", session="nobody")
    assert not hidden.exception
    assert words(hidden).replace("of-others", "nobody") == words(unknown)
    health = page(store, "health")
    assert "No file was ingested" in words(health) or "secret" not in str(
        [frame.value.to_csv() for frame in health.dataframe]
    )


def test_a_scope_without_sessions_is_an_empty_state(
    page: Open, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_PROJECT", "nobody's")
    app = page(store)
    assert not app.exception
    assert "No session in scope" in words(app)


def test_a_name_that_two_projects_use_needs_its_project(page: Open, store: Path) -> None:
    app = page(store, "session", session="twin")
    assert "2 sessions are called 'twin'; give project and user" in words(app)
    app = page(store, "session", session="twin", project="secret")
    assert "3 steps cost" in words(app)


def test_a_newly_published_store_is_read_without_a_restart(page: Open, tmp_path: Path) -> None:
    path = tmp_path / "growing.duckdb"
    ingest([write(tmp_path / "a.jsonl", Trace("first", steps=3))], path)
    app = page(path)
    assert list(app.dataframe[0].value["session_id"]) == ["first"]
    assert "ingested after the last analysis" in words(app)
    ingest([write(tmp_path / "b.jsonl", Trace("second", steps=3))], path)
    app.run()
    assert set(app.dataframe[0].value["session_id"]) == {"first", "second"}


def test_no_page_uses_an_element_that_renders_raw_html() -> None:
    pages = [*APP.parent.rglob("*.py")]
    assert len(pages) > 8
    wrong = re.compile(r"unsafe_allow_html|st\.(write|html|iframe|components)\b")
    assert not [f"{p.name}: {m}" for p in pages for m in wrong.findall(p.read_text("utf-8"))]
