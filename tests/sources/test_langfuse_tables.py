"""CSV and Parquet exports give what the JSON lines of the same rows give."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analyzer.model import LaneSteps, Problem
from analyzer.sources.base import Context, read_head
from analyzer.sources.langfuse.source import LangfuseSource

SOURCE = LangfuseSource()
MESSAGES = [{"role": "user", "content": 'a "quoted", line\nand another'}]


def row(number: int) -> dict[str, Any]:
    """A row of a blob export as JSON lines have it."""
    return {
        "id": f"obs{number}",
        "trace_id": "t",
        "project_id": "p",
        "type": "GENERATION",
        "parent_observation_id": "",
        "start_time": f"2026-10-02 09:14:0{number}.412000",
        "end_time": f"2026-10-02 09:14:0{number}.951000",
        "metadata": {"step": "3"},
        "input": json.dumps(MESSAGES * number),
        "output": "fine",
        "provided_model_name": "claude-sonnet-4-5",
        "usage_details": {"input": 5, "output": 2, "cache_read_input_tokens": 100},
        "total_cost": 0.25,
        "session_id": "s",
        "tags": ["a", "b"],
        "prompt_version": None,
    }


ROWS = [row(1), row(2)]


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    for values in rows:
        writer.writerow(
            {
                k: json.dumps(v) if isinstance(v, dict | list) else ("" if v is None else v)
                for k, v in values.items()
            }
        )
    return out.getvalue().encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    kinds: dict[str, pa.DataType] = {
        "metadata": pa.map_(pa.string(), pa.string()),
        "usage_details": pa.map_(pa.string(), pa.int64()),
        "start_time": pa.timestamp("us"),
        "end_time": pa.timestamp("us"),
        "total_cost": pa.float64(),
        "tags": pa.list_(pa.string()),
    }
    columns = {}
    for name in rows[0]:
        values = [r[name] for r in rows]
        if name in ("start_time", "end_time"):
            values = [datetime.fromisoformat(v) for v in values]
        values = [list(v.items()) if isinstance(v, dict) else v for v in values]
        columns[name] = pa.array(values, kinds.get(name, pa.string()))
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(r).encode() for r in rows)


def read(path: Path, content: bytes) -> list[LaneSteps | Problem]:
    path.write_bytes(content)
    assert SOURCE.detect(read_head(path))
    return list(SOURCE.read(path, Context()))


def test_a_span_without_counts_is_no_problem_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "spans.parquet"
    span = {**row(3), "type": "SPAN", "usage_details": {}, "metadata": {}}
    path.write_bytes(as_parquet([*ROWS, span]))
    found = list(SOURCE.read(path, Context("default", "", True)))
    assert not [entry for entry in found if isinstance(entry, Problem)]


@pytest.mark.parametrize("written", [as_csv, as_parquet, lambda rows: gzip.compress(as_csv(rows))])
def test_a_table_gives_what_the_lines_give(written: Any, tmp_path: Path) -> None:
    expected = read(tmp_path / "lines", as_lines(ROWS))
    assert isinstance(expected[0], LaneSteps)
    assert len(expected[0].steps) == 2
    assert read(tmp_path / "table", written(ROWS)) == expected


def test_a_table_that_was_cut_off_gives_a_problem(tmp_path: Path) -> None:
    found = read(tmp_path / "cut.csv", as_csv(ROWS)[:-20])
    problems = [f for f in found if isinstance(f, Problem)]
    assert [(p.line, p.path) for p in problems] == [(2, str(tmp_path / "cut.csv"))]
    assert sum(len(f.steps) for f in found if isinstance(f, LaneSteps)) == 1
    path = tmp_path / "cut.parquet"
    path.write_bytes(as_parquet(ROWS)[:-20])
    assert not SOURCE.detect(read_head(path))
    damaged = list(SOURCE.read(path, Context()))
    assert [type(f) for f in damaged] == [Problem]


def test_other_tables_are_not_taken_for_langfuse(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"id,name\n1,x\n")
    (tmp_path / "b").write_bytes(as_parquet([{"id": "1", "name": "x"}]))
    assert not SOURCE.detect(read_head(tmp_path / "a"))
    assert not SOURCE.detect(read_head(tmp_path / "b"))
