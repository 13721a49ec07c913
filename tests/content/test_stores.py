from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from analyzer.content import MODES, keeping
from analyzer.intake import ingest
from analyzer.model import Problem, SessionKey
from analyzer.sources import SOURCES
from analyzer.sources.base import Context
from analyzer.store import Scope, Store
from analyzer.workspace import analyse
from tests.builders import anthropic_records, keep_newest, write_lines
from tests.content.recordings import LINES, NAMES, plant, record, write
from tests.content.secrets import PLANTED
from tests.content.stored import frames, stored
from tests.steplines import SOURCES as TINY
from tests.steplines import dump, line
from tests.steplines import write as write_tiny

CANARY = "kumquat-zephyr"
BROKEN = '{"type": "assistant", "content": "%s", "sessionId": "%s'
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
ALL = Scope.everything()


def planted(folder: Path, name: str, text: str) -> Path:
    said = json.dumps(text)[1:-1]
    more = [BROKEN % (said, said)] if name in LINES else []
    return write(folder, name, plant(record(name), text), *more)


def kept(tmp_path: Path, path: Path, name: str, mode: str) -> bytes:
    store = tmp_path / f"{mode}.duckdb"
    report = ingest([path], store, source=name, content=mode)  # type: ignore[arg-type]
    assert report.steps
    assert bool(report.problems) == (name in LINES)
    analyse(store)
    return stored(store)


@pytest.mark.parametrize("name", NAMES)
def test_no_source_leaves_what_a_mode_does_not_keep(name: str, tmp_path: Path) -> None:
    text = " ; ".join([CANARY, *(p.text for p in PLANTED)])
    path = planted(tmp_path / "in", name, text)
    full, redacted, none = (kept(tmp_path, path, name, mode) for mode in MODES)
    values = {v for p in PLANTED for v in (p.value, json.dumps(p.value)[1:-1])}
    assert CANARY.encode() in full
    assert any(value.encode() in full for value in values)
    assert CANARY.encode() in redacted
    assert b"<EMAIL:" in redacted
    assert [value for value in values if value.encode() in redacted] == []
    assert [value for value in (CANARY, *values) if value.encode() in none] == []


def test_titles_labels_and_errors_are_content(tmp_path: Path) -> None:
    path = planted(tmp_path / "in", "steps", "jane.roe@corp-mail.example")
    for mode in MODES:
        ingest([path], tmp_path / f"{mode}.duckdb", content=mode)
    rows = {}
    for mode in MODES:
        with Store.open(tmp_path / f"{mode}.duckdb") as store:
            session = store.load_session(SessionKey("default", "", "s"))
        step = session.lanes[0].steps[0]
        rows[mode] = session.title, dict(step.labels)["text"], step.error
    assert [value.count("@") for value in rows["full"] if value] == [1, 1, 1]
    assert [value and "<EMAIL:" in value for value in rows["redacted"]] == [True] * 3
    assert rows["none"][0] is None
    assert [value[:6] for value in rows["none"][1:] if value] == ["<TEXT:"] * 2


def spoiled(rng: random.Random, value: Any) -> Any:
    """A record in which some values are texts that somebody wrote."""
    if rng.random() < 0.04:
        return rng.choice([CANARY, [CANARY], {"type": CANARY}, f"it's {CANARY} \" said", -1, 1.5])
    if isinstance(value, dict):
        return {k: spoiled(rng, v) for k, v in value.items()}
    return [spoiled(rng, v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
def test_without_content_no_problem_quotes_a_record(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    keep = keeping("none", b"k" * 32)
    problems = 0
    for _ in range(60):
        value = record(name)
        rows = [json.dumps(spoiled(rng, row)) for row in value] if name in LINES else None
        if rows is not None:
            at = rng.randrange(len(rows))
            rows[at] = rows[at][: rng.randrange(len(rows[at]))] + CANARY
        path = write(tmp_path, name, [] if rows is not None else spoiled(rng, value), *rows or ())
        for entry in map(keep, SOURCES[name].read(path, Context(keep_content=False))):
            if isinstance(entry, Problem):
                problems += 1
                assert CANARY not in entry.message + entry.pointer
                assert entry.raw == b""
    assert problems


# -- one store, several modes ---------------------------------------------------------------------

SECRET = "jane.roe@corp-mail.example"
KEY = SessionKey("default", "", "s")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "in" / "a.txt", line("s", "k0", new=[f"{CANARY} of {SECRET}"]))


def body(store: Path) -> str | None:
    with Store.open(store) as opened:
        return opened.part_bodies(KEY, "main", [0])[0]


def put(store: Path, *paths: Path, content: str | None = None):
    return ingest([*paths], store, sources=TINY, content=content)  # type: ignore[arg-type]


def test_a_store_goes_on_as_it_began(made: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    for mode in ("none", None):
        report = put(store, made, content=mode)
        assert report.content == "none"
    assert (report.unchanged, body(store)) == (1, None)
    more = write_tiny(tmp_path / "b.txt", line("t", "k1", new=[CANARY]))
    assert put(store, more).content == "none"
    assert CANARY.encode() not in stored(store)


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("then", MODES)
def test_what_was_asked_for_last_holds(made: Path, tmp_path: Path, first: str, then: str) -> None:
    store, fresh = tmp_path / "s.duckdb", tmp_path / "fresh.duckdb"
    put(store, made, content=first)
    report = put(store, made, content=then)
    assert (report.steps, report.duplicates, report.holding_more) == (0, 1, 0)
    text = body(store)
    if then == "full":
        assert text == f"{CANARY} of {SECRET}"
    elif then == "none":
        assert text is None
    else:
        assert text is not None
        assert text.startswith(f"{CANARY} of <EMAIL:")
    put(fresh, made, content=then)
    if then != "redacted":
        assert dump(store) == dump(fresh)
    assert put(store, made).unchanged == 1


@pytest.mark.parametrize("then", ["redacted", "none"])
def test_nothing_of_what_is_taken_back_stays_in_the_file(tmp_path: Path, then: str) -> None:
    store = tmp_path / "s.duckdb"
    records = anthropic_records(20, shape=keep_newest(4))
    for row in records:
        row["request"]["system"][0]["text"] += SECRET
        for message in row["request"]["messages"]:
            for block in message["content"]:
                if block["type"] == "tool_result":
                    block["content"] += f" from {SECRET}"
    path = write_lines(tmp_path / "run.jsonl", records)
    ingest([path], store, content="full")
    analyse(store)
    assert SECRET.encode() in frames(store)
    report = ingest([path], store, content=then)  # type: ignore[arg-type]
    assert report.content == then
    assert SECRET.encode() not in stored(store) + frames(store)
    assert not [
        p for p in tmp_path.iterdir() if p.name.startswith("s.duckdb.") and p.suffix != ".lock"
    ]


def test_files_that_hold_more_are_told_of(made: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    put(store, made, content="full")
    other = write_tiny(tmp_path / "b.txt", line("t", "k1"))
    assert put(store, other, content="none").holding_more == 1
    assert put(store, made, content="none").holding_more == 0


def test_stand_ins_are_of_one_store_and_stay_the_same_in_it(made: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "1.duckdb", tmp_path / "2.duckdb"
    for store in (one, two):
        put(store, made, content="redacted")
    assert body(one) != body(two)
    again = write_tiny(tmp_path / "b.txt", line("t", "k1", new=[f"{CANARY} of {SECRET}"]))
    put(one, again)
    with Store.open(one) as opened:
        assert opened.part_bodies(SessionKey("default", "", "t"), "main", [0]) == [body(one)]


def test_workers_keep_as_little_as_this_process(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    path = planted(tmp_path / "in", "claude-code", f"{CANARY} {SECRET}")
    ingest([path], store, content="redacted", workers=1)
    assert SECRET.encode() not in stored(store)
    assert CANARY.encode() in stored(store)
