from __future__ import annotations

import json

import pytest

from analyzer.model import Usage
from analyzer.sources import SOURCES, detect
from analyzer.sources.base import read_head
from analyzer.sources.managed_agents import ManagedAgentsSource
from tests.reading import batches, lanes

SOURCE = ManagedAgentsSource()
STREAM = "client.beta.sessions.events.stream"
AGENT = {
    "model": {"id": "claude-sonnet-5", "speed": "standard"},
    "system": "You code.",
    "tools": [
        {"type": "agent_toolset_20260401"},
        {"type": "custom", "name": "weather", "input_schema": {"type": "object"}},
    ],
}
SESSION = {"type": "session", "id": "sesn_1", "title": "Quick", "agent": AGENT}


def event(kind: str, at: int, own: str | None = None, /, **fields) -> dict:
    when = f"2026-07-06T14:16:{at:02d}.000001Z"
    return {"type": kind, "id": own or f"sevt_{kind}_{at}", "processed_at": when, **fields}


def text(words: str) -> list[dict]:
    return [{"type": "text", "text": words}]


def request(at: int, name: str, *answer: dict, read: int = 0, **more) -> list[dict]:
    counts = {
        "input_tokens": 2,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": 0,
        "output_tokens": 5,
    }
    end = event(
        "span.model_request_end", at + 3, model_request_start_id=name, model_usage=counts, **more
    )
    thread = {k: v for k, v in more.items() if k == "session_thread_id"}
    return [event("span.model_request_start", at, name, **thread), *answer, end]


def conversation() -> list[dict]:
    return [
        event("session.status_running", 1),
        event("user.message", 2, content=text("Weather?")),
        *request(
            3, "r1", event("agent.custom_tool_use", 5, "t1", name="weather", input={"q": "Prague"})
        ),
        event("user.custom_tool_result", 8, custom_tool_use_id="t1", content=text("Sunny")),
        *request(9, "r2", event("agent.message", 11, content=text("It is sunny.")), read=700),
        event("session.status_idle", 13, stop_reason={"type": "end_turn"}),
    ]


def write(path, *values):
    path.write_text("".join(json.dumps(v) + "\n" for v in values), encoding="utf-8")
    return path


def bodies(lane, number: int) -> list[str | None]:
    return [part.body for part in lane.parts(lane.steps[number].prompt)]


def test_a_recorded_client_shows_each_request_once(tmp_path) -> None:
    sent = {"events": [{"type": "user.message", "content": text("Weather?")}]}
    calls = [
        ["client.beta.sessions.create", SESSION],
        ["client.beta.sessions.events.send", ["sesn_1", sent]],
        *([STREAM, e] for e in conversation()),
    ]
    path = write(tmp_path / "a.jsonl", *calls)
    assert detect(read_head(path)) is SOURCES["managed-agents"]
    lane = lanes(SOURCE, path)["main"]
    first, second = lane.steps
    assert (lane.session.session_id, first.key) == ("sesn_1", "managed-agents:r1")
    assert (first.model, first.provider, first.human) == ("claude-sonnet-5", "anthropic", True)
    assert second.usage == Usage(2, 700, 0, 0, 0, output=5)
    assert (second.human, second.at.second, second.ended_at.second) == (False, 9, 12)
    definition = '{"type":"custom","name":"weather","input_schema":{"type":"object"}}'
    assert bodies(lane, 1) == [definition, "You code.", "Weather?", '{"q":"Prague"}', "Sunny"]
    assert [p.tool for p in lane.parts(second.prompt)][-2:] == ["weather", "weather"]
    assert not second.prompt.recorded


def test_every_way_of_recording_gives_the_same_steps(tmp_path) -> None:
    events = conversation()
    stream = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    pretty = json.dumps({"data": events[::-1], "next_page": None}, indent=2)
    files = {
        "lines.jsonl": "".join(json.dumps(e) + "\n" for e in events),
        "page.json": pretty,
        "newest_first.jsonl": "".join(json.dumps(e) + "\n" for e in reversed(events)),
        "twice.jsonl": "".join(json.dumps(e) + "\n" for e in (*events, *events[3:])),
        "array.json": json.dumps(events),
        "stream.log": stream,
        "wrapped.jsonl": "".join(json.dumps({"n": 1, "event": e}) + "\n" for e in events),
    }
    found = {}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        assert SOURCE.detect(read_head(tmp_path / name)), name
        lane = lanes(SOURCE, tmp_path / name)["main"]
        found[name] = [(s.key, s.usage, bodies(lane, n)) for n, s in enumerate(lane.steps)]
    assert len(found["lines.jsonl"]) == 2
    assert all(steps == found["lines.jsonl"] for steps in found.values())


def test_what_was_sent_and_never_shown_is_in_the_prompt(tmp_path) -> None:
    sent = {"events": [{"type": "user.message", "content": text("Weather?")}]}
    rest = [[STREAM, e] for e in conversation()[2:]]
    path = write(
        tmp_path / "a.jsonl", ["client.beta.sessions.events.send", ["sesn_1", sent]], *rest
    )
    lane = lanes(SOURCE, path)["main"]
    assert bodies(lane, 0) == ["Weather?"]


def test_a_thread_is_a_lane_and_what_it_posts_to_the_first_one_is_not_its_prompt(tmp_path) -> None:
    child = {"session_thread_id": "sthr_2"}
    use = event("agent.tool_use", 6, "t2", name="bash", input={}, **child)
    rows = [
        event("user.message", 2, content=text("Weather?")),
        event("session.thread_created", 3, agent_name="Researcher", **child),
        event("agent.thread_message_received", 4, content=text("Look it up."), **child),
        *request(5, "c1", use, **child),
        *request(9, "r1", event("agent.message", 10, content=text("Done."))),
    ]
    found = lanes(SOURCE, write(tmp_path / "a.jsonl", *rows))
    assert found.keys() == {"main", "Researcher"}
    assert (found["main"].parent, found["Researcher"].parent) == (None, "main")
    assert bodies(found["main"], 0) == ["Weather?"]
    assert bodies(found["Researcher"], 0) == ["Look it up."]
    assert found["Researcher"].steps[0].model is None


def test_a_compaction_takes_the_history_away_and_judging_is_a_lane_of_its_own(tmp_path) -> None:
    usage = {"input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 4}
    rows = [
        *conversation(),
        event("agent.thread_context_compacted", 20, pre_compaction_tokens=900),
        event("user.message", 21, content=text("And now?")),
        *request(22, "r3"),
        event("span.outcome_evaluation_end", 30, usage=usage),
    ]
    found = lanes(SOURCE, write(tmp_path / "a.jsonl", SESSION, *rows))
    last = found["main"].steps[-1]
    assert (last.compaction.kind, last.compaction.pre_tokens) == ("summary", 900)
    assert bodies(found["main"], 2)[1:] == ["You code.", "And now?"]
    (judged,) = found["grader"].steps
    assert (judged.usage, judged.model) == (Usage(9, 4, output=3), None)


def test_errors_and_cut_recordings_leave_counts_unknown(tmp_path) -> None:
    zeros = {"input_tokens": 0, "output_tokens": 0}
    failed = event(
        "span.model_request_end",
        5,
        model_request_start_id="r1",
        model_usage=zeros,
        is_error=True,
    )
    rows = [
        event("span.model_request_start", 3, "r1"),
        event("session.error", 4, error={"type": "overloaded", "message": "too busy"}),
        failed,
        event("span.model_request_start", 6, "r2"),
    ]
    path = write(tmp_path / "a.jsonl", *rows)
    with path.open("a") as file:
        file.write('{"type": "span.model_req')
    steps = lanes(SOURCE, path)["main"].steps
    assert [(s.usage, s.error) for s in steps] == [(None, "too busy"), (None, None)]
    assert batches(SOURCE, path)[1] == []


def test_bad_events_are_problems_and_sessions_without_an_id_are_told_apart(tmp_path) -> None:
    bad = event("span.model_request_end", 5, model_usage={"input_tokens": "many"})
    names = set()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        rows = [{**e, "id": f"{folder}{e['id']}"} for e in conversation()]
        path = write(tmp_path / folder / "events.jsonl", *rows, bad, 7)
        found, problems = batches(SOURCE, path)
        assert [p.pointer for p in problems] == ["$", "$.model_usage.input_tokens"]
        names |= {b.session.session_id for b in found}
    assert len(names) == 2


@pytest.mark.data
def test_real_streams_give_the_counts_that_they_hold(shared_data) -> None:
    ours = theirs = 0
    for path in sorted((shared_data / "traces" / "langsmith").rglob("*managed*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            usage = json.loads(line)[1]
            if isinstance(usage, dict) and "model_usage" in usage:
                theirs += sum(usage["model_usage"].values())
        found, problems = batches(SOURCE, path)
        assert detect(read_head(path)) is SOURCES["managed-agents"]
        assert not problems
        ours += sum(s.usage.prompt + s.usage.output for b in found for s in b.steps)
    assert ours == theirs > 0
