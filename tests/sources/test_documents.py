from __future__ import annotations

import gzip
import json

import pytest

from analyzer.sources import SOURCES
from analyzer.sources.base import HEAD_BYTES, read_head
from analyzer.sources.documents import outline, read_document, run_name, stem_of

KINDS = {
    "atif": "atif",
    "claude-code": "claude-code",
    "inspect": "inspect",
    "langfuse": "langfuse",
    "mini-swe-agent": "mini-swe-agent",
    "openhands": "openhands",
    "swe-agent": "swe-agent",
    "tau-bench": "tau-bench",
}
NEW = {"atif", "langsmith", "inspect", "mini-swe-agent", "openai-log", "openhands", "swe-agent"} | {
    "tau-bench",
    "vcr",
}


def test_an_outline_names_keys_and_keeps_the_first_scalar() -> None:
    text = b'{"a": {"b": [{"c": 1}, {"c": 2, "d": "x"}]}, "e": "y, {z", "f": []}'
    assert outline(text) == {
        "a": "",
        "a.b": "",
        "a.b.[]": "",
        "a.b.[].c": "1",
        "a.b.[].d": "x",
        "e": "y, {z",
        "f": "",
    }


def test_an_outline_of_text_that_is_cut_off_is_that_of_what_is_there() -> None:
    text = json.dumps({"k": {"role": "user", "text": 'a "quoted" {brace'}, "z": 1}).encode()
    whole = outline(text)
    for stop in range(len(text)):
        assert outline(text[:stop]).keys() <= whole.keys()


def test_an_outline_stops_behind_the_first_document() -> None:
    assert set(outline(b'{"a":1}\n{"b":2}')) == {"a"}


@pytest.mark.parametrize("text", [b"[" * HEAD_BYTES, b'{"a":' * 9000, b'"\\', b"}{", b"\xff\xfe"])
def test_an_outline_survives_any_bytes(text) -> None:
    assert len(outline(text)) <= 10


def test_a_document_that_cannot_be_read_is_one_problem(tmp_path) -> None:
    good = json.dumps({"a": 1}).encode()
    for name, raw in {
        "cut.json": good[:-1],
        "deep.json": b"[" * 100_000,
        "cut.json.gz": gzip.compress(good * 50)[:-6],
        "empty.json": b"",
    }.items():
        path = tmp_path / name
        path.write_bytes(raw)
        value, problem = read_document(path)
        assert value is None
        assert problem is not None
        assert problem.path == str(path)


def test_runs_of_one_name_are_told_apart_by_how_they_begin() -> None:
    assert run_name("task", {"id": 1}) == run_name("task", {"id": 1})
    assert run_name("task", {"id": 1}) != run_name("task", {"id": 2})
    assert run_name("task", "a", "b") != run_name("task", "ab")


def test_a_stem_is_a_name_without_formats(tmp_path) -> None:
    assert stem_of(tmp_path / "x-1.2.traj.json.gz") == "x-1.2"
    assert stem_of(tmp_path / ".json") == ".json"


@pytest.mark.data
def test_every_file_is_recognised_as_its_own_format_only(shared_data) -> None:
    wrong = []
    for path in sorted((shared_data / "traces").rglob("*")):
        if not path.is_file() or "LICENSES" in path.parts:
            continue
        head = read_head(path)
        kind = path.relative_to(shared_data / "traces").parts[0]
        own = {name for name, source in SOURCES.items() if source.detect(head)}
        if (kind in KINDS and own != {KINDS[kind]}) or len(own) > 1:
            wrong.append((str(path), own))
    for path in sorted((shared_data / "langfuse").rglob("*")):
        if path.is_file():
            own = {n for n in NEW if SOURCES[n].detect(read_head(path))}
            if own:
                wrong.append((str(path), own))
    assert not wrong
