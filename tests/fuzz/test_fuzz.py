"""No file, however spoiled, makes a reader raise, hang, take all memory or give what cannot be.

`make fuzz` looks for longer; a finding becomes a case here.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.sources import SOURCES
from tests.fuzz.mutations import RAW, VALUES, spoiled
from tests.fuzz.reading import read
from tests.samples import CHECKOUT, Sample, samples
from tests.sources import test_atif as atif
from tests.sources import test_langfuse as langfuse
from tests.sources import test_mini_swe_agent as mini
from tests.sources import test_openhands as openhands
from tests.sources import test_vcr as vcr

SAMPLES = list(samples())
HUGE = 10**400


def of(sample: Sample) -> str:
    return f"{sample.source}-{sample.name}"


def test_every_source_has_a_sample_that_reads_cleanly(tmp_path: Path) -> None:
    assert {sample.source for sample in SAMPLES} == set(SOURCES)
    for sample in SAMPLES:
        path = tmp_path / sample.name
        path.write_bytes(sample.encode())
        steps, problems = read(sample.source, path)
        assert steps, of(sample)
        assert not problems, of(sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=of)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_a_spoiled_recording_gives_steps_and_problems_only(sample: Sample, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, sample.name)
        path.write_bytes(spoiled(random.Random(seed), sample))
        read(sample.source, path)


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=25)
@given(raw=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_give_steps_and_problems_only(name: str, raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(raw)
        read(name, path)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.form != "bytes"], ids=of)
def test_each_value_in_turn_may_be_anything(sample: Sample, tmp_path: Path) -> None:
    """Every key of a sample takes values of every kind; all of them is `make fuzz`."""
    rng = random.Random(of(sample))
    path = tmp_path / sample.name
    for place in paths_of(sample.value):
        for value in rng.sample(VALUES, 1):
            path.write_bytes(spoiled_at(sample, place, value))
            read(sample.source, path)


def paths_of(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return []
    found = []
    for key, held in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((*at, key))
        found += paths_of(held, (*at, key))
    return found


def spoiled_at(sample: Sample, place: tuple[Any, ...], value: Any) -> bytes:
    whole = json.loads(json.dumps(sample.value))
    holder = whole
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    raw = sample.encode(whole)
    for name, text in RAW.items():
        raw = raw.replace(json.dumps(f"\x01{name}\x01").encode(), text.encode())
    return raw


def test_the_command_hunts_within_a_bound_of_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seconds", "3", "--seed", "7", "--memory", "2500"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files" in done.stdout


# -- what was found once ----------------------------------------------------------------------


def expect(path: Path, source: str, raw: bytes, steps: int, problems: int) -> None:
    path.write_bytes(raw)
    assert read(source, path) == (steps, problems)


def test_a_page_with_an_endless_number_gives_the_rows_before_it(tmp_path: Path) -> None:
    rows = [langfuse.row(1), langfuse.row(2)]
    raw = json.dumps({"data": rows}).encode()[:-3] + b',"n":' + b"9" * 5000 + b"}]}"
    expect(tmp_path / "a.json", "langfuse", raw, 1, 1)


def test_a_cost_that_no_float_holds_costs_its_step_alone(tmp_path: Path) -> None:
    run = mini.run()
    run["messages"][2]["extra"]["cost"] = HUGE
    expect(tmp_path / "a.json", "mini-swe-agent", json.dumps(run).encode(), 1, 1)
    trajectory = atif.run()
    trajectory["steps"][2]["metrics"]["cost_usd"] = True
    expect(tmp_path / "b.json", "atif", json.dumps(trajectory).encode(), 1, 1)


@pytest.mark.parametrize("cost", ["Infinity", "1e999", "nan", HUGE, -1], ids="abcde")
def test_a_cost_of_langfuse_that_is_none_is_unknown(tmp_path: Path, cost: Any) -> None:
    raw = langfuse.page([langfuse.row(1, totalCost=cost)])
    expect(tmp_path / "a.json", "langfuse", raw, 1, 0)


def test_a_count_of_helpers_that_is_none_costs_that_request_alone(tmp_path: Path) -> None:
    run = openhands.run()
    run["metrics"]["token_usages"].append(openhands.counted("unseen", {}))  # type: ignore[arg-type]
    expect(tmp_path / "a.jsonl", "openhands", json.dumps(run).encode() + b"\n", 2, 1)


def test_an_address_that_is_none_names_no_provider(tmp_path: Path) -> None:
    call = vcr.chat_call()
    call["request"]["uri"] = "http://[::1/v1/chat/completions"
    expect(tmp_path / "a.yaml", "vcr", vcr.write(tmp_path / "b", call).read_bytes(), 1, 0)


def test_a_date_at_the_edge_of_time_is_no_date(tmp_path: Path) -> None:
    call = vcr.chat_call()
    call["response"]["headers"] = {"Date": ["Fri, 31 Dec 9999 23:59:59 -1400"]}
    expect(tmp_path / "a.yaml", "vcr", vcr.write(tmp_path / "b", call).read_bytes(), 1, 0)


def test_a_log_that_an_unknown_zip_program_wrote_is_a_problem(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("header.json", "{}")
    raw = bytearray(made.getvalue())
    raw[raw.index(b"PK\x01\x02") + 6] = 151
    expect(tmp_path / "a.eval", "inspect", bytes(raw), 0, 1)


def test_a_parquet_text_that_is_no_text_is_a_problem(tmp_path: Path) -> None:
    text = pa.array([b"\xe5abc"]).view(pa.utf8())
    columns = {"id": ["a"], "trace_id": ["t"], "start_time": [1], "name": text}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    expect(tmp_path / "a.parquet", "langfuse", out.getvalue(), 0, 1)


def test_a_parquet_time_behind_all_time_is_a_problem(tmp_path: Path) -> None:
    times = pa.array([2**62], pa.timestamp("us"))
    out = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"], "trace_id": ["t"], "start_time": times}), out)
    expect(tmp_path / "a.parquet", "langfuse", out.getvalue(), 0, 1)


def test_a_compaction_of_impossible_size_is_one_of_unknown_size(tmp_path: Path) -> None:
    rows = next(s for s in SAMPLES if s.source == "claude-code").value
    rows = json.loads(json.dumps(rows))
    boundary = next(row for row in rows if row.get("subtype") == "compact_boundary")
    boundary["compactMetadata"]["preTokens"] = 2**63
    raw = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    expect(tmp_path / "a.jsonl", "claude-code", raw, 4, 0)


def test_a_duration_past_all_time_gives_no_end(tmp_path: Path) -> None:
    record = {"at": "9999-12-31T23:59:59Z", "duration_s": 9e8, "messages": [], "model": "claude"}
    expect(tmp_path / "a.jsonl", "anthropic-log", json.dumps(record).encode() + b"\n", 1, 0)
