"""The shared generator of full-prompt logs: five runs a seed, each with one known cause or none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from analyzer.diagnose import diagnose_lane
from analyzer.sources.anthropic_log import AnthropicLogSource
from tests.reading import ledger

CAUSES = {
    "healthy": None,
    "stub_churn": "sliding-stubs",
    "watermark": "history-mutated",
    "ts_system": "volatile-prefix",
    "tools_changed": "tools-changed",
}


@pytest.mark.data
@pytest.mark.parametrize(("seed", "rule"), [(5, "marks"), (11, "prefix"), (42, "marks")])
def test_every_generated_run_has_its_one_cause(shared_data, tmp_path, seed, rule) -> None:
    script = shared_data / "generators" / "requests.py"
    env = {**os.environ, "SEED": str(seed), "RULE": rule}
    subprocess.run([sys.executable, script, tmp_path], env=env, check=True, capture_output=True)
    for run, cause in CAUSES.items():
        found = diagnose_lane(ledger(AnthropicLogSource(), tmp_path / f"{run}.rr.jsonl"))
        kinds = Counter(v.kind for v in found.verdicts)
        assert set(kinds) - {"first", "healthy"} == ({cause} if cause else set()), run
        assert [f.kind for f in found.findings] == ([cause] if cause else []), run
        assert not any(v.inferred for v in found.verdicts)
        if run == "ts_system":
            assert kinds[cause] == 39
            assert found.findings[0].evidence["varies"] == "a clock"
        if run == "tools_changed":
            assert found.findings[0].steps == (20,)
