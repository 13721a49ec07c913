from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzer.sources.base import read_head
from analyzer.sources.copilot_cli import CopilotCliSource
from tests.builders import write_lines
from tests.reading import batches, lanes
from tests.sources.recordings import real, rows, totals

SOURCE = CopilotCliSource()


class Events:
    """Writes the events of one session."""

    def __init__(self) -> None:
        self.at = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)
        self.rows: list[dict[str, Any]] = []
        self.row("session.start", sessionId="s-1", copilotVersion="1.0.64")
        self.row("system.message", role="system", content="You are an agent.")
        self.row("user.message", content="fix it", transformedContent="<date/> fix it")

    def row(self, kind: str, **data: Any) -> None:
        self.at += timedelta(seconds=1)
        self.rows.append({"type": kind, "data": data, "timestamp": self.at.isoformat()})

    def answer(self, name: str, output: int = 90, **data: Any) -> None:
        call = {"toolCallId": f"call-{name}", "name": "bash", "arguments": {"command": name}}
        parent = {k: v for k, v in data.items() if k == "parentToolCallId"}
        self.row("assistant.turn_start", turnId="0", **parent)
        self.row(
            "assistant.message",
            model="claude-sonnet-4.6",
            content=f"doing {name}",
            toolRequests=[call],
            outputTokens=output,
            apiCallId=f"api-{name}",
            turnId="0",
            **data,
        )
        done = {"toolCallId": f"call-{name}", "success": True, "result": {"content": f"did {name}"}}
        self.row("tool.execution_complete", **done, **parent)

    def write(self, folder: Path) -> Path:
        path = folder / "s-1" / "events.jsonl"
        path.parent.mkdir(exist_ok=True)
        return write_lines(path, self.rows)


@pytest.fixture
def short() -> Events:
    e = Events()
    e.answer("a")
    e.answer("b")
    return e


def test_what_is_known_for_the_session_only_stays_unknown_for_a_step(short, tmp_path) -> None:
    usage = {"inputTokens": 9_000, "outputTokens": 180, "cacheReadTokens": 8_000}
    short.row("session.shutdown", modelMetrics={"claude-sonnet-4.6": {"usage": usage}})
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    assert lane.session.session_id == "s-1"
    for step in lane.steps:
        assert step.usage is not None
        assert step.usage.output == 90
        assert (step.usage.input, step.usage.cache_read, step.usage.cache_write) == (None,) * 3
        assert step.usage.prompt is None


def test_the_prompt_is_what_was_sent_and_not_what_was_typed(short, tmp_path) -> None:
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    parts = lane.parts(lane.steps[1].prompt)
    assert [(p.section, p.kind) for p in parts] == [
        ("system", "text"),
        ("messages", "text"),
        ("messages", "text"),
        ("messages", "tool_use"),
        ("messages", "tool_result"),
    ]
    assert parts[1].body == "<date/> fix it"
    assert (parts[4].tool, parts[4].body) == ("bash", "did a")
    assert [s.human for s in lane.steps] == [True, False]


def test_a_request_starts_with_its_turn(short, tmp_path) -> None:
    step = lanes(SOURCE, short.write(tmp_path))["main"].steps[0]
    assert step.at is not None
    assert step.ended_at is not None
    assert step.ended_at - step.at == timedelta(seconds=1)


def test_an_equal_system_prompt_is_told_once_and_a_new_one_replaces_it(short, tmp_path) -> None:
    short.row("system.message", content="You are an agent.")
    short.answer("c")
    short.row("system.message", content="You are another agent.")
    short.answer("d")
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    systems = [[p.body for p in lane.parts(s.prompt) if p.section == "system"] for s in lane.steps]
    assert systems == [["You are an agent."]] * 3 + [["You are another agent."]]
    # The same part of the pool, so that nothing diverges there.
    assert len({s.prompt.ranges[0].start for s in lane.steps[:3]}) == 1


def test_a_sub_agent_is_a_lane_of_its_own(short, tmp_path) -> None:
    short.answer("s", parentToolCallId="call-b")
    found = lanes(SOURCE, short.write(tmp_path))
    assert sorted(found) == ["call-b", "main"]
    assert (len(found["main"].steps), found["call-b"].parent) == (2, "main")


def test_a_compaction_leaves_its_summary(short, tmp_path) -> None:
    short.row(
        "session.compaction_complete",
        success=True,
        preCompactionTokens=90_000,
        summaryContent="We did a and b.",
    )
    short.answer("c")
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    step = lane.steps[2]
    assert [p.body for p in lane.parts(step.prompt)] == ["You are an agent.", "We did a and b."]
    assert step.compaction is not None
    assert step.compaction.pre_tokens == 90_000


def test_a_failed_tool_tells_its_error(short, tmp_path) -> None:
    error = {"message": "permission denied"}
    short.row("tool.execution_complete", toolCallId="call-b", success=False, error=error)
    short.answer("c")
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    assert lane.parts(lane.steps[2].prompt)[-1].body == "permission denied"


def test_bad_records_become_problems_and_an_unended_last_line_does_not(short, tmp_path) -> None:
    path = short.write(tmp_path)
    lines = path.read_text().splitlines()
    bad = '{"type":"assistant.message","data":{"outputTokens":"many"}}'
    lines[2:2] = ["nothing", '{"type":"user.message","data":4}', bad, '{"type":"hook.start"}']
    path.write_text("\n".join(lines) + '\n{"type":"assista')
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 2
    assert [p.line for p in problems] == [3, 4, 5]
    assert problems[2].pointer == "$.data.outputTokens"


def test_detection_needs_copilots_own_start(short, tmp_path) -> None:
    assert SOURCE.detect(read_head(short.write(tmp_path)))
    other = tmp_path / "events.jsonl"
    other.write_text('{"type":"session.start","data":{"sessionId":"x"}}\n')
    assert not SOURCE.detect(read_head(other))


@pytest.mark.data
def test_totals_of_the_real_sessions_equal_an_independent_count(shared_data: Path) -> None:
    paths = real(shared_data / "traces" / "copilot-cli", "*.jsonl*")
    sums, steps = totals(SOURCE, paths)
    messages = [
        row["data"] for path in paths for row in rows(path) if row["type"] == "assistant.message"
    ]
    assert steps == len(messages)
    assert +sums == Counter(output=sum(m["outputTokens"] for m in messages))
    final = 0
    for path in paths:
        ends = [row["data"] for row in rows(path) if row["type"] == "session.shutdown"]
        told = [m["usage"]["outputTokens"] for e in ends for m in e["modelMetrics"].values()]
        own = [r["data"]["outputTokens"] for r in rows(path) if r["type"] == "assistant.message"]
        if ends:
            assert sum(told) == sum(own)
            final += 1
    assert final
