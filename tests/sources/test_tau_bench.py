from __future__ import annotations

import gzip
import json

import pytest

from analyzer.sources.base import read_head
from analyzer.sources.tau_bench import TauBenchSource
from tests.reading import batches

SOURCE = TauBenchSource()


def run(task: int, trial: int, said: str = "Hello") -> dict:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    return {
        "task_id": task,
        "reward": 1.0,
        "info": {"source": "user"},
        "traj": [
            {"role": "system", "content": "Policy."},
            {"role": "user", "content": said},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "name": "find", "content": "found"},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "###STOP###"},
        ],
        "trial": trial,
    }


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_each_run_is_a_session_and_each_answer_a_step(tmp_path) -> None:
    path = write(tmp_path / "gpt-4o.json", [run(0, 0), run(0, 1), run(1, 0)])
    assert SOURCE.detect(read_head(path))
    found, problems = batches(SOURCE, path)
    assert not problems
    assert len({b.session.session_id for b in found}) == 3
    assert found[0].session.session_id.startswith("gpt-4o/task-0/trial-0-")
    for batch in found:
        assert [len(s.prompt) for s in batch.steps] == [2, 4]
        assert [s.human for s in batch.steps] == [True, False]
        assert all(s.usage is None and not s.prompt.recorded for s in batch.steps)
        assert dict(batch.steps[0].labels)["reward"] == "1.0"


def test_bad_runs_and_messages_are_problems(tmp_path) -> None:
    bad = run(2, 0)
    bad["traj"][3] = 5
    path = write(tmp_path / "r.json", [None, {"task_id": 1}, bad, run(3, 0)])
    found, problems = batches(SOURCE, path)
    assert [p.pointer for p in problems] == ["$[0]", "$[1].traj", "$[2].traj[3]"]
    assert [len(b.steps) for b in found] == [2, 2]
    assert len(batches(SOURCE, write(tmp_path / "o.json", {"a": 1}))[1]) == 1


@pytest.mark.data
def test_every_answer_of_the_real_file_is_a_step(shared_data) -> None:
    (path,) = (shared_data / "traces" / "tau-bench").rglob("*.json.gz")
    runs = json.loads(gzip.decompress(path.read_bytes()))
    found, problems = batches(SOURCE, path)
    assert not problems
    assert len({b.session for b in found}) == len(runs)
    assert [len(b.steps) for b in found] == [
        sum(m["role"] == "assistant" for m in r["traj"]) for r in runs
    ]
