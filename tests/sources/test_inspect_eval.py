from __future__ import annotations

import json
import zipfile

import pytest

from analyzer.model import Usage
from analyzer.sources.base import read_head
from analyzer.sources.inspect_eval import InspectSource
from tests.reading import batches, lanes

SOURCE = InspectSource()
LONG = "0123456789abcdef0123456789abcdef"


def model(messages: list, said: str, usage: dict | None, **more) -> dict:
    return {
        "event": "model",
        "uuid": f"u-{said}",
        "timestamp": "2025-10-06T10:15:45+00:00",
        "completed": "2025-10-06T10:15:47+00:00",
        "model": "openai/gpt-4o",
        "input": messages,
        "tools": [{"name": "bash", "description": f"attachment://{LONG}", "parameters": {}}],
        "tool_choice": "auto",
        "config": {},
        "output": {
            "model": "gpt-4o-2024",
            "choices": [{"message": {"role": "assistant", "content": said}, "stop_reason": "stop"}],
            "usage": usage,
        },
    } | more


def sample(events: list, **more) -> dict:
    return {
        "id": 7,
        "epoch": 1,
        "events": [{"event": "state"}, *events],
        "attachments": {LONG: 'a long "text"'},
    } | more


def header(**more) -> dict:
    names = {"task": "guess", "run_id": "run1", "model": "openai/gpt-4o"}
    return {"version": 2, "status": "success", "eval": names} | more


def pack(path, samples: list):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(header()))
        for number, value in enumerate(samples):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(value))
    return path


USER = {"role": "user", "content": "Guess."}
CALLED = {
    "role": "assistant",
    "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "ls"}],
    "tool_calls": [{"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": f"attachment://{LONG}"}
COUNTS = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}


def test_model_events_are_steps_in_both_formats(tmp_path) -> None:
    events = [model([USER], "one", COUNTS), model([USER, CALLED, RESULT], "two", COUNTS)]
    packed = pack(tmp_path / "x.eval", [sample(events)])
    plain = tmp_path / "x.json"
    plain.write_text(json.dumps(header(samples=[sample(events)])), encoding="utf-8")
    for path in (packed, plain):
        assert SOURCE.detect(read_head(path))
        lane = lanes(SOURCE, path)["main"]
        assert lane.session.session_id == "run1/7/1"
        first, second = lane.steps
        assert (first.key, first.model, first.provider) == (
            "inspect:u-one",
            "gpt-4o-2024",
            "openai",
        )
        assert (first.ended_at - first.at).total_seconds() == 2
        assert first.usage == Usage(input=10, output=2)
        parts = lane.parts(second.prompt)
        assert [p.kind for p in parts] == [
            "tool_definition",
            "text",
            "thinking",
            "text",
            "tool_use",
            "tool_result",
        ]
        assert parts[-1].body == 'a long "text"'
        assert 'a long \\"text\\"' in parts[0].body
        assert (parts[-1].tool, parts[-1].call_id) == ("bash", "c1")
        assert second.prompt.recorded


def test_messages_may_be_ranges_into_a_pool(tmp_path) -> None:
    events = [
        model([], "one", None, input_refs=[[0, 1]]),
        model([], "two", None, input_refs=[[0, 1], [1, 3]]),
        model([], "bad", None, input_refs=[[2, 9]]),
    ]
    value = sample(events, message_pool=[USER, CALLED, RESULT])
    found, problems = batches(SOURCE, pack(tmp_path / "x.eval", [value]))
    assert [len(s.prompt) for b in found for s in b.steps] == [2, 6]
    assert [p.pointer for p in problems] == ["$.events[3].input_refs"]


def test_a_grader_is_a_lane_and_a_local_cache_sends_nothing(tmp_path) -> None:
    grade = {"role": "user", "content": "Grade this."}
    events = [
        model([USER], "one", COUNTS),
        model([grade], "C", COUNTS),
        model([USER], "kept", COUNTS, cache="read"),
        model([USER], "open", None, pending=True),
        model([USER, CALLED, RESULT], "two", COUNTS),
    ]
    found = lanes(SOURCE, pack(tmp_path / "x.eval", [sample(events)]))
    assert {name: len(lane.steps) for name, lane in found.items()} == {"main": 2, "main-2": 1}
    assert found["main-2"].parent == "main"


@pytest.mark.parametrize(
    ("total", "uncached"), [(12, 4), (18, 10)], ids=["cache inside", "cache beside"]
)
def test_the_total_tells_whether_the_input_holds_the_cache(tmp_path, total, uncached) -> None:
    counts = COUNTS | {"input_tokens_cache_read": 6, "total_tokens": total}
    path = pack(tmp_path / "x.eval", [sample([model([USER], "one", counts)])])
    (step,) = lanes(SOURCE, path)["main"].steps
    assert step.usage == Usage(input=uncached, cache_read=6, output=2)


def test_bad_archives_and_records_are_problems(tmp_path) -> None:
    path = pack(tmp_path / "x.eval", [sample([model([3], "one", COUNTS)]), 5, sample([])])
    found, problems = batches(SOURCE, path)
    assert not found
    assert [p.line for p in problems] == [1, 2]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert SOURCE.detect(read_head(path))
    found, problems = batches(SOURCE, path)
    assert (found, len(problems)) == ([], 1)
    path.write_bytes(b"PK\x03\x04")
    assert len(batches(SOURCE, path)[1]) == 1


@pytest.mark.data
def test_sums_of_the_real_files_equal_their_own_totals(shared_data) -> None:
    n_files = 0
    for path in sorted((shared_data / "traces" / "inspect").rglob("*.*")):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = [n for n in archive.namelist() if n.startswith("samples/")]
                samples = [json.loads(archive.read(n)) for n in names]
        else:
            samples = json.loads(path.read_text(encoding="utf-8"))["samples"]
        found, problems = batches(SOURCE, path)
        assert not problems
        steps = [s for b in found for s in b.steps]
        events = [e for s in samples for e in s["events"] if e["event"] == "model"]
        assert len(steps) == len(events)
        used = [e["output"]["usage"] for e in events if e["output"].get("usage")]
        counted = [s.usage for s in steps if s.usage is not None]
        assert sum(u.prompt + u.output for u in counted) == sum(u["total_tokens"] for u in used)
        assert sum(u.output for u in counted) == sum(u["output_tokens"] for u in used)
        n_files += 1
    assert n_files > 0
