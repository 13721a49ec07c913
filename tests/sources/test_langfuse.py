"""Saved Langfuse files become sessions, lanes and steps."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.model import LaneSteps, Problem, Step
from analyzer.sources.base import Context, read_head
from analyzer.sources.langfuse.source import LangfuseSource

SOURCE = LangfuseSource()
USAGE = {"input": 3, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 50, "output": 7}


def row(number: int, **more: Any) -> dict[str, Any]:
    """A v1 observation; `more` in the names of the API."""
    return {
        "id": f"obs{number}",
        "traceId": "trace1",
        "projectId": "proj",
        "type": "GENERATION",
        "name": "step",
        "startTime": f"2026-10-02T09:00:{number:02d}.000Z",
        "endTime": f"2026-10-02T09:00:{number:02d}.900Z",
        "updatedAt": "2026-10-02T09:10:00.000Z",
        "parentObservationId": None,
        "model": "claude-sonnet-4-5",
        "usageDetails": USAGE,
        "promptTokens": 953,
        **more,
    }


def v2(observation: dict[str, Any]) -> dict[str, Any]:
    """The same observation as the v2 API sends it."""
    out = {k: v for k, v in observation.items() if k != "promptTokens"}
    for key in ("input", "output"):
        value = out.get(key)
        out[key] = value if value is None or isinstance(value, str) else json.dumps(value)
    return {**out, "sessionId": out.get("sessionId") or "", "userId": "", "statusMessage": ""}


def blob(observation: dict[str, Any]) -> dict[str, Any]:
    """The same observation as a blob export writes it."""
    names = {"model": "provided_model_name"}
    out = {}
    for key, value in v2(observation).items():
        snake = "".join("_" + c.lower() if c.isupper() else c for c in key)
        out[names.get(key, snake)] = value
    for key in ("start_time", "end_time", "updated_at"):
        out[key] = out[key].replace("T", " ").replace("Z", "000")
    return out


def page(rows: Iterable[Any], **meta: Any) -> bytes:
    return json.dumps({"data": list(rows), "meta": meta}).encode()


class Reader:
    """Writes files into a folder and reads them together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, *contents: bytes, context: Context | None = None
    ) -> tuple[list[LaneSteps], list[Problem]]:
        paths = []
        for i, content in enumerate(contents):
            paths.append(self.folder / f"{i}.json")
            paths[-1].write_bytes(content)
        lanes: list[LaneSteps] = []
        problems: list[Problem] = []
        for found in SOURCE.read_many(paths, context or Context()):
            if isinstance(found, Problem):
                problems.append(found)
            else:
                lanes.append(found)
        return lanes, problems


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def tokens(lanes: Iterable[LaneSteps]) -> tuple[int, int, int, int]:
    usages = [step.usage for lane in lanes for step in lane.steps if step.usage]
    return (
        sum(u.input or 0 for u in usages),
        sum(u.cache_read or 0 for u in usages),
        sum(u.cache_write or 0 for u in usages),
        sum(u.output or 0 for u in usages),
    )


def bodies(lane: LaneSteps, step: Step) -> list[str | None]:
    pool = [part for s in lane.steps for part in s.new_parts]
    assert step.prompt is not None
    return [pool[i].body for i in step.prompt.indices()]


TURNS = [
    {"role": "user", "content": "fix it"},
    {"role": "assistant", "content": "reading"},
    {"role": "user", "content": "go on"},
]


@pytest.mark.parametrize("form", [lambda r: r, v2, blob], ids=["v1", "v2", "blob"])
def test_every_form_gives_the_same_steps(form: Any, read: Reader) -> None:
    rows = [
        form(row(1, input=TURNS[:1], output=TURNS[1], sessionId="s")),
        form(row(2, input=TURNS, output={"role": "assistant", "content": "done"}, sessionId="s")),
    ]
    lanes, problems = read(page(rows))
    assert problems == []
    assert [tuple(lane.session) for lane in lanes] == [("proj", "", "s")]
    first, second = lanes[0].steps
    assert first.key == "langfuse:obs1"
    assert first.at == datetime(2026, 10, 2, 9, 0, 1, tzinfo=UTC)
    assert first.ended_at == datetime(2026, 10, 2, 9, 0, 1, 900_000, tzinfo=UTC)
    assert (first.model, first.provider) == ("claude-sonnet-4-5", "anthropic")
    assert tokens(lanes) == (6, 1800, 100, 14)
    assert first.prompt is not None
    assert second.prompt is not None
    assert (first.prompt.ranges, first.response) == (((0, 1),), ((1, 2),))
    assert second.prompt.ranges == ((0, 3),)
    assert first.human
    assert second.human


def test_json_lines_are_read_packed_or_not(read: Reader) -> None:
    lines = b"\n".join(json.dumps(blob(row(i))).encode() for i in (1, 2, 3))
    for content in (lines, gzip.compress(lines)):
        lanes, problems = read(content)
        assert (len(lanes[0].steps), problems) == (3, [])
        assert [step.line for step in lanes[0].steps] == [1, 2, 3]


def test_downloads_of_a_trace_are_read_in_both_layouts(read: Reader) -> None:
    trace = {"id": "trace1", "projectId": "proj", "timestamp": "2026-10-02T09:00:00Z"}
    trace |= {"sessionId": "s", "userId": "u", "name": "fix", "bookmarked": False}
    rows = [row(1), row(2)]
    for document in (
        {"trace": trace, "observations": rows},
        {"trace": {**trace, "observations": rows}, "observations": []},
        {**trace, "observations": rows, "scores": []},
    ):
        lanes, problems = read(json.dumps(document).encode())
        assert problems == []
        assert [tuple(lane.session) for lane in lanes] == [("proj", "u", "s")]
        assert (len(lanes[0].steps), lanes[0].title) == (2, "fix")


def test_pages_that_hold_parts_of_one_session_are_read_together(read: Reader) -> None:
    later = row(9, traceId="trace2", sessionId="s")
    lanes, _ = read(page([later]), page([row(1, sessionId="s"), row(3)]), page([row(2)]))
    assert len(lanes) == 1
    assert [s.key[-4:] for s in lanes[0].steps] == ["obs1", "obs2", "obs3", "obs9"]


def test_the_newest_copy_of_an_observation_wins_and_gaps_are_filled(read: Reader) -> None:
    running = row(1, input=TURNS[:1], output=None, usageDetails={}, endTime=None)
    running["updatedAt"] = "2026-10-02T09:01:00.000Z"
    done = {k: v for k, v in row(1, output=TURNS[1]).items() if k != "input"}
    for copies in ([running, done], [done, running]):
        lanes, _ = read(page(copies[:1]), page(copies[1:]))
        assert tokens(lanes) == (3, 900, 50, 7)
        assert len(lanes[0].steps) == 1
    usage_only = {k: v for k, v in v2(row(1)).items() if k not in ("input", "output")}
    with_content = v2(row(1, input=TURNS[:1], output=TURNS[1], usageDetails={}))
    lanes, _ = read(page([with_content]), page([usage_only]))
    assert tokens(lanes) == (3, 900, 50, 7)
    assert bodies(lanes[0], lanes[0].steps[0]) == ["fix it"]


def test_old_servers_keep_session_and_user_on_the_trace(read: Reader) -> None:
    trace = {"id": "trace1", "timestamp": "2026-10-02T09:00:00Z", "projectId": "proj"}
    trace |= {"sessionId": "s", "userId": "u", "observations": ["obs1"], "scores": []}
    lanes, problems = read(page([row(1)], page=1), page([trace], page=1))
    assert (tuple(lanes[0].session), problems) == (("proj", "u", "s"), [])


def test_a_trace_without_a_session_is_one_of_its_own(read: Reader) -> None:
    lanes, _ = read(page([row(1), row(2, traceId="trace2")]))
    assert [lane.session.session_id for lane in lanes] == ["trace:trace1", "trace:trace2"]


def test_the_callers_project_and_user_stand_in_for_what_is_missing(read: Reader) -> None:
    lanes, _ = read(page([row(1)]), context=Context(project="mine", user="me"))
    assert lanes[0].session[:2] == ("mine", "me")
    lanes, _ = read(page([row(1, userId="u")]), context=Context(user="me"))
    assert lanes[0].session[:2] == ("proj", "u")


def test_two_users_of_one_session_id_are_kept_apart(read: Reader) -> None:
    rows = [
        row(1, sessionId="s", userId="a"),
        row(2, sessionId="s", userId="b", traceId="trace2"),
    ]
    lanes, _ = read(page(rows))
    assert sorted(lane.session.user for lane in lanes) == ["a", "b"]


def test_labels_keep_the_raw_usage_the_ids_and_the_scores(read: Reader) -> None:
    score = {"id": "x", "name": "success", "value": 1, "stringValue": "True", "traceId": "trace1"}
    score |= {"dataType": "BOOLEAN", "projectId": "proj"}
    lanes, problems = read(page([row(1, usagePricingTierName="Flex")]), page([score]))
    labels = dict(lanes[0].steps[0].labels)
    assert problems == []
    assert json.loads(labels["usage.raw"]) == USAGE
    assert labels["langfuse.observation"] == "obs1"
    assert labels["langfuse.trace"] == "trace1"
    assert labels["service_tier"] == "Flex"
    assert labels["score.success"] == "True"


def test_errors_costs_and_miss_reasons_are_kept(read: Reader) -> None:
    failed = row(1, level="ERROR", statusMessage="overloaded", costDetails={"total": 0.25})
    failed["metadata"] = {"diagnostics": {"cache_miss_reason": {"type": "tools_changed"}}}
    lanes, _ = read(page([failed, row(2, totalCost=-1)]))
    first, second = lanes[0].steps
    assert (first.error, first.reported_cost) == ("overloaded", 0.25)
    assert first.miss_reason == "tools_changed"
    assert (second.error, second.reported_cost) == (None, None)


def test_settings_that_belong_to_the_cache_key_come_from_input_and_parameters(
    read: Reader,
) -> None:
    asked = {"messages": TURNS[:1], "tool_choice": "auto", "temperature": 0}
    lanes, _ = read(page([row(1, input=asked, modelParameters={"reasoning_effort": "low"})]))
    prompt = lanes[0].steps[0].prompt
    assert prompt is not None
    assert prompt.settings == (("reasoning_effort", "low"), ("tool_choice", "auto"))


def test_content_can_be_left_out(read: Reader) -> None:
    content = page([row(1, input=TURNS, output=TURNS[1])])
    lanes, _ = read(content, context=Context(keep_content=False))
    full, _ = read(content)
    without, with_bodies = lanes[0].steps[0].new_parts, full[0].steps[0].new_parts
    assert {part.body for part in without} == {None}
    assert [p.digest for p in without] == [p.digest for p in with_bodies]


def test_sums_of_old_servers_stand_in_for_missing_usage_details(read: Reader) -> None:
    lanes, _ = read(page([row(1, usageDetails={}, usage={"output": 40}, totalTokens=993)]))
    step = lanes[0].steps[0]
    assert step.usage is not None
    assert (step.usage.input, step.usage.cache_read, step.usage.output) == (953, None, 40)
    assert "legacy_usage" in dict(step.labels)["usage.flags"]


def test_sums_that_a_server_computed_stand_in_for_missing_usage_details(read: Reader) -> None:
    told = {"inputUsage": 1200, "outputUsage": 15, "totalUsage": 1215, "promptTokens": None}
    rows = [row(1, usageDetails=None, **told), row(2, **told)]
    rows.append(row(3, usageDetails={}, promptTokens=None, inputUsage=0))
    lanes, _ = read(page(rows))
    old, new, none = (step.usage for step in lanes[0].steps)
    assert old is not None
    assert (old.input, old.cache_read, old.output) == (1200, None, 15)
    assert new is not None
    assert (new.input, new.cache_read, new.output) == (3, 900, 7)
    assert none is None


@pytest.mark.parametrize(
    ("broken", "pointer"),
    [
        ({"startTime": "yesterday"}, "$.data[1].startTime"),
        ({"id": ""}, "$.data[1]"),
        ({"endTime": []}, "$.data[1].endTime"),
        ({"usageDetails": "many"}, "$.data[1].usageDetails"),
        ({"usageDetails": {"input": -5}}, "$.data[1].usageDetails.input"),
        ({"type": "WISH"}, "$.data[1].type"),
    ],
)
def test_a_bad_row_becomes_a_problem_and_the_rest_goes_on(
    broken: dict[str, Any], pointer: str, read: Reader
) -> None:
    lanes, problems = read(page([row(1), {**row(2), **broken}, row(3)]))
    assert [(p.line, p.pointer) for p in problems] == [(2, pointer)]
    assert problems[0].raw
    keys = [step.key[-4:] for lane in lanes for step in lane.steps]
    assert keys[0] == "obs1"
    assert keys[-1] == "obs3"


def test_a_page_that_was_cut_off_gives_its_whole_rows(read: Reader) -> None:
    whole = page([row(1), row(2), row(3)])
    lanes, problems = read(whole[: whole.index(b"obs3") + 40])
    assert len(lanes[0].steps) == 2
    assert len(problems) == 1
    assert problems[0].line == 3
    assert problems[0].raw.startswith(b'{"id": "obs3"')


def test_a_bad_line_is_kept_with_its_number(read: Reader) -> None:
    lines = [json.dumps(blob(row(i))).encode() for i in (1, 2)]
    for at in (0, 1):
        content = b"\n".join([*lines[:at], b'{"id": oops', *lines[at:]])
        lanes, problems = read(content)
        assert len(lanes[0].steps) == 2
        assert [(p.line, p.raw) for p in problems] == [(at + 1, b'{"id": oops')]


def test_absurdly_nested_content_is_a_problem_and_no_crash(read: Reader) -> None:
    deep = "[" * 50_000 + "]" * 50_000
    lanes, problems = read(
        page([v2(row(1, input=deep)), v2(row(2, output=deep))]),
        b'{"data":[' + deep.encode() + b"]}",
    )
    assert len(lanes[0].steps) == 2
    assert problems


@pytest.mark.parametrize("depth", [100, 400, 900])
def test_deep_but_readable_content_never_crashes(depth: int, read: Reader) -> None:
    deep: Any = "x"
    for _ in range(depth):
        deep = {"content": [deep]}
    nested = json.dumps({"role": "user", "content": [deep]}) if depth < 400 else "x"
    text = '{"content": [' * depth + '"x"' + "]}" * depth
    rows = [v2(row(1, input=text)), v2(row(2, output=text)), v2(row(3, input=nested))]
    lanes, _ = read(page(rows))
    assert sum(len(lane.steps) for lane in lanes) == 3


def test_other_json_is_not_taken_for_langfuse(tmp_path: Path) -> None:
    own = [page([v2(row(1))]), json.dumps(blob(row(1))).encode(), json.dumps(row(1)).encode()]
    others = [
        b'{"resourceSpans": [{"traceId": "1", "startTime": 1, "projectId": "p"}]}',
        b'{"type": "user", "message": {"role": "user"}, "timestamp": "2026"}',
        b"",
        b'"traceId" "startTime" "projectId"',
        json.dumps({"text": page([row(1)]).decode()}).encode(),
    ]
    for i, content in enumerate([*own, *others]):
        path = tmp_path / str(i)
        path.write_bytes(content)
        assert SOURCE.detect(read_head(path)) is (i < len(own)), content[:60]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([*row(1), "input", "output", "metadata", "sessionId"]),
            st.none()
            | st.booleans()
            | st.integers()
            | st.text(max_size=5)
            | st.just("2026-10-02T09:00:00Z")
            | st.lists(st.integers(), max_size=2)
            | st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
            max_size=9,
        ),
        max_size=4,
    )
)
def test_no_row_is_able_to_stop_the_reading(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "page.json"
    path.write_bytes(page([{**row(1), **rows[0]}, *rows[1:]] if rows else []))
    for found in SOURCE.read(path, Context()):
        assert isinstance(found, Problem) or found.steps


@pytest.mark.data
def test_pages_of_both_api_generations_give_the_same_tokens(shared_data: Path) -> None:
    folder = shared_data / "langfuse/responses"
    sums = []
    for version in ("v1", "v2"):
        paths = [folder / f"observations_{version}_page{n}.json" for n in (1, 2, 3)]
        found = list(SOURCE.read_many(paths, Context()))
        lanes = [lane for lane in found if isinstance(lane, LaneSteps)]
        assert len(lanes) == len(found) == 1
        assert len(lanes[0].steps) == 30
        prompts = [s.prompt.ranges for s in lanes[0].steps if s.prompt]
        assert [len(ranges) for ranges in prompts] == [1] * 30, "every prompt only appends"
        sums.append(tokens(lanes))
    assert sums[0] == sums[1] == (210, 78880, 4815, 1635)


@pytest.mark.data
def test_every_shared_langfuse_file_is_read_without_problems(shared_data: Path) -> None:
    files = sorted((shared_data / "traces/langfuse").rglob("*.json*"))
    files += sorted((shared_data / "langfuse/responses").glob("trace_get_*.json"))
    assert len(files) > 20
    steps = 0
    for file in files:
        assert SOURCE.detect(read_head(file)), file.name
        for found in SOURCE.read(file, Context()):
            assert isinstance(found, LaneSteps), (file.name, found)
            steps += len(found.steps)
    assert steps > 100


def test_a_request_that_was_sent_again_under_a_new_id_counts_once_and_is_told(
    read: Reader,
) -> None:
    one = row(1, output="Ho", name="Claude Generation", metadata={"assistant_index": 0})
    (lane,), _ = read(page([one, {**one, "id": "obs9"}, row(2, output="Hi")]))
    assert len(lane.steps) == 2
    sent, other = (step.usage.doubts for step in lane.steps if step.usage)
    assert sent == (("sent_twice", 2 * 960, 960),)
    assert other == ()


@pytest.mark.parametrize(
    ("more", "terms"),
    [
        ({"usagePricingTierName": "Batch"}, ("batch",)),
        ({"usagePricingTierName": "Standard"}, ()),
        ({"usagePricingTierName": "Large Context"}, ()),
        ({"modelParameters": {"service_tier": "priority"}}, ("priority",)),
        ({"modelParameters": {"service_tier": "auto"}}, ()),
        ({}, ()),
    ],
)
def test_the_tier_of_a_row_is_what_it_is_billed_on(
    more: dict[str, Any], terms: tuple[str, ...], read: Reader
) -> None:
    (lane,), _ = read(page([row(1, **more)]))
    (step,) = lane.steps
    assert step.usage is not None
    assert step.usage.terms == terms
