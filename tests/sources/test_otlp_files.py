"""The files in which spans lie: every form reads the same, and no damage raises."""

from __future__ import annotations

import base64
import gzip
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem
from analyzer.sources import SOURCES, detect
from analyzer.sources.base import Context, read_head
from analyzer.sources.otlp import OtlpSource
from analyzer.sources.otlp.values import (
    any_value,
    attributes,
    hex_id,
    instant,
    nanoseconds,
    tree_at,
)
from tests import spans as otel
from tests.sources.test_recordings import spoiled
from tests.span_files import FORMS, SPANS, collector, lines, python_console, snake
from tests.span_reading import Reader, counted

Json = Any


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_a_run_reads_the_same_from_every_form_of_file(form: str, read: Reader) -> None:
    wanted = read.one(collector())
    lane = read.one(FORMS[form]())
    assert [step.key for step in lane.steps] == [step.key for step in wanted.steps]
    assert lane.steps[0].key == f"otlp:{otel.TRACE}:{2:016x}"
    assert [step.at for step in lane.steps] == [step.at for step in wanted.steps]
    assert counted(lane) == counted(wanted)
    assert lane.pool == wanted.pool
    assert [step.prompt for step in lane.steps] == [step.prompt for step in wanted.steps]
    assert lane.session == wanted.session
    assert lane.name == "main"


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_recognised_and_by_no_other_source(form: str, tmp_path: Path) -> None:
    path = tmp_path / "spans"
    for raw in (FORMS[form](), gzip.compress(FORMS[form]()), zstandard.compress(FORMS[form]())):
        path.write_bytes(raw)
        head = read_head(path)
        assert [name for name, source in SOURCES.items() if source.detect(head)] == ["otlp"]


def test_a_file_that_begins_with_metrics_or_logs_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    path.write_bytes(lines([{"resourceMetrics": []}, otel.request(SPANS)]))
    assert detect(read_head(path)) is SOURCES["otlp"]
    path.write_bytes(lines([{"resourceLogs": []}]))
    assert detect(read_head(path)) is SOURCES["otlp"]
    path.write_bytes(lines([{"resourceMetrics": []}]))
    assert detect(read_head(path)) is None
    assert list(OtlpSource().read(path, Context())) == []


# -- copies and order -------------------------------------------------------------------------


def test_a_span_that_lies_in_two_files_counts_once(read: Reader) -> None:
    once = read.one(collector())
    twice = read.one(collector(), python_console(), collector())
    assert [step.key for step in twice.steps] == [step.key for step in once.steps]
    assert counted(twice) == counted(once)


def test_of_two_copies_the_one_that_ended_later_holds_and_keeps_what_only_the_other_has(
    read: Reader,
) -> None:
    begun = {k: v for k, v in SPANS[1].items() if k != "endTimeUnixNano"}
    begun["attributes"] = [p for p in begun["attributes"] if "usage" not in p["key"]]
    ended = dict(SPANS[1])
    ended["attributes"] = [p for p in ended["attributes"] if ".messages" not in p["key"]]
    for order in ((begun, ended), (ended, begun)):
        lane = read.one(*(otel.request([SPANS[0], span]) for span in order))
        assert counted(lane) == counted(read.one(otel.request(SPANS[:2])))
        assert lane.steps[0].ended_at is not None
        assert lane.steps[0].prompt is not None


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_files_and_lines_does_not_matter(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    spans = [*SPANS, *rng.sample(SPANS, 2)]
    rng.shuffle(spans)
    files: list[list[Json]] = [[], [], []]
    for span in spans:
        rng.choice(files).append(otel.request([span]))
    lane = Reader(tmp_path_factory.mktemp("spans")).one(*map(lines, files))
    wanted = Reader(tmp_path_factory.mktemp("spans")).one(collector())
    assert [step.key for step in lane.steps] == [step.key for step in wanted.steps]
    assert (lane.pool, counted(lane)) == (wanted.pool, counted(wanted))


# -- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_what_is_whole_before_a_cut_is_read(form: str, read: Reader) -> None:
    raw = FORMS[form]()
    whole = {step.key for step in read.one(raw).steps}
    seen = []
    for share in (0.3, 0.6, 0.8, 0.97):
        lanes, problems = read(raw[: int(len(raw) * share)])
        keys = {step.key for lane in lanes.values() for step in lane.steps}
        assert keys <= whole
        # A last line without its end is still being written.
        assert problems or raw.count(b"\n") > 1
        seen.append(len(keys))
    assert seen == sorted(seen)
    assert seen[-1] >= len(whole) - 1


def test_a_damaged_line_and_a_damaged_archive_are_problems_with_their_place(read: Reader) -> None:
    rows = collector().splitlines(keepends=True)
    rows[2] = rows[2][:300] + b"\n"
    lanes, problems = read(b"".join(rows))
    assert [(p.line, p.path.rpartition("/")[2]) for p in problems] == [(3, "0.json")]
    assert sum(len(lane.steps) for lane in lanes.values()) == len(SPANS) - 2
    packed = gzip.compress(b"".join(rows[:2] + rows[3:]))
    lanes, problems = read(packed[: len(packed) // 2])
    assert problems
    assert "damaged or cut off" in problems[-1].message


def test_text_between_the_documents_of_a_console_is_a_problem(read: Reader) -> None:
    first, rest = python_console().split(b"\n}\n", 1)
    lanes, problems = read(b"starting up\n" + first + b"\n}\nhello {world}\n" + rest)
    assert [p.line for p in problems] == [1, first.count(b"\n") + 4]
    (lane,) = lanes.values()
    assert counted(lane) == counted(read.one(collector()))


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"traceId": ""}, "$.resourceSpans[0].scopeSpans[0].spans[0]"),
        (
            {"startTimeUnixNano": "soon"},
            "$.resourceSpans[0].scopeSpans[0].spans[0].startTimeUnixNano",
        ),
        ({"endTimeUnixNano": "later"}, "$.resourceSpans[0].scopeSpans[0].spans[0].endTimeUnixNano"),
    ],
)
def test_a_bad_span_is_a_problem_with_a_pointer(
    change: dict[str, Any], pointer: str, read: Reader
) -> None:
    lanes, problems = read(otel.request([{**SPANS[1], **change}, SPANS[2]]))
    assert [(p.line, p.pointer) for p in problems] == [(1, pointer)]
    assert problems[0].raw
    assert sum(len(lane.steps) for lane in lanes.values()) == 1 + ("endTimeUnixNano" in change)


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"{", b"[", b"[1,2]", b"null", b'{"a":1}', b"\xff\xfe\x00"]
)
def test_what_holds_no_span_gives_no_step(raw: bytes, read: Reader) -> None:
    lanes, problems = read(raw)
    assert lanes == {}
    assert bool(problems) == bool(raw.strip())


@pytest.mark.parametrize("form", ["collector", "python_lines", "phoenix_frame", "javascript"])
def test_no_span_however_spoiled_raises(form: str, tmp_path: Path) -> None:
    rng = random.Random(form)
    path = tmp_path / "a.json"
    raw = FORMS[form]()
    documents = (
        [json.loads(row) for row in raw.splitlines()] if raw[:1] == b"{" else json.loads(raw)
    )
    steps = problems = 0
    for _ in range(60):
        path.write_bytes(lines([spoiled(rng, d) for d in documents]))
        for entry in OtlpSource().read(path, Context()):
            assert isinstance(entry, LaneSteps | Problem)
            steps += len(entry.steps) if isinstance(entry, LaneSteps) else 0
            problems += isinstance(entry, Problem)
    assert steps
    assert problems


@pytest.mark.parametrize("inside", [False, True])
def test_nesting_without_end_is_a_problem(inside: bool, read: Reader) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    if inside:
        span = json.dumps(SPANS[1]).encode()
        deep = span.replace(b'"attributes": [', b'"attributes": [' + deep + b",", 1)
    _, problems = read(b'{"resourceSpans":' + deep + b"}\n")
    assert problems


@pytest.mark.parametrize("depth", [5, 300, 990])
def test_spans_in_arrays_without_end_are_a_problem(depth: int, read: Reader) -> None:
    raw = b"[" * depth + json.dumps(SPANS[1]).encode() + b"]" * depth
    lanes, problems = read(raw)
    assert lanes == {}
    assert problems


# -- values -----------------------------------------------------------------------------------

names = st.text("abc_0", min_size=1, max_size=4)
scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)


@given(values)
def test_a_typed_value_is_the_value_that_was_typed(given_value: Json) -> None:
    assert any_value(json.loads(json.dumps(otel.value(given_value)))) == given_value
    assert any_value(snake(otel.value(given_value))) == given_value


@given(st.dictionaries(names, values, max_size=4))
def test_pairs_and_objects_are_the_same_attributes(given_object: dict[str, Json]) -> None:
    assert attributes(otel.pairs(given_object)) == attributes(given_object)


def numbered(name: str, value: Json) -> dict[str, Json]:
    """A value spread over dotted names; empty ones cannot be."""
    pairs = enumerate(value) if isinstance(value, list) else value.items()
    out: dict[str, Json] = {}
    for key, inner in pairs:
        if isinstance(inner, list | dict):
            out |= numbered(f"{name}.{key}", inner)
        else:
            out[f"{name}.{key}"] = inner
    return out


trees = st.recursive(
    st.text(max_size=4),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=12)
        | st.dictionaries(st.text("abc", min_size=1), inner, min_size=1, max_size=3)
    ),
).filter(lambda tree: not isinstance(tree, str))


@given(trees)
def test_a_tree_spread_over_names_is_found_again(tree: Json) -> None:
    assert tree_at(numbered("x", tree), "x") == tree


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=16))
def test_an_id_is_the_same_in_every_writing(short: bytes, long: bytes) -> None:
    for raw in (short, long):
        wanted = raw.hex() if any(raw) else None
        writings = [raw.hex(), raw.hex().upper(), f"0x{raw.hex()}", base64.b64encode(raw).decode()]
        number = int.from_bytes(raw, "big")
        for writing in (*writings, number):
            assert hex_id(writing, len(raw)) == wanted


@given(st.integers(1_000_000_000 * 10**9, 4_000_000_000 * 10**9))
def test_a_time_keeps_its_microseconds_in_every_writing(nanos: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanos // 1000)
    seconds, rest = divmod(nanos, 10**9)
    for writing in (nanos, str(nanos), [seconds, rest], at.isoformat(), nanos // 1000):
        assert instant(nanoseconds(writing, "$")) == at
    assert nanoseconds(str(nanos), "$") == nanos
    assert nanoseconds(0, "$") is nanoseconds("0", "$") is nanoseconds(None, "$") is None
    with pytest.raises(DecodeError):
        nanoseconds("soon", "$")


# -- real files -------------------------------------------------------------------------------


@pytest.mark.data
def test_the_real_export_is_read_without_a_problem(shared_data: Path) -> None:
    found = sorted((shared_data / "traces" / "otlp").rglob("*.json"))
    assert found
    for path in found:
        assert detect(read_head(path)) is SOURCES["otlp"]
        # It holds test spans only, none of them a model call.
        assert list(OtlpSource().read(path, Context())) == []


@pytest.mark.data
def test_no_other_recording_is_taken_for_spans(shared_data: Path) -> None:
    wrong = [
        path
        for folder in ("traces", "langfuse")
        for path in sorted((shared_data / folder).rglob("*"))
        if path.is_file() and path.relative_to(shared_data / folder).parts[0] != "otlp"
        if OtlpSource().detect(read_head(path))
    ]
    assert wrong == []
