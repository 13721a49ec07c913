"""A file is known by what it holds: under any name, however it is written, and by one source only."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.sources import SOURCES
from analyzer.sources.base import HEAD_BYTES, Context, Head, read_head
from tests.builders import Transcript
from tests.samples import Sample, samples
from tests.sources.test_codex import Rollout

SAMPLES = list(samples())
TEXTS = [s for s in SAMPLES if s.form in ("lines", "document")]
NAMES = ("x", "session.json", "session.jsonl", "log.txt", "export.csv", "a.b.c", "trace.yaml", ".z")


def known(path: Path, raw: bytes) -> list[str]:
    """The sources that recognise a file."""
    path.write_bytes(raw)
    head = read_head(path)
    return [name for name, source in SOURCES.items() if source.detect(head)]


def of(sample: Sample) -> str:
    return f"{sample.source}-{sample.name}"


def before_each(value: Any, form: str) -> Any:
    """Unknown keys before and behind those of each record."""
    if form == "document":
        return wrapped(value) if isinstance(value, dict) else [wrapped(v) for v in value]
    return [wrapped(row) for row in value]


def wrapped(record: dict[str, Any]) -> dict[str, Any]:
    return {"x_new": {"kind": [1]}, **record, "x_later": "text"}


def reordered(value: Any, order: Callable[[list[str]], list[str]]) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key], order) for key in order(list(value))}
    return [reordered(v, order) for v in value] if isinstance(value, list) else value


WRITTEN: dict[str, Callable[[Sample], bytes]] = {
    "as it is": lambda s: s.encode(),
    "with a byte order mark": lambda s: b"\xef\xbb\xbf" + s.encode(),
    "behind blank lines": lambda s: b"\n \n\r\n" + s.encode(),
    "with the line ends of Windows": lambda s: s.encode().replace(b"\n", b"\r\n"),
    "without a last line end": lambda s: s.encode().rstrip(b"\n"),
    "without spaces": lambda s: s.encode(separators=(",", ":")),
    "with its own letters": lambda s: s.encode(ensure_ascii=False),
    "with unknown keys": lambda s: s.encode(before_each(s.value, s.form)),
    "with sorted keys": lambda s: s.encode(sort_keys=True),
    "with its keys backwards": lambda s: s.encode(reordered(s.value, lambda k: k[::-1])),
    "packed with gzip": lambda s: gzip.compress(s.encode()),
    "packed with zstd": lambda s: zstandard.compress(s.encode()),
}


@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.parametrize("sample", TEXTS, ids=of)
def test_a_recording_is_known_however_it_is_written(
    sample: Sample, way: str, tmp_path: Path
) -> None:
    assert known(tmp_path / sample.name, WRITTEN[way](sample)) == [sample.source]


@pytest.mark.parametrize("sample", [s for s in TEXTS if s.form == "document"], ids=of)
def test_a_document_is_known_with_and_without_indentation(sample: Sample, tmp_path: Path) -> None:
    for indent in (None, 0, 1, 2, "\t"):
        assert known(tmp_path / "a", sample.encode(indent=indent)) == [sample.source]


@pytest.mark.parametrize("sample", SAMPLES, ids=of)
def test_a_recording_is_known_under_any_name(sample: Sample, tmp_path: Path) -> None:
    for name in NAMES:
        assert known(tmp_path / name, sample.encode()) == [sample.source], name


@pytest.mark.parametrize("sample", TEXTS, ids=of)
def test_a_recording_is_known_with_its_keys_in_any_order(sample: Sample, tmp_path: Path) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        mixed = reordered(sample.value, lambda keys, rng=rng: rng.sample(keys, len(keys)))
        assert known(tmp_path / "a", sample.encode(mixed)) == [sample.source], seed


SESSION = "11111111-2222-4333-8444-555555555555"
FIRST_ROWS: dict[str, dict[str, Any]] = {
    "summary": {"summary": "title", "leafUuid": "u"},
    "file-history-snapshot": {"messageId": "m", "snapshot": {"trackedFileBackups": {}}},
    "queue-operation": {"operation": "enqueue", "sessionId": SESSION, "content": "x" * 50},
    "last-prompt": {"lastPrompt": "go", "sessionId": SESSION},
    "custom-title": {"customTitle": "t", "sessionId": SESSION},
    "ai-title": {"aiTitle": "t", "sessionId": SESSION},
    "mode": {"mode": "normal", "sessionId": SESSION},
    "permission-mode": {"permissionMode": "plan", "sessionId": SESSION},
    "pr-link": {"prNumber": 1, "sessionId": SESSION},
    "agent-name": {"agentName": "a", "sessionId": SESSION},
    "something-newer": {"payload": {"type": "x"}},
}


@pytest.mark.parametrize("kind", FIRST_ROWS)
def test_claude_code_is_known_by_whatever_row_comes_first(kind: str, tmp_path: Path) -> None:
    first = {"type": kind, **FIRST_ROWS[kind]}
    t = Transcript()
    t.user("go")
    t.answer("a", 900, 5)
    for many in (1, 30):
        raw = b"".join(json.dumps(row).encode() + b"\n" for row in [first] * many + t.rows)
        assert known(tmp_path / "a", raw) == ["claude-code"], many


@pytest.mark.parametrize("kind", [k for k in FIRST_ROWS if k != "something-newer"])
def test_a_transcript_without_any_turn_is_known_and_holds_no_step(
    kind: str, tmp_path: Path
) -> None:
    row = {"type": kind, **FIRST_ROWS[kind]}
    for separators in ((",", ":"), (", ", ": ")):
        raw = json.dumps(row, separators=separators).encode() + b"\n"
        assert known(tmp_path / "a.jsonl", raw) == ["claude-code"]
        assert list(SOURCES["claude-code"].read(tmp_path / "a.jsonl", Context())) == []


@pytest.mark.parametrize("kind", ["progress", "system", "attachment"])
def test_claude_code_is_known_by_chained_rows_that_are_no_turn(kind: str, tmp_path: Path) -> None:
    t = Transcript()
    t.row(kind, data={"type": "hook_progress"}, subtype="init")
    assert known(tmp_path / "a", json.dumps(t.rows[0]).encode() + b"\n") == ["claude-code"]


def test_claude_code_is_known_by_a_first_row_longer_than_the_head(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * HEAD_BYTES}}
    row = {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/u",
        "sessionId": SESSION,
        "version": "2.1.0",
        "type": "user",
        "message": {"role": "user", "content": [image]},
        "uuid": "u1",
        "timestamp": "2026-01-01T00:00:00Z",
    }
    assert known(tmp_path / "a", json.dumps(row).encode() + b"\n") == ["claude-code"]


@pytest.mark.parametrize(
    "kind", ["session_meta", "turn_context", "response_item", "event_msg", "compacted"]
)
def test_codex_is_known_by_whatever_payload_comes_first(kind: str, tmp_path: Path) -> None:
    rollout = Rollout()
    rollout.row(kind, type="token_count", info=None, text="x" * HEAD_BYTES)
    assert known(tmp_path / "a", json.dumps(rollout.rows[-1]).encode() + b"\n") == ["codex"]


def test_a_sorted_rollout_with_a_long_system_prompt_is_known(tmp_path: Path) -> None:
    rollout = Rollout()
    rollout.rows[0]["payload"]["base_instructions"] = {"text": "You help. " * 2_000}
    rows = [json.dumps(row, sort_keys=True).encode() + b"\n" for row in rollout.rows]
    assert known(tmp_path / "a", b"".join(rows)) == ["codex"]


def test_a_request_log_whose_records_hold_a_session_inside_is_no_step_file(tmp_path: Path) -> None:
    request = {"model": "claude-x", "max_tokens": 5, "system": "S", "messages": []}
    record = {"ts": 1_700_000_000, "metadata": {"session": "s"}, "request": request}
    assert known(tmp_path / "a", json.dumps(record).encode() + b"\n") == ["anthropic-log"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "type", "role", "name", "a", "content", "model", "time"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def claimed(raw: bytes, name: str = "a.json") -> list[str]:
    head = Head(Path(name), raw)
    return [name for name, source in SOURCES.items() if source.detect(head)]


@settings(max_examples=50)
@given(st.lists(JSON, min_size=1, max_size=4))
def test_json_of_nobody_is_claimed_by_none(values: list[Any]) -> None:
    texts = [json.dumps(value).encode() for value in values]
    assert claimed(texts[0]) == []
    assert claimed(b"\n".join(texts), "a.jsonl") == []


@settings(max_examples=50)
@given(st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_bytes_of_nobody_are_claimed_by_none(raw: bytes) -> None:
    for magic in (b"", b"PAR1", b"PK\x03\x04", b"\x89PNG", b"%PDF-1.7\n", b"SQLite format 3\0"):
        assert claimed(magic + raw) == []


@pytest.mark.parametrize(
    "value",
    [
        {"name": "package", "version": "1.0", "dependencies": {"a": "^1"}},
        {"compilerOptions": {"strict": True}, "include": ["src"]},
        {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {}},
        {"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {}}]},
        {"cells": [{"cell_type": "code", "source": []}], "nbformat": 4, "metadata": {}},
        [{"id": 1, "title": "t", "userId": 3, "completed": False}],
        {"version": 1, "status": "ok", "messages": []},
        {"info": {"version": "1"}, "messages": ["hello"]},
        {"type": "session", "id": 1},
        {"type": "event_msg", "level": "info"},
        {"type": "summary", "text": "t"},
        {"level": "info", "time": 1_700_000_000, "msg": "request", "session": "s"},
    ],
)
def test_documents_of_other_programs_are_claimed_by_none(value: Any) -> None:
    for raw in (json.dumps(value).encode(), json.dumps(value, indent=2).encode() + b"\n"):
        assert claimed(raw) == []
    assert claimed(b"\n".join([json.dumps(value).encode()] * 3), "a.jsonl") == []


AGENTS = {
    "claude-code": "claude-code",
    "codex": "codex",
    "opencode": "opencode",
    "pi": "pi",
    "openclaw": "pi",
    "gemini-cli": "gemini-cli",
    "cline": "cline",
    "copilot-cli": "copilot-cli",
}


@pytest.mark.data
def test_every_real_recording_is_detected_as_its_own_format_and_no_other(
    shared_data: Path,
) -> None:
    seen: Counter[str] = Counter()
    wrong = []
    for path in sorted((shared_data / "traces").rglob("*.json*")):
        family = path.relative_to(shared_data / "traces").parts[0]
        head = read_head(path)
        found = {name for name in set(AGENTS.values()) if SOURCES[name].detect(head)}
        # The one file of OpenClaw that is no session: the telemetry beside it.
        own = None if ".trajectory." in path.name else AGENTS.get(family)
        if found != ({own} - {None}):
            wrong.append((str(path.relative_to(shared_data)), found))
        seen[family] += 1
    assert not wrong
    assert seen.keys() >= AGENTS.keys()
