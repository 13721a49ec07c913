"""What the presets do to a prompt, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from analyzer.edits import Drop, Edit, Replace, Summarize, apply
from analyzer.model import Part
from analyzer.policies import Turn, parse_spec
from analyzer.policies.base import plain_text
from analyzer.policies.recipe.texts import code_blocks, head_lines, sentences
from analyzer.sources.blocks import make_part
from analyzer.tokens import estimate

LONG = "\n".join(f"line {n} of the output" for n in range(200))


class Plain:
    """One measured token is one estimated token."""

    ratio = 1.0

    def envelope(self, part: Part) -> int:
        return part.envelope

    def text(self, text: str) -> int:
        return estimate(text)


def text(role: str, body: str) -> Part:
    return make_part("messages", role, "text", body, starts_message=True)


def exchange(n: int, body: str = LONG, tool: str = "bash", said: str = "") -> list[Part]:
    call_id = f"c{n}"
    out = [text("assistant", said or f"Step {n}. I look. Then I act. Then I am done.")]
    out.append(make_part("messages", "assistant", "tool_use", "{}", tool=tool, call_id=call_id))
    out.append(
        make_part(
            "messages",
            "user",
            "tool_result",
            body,
            tool=tool,
            call_id=call_id,
            starts_message=True,
        )
    )
    return out


def turn(
    prompt: Sequence[Part],
    *,
    used: int | None = None,
    before: int | None = None,
    edited: Sequence[str] | None = None,
    window: int = 1000,
) -> Turn:
    return Turn(
        step=5,
        at=100.0,
        gap=10.0,
        human=False,
        prompt=prompt,
        tokens=[p.envelope + p.estimate for p in prompt],
        edited=edited or [""] * len(prompt),
        window=window,
        used=used,
        used_before=before,
        scale=Plain(),
        recorded=(),
        peek=lambda: 0,
    )


def bodies(prompt: Sequence[Part], spec: str, **kwargs: int) -> list[str | None]:
    edits = list(parse_spec(spec).edits(turn(prompt, **kwargs)))
    return [part.body for part in apply(prompt, edits)]


def of_rule(edits: Sequence[Edit], rule: str) -> list[int]:
    return [e.position for e in edits if isinstance(e, Replace) and e.rule == rule]


SYSTEM = make_part("system", "system", "text", "You are an agent.")
PROMPT = [SYSTEM, text("user", "Do it.")] + [p for n in range(6) for p in exchange(n)]
RESULTS = [i for i, p in enumerate(PROMPT) if p.kind == "tool_result"]
LOW = "watermarks:protect_tokens=1500"


def test_sliding_stubs_leave_the_newest_results_and_stub_every_older_one() -> None:
    edits = list(parse_spec("sliding-stubs:keep=2").edits(turn(PROMPT)))
    assert of_rule(edits, "stub") == RESULTS[:-2]
    parts = apply(PROMPT, edits)
    assert {parts[i].body for i in RESULTS[:-2]} == {"[Old tool result content cleared]"}
    assert parts[RESULTS[0]].call_id == "c0"


def test_sliding_stubs_leave_results_that_are_no_larger_than_a_stub() -> None:
    prompt = [SYSTEM, *exchange(0, "ok"), *exchange(1, LONG)]
    edits = list(parse_spec("sliding-stubs:keep=0").edits(turn(prompt)))
    assert of_rule(edits, "stub") == [6]


def test_raw_never_edits() -> None:
    assert not list(parse_spec("raw").edits(turn(PROMPT, used=10**6, window=10)))


@pytest.mark.parametrize(
    ("used", "before", "fires"),
    [
        (None, None, False),
        (599, 500, False),
        (600, 599, True),
        (600, None, True),
        (700, 600, False),
        (590, 700, False),
    ],
)
def test_a_tier_fires_once_when_its_mark_is_crossed_from_below(
    used: int | None, before: int | None, fires: bool
) -> None:
    policy = parse_spec(LOW)
    assert bool(list(policy.edits(turn(PROMPT, used=used, before=before)))) is fires


def test_snip_keeps_the_first_lines_and_says_how_many_went() -> None:
    out = bodies(PROMPT, LOW, used=650, before=500)
    assert out[RESULTS[0]] == "\n".join(
        [*(f"line {n} of the output" for n in range(5)), "… 195 more lines omitted"]
    )


def test_no_tier_touches_the_protected_tail() -> None:
    for used in (650, 850, 990):
        tail = PROMPT[RESULTS[-1] - 1 :]
        edits = list(parse_spec(LOW).edits(turn(PROMPT, used=used, before=100)))
        assert apply(PROMPT, edits)[-len(tail) :] == tail


def test_the_part_across_the_border_of_the_tail_is_protected_whole() -> None:
    edits = list(parse_spec("watermarks:protect_tokens=1").edits(turn(PROMPT, used=650, before=1)))
    assert of_rule(edits, "snip") == RESULTS[:-1]


@pytest.mark.parametrize("tool", ["Skill", "Task", "AskUserQuestion"])
def test_exempt_tools_are_neither_snipped_nor_pruned(tool: str) -> None:
    prompt = [SYSTEM, *exchange(0, tool=tool), *exchange(1), *exchange(2), *exchange(3)]
    edits = list(parse_spec(LOW).edits(turn(prompt, used=850, before=100)))
    touched = {e.position for e in edits if isinstance(e, Replace)}
    assert 3 not in touched
    assert 6 in touched


def test_code_of_a_person_is_cut_and_their_words_are_not() -> None:
    code = "```python\n" + "\n".join(f"x = {n}" for n in range(50)) + "\n```"
    asked = f"Please change this:\n{code}\nand keep the rest. " + "Really. " * 300
    prompt = [SYSTEM, text("user", asked), *(p for n in range(5) for p in exchange(n))]
    out = bodies(prompt, LOW, used=850, before=100)[1]
    assert out is not None
    assert out != asked
    assert "x = 4\n… 50 lines in all\n```" in out
    assert "x = 5" not in out
    assert plain_text(out) == plain_text(asked)


def test_prune_replaces_what_was_snipped_and_shortens_old_answers() -> None:
    out = bodies(PROMPT, LOW, used=850, before=700)
    assert out[RESULTS[0]] == "[Content compacted to save space]"
    said = "Step 0. I look. Then I act. Then I am done. " + "More. " * 40
    prompt = [SYSTEM, *exchange(0, said=said), *(p for n in range(1, 6) for p in exchange(n))]
    assert bodies(prompt, LOW, used=850, before=700)[1] == "Step 0. I look. [truncated]"


def test_a_higher_tier_does_the_work_of_the_lower_ones_first() -> None:
    edits = list(parse_spec(LOW + ",prune_tokens=100000").edits(turn(PROMPT, used=850, before=700)))
    assert set(RESULTS[:4]) <= set(of_rule(edits, "prune"))


def test_a_threshold_of_one_disables_the_tier() -> None:
    spec = LOW + ",snip_at=1.0"
    assert not bodies_changed(spec, used=650, before=1)
    edits = list(parse_spec(spec).edits(turn(PROMPT, used=850, before=1)))
    assert not of_rule(edits, "snip")
    assert of_rule(edits, "prune")
    assert not bodies_changed("watermarks:snip_at=1.0,prune_at=1.0,summarize_at=1.0", used=5000)


def bodies_changed(spec: str, **kwargs: int) -> bool:
    return bodies(PROMPT, spec, **kwargs) != [part.body for part in PROMPT]


def test_the_summary_is_called_only_if_snip_and_prune_were_not_enough() -> None:
    spec = "watermarks:protect_tokens=1500,summary_tokens=20"
    enough = list(parse_spec(spec).edits(turn(PROMPT, used=9600, before=1, window=10_000)))
    assert not any(isinstance(e, Summarize) for e in enough)
    small = [SYSTEM, text("user", "Do it.")]
    for n in range(20):
        small += exchange(n, "short result " * 4, said="I say this. And that.")
    needed = list(
        parse_spec("watermarks:protect_tokens=100,summary_tokens=20").edits(
            turn(small, used=990, before=1)
        )
    )
    (summary,) = [e for e in needed if isinstance(e, Summarize)]
    assert summary.call.cost_class == "cold_messages"
    assert summary.call.output_tokens == 20
    parts = apply(small, needed)
    assert parts[:2] == small[:2]
    assert parts[2] == summary.part
    calls = {p.call_id for p in parts if p.kind == "tool_use"}
    assert calls == {p.call_id for p in parts if p.kind == "tool_result"}


def test_a_second_summary_takes_the_first_one_in() -> None:
    policy = parse_spec("watermarks:protect_tokens=100,summary_tokens=20")
    prompt = [SYSTEM, text("user", "Do it.")]
    for n in range(20):
        prompt += exchange(n, "short result " * 4, said=f"I say {n}. And that.")
    first = apply(prompt, list(policy.edits(turn(prompt, used=990, before=1))))
    again = list(first)
    for n in range(20, 40):
        again += exchange(n, "short result " * 4, said=f"I say {n}. And that.")
    edits = list(policy.edits(turn(again, used=990, before=1)))
    (summary,) = [e for e in edits if isinstance(e, Summarize)]
    second = apply(again, edits)
    assert [p for p in second if p.kind == "summary"] == [summary.part]
    covered = sum(p.envelope + p.estimate for p in again if p not in second and p.kind != "summary")
    assert summary.call.input_tokens < covered + 20 + 600


def test_the_summary_keeps_words_of_a_person_and_protected_tools() -> None:
    prompt = [SYSTEM, text("user", "Do it.")]
    for n in range(20):
        tool = "Skill" if n == 4 else "bash"
        prompt += exchange(n, "short result " * 4, tool=tool, said="I say this. And that.")
        if n == 8:
            prompt.append(text("user", "And mind the tests."))
    spec = "watermarks:protect_tokens=100,summary_tokens=20"
    edits = list(parse_spec(spec).edits(turn(prompt, used=990, before=1)))
    parts = apply(prompt, edits)
    assert [p.body for p in parts if p.role == "user" and p.kind == "text"] == [
        "Do it.",
        "And mind the tests.",
    ]
    assert [p.kind for p in parts if p.tool == "Skill"] == ["tool_use", "tool_result"]
    assert any(isinstance(e, Drop) for e in edits)


def test_texts_are_cut_at_lines_sentences_and_blocks() -> None:
    assert head_lines("a\nb\nc", 3) is None
    assert head_lines("a\nb\nc", 1) == "a\n… 2 more lines omitted"
    assert head_lines("x" * 500, 1) == "x" * 200 + "\n… 300 more characters omitted"
    assert sentences("One. Two.", 2) is None
    long = "Three is here. " * 4
    assert sentences("第一句。第二句。" + long, 2) == "第一句。第二句。 [truncated]"
    assert sentences("v1.2 is out. See it. " + long, 2) == "v1.2 is out. See it. [truncated]"
    assert code_blocks("no code", 2) is None
    assert code_blocks("```\na\nb\n```", 2) is None
    assert code_blocks("```\na\nb\nc\nd\n```\nend", 2) == "```\na\nb\n… 4 lines in all\n```\nend"


def test_content_that_was_not_kept_is_cut_by_its_usual_size() -> None:
    prompt = [replace(p, body=None) if p.kind == "tool_result" else p for p in PROMPT]
    now = turn(prompt, used=650, before=1)
    edits = list(parse_spec(LOW).edits(now))
    parts = apply(prompt, edits)
    assert parts[RESULTS[0]].body is None
    assert 0 < parts[RESULTS[0]].estimate < prompt[RESULTS[0]].estimate / 4
