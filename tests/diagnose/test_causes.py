from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from analyzer.diagnose import diagnose_lane
from analyzer.diagnose.base import changed_span
from analyzer.diagnose.volatile_prefix import volatile_kind
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.claude_code import ClaudeCodeSource
from tests.builders import (
    MODEL,
    START,
    Transcript,
    anthropic_records,
    clear_once,
    keep_newest,
    write_lines,
)
from tests.reading import ledger


def judge(tmp_path: Path, records):
    path = write_lines(tmp_path / "run.jsonl", records)
    return diagnose_lane(ledger(AnthropicLogSource(), path))


def kinds(diagnosis) -> Counter[str]:
    return Counter(v.kind for v in diagnosis.verdicts)


def test_a_healthy_run_has_no_finding(tmp_path) -> None:
    found = judge(tmp_path, anthropic_records(20))
    assert kinds(found) == {"first": 1, "healthy": 19}
    assert found.findings == ()


def test_sliding_stubs_are_one_finding_with_range_and_dollars(tmp_path) -> None:
    found = judge(tmp_path, anthropic_records(24, shape=keep_newest(8)))
    (finding,) = found.findings
    assert finding.kind == "sliding-stubs"
    assert (finding.first_step, finding.last_step, len(finding.steps)) == (9, 23, 15)
    assert finding.inferred is False
    assert finding.evidence["index_growth_per_step"] == 2
    assert finding.evidence["stubs_per_step"] == 1
    assert "Old tool result" in finding.evidence["now"]
    rows = found.ledger.rows
    assert finding.wasted_usd == sum(r.wasted_usd for r in rows if r.is_break)


def test_a_batch_clear_is_one_break_and_not_churn(tmp_path) -> None:
    found = judge(tmp_path, anthropic_records(24, shape=clear_once(15, 5)))
    (finding,) = found.findings
    assert finding.kind == "history-mutated"
    assert finding.steps == (15,)


def test_a_clock_in_the_system_prompt_is_named_as_such(tmp_path) -> None:
    def clock(step: int) -> str:
        return f"Current time: {(START + timedelta(seconds=7 * step)).isoformat()}\n"

    found = judge(tmp_path, anthropic_records(12, system=clock))
    (finding,) = found.findings
    assert finding.kind == "volatile-prefix"
    assert len(finding.steps) == 11
    assert finding.evidence["varies"] == "a clock"
    assert all(r.divergence_index == -1 for r in found.ledger.rows[1:])


def test_a_changed_tool_list_names_the_tools(tmp_path) -> None:
    found = judge(tmp_path, anthropic_records(16, tools=lambda step: 4 if step == 8 else 3))
    (finding,) = found.findings
    assert finding.kind == "tools-changed"
    assert finding.steps == (8,)
    assert finding.evidence["added"] == ["tool3"]


def test_a_model_switch_is_a_change_of_settings(tmp_path) -> None:
    records = anthropic_records(10)
    for record in records[6:]:
        record["response"]["model"] = "claude-opus-4-8"
    usage = records[6]["response"]["usage"]
    usage["cache_creation_input_tokens"] += usage["cache_read_input_tokens"]
    usage["cache_creation"]["ephemeral_5m_input_tokens"] = usage["cache_creation_input_tokens"]
    usage["cache_read_input_tokens"] = 0
    (finding,) = judge(tmp_path, records).findings
    assert finding.kind == "settings-changed"
    assert finding.evidence["was"] == MODEL


@pytest.mark.parametrize(("gap", "broken"), [(299.0, False), (301.0, True)])
def test_a_gap_beyond_the_lifetime_is_an_expiry(tmp_path, gap, broken) -> None:
    records = anthropic_records(10, gap=lambda step: gap if step == 5 else 10.0)
    usage = records[5]["response"]["usage"]
    usage["cache_creation_input_tokens"] += usage["cache_read_input_tokens"]
    usage["cache_creation"]["ephemeral_5m_input_tokens"] = usage["cache_creation_input_tokens"]
    usage["cache_read_input_tokens"] = 0
    (finding,) = judge(tmp_path, records).findings
    assert finding.kind == ("ttl-expired" if broken else "routing-or-eviction")
    assert finding.expected is False


def transcript(reads) -> Transcript:
    """A transcript with given (read, write) per step; each result is 800 tokens or so."""
    t = Transcript()
    t.user("go")
    for n, (read, write) in enumerate(reads):
        t.answer(str(n), read, write)
        t.result(f"call-{n}", "some result text to read and to forget " * 80, wait=8)
    return t


def from_transcript(tmp_path, t: Transcript):
    return diagnose_lane(ledger(ClaudeCodeSource(), t.write(tmp_path)))


def grown(n: int, start: int = 20_000, step: int = 900):
    """Usage of n healthy steps."""
    return [(0, start)] + [(start + step * (i - 1), step) for i in range(1, n)]


def test_stubs_out_of_sight_are_inferred_from_the_signature_of_usage(tmp_path) -> None:
    healthy = grown(12)
    total = sum(healthy[-1])
    # From here on every step drops about as much as it adds, and only the system prompt is read.
    churning = [(18_000, total + 100 * i - 18_000) for i in range(1, 16)]
    found = from_transcript(tmp_path, transcript(healthy + churning))
    (finding,) = found.findings
    assert finding.kind == "sliding-stubs"
    assert finding.inferred is True
    assert (finding.first_step, finding.last_step) == (12, 26)


def test_reading_nothing_within_the_lifetime_is_inferred_as_a_changed_head(tmp_path) -> None:
    reads = grown(10)
    total = sum(reads[-1]) + 900
    reads += [(0, total), (total, 900)]
    (finding,) = from_transcript(tmp_path, transcript(reads)).findings
    assert (finding.kind, finding.inferred, finding.steps) == ("tools-changed", True, (10,))


def test_a_partial_miss_without_any_change_is_not_blamed_on_the_client(tmp_path) -> None:
    reads = grown(10)
    total = sum(reads[-1]) + 900
    reads += [(18_000, total - 18_000), (total, 900)]
    (finding,) = from_transcript(tmp_path, transcript(reads)).findings
    assert finding.kind == "routing-or-eviction"


def test_a_person_who_was_away_makes_an_expiry_expected(tmp_path) -> None:
    t = transcript(grown(6))
    t.user("and now?", wait=4_000)
    t.answer("late", 0, 26_000)
    found = from_transcript(tmp_path, t)
    (finding,) = found.findings
    assert (finding.kind, finding.expected) == ("ttl-expired", True)


def test_a_compaction_is_priced_only_for_the_prefix_that_should_have_held(tmp_path) -> None:
    t = transcript(grown(8))
    t.row("system", subtype="compact_boundary", compactMetadata={"preTokens": 26_000})
    t.user("the summary " * 50, isCompactSummary=True)
    t.answer("after", 18_000, 2_000)
    found = from_transcript(tmp_path, t)
    assert found.verdicts[-1].kind == "compaction"
    assert found.verdicts[-1].expected is True
    assert found.findings == ()


@pytest.mark.parametrize(
    ("was", "now", "what"),
    [
        ("at 2026-01-02T03:04:05 x", "at 2026-01-02T03:04:09 x", "a clock"),
        ("today is 2026-01-02.", "today is 2026-01-03.", "a date"),
        (
            "id 3f2b8c1d-aaaa-4bbb-8ccc-0123456789ab",
            "id 9e2b8c1d-aaaa-4bbb-8ccc-0123456789ab",
            "a uuid",
        ),
        ("commit 3f9c2b71aa0d x", "commit 99ab2b71aa0e x", "a hash or nonce"),
        ("call 17 of", "call 18 of", "a counter"),
        ("be kind", "be brief", None),
    ],
)
def test_what_varies_is_named(was, now, what) -> None:
    assert volatile_kind(was, now) == what


def test_the_changed_span_leaves_equal_head_and_tail_out() -> None:
    start, was_end, now_end = changed_span("abcXXdef", "abcYdef")
    assert ("abcXXdef"[start:was_end], "abcYdef"[start:now_end]) == ("XX", "Y")


TRUE_KIND = {
    "sliding_stub": "sliding-stubs",
    "ttl_expiry": "ttl-expired",
    "model_switch": "settings-changed",
    "tools_changed": "tools-changed",
    "compaction": "compaction",
}


@pytest.mark.data
@pytest.mark.parametrize(("seed", "rule"), [(20261130, "marks"), (3, "prefix"), (8, "marks")])
def test_causes_and_waste_of_the_generated_set_equal_its_truth(
    shared_data, tmp_path, seed, rule
) -> None:
    script = shared_data / "generators" / "transcripts.py"
    env = {**os.environ, "SEED": str(seed), "RULE": rule}
    subprocess.run(
        [sys.executable, script, "small", tmp_path], env=env, check=True, capture_output=True
    )
    truth = json.loads((tmp_path / "truth.json").read_text())
    wasted = Decimal(0)
    for session in truth["sessions"]:
        if session["name"] == "resumed":
            continue
        lane = session["agent"] or "main"
        found = diagnose_lane(ledger(ClaudeCodeSource(), tmp_path / session["file"], lane))
        got = {r.step: v.kind for r, v in zip(found.ledger.rows, found.verdicts, strict=True)}
        want = {b["step"]: TRUE_KIND[b["cause"]] for b in session["breaks"]}
        assert {k: v for k, v in got.items() if v not in ("healthy", "first")} == want
        cost = sum(r.cost_usd for r in found.ledger.rows)
        assert abs(float(cost) - session["cost"]) < 0.000_001
        wasted += sum((f.wasted_usd for f in found.findings), Decimal(0))
    without = sum(s["wasted"] for s in truth["sessions"] if s["name"] != "resumed")
    assert abs(float(wasted) / without - 1) < 0.02
