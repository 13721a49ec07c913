from __future__ import annotations

import copy
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzer.sources.base import read_head
from analyzer.sources.pi import PiSource
from tests.builders import write_lines
from tests.reading import batches, lanes
from tests.sources.recordings import real, rows, totals

SOURCE = PiSource()
FIRST = "11111111-2222-4333-8444-555555555555"
SECOND = "99999999-2222-4333-8444-555555555555"


class Session:
    """Writes a session row by row; `tree` gives the rows ids."""

    def __init__(self, name: str = FIRST, *, tree: bool = False, **header: Any) -> None:
        self.id = name
        self.tree = tree
        self.at = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)
        self.rows: list[dict[str, Any]] = []
        self.last: str | None = None
        head = {"type": "session", "id": name, "timestamp": self.at.isoformat(), "cwd": "/work"}
        self.rows.append({**head, **header})

    def row(self, kind: str, **fields: Any) -> str:
        self.at += timedelta(seconds=1)
        name = f"e{len(self.rows)}"
        ids = {"id": name, "parentId": self.last} if self.tree else {}
        self.rows.append({"type": kind, **ids, "timestamp": self.at.isoformat(), **fields})
        self.last = name
        return name

    def message(self, role: str, content: Any, parent: str | None = None, **fields: Any) -> str:
        if parent is not None:
            self.last = parent
        stamp = int(self.at.timestamp() * 1000) + 400
        message = {"role": role, "content": content, "timestamp": stamp, **fields}
        return self.row("message", message=message)

    def user(self, text: str, parent: str | None = None) -> str:
        return self.message("user", [{"type": "text", "text": text}], parent)

    def answer(self, name: str, read: int, write: int, **fields: Any) -> str:
        content = [
            {"type": "text", "text": f"thinking about {name}"},
            {"type": "toolCall", "id": f"call-{name}", "name": "read", "arguments": {"path": name}},
        ]
        usage = {
            "input": 3,
            "output": 50,
            "cacheRead": read,
            "cacheWrite": write,
            "totalTokens": 53 + read + write,
            "cost": {"total": 0.02},
        }
        base = {
            "api": "anthropic-messages",
            "provider": "anthropic",
            "model": "claude-opus-4-5",
            "stopReason": "toolUse",
            "usage": usage,
        }
        return self.message("assistant", content, **{**base, **fields})

    def result(self, name: str) -> str:
        text = [{"type": "text", "text": f"content of {name}"}]
        return self.message("toolResult", text, toolCallId=f"call-{name}", toolName="read")

    def write(self, folder: Path) -> Path:
        return write_lines(folder / f"2026-06-01T09-00-00_{self.id}.jsonl", self.rows)


def filled(session: Session) -> Session:
    """A question, and two answers with their results."""
    session.user("please fix the bug")
    session.answer("a", 0, 20_000)
    session.result("a")
    session.answer("b", 20_000, 500)
    session.result("b")
    return session


@pytest.fixture
def short() -> Session:
    return filled(Session())


def test_counts_are_disjoint_as_recorded_and_the_cost_is_kept(short, tmp_path) -> None:
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    usages = [s.usage for s in lane.steps]
    assert [(u.input, u.cache_read, u.cache_write, u.output) for u in usages] == [
        (3, 0, 20_000, 50),
        (3, 20_000, 500, 50),
    ]
    assert [s.reported_cost for s in lane.steps] == [0.02, 0.02]
    assert lane.session.session_id == FIRST


def test_the_prompt_of_a_step_is_what_stands_before_its_response(short, tmp_path) -> None:
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    parts = lane.parts(lane.steps[1].prompt)
    assert [p.kind for p in parts] == ["text", "text", "tool_use", "tool_result"]
    assert (parts[3].tool, parts[3].call_id) == ("read", "call-a")
    assert [s.human for s in lane.steps] == [True, False]
    start = lane.steps[1].at
    assert start is not None
    assert lane.steps[1].ended_at - start == timedelta(milliseconds=600)


def test_a_branch_repeats_the_keys_of_the_rows_it_copied(short, tmp_path) -> None:
    parent = f"/home/x/2026-06-01T09-00-00_{FIRST}.jsonl"
    branch = Session(SECOND, branchedFrom=parent)
    branch.rows += copy.deepcopy(short.rows[1:])
    branch.at = short.at + timedelta(seconds=60)
    branch.rows[0]["timestamp"] = branch.at.isoformat()
    branch.user("another way")
    branch.answer("c", 20_500, 300)
    old = lanes(SOURCE, short.write(tmp_path))["main"].steps
    new = lanes(SOURCE, branch.write(tmp_path))["main"].steps
    assert [s.key for s in new[:2]] == [s.key for s in old]
    assert [s.copied_from for s in new] == [FIRST, FIRST, None]
    assert len({s.key for s in new}) == 3


def test_a_response_id_names_a_request_wherever_it_stands(tmp_path) -> None:
    keys = []
    for name in (FIRST, SECOND):
        session = Session(name)
        session.at += timedelta(seconds=len(keys))
        session.user("go")
        session.answer("a", 0, 900, responseId="msg_1")
        keys.append(lanes(SOURCE, session.write(tmp_path))["main"].steps[0].key)
    assert keys == ["msg_1", "msg_1"]


def test_a_compaction_keeps_the_rows_from_the_index_it_names(short, tmp_path) -> None:
    short.row("compaction", summary="We fixed a.", firstKeptEntryIndex=4, tokensBefore=20_553)
    short.user("go on")
    short.answer("c", 0, 3_000)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    step = lane.steps[2]
    parts = lane.parts(step.prompt)
    assert [p.kind for p in parts] == ["summary", "text", "tool_use", "tool_result", "text"]
    assert parts[1].body == "thinking about b"
    assert step.compaction is not None
    assert step.compaction.pre_tokens == 20_553


def test_a_compaction_keeps_the_rows_from_the_id_it_names(tmp_path) -> None:
    session = filled(Session(tree=True))
    kept = session.rows[4]["id"]
    session.row("compaction", summary="We fixed a.", firstKeptEntryId=kept, tokensBefore=20_553)
    session.user("go on")
    session.answer("c", 0, 3_000)
    lane = lanes(SOURCE, session.write(tmp_path))["main"]
    bodies = [p.body for p in lane.parts(lane.steps[2].prompt)]
    assert bodies[:2] == ["We fixed a.", "thinking about b"]
    assert bodies[-1] == "go on"


def test_a_compaction_that_keeps_nothing_leaves_its_summary(tmp_path) -> None:
    session = filled(Session(tree=True))
    session.row("compaction", summary="All done.", firstKeptEntryId=f"e{len(session.rows)}")
    session.user("go on")
    session.answer("c", 0, 3_000)
    lane = lanes(SOURCE, session.write(tmp_path))["main"]
    assert [p.body for p in lane.parts(lane.steps[2].prompt)] == ["All done.", "go on"]


def test_a_row_of_another_parent_leaves_the_abandoned_branch(tmp_path) -> None:
    session = Session(tree=True)
    first = session.user("please fix the bug")
    session.answer("a", 0, 20_000)
    session.result("a")
    session.answer("b", 20_000, 100)
    session.user("no, differently", parent=first)
    session.answer("c", 18_000, 300)
    lane = lanes(SOURCE, session.write(tmp_path))["main"]
    assert [p.body for p in lane.parts(lane.steps[2].prompt)] == [
        "please fix the bug",
        "no, differently",
    ]


def test_a_branch_from_an_answer_keeps_that_answer(tmp_path) -> None:
    session = Session(tree=True)
    session.user("please fix the bug")
    asked = session.answer("a", 0, 20_000)
    session.result("a")
    session.answer("b", 20_000, 100)
    session.user("no, differently", parent=asked)
    session.answer("c", 18_000, 300)
    lane = lanes(SOURCE, session.write(tmp_path))["main"]
    kinds = [p.kind for p in lane.parts(lane.steps[2].prompt)]
    assert kinds == ["text", "text", "tool_use", "text"]


def test_an_aborted_request_that_reports_nothing_has_no_usage(short, tmp_path) -> None:
    usage = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0)
    short.answer("c", 0, 0, usage=usage, stopReason="aborted", errorMessage="aborted by user")
    step = lanes(SOURCE, short.write(tmp_path))["main"].steps[2]
    assert (step.usage, step.reported_cost, step.error) == (None, None, "aborted by user")


def test_what_the_gateway_wrote_itself_is_no_request(short, tmp_path) -> None:
    short.answer("c", 0, 0, provider="openclaw", model="gateway-injected")
    short.answer("d", 20_500, 100)
    assert len(lanes(SOURCE, short.write(tmp_path))["main"].steps) == 3


def test_long_lived_writes_are_split_off_where_they_are_told(short, tmp_path) -> None:
    short.rows[2]["message"]["usage"]["cacheWrite1h"] = 15_000
    usage = lanes(SOURCE, short.write(tmp_path))["main"].steps[0].usage
    assert (usage.cache_write_5m, usage.cache_write_1h) == (5_000, 15_000)


def test_a_total_that_is_not_the_sum_is_kept_as_a_label(short, tmp_path) -> None:
    short.rows[2]["message"]["usage"]["totalTokens"] = 9_000
    first, second = lanes(SOURCE, short.write(tmp_path))["main"].steps
    assert dict(first.labels)["total_tokens"] == "9000"
    assert "total_tokens" not in dict(second.labels)


def test_a_command_that_the_person_ran_is_part_of_the_prompt(short, tmp_path) -> None:
    short.row("message", message={"role": "bashExecution", "command": "ls", "output": "a b"})
    short.answer("c", 20_500, 100)
    lane = lanes(SOURCE, short.write(tmp_path))["main"]
    assert "Ran `ls`" in (lane.parts(lane.steps[2].prompt)[-1].body or "")


def test_bad_records_become_problems_and_an_unended_last_line_does_not(short, tmp_path) -> None:
    path = short.write(tmp_path)
    lines = path.read_text().splitlines()
    bad = '{"type":"message","message":{"role":"assistant","content":[],"usage":{"input":-1}}}'
    lines[1:1] = ["not json", bad, "[1]"]
    path.write_text("\n".join(lines) + '\n{"type":"message","mess')
    found, problems = batches(SOURCE, path)
    assert sum(len(b.steps) for b in found) == 2
    assert [p.line for p in problems] == [2, 3, 4]
    assert problems[1].pointer == "$.message.usage.input"


def test_detection_needs_the_header(short, tmp_path) -> None:
    assert SOURCE.detect(read_head(short.write(tmp_path)))
    other = tmp_path / f"{FIRST}.jsonl"
    other.write_text('{"type": "session.started", "cwd": "/", "timestamp": 1}\n')
    assert not SOURCE.detect(read_head(other))


@pytest.mark.data
@pytest.mark.parametrize("family", ["pi", "openclaw"])
def test_totals_of_the_real_sessions_equal_an_independent_count(
    shared_data: Path, family: str
) -> None:
    paths = real(shared_data / "traces" / family, "*.jsonl*")
    paths = [p for p in paths if "trajectory" not in p.name]
    sums, steps = totals(SOURCE, paths)
    theirs: Counter[str] = Counter()
    requests = 0
    for path in paths:
        for row in rows(path):
            message = row.get("message", {})
            if message.get("role") != "assistant" or message["provider"] == "openclaw":
                continue
            usage = message["usage"]
            requests += 1
            theirs["input"] += usage["input"]
            theirs["cache_read"] += usage["cacheRead"]
            theirs["cache_write"] += usage["cacheWrite"]
            theirs["output"] += usage["output"]
            theirs["cost"] += round(usage["cost"]["total"] * 1_000_000)
    assert steps == requests
    assert +sums == +theirs
