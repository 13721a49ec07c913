from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.diagnose import diagnose_lane
from analyzer.diagnose.variation import changed_span, volatile_kind
from analyzer.ledger import lane_ledger
from analyzer.pricing import PriceBook
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
from tests.reading import lanes, ledger


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


@pytest.mark.parametrize(("every", "kind"), [(1, "sliding-stubs"), (3, "history-mutated")])
def test_clearing_in_batches_every_few_steps_is_not_sliding(tmp_path, every, kind) -> None:
    def shape(messages, step):
        if step % every == 0:
            keep_newest(6)(messages, step)

    (finding,) = judge(tmp_path, anthropic_records(30, shape=shape)).findings
    assert (finding.kind, len(finding.steps) > 5) == (kind, True)


@pytest.mark.parametrize("size", [14, 15])
def test_a_window_that_drops_the_first_message_is_one_sliding_window(tmp_path, size) -> None:
    def shape(messages, step):
        del messages[:-size]

    (finding,) = judge(tmp_path, anthropic_records(40, shape=shape)).findings
    assert (finding.kind, finding.last_step, finding.inferred) == ("sliding-window", 39, False)
    assert finding.evidence["first_message"] == finding.evidence["last_message"] == 0


def test_arguments_that_slide_into_stubs_are_sliding_stubs(tmp_path) -> None:
    def shape(messages, step):
        sent = [m for m in messages if m["role"] == "assistant"]
        for n, message in enumerate(reversed(sent)):
            text = "what is written to the file " * 40 if n < 8 else "(left out)"
            *said, block = message["content"]
            message["content"] = [*said, {**block, "input": {"text": text}}]

    (finding,) = judge(tmp_path, anthropic_records(24, shape=shape)).findings
    assert (finding.kind, finding.evidence["stubs_per_step"]) == ("sliding-stubs", 1)


@pytest.mark.parametrize(
    ("provider", "calls", "texts", "kind"),
    [
        ("anthropic", 1, 17, "routing-or-eviction"),
        ("anthropic", 1, 18, "lookback-exceeded"),
        ("anthropic", 12, 1, "routing-or-eviction"),
        ("aws.bedrock", 12, 1, "lookback-exceeded"),
    ],
)
def test_a_step_that_adds_20_positions_is_out_of_reach(
    tmp_path, provider, calls, texts, kind
) -> None:
    records = missed(anthropic_records(8), 7)
    answer, reply = records[7]["request"]["messages"][-2:]
    answer["content"] = [
        {"type": "tool_use", "id": f"p{i}", "name": "read", "input": {}} for i in range(calls)
    ]
    reply["content"] = [
        {"type": "tool_result", "tool_use_id": f"p{i}", "content": "done"} for i in range(calls)
    ] + [{"type": "text", "text": f"note {i}"} for i in range(texts)]
    lane = lanes(AnthropicLogSource(), write_lines(tmp_path / "run.jsonl", records))["main"]
    steps = tuple(replace(step, provider=provider) for step in lane.steps)
    found = diagnose_lane(lane_ledger(replace(lane, steps=steps), PriceBook.default()))
    assert [f.kind for f in found.findings] == [kind]


def missed(records, at: int):
    """Nothing was read at one step."""
    usage = records[at]["response"]["usage"]
    usage["cache_creation_input_tokens"] += usage["cache_read_input_tokens"]
    usage["cache_creation"]["ephemeral_5m_input_tokens"] = usage["cache_creation_input_tokens"]
    usage["cache_read_input_tokens"] = 0
    return records


@pytest.mark.parametrize(
    ("gap", "kind"), [(299, "routing-or-eviction"), (301, "ttl-expired"), (7_200, "ttl-expired")]
)
def test_writes_of_unknown_lifetime_expire_after_the_default_one(tmp_path, gap, kind) -> None:
    records = missed(anthropic_records(10, gap=lambda step: gap if step == 5 else 10.0), 5)
    for record in records:
        del record["response"]["usage"]["cache_creation"]
    (finding,) = judge(tmp_path, records).findings
    assert (finding.kind, finding.steps) == (kind, (5,))
    assert finding.inferred is (kind == "ttl-expired")


def test_without_cache_counts_no_step_is_called_healthy(tmp_path) -> None:
    records = anthropic_records(6)
    for record in records:
        record["response"]["usage"] = {"input_tokens": 9_000, "output_tokens": 100}
    assert kinds(judge(tmp_path, records)) == {"first": 1, "none": 5}


def test_a_cache_that_was_never_asked_for_cannot_break(tmp_path) -> None:
    records = anthropic_records(8)
    for n, record in enumerate(records):
        record["response"]["usage"] = {
            "input_tokens": 9_000 + 1_500 * n,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "output_tokens": 100,
        }
    found = judge(tmp_path, records)
    assert not any(row.is_break for row in found.ledger.rows)


def test_a_request_that_failed_does_not_hide_the_break_after_it(tmp_path) -> None:
    records = missed(anthropic_records(10), 5)
    failed = {**records[5], "response": {"error": {"type": "overloaded_error"}}}
    failed["ts"] = (START + timedelta(seconds=12 * 6 - 4)).isoformat()
    found = judge(tmp_path, [*records[:5], failed, *records[5:]])
    assert [r.step for r in found.ledger.rows if r.is_break] == [6]
    assert found.ledger.rows[6].previous is found.ledger.rows[4].record
    assert found.verdicts[5].kind == "none"


def test_requests_that_started_together_are_not_each_others_prefix(tmp_path) -> None:
    records = anthropic_records(8)
    twin = json.loads(json.dumps(records[0]))
    twin["response"]["id"] = "twin"
    twin["response"]["content"][1]["id"] = "call_twin"
    found = judge(tmp_path, [records[0], twin, *records[1:]])
    assert kinds(found) == {"first": 1, "concurrency": 1, "healthy": 7}
    (finding,) = found.findings
    assert (finding.kind, finding.steps, finding.wasted_usd) == ("concurrency", (1,), 0)
    assert finding.evidence["beside_step"] == 0


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
    (finding,) = judge(tmp_path, missed(records, 6)).findings
    assert finding.kind == "settings-changed"
    assert finding.evidence["was"] == MODEL


def test_another_spelling_of_the_same_model_is_no_change_of_settings(tmp_path) -> None:
    records = missed(anthropic_records(10), 6)
    for record in records[6:]:
        record["response"]["model"] = f"anthropic/{MODEL}-20260115"
    (finding,) = judge(tmp_path, records).findings
    assert finding.kind == "routing-or-eviction"


@pytest.mark.parametrize(("gap", "broken"), [(299.0, False), (301.0, True)])
def test_a_gap_beyond_the_lifetime_is_an_expiry(tmp_path, gap, broken) -> None:
    records = anthropic_records(10, gap=lambda step: gap if step == 5 else 10.0)
    (finding,) = judge(tmp_path, missed(records, 5)).findings
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


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_the_changed_span_is_as_narrow_as_one_by_one(was, now) -> None:
    start = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), None)
    start = min(len(was), len(now)) if start is None else start
    tail = 0
    while tail < min(len(was), len(now)) - start and was[-1 - tail] == now[-1 - tail]:
        tail += 1
    assert changed_span(was, now) == (start, len(was) - tail, len(now) - tail)


def test_long_texts_without_spaces_are_compared_fast() -> None:
    was, now = "17" + "x" * 2_000_000, "18" + "x" * 2_000_000
    began = time.perf_counter()
    assert changed_span(was, now) == (1, 2, 2)
    assert volatile_kind(was, now) is None
    assert time.perf_counter() - began < 0.2


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


def told(t: Transcript, reason: str) -> Transcript:
    """The last response carries the provider's own reason."""
    for row in t.rows[-3:]:
        if row["type"] == "assistant":
            row["message"]["diagnostics"] = {"cache_miss_reason": {"type": reason}}
    return t


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("tools_changed", "tools-changed"),
        ("system_changed", "volatile-prefix"),
        ("messages_changed", "history-mutated"),
        ("model_changed", "settings-changed"),
        ("unavailable", "routing-or-eviction"),
        ("previous_message_not_found", "routing-or-eviction"),
    ],
)
def test_where_the_content_is_out_of_sight_the_providers_reason_counts(
    tmp_path, reason, kind
) -> None:
    reads = grown(10)
    total = sum(reads[-1]) + 900
    t = told(transcript([*reads, (18_000, total - 18_000)]), reason)
    (finding,) = from_transcript(tmp_path, t).findings
    assert (finding.kind, finding.inferred) == (kind, True)
    assert finding.evidence.get("provider") == (None if kind == "routing-or-eviction" else reason)


def test_recorded_content_is_judged_by_itself_whatever_the_provider_says(tmp_path) -> None:
    records = anthropic_records(16, tools=lambda step: 4 if step == 8 else 3)
    records[8]["response"]["diagnostics"] = {"cache_miss_reason": {"type": "messages_changed"}}
    found = judge(tmp_path, records)
    assert found.findings[0].kind == "tools-changed"
    assert found.ledger.rows[8].record.miss_reason == "messages_changed"


def test_a_small_unexplained_difference_is_not_called_a_change_of_history(tmp_path) -> None:
    reads = grown(10, start=200_000)
    total = sum(reads[-1]) + 700
    (finding,) = from_transcript(tmp_path, transcript([*reads, (18_000, total - 18_000)])).findings
    assert finding.kind == "routing-or-eviction"


def test_the_advice_on_an_expiry_fits_the_pause(tmp_path) -> None:
    def advice(wait: float) -> str:
        t = transcript(grown(6))
        t.user("and now?", wait=wait)
        t.answer("late", 0, 26_000)
        folder = tmp_path / str(wait)
        folder.mkdir()
        return from_transcript(folder, t).findings[0].remedy

    assert "1 h lifetime" in advice(1_000)
    assert "No lifetime" in advice(8_000)


def test_an_answered_question_means_that_a_person_was_there(tmp_path) -> None:
    t = transcript(grown(6))
    t.rows[-1]["message"]["content"][0]["content"] = (
        "The user doesn't want to proceed with this tool use."
    )
    t.at += timedelta(seconds=900)
    t.rows[-1]["timestamp"] = t.at.isoformat().replace("+00:00", "Z")
    t.answer("late", 0, 26_000)
    (finding,) = from_transcript(tmp_path, t).findings
    assert (finding.kind, finding.expected) == ("ttl-expired", True)


def test_a_second_cause_is_named_beside_the_first(tmp_path) -> None:
    def clock(step: int) -> str:
        return f"Current time: {(START + timedelta(seconds=7 * step)).isoformat()}\n"

    found = judge(tmp_path, anthropic_records(20, system=clock, shape=keep_newest(6)))
    (finding,) = found.findings
    assert finding.kind == "volatile-prefix"
    assert "history-mutated" in found.verdicts[15].evidence["also"]
