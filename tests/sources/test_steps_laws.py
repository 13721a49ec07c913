"""Laws of reading step JSONL, over generated lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.sources.steps import validate_file
from analyzer.sources.steps_rows import StepRow
from tests.step_rows import Read, Row, oracle, result, user, whole, write_lines

ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.sampled_from(
        ["", "a", "²", "\ud83d", "9" * 40, "0001-01-01T00:00:00+14:00", "5m", "user"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "index", "message", "messages", "ttl", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    rows=st.lists(st.dictionaries(st.sampled_from(StepRow.__struct_fields__), ODD), max_size=6),
    escaped=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_a_field_nothing_is_raised(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], escaped: bool
) -> None:
    path = tmp_path_factory.mktemp("odd") / "a.jsonl"
    lines = [json.dumps({**row, "session": "s"}, ensure_ascii=escaped) for row in rows]
    lines += [json.dumps(whole(user("hi")))]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass") + b"\n")
    read = Read(path)
    assert len(read.steps) + len(read.problems) >= 1
    # Steps come lane by lane, and an odd row may be a lane of its own.
    sent = [read.bodies(n) for n, step in enumerate(read.steps) if step.prompt is not None]
    assert ["S", "hi"] in sent
    validate_file(path)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list[Row], Row]]:
    """Prompts of one lane with the deltas that lead from each to the next."""
    text = st.sampled_from(["a", "b", "é", '"messages":[', "]},{", "x" * 50])
    fresh = st.builds(user, text) | st.builds(result, st.sampled_from(["t1", "t2"]), text)
    messages: list[Row] = []
    out: list[tuple[list[Row], Row]] = []
    for _ in range(draw(st.integers(1, 6))):
        delta: Row = {}
        if messages and draw(st.booleans()):
            index = draw(st.integers(0, len(messages) - 1))
            delta["replace"] = [{"index": index, "message": draw(fresh)}]
            messages = [*messages]
            messages[index] = delta["replace"][0]["message"]
        if messages and draw(st.integers(0, 3)) == 0:
            start = draw(st.integers(0, len(messages) - 1))
            stop = draw(st.integers(start, len(messages)))
            delta["drop"] = [[start, stop]]
            messages = messages[:start] + messages[stop:]
        delta["append"] = draw(st.lists(fresh, max_size=3))
        messages = [*messages, *delta["append"]]
        out.append((messages, delta))
    return out


@given(history=histories(), spaced=st.booleans(), decoy=st.booleans())
@settings(max_examples=120, deadline=None)
def test_whole_prompts_and_deltas_give_the_prompts_that_were_sent(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[list[Row], Row]],
    spaced: bool,
    decoy: bool,
) -> None:
    folder = tmp_path_factory.mktemp("steps")
    requests = [{"tools": [{"name": "grep"}], "messages": messages} for messages, _ in history]
    # A field of the same name before the prompt must not be taken for it.
    extra: Row = {"labels": {"messages": [user("a")]}} if decoy else {}
    rows = [{"session": "s", **extra, "request": request} for request in requests]
    separators = (", ", ": ") if spaced else (",", ":")
    lines = "".join(json.dumps(row, separators=separators) + "\n" for row in rows)
    full = folder / "full.jsonl"
    full.write_text(lines)
    first = {"session": "s", "id": 0, "request": {"tools": [{"name": "grep"}], "messages": []}}
    deltas = [{"session": "s", "id": n, **delta} for n, (_, delta) in enumerate(history, 1)]
    short = Read(write_lines(folder / "short.jsonl", [first, *deltas]))
    read = Read(full)
    assert read.problems == short.problems == []
    for n, request in enumerate(requests):
        assert read.digests(n) == oracle(request)
        assert short.digests(n + 1) == oracle(request)
