"""Which observations are steps of one growing context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.model import LaneSteps, Problem
from analyzer.sources.base import Context
from analyzer.sources.langfuse.source import LangfuseSource

SOURCE = LangfuseSource()
USAGE = {"input": 10, "output": 5, "total": 15}


def row(key: str, at: float, parent: str | None = None, **more: Any) -> dict[str, Any]:
    """An observation `at` seconds after nine, of the type that its id begins with."""
    kinds = {"g": "GENERATION", "a": "AGENT", "t": "TOOL", "s": "SPAN", "e": "EMBEDDING"}
    return {
        "id": key,
        "traceId": "T1",
        "projectId": "p",
        "sessionId": "S",
        "type": kinds[key[0]],
        "name": key,
        "startTime": f"2026-10-02T09:00:{at:06.3f}Z",
        "endTime": f"2026-10-02T09:00:{at + 0.5:06.3f}Z",
        "parentObservationId": parent,
        "usageDetails": USAGE if key[0] in "ge" else {},
        **more,
    }


@pytest.fixture
def lanes_of(tmp_path: Path) -> Any:
    def lanes(*rows: dict[str, Any]) -> dict[str, LaneSteps]:
        path = tmp_path / "page.json"
        path.write_text(json.dumps({"data": rows, "meta": {}}))
        found = list(SOURCE.read(path, Context()))
        assert not [problem for problem in found if isinstance(problem, Problem)]
        return {lane.lane: lane for lane in found if isinstance(lane, LaneSteps)}

    return lanes


def ids(lane: LaneSteps) -> list[str]:
    return [dict(step.labels)["langfuse.observation"] for step in lane.steps]


def said(*texts: str) -> list[dict[str, str]]:
    """Messages of a conversation, the person first."""
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


def test_the_main_lane_joins_the_roots_of_all_traces_and_subagents_stay_apart(
    lanes_of: Any,
) -> None:
    lanes = lanes_of(
        row("a1", 0),
        row("g1", 1, "a1"),
        row("t1", 2, "g1"),
        row("a2", 3, "t1", name="Subagent: explore"),
        row("g2", 4, "a2"),
        row("g3", 5, "a2"),
        row("g4", 6, "a1"),
        row("a3", 20, traceId="T2"),
        row("g5", 21, "a3", traceId="T2"),
    )
    assert {name: ids(lane) for name, lane in lanes.items()} == {
        "main": ["g1", "g4", "g5"],
        "Subagent: explore": ["g2", "g3"],
    }
    assert lanes["Subagent: explore"].parent == "main"
    assert lanes["main"].parent is None


def test_each_run_of_a_subagent_is_a_lane_and_nested_ones_name_their_parent(
    lanes_of: Any,
) -> None:
    lanes = lanes_of(
        row("a1", 0),
        row("g1", 1, "a1"),
        row("t1", 2, "a1"),
        row("a2", 3, "t1", name="Explore"),
        row("g2", 4, "a2"),
        row("t2", 5, "a2"),
        row("a3", 6, "t2", name="Deeper"),
        row("g3", 7, "a3"),
        row("t3", 8, "a1"),
        row("a4", 9, "t3", name="Explore"),
        row("g4", 10, "a4"),
    )
    assert {name: ids(lane) for name, lane in lanes.items()} == {
        "main": ["g1"],
        "Explore": ["g2"],
        "Explore #2": ["g4"],
        "Deeper": ["g3"],
    }
    assert lanes["Deeper"].parent == "Explore"
    assert lanes["Explore #2"].parent == "main"


def test_the_only_agent_below_a_root_span_is_the_main_loop_of_every_turn(lanes_of: Any) -> None:
    lanes = lanes_of(
        row("s1", 0),
        row("a1", 1, "s1", name="agent_run [bot]"),
        row("g1", 2, "a1"),
        row("s2", 20, traceId="T2"),
        row("a2", 21, "s2", name="agent_run [bot]", traceId="T2"),
        row("g2", 22, "a2", traceId="T2"),
    )
    assert {name: ids(lane) for name, lane in lanes.items()} == {"main": ["g1", "g2"]}


def test_agents_beside_each_other_have_lanes_of_their_own(lanes_of: Any) -> None:
    lanes = lanes_of(
        row("s1", 0),
        row("a1", 1, "s1", name="writer"),
        row("g1", 2, "a1"),
        row("a2", 3, "s1", name="critic"),
        row("g2", 4, "a2"),
        row("a3", 5, "s1", name="writer"),
        row("g3", 6, "a3"),
    )
    assert {name: ids(lane) for name, lane in lanes.items()} == {
        "writer": ["g1", "g3"],
        "critic": ["g2"],
    }


def test_usage_of_spans_and_of_wrapping_generations_is_not_added(lanes_of: Any) -> None:
    lanes = lanes_of(
        row("s1", 0, usageDetails={"input": 999, "output": 999}),
        row("g1", 1, "s1", usageDetails={"input": 20, "output": 10}),
        row("s2", 2, "g1"),
        row("g2", 3, "s2"),
        row("g3", 4, "s2"),
    )
    assert ids(lanes["main"]) == ["g2", "g3"]


def test_a_generation_that_only_called_a_tool_with_a_subagent_is_no_aggregate(
    lanes_of: Any,
) -> None:
    lanes = lanes_of(
        row("a1", 0),
        row("g1", 1, "a1"),
        row("t1", 2, "g1"),
        row("a2", 3, "t1", name="Subagent: x"),
        row("g2", 4, "a2"),
    )
    assert sorted(lanes) == ["Subagent: x", "main"]


def test_a_wrapper_that_alone_has_usage_stands_for_what_it_wraps(lanes_of: Any) -> None:
    lanes = lanes_of(row("g1", 1), row("g2", 2, "g1", usageDetails={}))
    assert ids(lanes["main"]) == ["g1"]


def test_embeddings_do_not_interrupt_the_loop(lanes_of: Any) -> None:
    lanes = lanes_of(row("g1", 1), row("e1", 2), row("g2", 3))
    assert ids(lanes["main"]) == ["g1", "g2"]
    assert ids(lanes["embeddings"]) == ["e1"]


def test_missing_and_circular_parents_do_no_harm(lanes_of: Any) -> None:
    lanes = lanes_of(
        row("g1", 1, "gone"), row("s1", 2, "s2"), row("s2", 3, "s1"), row("g2", 4, "s1")
    )
    assert ids(lanes["main"]) == ["g1", "g2"]


def test_steps_of_equal_time_come_in_the_order_of_their_prompts(lanes_of: Any) -> None:
    turns = said("fix", "read", "go on", "edit", "and now")
    lanes = lanes_of(
        row("g1", 1, input=turns),
        row("g2", 1, input=turns[:3]),
        row("g3", 1, input=turns[:1]),
    )
    assert ids(lanes["main"]) == ["g3", "g2", "g1"]


def test_contexts_that_take_turns_are_told_apart_by_content(lanes_of: Any) -> None:
    loop = said("fix the test", "reading", "go on", "editing", "go on please")
    title = [{"role": "system", "content": "name this"}, {"role": "user", "content": "chat"}]
    lanes = lanes_of(
        row("g1", 1, input=loop[:1]),
        row("g2", 2, input=title, name="title"),
        row("g3", 3, input=loop[:3]),
        row("g4", 4, input=loop),
    )
    assert {name: ids(lane) for name, lane in lanes.items()} == {
        "main": ["g1", "g3", "g4"],
        "main: title": ["g2"],
    }
    assert lanes["main: title"].parent == "main"


def test_a_changed_system_prompt_or_edited_history_stays_in_the_lane(lanes_of: Any) -> None:
    turns = said("fix", "read", "a long result", "edit", "more")
    stubbed = [*turns[:2], {"role": "user", "content": "[cleared]"}, *turns[3:]]

    def prompt(clock: str, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        return [{"role": "system", "content": f"It is {clock}."}, *messages]

    lanes = lanes_of(
        row("g1", 1, input=prompt("9:00", turns[:3])),
        row("g2", 2, input=prompt("9:01", stubbed)),
        row("g3", 3, input=prompt("9:02", said("Summary: all is done", "ok", "next"))),
        row("g4", 4, input=prompt("9:03", said("Summary: all is done", "ok", "next", "x", "y"))),
    )
    assert {name: ids(lane) for name, lane in lanes.items()} == {"main": ["g1", "g2", "g3", "g4"]}


def test_single_requests_that_share_nothing_are_lanes_of_their_own(lanes_of: Any) -> None:
    lanes = lanes_of(*(row(f"g{n}", n, input=said(f"question {n}")) for n in range(3)))
    assert sorted(len(lane.steps) for lane in lanes.values()) == [1, 1, 1]


def hook(key: str, at: float, given: Any, text: str, **more: Any) -> dict[str, Any]:
    """A generation of the Claude Code hook, which logs only what is new."""
    answer = {"role": "assistant", "content": text}
    more = {"name": "LLM Call", "metadata": {"assistant_index": 0}, **more}
    return row(key, at, input=given, output=answer, **more)


def test_deltas_are_put_together_and_marked_as_rebuilt(lanes_of: Any) -> None:
    results = {"tool_use_id": "c1", "tool_name": "Read", "output": "text"}
    lanes = lanes_of(
        hook("g1", 1, {"role": "user", "content": "fix it"}, "reading"),
        hook("g2", 2, {"role": "tool", "tool_results": [results]}, "found"),
        hook("g3", 3, None, "done"),
    )
    steps = lanes["main"].steps
    prompts = [step.prompt for step in steps]
    assert [p and (p.ranges, p.recorded) for p in prompts] == [
        (((0, 1),), False),
        (((0, 3),), False),
        (((0, 4),), False),
    ]
    pool = [part for step in steps for part in step.new_parts]
    assert [p.body for p in pool] == ["fix it", "reading", "text", "found", "done"]
    assert [step.human for step in steps] == [True, False, False]


def test_a_turn_that_a_resumed_session_sends_again_counts_once(lanes_of: Any) -> None:
    asked = {"role": "user", "content": "fix it"}
    other = {"input": 11, "output": 5}
    lanes = lanes_of(
        hook("g1", 1, asked, "reading"),
        hook("g2", 1, asked, "reading", traceId="T2"),
        hook("g3", 1, asked, "something else", traceId="T3"),
        hook("g4", 1, asked, "reading", traceId="T4", usageDetails=other),
        hook("g5", 2, asked, "reading", traceId="T5"),
    )
    assert ids(lanes["main"]) == ["g1", "g3", "g4", "g5"]
    fork = lanes_of(hook("g6", 1, asked, "reading", traceId="T6", sessionId="fork"))
    assert fork["main"].steps[0].key == lanes["main"].steps[0].key


def test_equal_requests_of_other_senders_are_never_merged(lanes_of: Any) -> None:
    same = {"input": said("hi"), "output": {"role": "assistant", "content": "ok"}}
    lanes = lanes_of(row("g1", 1, **same), row("g2", 1, **same))
    assert sum(len(lane.steps) for lane in lanes.values()) == 2


def test_equal_messages_of_one_prompt_have_places_of_their_own(lanes_of: Any) -> None:
    lanes = lanes_of(
        row("g1", 1, input=said("go on", "ok", "go on")),
        row("g2", 2, input=said("go on", "ok", "go on", "ok", "go on")),
    )
    ranges = [step.prompt.ranges for step in lanes["main"].steps if step.prompt]
    assert ranges == [((0, 3),), ((0, 5),)]


@pytest.mark.data
def test_the_shared_session_gives_its_lanes(shared_data: Path) -> None:
    path = shared_data / "langfuse/examples/session_two_traces_subagent_v2_page.json"
    expect = json.loads(path.read_text())["expect"]
    lanes = [found for found in SOURCE.read(path, Context()) if isinstance(found, LaneSteps)]
    assert {lane.session.session_id for lane in lanes} == {expect["session"]}
    assert {lane.lane: ids(lane) for lane in lanes} == expect["lanes"]


def test_subagents_are_told_by_name_where_only_model_calls_were_fetched(lanes_of: Any) -> None:
    lanes = lanes_of(
        row("g1", 1, "gone1"),
        row("g2", 2, "gone2", name="Subagent LLM Call"),
        row("g3", 3, "gone2", name="Subagent LLM Call"),
        row("g4", 4, "gone3", name="Subagent LLM Call"),
    )
    assert {name: ids(lane) for name, lane in lanes.items()} == {
        "main": ["g1"],
        "Subagent LLM Call": ["g2", "g3"],
        "Subagent LLM Call #2": ["g4"],
    }
