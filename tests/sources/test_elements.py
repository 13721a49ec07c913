"""Documents whose arrays stay in their file read like documents that are read whole."""

from __future__ import annotations

import gzip
import io
import json
import random
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from analyzer.errors import DecodeError
from analyzer.model import Problem, SessionKey
from analyzer.reading.growing import GrowingPath
from analyzer.sources import SOURCES, documents, elements, history, inspect_eval
from analyzer.sources.base import Context
from analyzer.sources.decode import dump, parse
from analyzer.sources.elements import StoredArray, read_large
from tests.samples import Sample, samples

OWN_WAYS = ("otlp", "langfuse")
"""Sources that find the rows of a file by themselves."""
DOCUMENTS = [s for s in samples() if s.form in ("document", "zip") and s.source not in OWN_WAYS]
FILES = {("zip", "plain"), *(("document", p) for p in ("plain", "gzip", "zstd"))}
SCALARS = st.none() | st.booleans() | st.integers(-9, 10**12) | st.text('a"\\[]{}, é\n\0\U0001f600')
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text('ab\\"[', max_size=2), inner)
    ),
    max_leaves=25,
)


def limit(patch: pytest.MonkeyPatch, buffer: int, held: int, rest: int = 1 << 30) -> None:
    patch.setattr(elements, "READ_BUFFER", buffer)
    patch.setattr(elements, "HELD_LIMIT", held)
    patch.setattr(elements, "REST_LIMIT", rest)
    patch.setattr(documents, "HELD_LIMIT", held)
    patch.setattr(inspect_eval, "HELD_LIMIT", held)


def large(raw: bytes, begun: int = 0) -> Any:
    """What `read_large` makes of a text of which some bytes were read before."""

    def opened() -> AbstractContextManager[IO[bytes]]:
        return io.BytesIO(raw)

    stream = io.BytesIO(raw)
    return read_large(opened, stream, stream.read(begun))


def plain(value: Any) -> Any:
    """A value with nothing left in a file."""
    return json.loads(dump(value))


@given(
    VALUES, st.integers(1, 40), st.integers(1, 60), st.integers(0, 50), st.sampled_from([None, 1])
)
def test_a_document_is_what_parsing_it_gives(
    value: Any, buffer: int, held: int, begun: int, indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=bool(buffer % 2))
    raw = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, buffer, held)
        patch.setattr(elements, "LEVELS", 1000)
        assert plain(large(raw, begun)) == value


@given(VALUES, st.data())
def test_a_damaged_text_is_read_or_refused_as_by_parsing_it(
    value: Any, data: st.DataObject
) -> None:
    raw = bytearray(json.dumps(value), "utf-8")
    at = data.draw(st.integers(0, len(raw) - 1))
    match data.draw(st.sampled_from(["cut", "swap", "insert"])):
        case "cut":
            del raw[at:]
        case "swap":
            raw[at] = data.draw(st.sampled_from(b'[]{}",:\\ 1'))
        case _:
            raw[at:at] = data.draw(
                st.sampled_from([b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"[0]"])
            )
    try:
        expected = plain(parse(bytes(raw)))
    except DecodeError:
        expected = DecodeError
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, data.draw(st.integers(1, 20)), data.draw(st.integers(4, 60)))
        patch.setattr(elements, "LEVELS", 1000)
        try:
            got = plain(large(bytes(raw)))
        except DecodeError:
            got = DecodeError
    assert got == expected


def test_elements_are_found_by_index_slice_and_in_any_order() -> None:
    rows = [{"n": n} if n % 3 else n for n in range(50)]
    stored = large(json.dumps({"rows": rows}).encode())["rows"]
    assert isinstance(stored, StoredArray)
    order = list(range(50)) * 2
    random.Random(1).shuffle(order)
    assert [stored[i] for i in order] == [rows[i] for i in order]
    assert stored[-1] == rows[-1]
    assert list(stored[3:9:2]) == rows[3:9:2]
    assert list(reversed(stored)) == rows[::-1]
    with pytest.raises(IndexError):
        stored[50]


def test_asking_for_one_element_after_the_other_opens_the_file_once() -> None:
    raw = json.dumps([{"n": n} for n in range(100)]).encode()
    openings = []

    def opened() -> AbstractContextManager[IO[bytes]]:
        openings.append(1)
        return io.BytesIO(raw)

    stored = read_large(opened)
    assert isinstance(stored, StoredArray)
    openings.clear()
    for i in range(100):
        assert stored[i] == stored[i] == {"n": i}
    assert len(openings) == 1


def test_of_two_equal_keys_the_last_one_counts() -> None:
    assert plain(large(b'{"a": [{"x": 1}, [2]], "b": 1, "a": [{"x": 3}]}')) == {
        "a": [{"x": 3}],
        "b": 1,
    }


def test_a_byte_order_mark_shifts_no_element() -> None:
    raw = b'\xef\xbb\xbf[{"a": 1}, {"b": 2}]'
    assert plain(large(raw, 3)) == plain(large(raw)) == [{"a": 1}, {"b": 2}]


def test_a_file_that_changed_is_an_error_of_the_file() -> None:
    files = [b'[{"a": 1}, {"b": 2}]', b'[{"a": 1}, {"b', b'[{"a": 1}, {"b"! 2}]']
    for changed in files[1:]:
        now = iter([files[0], changed])
        stored = read_large(lambda: io.BytesIO(next(now)))  # noqa: B023 - used within the turn
        assert isinstance(stored, StoredArray)
        with pytest.raises(OSError, match="while it was read"):
            list(stored)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"a": "' + b"x" * 500 + b'"}', "at most 200 bytes"),
        (b'{"a": {"b": [' + b"1," * 300 + b"1]}}", "at most 200 bytes"),
        (b"[[[[" + b'{"a": "1234567890"},' * 30 + b"1]]]]", "elements of at most 100 bytes"),
        (b"[" * 20_000, "deeper nesting"),
    ],
)
def test_what_cannot_be_held_is_refused_with_the_limit(
    raw: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 16, 100, 200)
    monkeypatch.setattr(elements, "HELD_LIMIT", 100)
    with pytest.raises(DecodeError, match=message):
        large(raw)


def read(sample: Sample, path: Path) -> list[Any]:
    """Everything of a file, batches of a lane joined; a batch's title is that of its lane."""
    source = SOURCES[sample.source]
    lanes: dict[Any, list[Any]] = {}
    problems = []
    for entry in source.read(path, Context()):
        if isinstance(entry, Problem):
            problems.append((entry.line, entry.pointer, entry.message))
            continue
        lane = lanes.setdefault((entry.session, entry.lane), [[], [], None, None])
        lane[0] += entry.steps
        lane[1] += entry.tail_parts
        lane[2] = entry.parent or lane[2]
        lane[3] = entry.title or lane[3]
    return [lanes, problems]


@pytest.mark.parametrize(
    ("sample", "packed"),
    [(s, p) for s in DOCUMENTS for p in ("plain", "gzip", "zstd") if (s.form, p) in FILES],
    ids=lambda value: value if isinstance(value, str) else f"{value.source}-{value.form}",
)
def test_a_source_reads_a_large_document_as_it_reads_a_small_one(
    sample: Sample, packed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On one line, a document is also a file of lines to some sources.
    raw = sample.encode(indent=1)
    if packed == "gzip":
        raw = gzip.compress(raw)
    elif packed == "zstd":
        raw = zstandard.compress(raw)
    path = tmp_path / sample.name
    path.write_bytes(raw)
    small = read(sample, path)
    assert small[0]
    monkeypatch.setattr(history, "BATCH_STEPS", 1)
    for held in (40, 300):
        limit(monkeypatch, 64, held)
        monkeypatch.setattr(elements, "LEVELS", 1000)
        assert read(sample, path) == small


@pytest.mark.parametrize("sample", DOCUMENTS, ids=lambda s: f"{s.source}-{s.form}")
def test_a_damaged_large_document_ends_in_a_problem(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 64, 40)
    path = tmp_path / sample.name
    raw = sample.encode(indent=1)
    for share in (0.3, 0.6, 0.95):
        path.write_bytes(raw[: int(len(raw) * share)])
        _, problems = read(sample, path)
        assert problems


def test_a_large_document_is_followed_from_its_only_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 16, 40)
    path = tmp_path / "a.json"
    rows = [{"n": n} for n in range(50)]
    raw = json.dumps({"messages": rows}).encode()
    path.write_bytes(raw[:200])
    rest = iter([raw[200:]])

    def at_end() -> bool:
        more = next(rest, b"")
        with path.open("ab") as file:
            file.write(more)
        return bool(more)

    document, failed = documents.read_document(GrowingPath.of(path, at_end))
    assert failed is None
    assert plain(document) == {"messages": rows}


def test_batches_of_a_lane_come_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "BATCH_CHARS", 100)
    lane = history.HistoryLane(SessionKey("p", "", "s"))
    sizes = []
    for n in range(6):
        lane.say({"role": "user", "content": f"{n}" * 60})
        lane.step(history.Call(key=f"k{n}"), {"content": "ok"})
        sizes += [len(batch.steps) for batch in lane.ready()]
    assert sizes == [2, 2, 2]
    assert len(lane) == 6
    assert lane.take("title").steps == ()
