from __future__ import annotations

import json

import pytest

from analyzer.intake import ingest
from analyzer.model import Usage
from analyzer.sources import detect
from analyzer.sources.base import read_head
from analyzer.sources.openclaw_telemetry import OpenClawTelemetrySource
from tests.builders import write_lines
from tests.reading import batches, lanes

SOURCE = OpenClawTelemetrySource()
MAIN = "agent:main:main"
CHILD = "agent:main:subagent:56d1ffc2-631a-4967-bc1f-b39da594b726"
T0 = 1_772_830_700_000


def user(text: str, at: int) -> dict:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": T0 + at}


def answer(text: str, at: int, read: int = 0) -> dict:
    counts = {"input": 3, "output": 5, "cacheRead": read, "cacheWrite": 7, "totalTokens": 15 + read}
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "provider": "anthropic",
        "model": "claude-opus-4-6",
        "usage": counts | {"cost": {"total": 0.5}},
        "stopReason": "stop",
        "timestamp": T0 + at,
    }


def spawned(child: str, at: int) -> dict:
    result = {"role": "toolResult", "toolCallId": "t1", "toolName": "sessions_spawn"}
    result |= {"content": [{"type": "text", "text": "accepted"}], "timestamp": T0 + at}
    return result | {"details": {"childSessionKey": child}}


def end(*messages: dict, key: str = MAIN) -> dict:
    return {"type": "agent.end", "sessionKey": key, "messages": list(messages), "ts": T0}


FIRST = {"type": "message.in", "channel": "telegram", "content": "Go", "seq": 1, "ts": T0}


def bodies(lane, number: int) -> list[str | None]:
    return [part.body for part in lane.parts(lane.steps[number].prompt)]


def test_ends_of_runs_that_repeat_the_session_give_each_request_once(tmp_path) -> None:
    turn = [user("Go", 1), answer("Done", 2)]
    later = [*turn, user("More", 3), answer("Done again", 4, read=10)]
    path = write_lines(tmp_path / "t.jsonl", [FIRST, end(*turn), end(*later), end(*later)])
    assert detect(read_head(path)).name == "openclaw-telemetry"
    lane = lanes(SOURCE, path)["main"]
    assert [s.usage for s in lane.steps] == [Usage(3, 0, 7, output=5), Usage(3, 10, 7, output=5)]
    assert bodies(lane, 1) == ["Go", "Done", "More"]
    assert lane.steps[1].reported_cost == 0.5
    assert (lane.steps[1].at.microsecond, lane.steps[1].ended_at) == (4000, None)


def test_an_agent_that_an_agent_started_is_a_lane_of_its_session(tmp_path) -> None:
    rows = [
        FIRST,
        end(user("Look", 2), answer("Nothing", 3), key=CHILD),
        end(user("Go", 1), spawned(CHILD, 2), answer("Started", 4)),
    ]
    found = lanes(SOURCE, write_lines(tmp_path / "t.jsonl", rows))
    assert {name: lane.parent for name, lane in found.items()} == {
        "main": None,
        "subagent-56d1ffc2": "main",
    }
    assert len({lane.session for lane in found.values()}) == 1


def test_a_summary_goes_on_and_a_new_beginning_is_a_new_session(tmp_path) -> None:
    kept = [user("More", 3), answer("Done again", 4)]
    summary = {"role": "compactionSummary", "summary": "They went.", "timestamp": T0 + 5}
    rows = [
        FIRST,
        end(user("Go", 1), answer("Done", 2), *kept),
        end(summary, *kept, user("And?", 6), answer("So.", 7)),
        end(user("Hello", 8), answer("Hi", 9)),
    ]
    found, problems = batches(SOURCE, write_lines(tmp_path / "t.jsonl", rows))
    assert not problems
    assert [len(b.steps) for b in found] == [3, 1]
    assert len({b.session.session_id for b in found}) == 2
    last = found[0].steps[2]
    parts = [p.body for s in found[0].steps for p in s.new_parts]
    assert [parts[i] for i in last.prompt.indices()] == [
        "They went.",
        "More",
        "Done again",
        "And?",
    ]
    assert last.compaction.kind == "summary"


def test_a_request_that_the_session_itself_holds_too_is_counted_once(tmp_path) -> None:
    head = {"type": "session", "id": "s-1", "timestamp": "2026-03-06T21:00:00Z", "cwd": "/w"}
    rows = [
        {"type": "message", "timestamp": "2026-03-06T21:00:01Z", "message": m}
        for m in (user("Go", 1), answer("Done", 2))
    ]
    write_lines(tmp_path / "session.jsonl", [head, *rows])
    write_lines(tmp_path / "telemetry.jsonl", [FIRST, end(user("Go", 1), answer("Done", 2))])
    report = ingest([tmp_path], tmp_path / "store.duckdb")
    assert (report.files, report.steps, report.duplicates) == (2, 1, 1)


def test_sums_over_runs_are_no_requests_and_the_file_says_so(tmp_path) -> None:
    summed = {"type": "llm.usage", "sessionKey": MAIN, "inputTokens": 5, "ts": T0}
    path = write_lines(tmp_path / "t.jsonl", [FIRST, summed, {"type": "agent.end", "ts": T0}])
    found, problems = batches(SOURCE, path)
    assert not found
    assert "agent.end" in problems[0].message


def test_bad_events_are_problems_and_the_rest_is_read(tmp_path) -> None:
    bad = answer("Done", 2) | {"usage": {"input": "many"}}
    path = tmp_path / "t.jsonl"
    rows = [FIRST, end(user("Go", 1), bad), end(user("Go", 1), answer("Done", 2))]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows) + "{not json\n")
    found, problems = batches(SOURCE, path)
    assert [p.line for p in problems] == [2, 4]
    assert [len(b.steps) for b in found] == [1]


@pytest.mark.data
def test_real_telemetry_gives_the_counts_that_it_holds(shared_data) -> None:
    for path in sorted((shared_data / "traces" / "openclaw-telemetry").rglob("*.jsonl")):
        theirs = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            for message in json.loads(line).get("messages", ()):
                if message["role"] == "assistant":
                    theirs[message["timestamp"]] = message["usage"]["totalTokens"]
        assert detect(read_head(path)).name == "openclaw-telemetry"
        found, problems = batches(SOURCE, path)
        assert not problems
        ours = [s.usage.prompt + s.usage.output for b in found for s in b.steps]
        assert sum(ours) == sum(theirs.values()) > 0
