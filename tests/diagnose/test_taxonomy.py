"""Causes beside those of test_causes: requests are built, and the cache model serves them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from analyzer.diagnose import KINDS, diagnose_lane, provider_reasons
from analyzer.diagnose.variation import drift, pinned, variations, volatile_kind
from analyzer.ledger import lane_ledger
from analyzer.pricing import PriceBook
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.blocks import make_part
from analyzer.sources.claude_code import ClaudeCodeSource
from tests.builders import Transcript, anthropic_records, write_lines
from tests.diagnose.served import serve
from tests.reading import lanes, ledger

Records = list[dict[str, Any]]
Change = Callable[[Records], None]


def judge(tmp_path, records: Records):
    return diagnose_lane(ledger(AnthropicLogSource(), write_lines(tmp_path / "run.jsonl", records)))


def run(change: Change, steps: int = 14, seed: int = 1, **options: Any) -> Records:
    """A healthy run, changed, and its usage as the provider's rule gives it."""
    records = anthropic_records(steps, seed=seed, **options)
    change(records)
    return serve(records)


def from_step(step: int, edit: Callable[[dict[str, Any]], None]) -> Change:
    def change(records: Records) -> None:
        for record in records[step:]:
            edit(record["request"])

    return change


def at_step(step: int, edit: Callable[[dict[str, Any]], None]) -> Change:
    return lambda records: edit(records[step]["request"])


def setting(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda request: request.update(copy.deepcopy(values))


def reorder_tools(request: dict[str, Any]) -> None:
    request["tools"].reverse()


def reorder_keys(request: dict[str, Any]) -> None:
    request["tools"][0] = dict(reversed(request["tools"][0].items()))


def image(request: dict[str, Any]) -> None:
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    request["messages"][12]["content"].insert(0, block)


def no_marks(request: dict[str, Any]) -> None:
    for block in (request["system"][0], request["messages"][-1]["content"][-1]):
        block.pop("cache_control", None)


def only_system_mark(request: dict[str, Any]) -> None:
    request["messages"][-1]["content"][-1].pop("cache_control", None)


def fleeting(records: Records) -> None:
    """The only mark stands on a reminder that each request ends with, and no other repeats."""
    for n, record in enumerate(records):
        request = record["request"]
        no_marks(request)
        text = f"<system-reminder>It is 10:{n:02d}:00</system-reminder>"
        mark = {"type": "ephemeral"}
        request["messages"].append(
            {"role": "user", "content": [{"type": "text", "text": text, "cache_control": mark}]}
        )


def many_calls(records: Records) -> None:
    """From step 8 on the prompt holds thirty notes more."""
    notes = [{"type": "text", "text": f"note {i}"} for i in range(30)]
    for record in records[8:]:
        message = record["request"]["messages"][16]
        message["content"] = [*notes, *message["content"]]


def model(request: dict[str, Any]) -> None:
    request["model"] = "claude-opus-4-8"


def edited(request: dict[str, Any]) -> None:
    request["messages"][2]["content"][0]["content"] += " call 17"


CASES: list[tuple[str, Change, set[int], dict[str, Any]]] = [
    ("settings-changed", from_step(6, model), {6}, {"setting": "model"}),
    (
        "settings-changed",
        from_step(6, setting(tool_choice={"type": "any"})),
        {6},
        {"setting": "tool_choice"},
    ),
    (
        "settings-changed",
        from_step(6, setting(thinking={"type": "enabled", "budget_tokens": 4000})),
        {6},
        {"setting": "thinking"},
    ),
    ("settings-changed", from_step(6, image), {6}, {"setting": "images"}),
    ("tools-changed", from_step(6, reorder_tools), {6}, {"position": 0}),
    ("tools-changed", at_step(6, reorder_tools), {6}, {}),
    ("serialisation-drift", from_step(6, reorder_keys), {6}, {"differs": "the order of keys"}),
    ("history-mutated", from_step(9, edited), {9}, {"message": 2}),
    ("breakpoint-volatile", fleeting, set(range(1, 14)), {}),
    ("lookback-exceeded", many_calls, {8}, {}),
    ("breakpoint-missing", from_step(6, no_marks), set(range(6, 14)), {"breakpoints": 0}),
    ("breakpoint-missing", at_step(6, only_system_mark), {6}, {"breakpoints": 1}),
]


@pytest.mark.parametrize("seed", [1, 7, 23])
@pytest.mark.parametrize(("kind", "change", "steps", "evidence"), CASES)
def test_a_planted_cause_is_found_where_it_was_planted_and_no_other(
    tmp_path, kind, change, steps, evidence, seed
) -> None:
    found = judge(tmp_path, run(change, seed=seed))
    named = {r.step: v.kind for r, v in zip(found.ledger.rows, found.verdicts, strict=True)}
    assert {s: k for s, k in named.items() if k not in ("first", "healthy")} == dict.fromkeys(
        steps, kind
    )
    (finding,) = found.findings
    assert (finding.kind, finding.inferred) == (kind, False)
    assert {key: finding.evidence[key] for key in evidence} == evidence


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_run_that_is_served_by_rule_has_no_finding(tmp_path, seed) -> None:
    found = judge(tmp_path, run(lambda records: None, seed=seed))
    assert found.findings == ()
    assert {v.kind for v in found.verdicts} == {"first", "healthy"}


@pytest.mark.parametrize(
    "usual", [{"tool_choice": {"type": "auto"}}, {"thinking": {"type": "disabled"}}]
)
def test_a_parameter_at_its_usual_value_is_no_change(tmp_path, usual) -> None:
    records = run(from_step(6, setting(**usual)))
    usage = records[6]["response"]["usage"]
    usage["cache_creation_input_tokens"] += usage["cache_read_input_tokens"]
    usage["cache_creation"]["ephemeral_5m_input_tokens"] = usage["cache_creation_input_tokens"]
    usage["cache_read_input_tokens"] = 0
    (finding,) = judge(tmp_path, records).findings
    assert finding.kind == "routing-or-eviction"
    assert finding.evidence["survived"] == "nothing, not even the tools"


def test_other_bytes_are_no_change_of_the_tool_list(tmp_path) -> None:
    found = judge(tmp_path, run(from_step(6, reorder_keys)))
    assert "also" not in found.verdicts[6].evidence


def test_a_missing_breakpoint_says_what_marking_would_have_saved(tmp_path) -> None:
    (finding,) = judge(tmp_path, run(from_step(0, no_marks))).findings
    rows = judge(tmp_path, run(from_step(0, no_marks))).ledger.rows
    saved = finding.evidence["marked_saves_usd"]
    # By hand: the first prompt written at 1.25, then reads at 0.1 and the new part at 1.25, of $3.
    prompts = [row.prompt_tokens for row in rows]
    shared = [min(row.shared_prefix_tokens, a) for row, a in zip(rows[1:], prompts, strict=False)]
    plain = sum(prompts) * 3
    marked = shared[0] * 3.75 + (prompts[0] - shared[0]) * 3
    marked += sum(s * 0.3 + (p - s) * 3.75 for s, p in zip(shared, prompts[1:], strict=True))
    assert saved == pytest.approx((plain - marked) / 1e6, rel=1e-6)
    assert finding.wasted_usd == 0
    assert not finding.is_loss


def test_a_prompt_below_the_minimum_is_named_and_wastes_nothing(tmp_path) -> None:
    def short(records: Records) -> None:
        for record in records:
            request = record["request"]
            request["tools"], request["system"][0]["text"] = [], "be brief"
            for message in request["messages"]:
                for block in message["content"]:
                    if block["type"] == "tool_result":
                        block["content"] = block["content"][:40]

    found = judge(tmp_path, run(short, steps=5))
    assert Counter(v.kind for v in found.verdicts) == {"first": 1, "below-minimum": 4}
    (finding,) = found.findings
    assert finding.evidence["minimum_tokens"] == 1024
    assert finding.wasted_usd == 0


def test_another_cache_key_is_named(tmp_path) -> None:
    def keyed(records: Records) -> None:
        for n, record in enumerate(records):
            record["request"]["prompt_cache_key"] = f"key-{n >= 6}"

    records = run(keyed, steps=8)
    usage = records[6]["response"]["usage"]
    usage["input_tokens"] += usage["cache_read_input_tokens"]
    usage["cache_read_input_tokens"] = 0
    found = judge(tmp_path, records)
    assert [v.kind for v in found.verdicts[5:]] == ["healthy", "key-randomised", "healthy"]


def paused(step: int, seconds: float) -> dict[str, Any]:
    return {"gap": lambda n: seconds if n == step else 12.0}


def test_an_expiry_says_what_an_hour_would_have_cost_over_the_lane(tmp_path) -> None:
    found = judge(tmp_path, run(lambda records: None, **paused(9, 900)))
    (finding,) = found.findings
    assert (finding.kind, finding.steps) == ("ttl-expired", (9,))
    rows, lost = found.ledger.rows, found.ledger.rows[9].lost_tokens
    written = sum(row.usage.cache_write for row in rows) - lost
    extra, avoided = Decimal(written) * 225 / 10**8, Decimal(lost) * 345 / 10**8
    assert finding.evidence["one_hour_extra_usd"] == pytest.approx(float(extra), rel=1e-9)
    assert finding.evidence["one_hour_avoided_usd"] == pytest.approx(float(avoided), rel=1e-9)
    assert f"${abs(avoided - extra):.4f}" in finding.remedy
    assert finding.evidence["waited_for"] == ["read"]


def test_an_expiry_beyond_an_hour_makes_no_claim_for_the_hour(tmp_path) -> None:
    (finding,) = judge(tmp_path, run(lambda records: None, **paused(9, 3_601))).findings
    assert finding.kind == "ttl-expired"
    assert "one_hour_saves_usd" not in finding.evidence


def hours(request: dict[str, Any]) -> None:
    for block in (request["system"][0], request["messages"][-1]["content"][-1]):
        block["cache_control"]["ttl"] = "1h"


def test_a_pause_after_the_hour_was_given_up_is_a_downgrade(tmp_path) -> None:
    def change(records: Records) -> None:
        for record in records[:5]:
            hours(record["request"])

    found = judge(tmp_path, run(change, **paused(9, 3_590)))
    assert found.verdicts[9].kind == "ttl-downgrade"
    assert found.verdicts[9].evidence["last_1h_step"] == 4


@pytest.mark.parametrize(("pause", "kinds"), [(290.0, ["ttl-over-use"]), (310.0, [])])
def test_an_hour_that_no_pause_needed_is_named_with_its_price(tmp_path, pause, kinds) -> None:
    records = run(from_step(0, hours), steps=30, **paused(9, pause))
    findings = judge(tmp_path, records).findings
    assert [f.kind for f in findings] == kinds
    assert not any(f.is_loss for f in findings)


def test_the_summary_request_on_another_model_is_cold(tmp_path) -> None:
    def change(records: Records) -> None:
        summary = "Summary of the conversation: " + "we read files and noted them. " * 20
        records[8]["response"]["content"] = [{"type": "text", "text": summary}]
        records[8]["request"]["model"] = "claude-haiku-4-5"
        for record in records[9:]:
            messages = record["request"]["messages"]
            first = {"role": "user", "content": [{"type": "text", "text": summary}]}
            record["request"]["messages"] = [first, *messages[18:]]

    records = run(change)
    records[8]["response"]["model"] = "claude-haiku-4-5"
    found = judge(tmp_path, records)
    assert found.verdicts[8].kind == "compaction-cold-summary"
    assert found.verdicts[9].kind in ("compaction", "settings-changed")


def test_clearing_at_every_step_is_one_thrash(tmp_path) -> None:
    records = run(lambda records: None, steps=16)
    edits = [{"type": "clear_tool_uses_20250919", "cleared_input_tokens": 4000}]
    for record in records[8:]:
        response = record["response"]
        response["context_management"] = {"applied_edits": edits}
        usage = response["usage"]
        moved = usage["cache_read_input_tokens"] - 7_000
        usage["cache_read_input_tokens"] -= moved
        usage["cache_creation_input_tokens"] += moved - 1_000
        usage["cache_creation"]["ephemeral_5m_input_tokens"] += moved - 1_000
    found = judge(tmp_path, records)
    (finding,) = found.findings
    assert (finding.kind, finding.first_step, finding.last_step) == ("compaction-thrash", 8, 15)
    assert finding.expected is False


def thinking_transcript(model: str) -> Transcript:
    """A turn with thinking, then a person speaks: 6,000 tokens less than the text explains."""
    t = Transcript()
    t.user("go")
    total = 20_000
    for n in range(4):
        t.answer(str(n), total - 900 if n else 0, 900 if n else total)
        t.rows[-2]["message"]["content"] = [
            {"type": "thinking", "thinking": "hm " * 500, "signature": f"s{n}"}
        ]
        t.result(f"call-{n}", "some result text to read and to forget " * 80, wait=8)
        total += 900
    t.user("and now something else", wait=20)
    t.answer("next", 14_000, total - 6_000 - 14_000)
    for row in t.rows:
        if row["type"] == "assistant":
            row["message"]["model"] = model
    return t


@pytest.mark.parametrize(
    ("model", "kind"),
    [("claude-haiku-4-5", "thinking-stripped"), ("claude-opus-4-5", "history-mutated")],
)
def test_thinking_is_stripped_on_models_that_keep_the_last_turn_only(tmp_path, model, kind) -> None:
    path = thinking_transcript(model).write(tmp_path)
    found = diagnose_lane(ledger(ClaudeCodeSource(), path))
    assert found.verdicts[-1].kind == kind
    assert found.verdicts[-1].inferred is True


def test_a_new_version_of_the_client_is_a_resume(tmp_path) -> None:
    t = Transcript()
    t.user("go")
    for n in range(8):
        read = 20_000 + 900 * (n - 1)
        usage = (0, 20_000) if n == 0 else (14_000, read - 13_100) if n == 6 else (read, 900)
        t.answer(str(n), *usage)
        t.result(f"call-{n}", "some result text to read and to forget " * 80, wait=8)
    for row in t.rows[6 * 3 + 1 :]:
        row["version"] = "2.1.9"
    found = diagnose_lane(ledger(ClaudeCodeSource(), t.write(tmp_path)))
    (finding,) = found.findings
    assert (finding.kind, finding.steps, finding.inferred) == ("resume", (6,), True)


def test_causes_hold_without_the_content_and_say_what_was_not_seen(tmp_path) -> None:
    path = write_lines(tmp_path / "run.jsonl", run(from_step(9, edited)))
    lane = lanes(AnthropicLogSource(), path)["main"]
    bare = replace(lane, pool=tuple(replace(part, body=None) for part in lane.pool))
    found = diagnose_lane(lane_ledger(bare, PriceBook.default()))
    (finding,) = found.findings
    assert finding.kind == "history-mutated"
    assert finding.evidence["content"] == "not kept"
    assert finding.evidence["now_chars"] == finding.evidence["was_chars"] + len(" call 17")


def test_the_providers_reasons_are_counted_beside_ours(tmp_path) -> None:
    records = run(from_step(6, reorder_tools))
    for step, reason in ((6, "tools_changed"), (7, "messages_changed")):
        records[step]["response"]["diagnostics"] = {"cache_miss_reason": {"type": reason}}
    found = judge(tmp_path, records)
    table = provider_reasons(zip(found.ledger.rows, found.verdicts, strict=True))
    assert [(r.theirs, r.ours, r.steps, r.agree, r.on_their_word) for r in table] == [
        ("messages_changed", "healthy", 1, None, 0),
        ("tools_changed", "tools-changed", 1, True, 0),
    ]
    assert found.findings[0].evidence["provider_says"] == ["tools_changed ×1"]


@pytest.mark.parametrize(
    ("was", "now", "kind"),
    [
        (
            "It is Fri Nov 28 09:00:01 2026.",
            "It is Sat Nov 29 09:00:09 2026.",
            "a date and a clock",
        ),
        ("cwd: /home/ann/shop/src", "cwd: /home/bob/shop/src", "a path"),
        ("nonce req_011CabcDEF4567xyz.", "nonce req_011CzzzDEF9567xyz.", "a nonce"),
        ("seen 3 files\nat 10:00", "seen 4 files\nat 10:05", "a counter and a clock"),
        ("Git status:\n M a.py\n M b.py\n\nEnd", "Git status:\n M a.py\n\nEnd", "the git status"),
        ("a\n\nb", "a\n b", "whitespace"),
        ("be kind at 10:00", "be brief at 10:05", None),
    ],
)
def test_the_sort_of_what_varies_is_named(was, now, kind) -> None:
    assert volatile_kind(was, now) == kind


def test_what_varies_is_pinned_to_its_characters() -> None:
    was, now = (
        "You help.\nTime: 10:00:05\ncall 17 of many",
        "You help.\nTime: 10:00:17\ncall 18 of many",
    )
    assert [(was[v.start : v.end], now[v.now_start : v.now_end]) for v in variations(was, now)] == [
        ("10:00:05", "10:00:17"),
        ("17", "18"),
    ]
    a, b = (make_part("system", "system", "text", text) for text in (was, now))
    assert pinned(a, b)["changed"] == ["16–24: “10:00:05” → “10:00:17”", "30–32: “17” → “18”"]


@pytest.mark.parametrize(
    ("was", "now", "how"),
    [
        ('{"a":1,"b":[1,2]}', '{"b":[1,2],"a":1}', "the order of keys"),
        ('{"a":1}', '{ "a": 1 }', "whitespace or escapes"),
        ('{"a":1}', '{"a":true}', None),
        ('{"a":[1,2]}', '{"a":[2,1]}', None),
        ("one  two", "one two", "whitespace"),
        ("one two", "one too", None),
    ],
)
def test_other_bytes_for_the_same_content_are_told_apart_from_change(was, now, how) -> None:
    a, b = (make_part("messages", "user", "tool_result", x, call_id="c") for x in (was, now))
    assert drift(a, b) == how


def test_every_kind_of_the_taxonomy_can_be_found() -> None:
    taxonomy = """volatile-prefix tools-changed serialisation-drift history-mutated sliding-window resume
    breakpoint-missing breakpoint-volatile lookback-exceeded ttl-expired ttl-downgrade ttl-over-use
    settings-changed thinking-stripped below-minimum compaction compaction-cold-summary
    compaction-thrash concurrency routing-or-eviction key-randomised accounting"""
    assert set(taxonomy.split()) <= set(KINDS)
