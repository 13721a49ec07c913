"""The shared examples of Langfuse, whole: from a file to the counts, costs and names of its steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.model import LaneSteps, Step
from analyzer.sources import detect
from analyzer.sources.base import Context, read_head
from analyzer.sources.langfuse.source import LangfuseSource
from tests.sources.test_langfuse_shapes import counts, read

SOURCE = LangfuseSource()
TOKENS = {
    "input_uncached": "input",
    "cache_read": "cache_read",
    "cache_write": "cache_write",
    "cache_write_5m": "cache_write_5m",
    "cache_write_1h": "cache_write_1h",
    "output": "output",
    "reasoning": "reasoning",
    "context": "prompt",
}
# The one model call that the wire and export examples show, under whatever names.
SESSION, TRACE = "sess-2026-10-02-0001", "trace:7f3c2a9be1d84506a0c9d1e27b6f4a18"
BOT = "svc-billing-bot"
CALL = ("claude-sonnet-4-5-20250929", (5, 18_240, 1_184, 212), 0.013107)
EXAMPLES: dict[str, list[tuple[str, str, Any]] | None] = {
    "export_blob_manifest": None,
    "export_blob_observations_v2_csv_row": [(SESSION, BOT, CALL)],
    "export_blob_observations_v2_row": [(SESSION, BOT, CALL)],
    "export_ui_events_row": [(SESSION, BOT, CALL)],
    "export_ui_observations_row": [(TRACE, BOT, CALL)],
    "export_ui_trace_download": [(SESSION, BOT, CALL)],
    "session_two_traces_subagent_v2_page": [
        ("sess-2026-10-03-0007", "", ("claude-sonnet-4-5-20250929", usage, None))
        for usage in (
            (12, 0, 9_000, 90),
            (3, 9_000, 650, 120),
            (4, 0, 9_790, 88),
            (2, 9_790, 400, 40),
            (9, 0, 4_100, 60),
            (2, 4_100, 700, 300),
        )
    ],
    "wire_errors": None,
    "wire_v1_observations_page": [(TRACE, "", CALL)],
    "wire_v1_session_detail": [],
    "wire_v1_trace_detail": [(SESSION, BOT, CALL)],
    "wire_v1_traces_page": [],
    "wire_v2_observations_page_all_groups": [(SESSION, BOT, CALL)],
    "wire_v2_observations_page_core_last": [(TRACE, "", (None, None, None))],
    "write_comment": None,
    "write_scores_list_v5": None,
}


def steps_of(path: Path) -> list[tuple[LaneSteps, Step]]:
    found = []
    for lane in SOURCE.read(path, Context()):
        assert isinstance(lane, LaneSteps), lane
        found += [(lane, step) for step in lane.steps]
    return found


@pytest.mark.data
def test_every_shared_shape_gives_its_tokens_as_a_step(shared_data: Path, tmp_path: Path) -> None:
    files = sorted((shared_data / "langfuse/examples").glob("shape_*.json"))
    assert len(files) >= 20
    for file in files:
        case = json.loads(file.read_text())
        row = {
            **case["observation"],
            "traceId": "t",
            "projectId": "p",
            "startTime": "2026-10-02T09:00:00Z",
        }
        path = tmp_path / file.name
        path.write_text(json.dumps({"data": [row], "meta": {"page": 1}}))
        ((_, step),) = steps_of(path)
        expect = case["expect"]["tokens"]
        assert expect.keys() == TOKENS.keys()
        # The examples write nothing where a kind was not told.
        got = {name: getattr(step.usage, field) or 0 for name, field in TOKENS.items()}
        assert got == expect, file.name


@pytest.mark.data
def test_no_expectation_of_a_shared_shape_goes_unchecked(shared_data: Path) -> None:
    checked = counts(read(None)).keys() | {"tokens", "flags", "note"}
    for file in sorted((shared_data / "langfuse/examples").glob("shape_*.json")):
        unknown = json.loads(file.read_text())["expect"].keys() - checked
        assert not unknown, f"{file.name} expects {unknown}, which no test compares"


@pytest.mark.data
def test_every_shared_body_gives_what_it_holds(shared_data: Path) -> None:
    folder = shared_data / "langfuse/examples"
    others = ("shape_", "usage_", "_index")
    names = {f.stem for f in folder.glob("*.json") if not f.name.startswith(others)}
    assert names == EXAMPLES.keys()
    for name, expect in EXAMPLES.items():
        path = folder / f"{name}.json"
        source = detect(read_head(path))
        assert (source is None) == (expect is None), name
        found = []
        for lane, step in steps_of(path) if source is not None else ():
            u = step.usage
            usage = None if u is None else (u.input, u.cache_read, u.cache_write, u.output)
            call = (step.model, usage, step.reported_cost)
            found.append((lane.session.session_id, lane.session.user, call))
        assert found == (expect or []), name
