"""The un-compacted transcript under a recording, and what stands for what nobody saw."""

from __future__ import annotations

import random
from dataclasses import replace

from analyzer.model import Breakpoint, Compaction, Lane, Part, Prompt, Usage
from analyzer.replay import build_lane
from tests.replay.recordings import (
    STUB,
    Message,
    Recorder,
    agent,
    call,
    clear_at,
    keep_newest,
    result,
    summarize_at,
    user,
    words,
)


def base_of(lane: Lane) -> list[Part]:
    built = build_lane(lane)
    return [built.parts[i] for i in built.base]


def test_stubs_are_undone_by_call_id() -> None:
    assert base_of(agent(20, compact=keep_newest(3))) == base_of(agent(20))
    assert base_of(agent(20, compact=clear_at(12))) == base_of(agent(20))


def test_a_summary_of_the_recordings_own_policy_is_not_part_of_the_transcript() -> None:
    base = base_of(agent(20, compact=summarize_at(12)))
    assert base == base_of(agent(20))
    built = build_lane(agent(20, compact=summarize_at(12)))
    assert [n for n, step in enumerate(built.steps) if step.cut] == [12]
    assert built.unrecovered == 0


def test_a_summary_that_only_the_recording_names_is_recognised_too() -> None:
    def compact(messages: list[Message], n: int) -> list[Message]:
        return [user("The work went on."), *messages[-2:]] if n == 12 else messages

    lane = agent(20, compact=compact)
    steps = list(lane.steps)
    steps[12] = replace(steps[12], compaction=Compaction())
    assert base_of(replace(lane, steps=tuple(steps))) == base_of(agent(20))


def test_a_prompt_that_was_seen_in_part_goes_on_from_the_last_whole_one() -> None:
    lane = agent(12)
    late = [
        replace(step, prompt=replace(step.prompt, recorded=False))
        if n > 5 and step.prompt
        else step
        for n, step in enumerate(lane.steps)
    ]
    base = [p for p in base_of(replace(lane, steps=tuple(late))) if p.kind != "other"]
    assert base == base_of(lane)
    built, whole = build_lane(replace(lane, steps=tuple(late))), build_lane(lane)
    assert sum(built.tokens[i] for i in built.base) == sum(whole.tokens[i] for i in whole.base)


def test_the_marks_of_a_prompt_that_was_seen_in_part_move_with_their_parts() -> None:
    lane = agent(12)
    steps = [
        replace(step, prompt=replace(step.prompt, recorded=n < 6 or n == 11))
        for n, step in enumerate(lane.steps)
        if step.prompt is not None
    ]
    marks = (*steps[8].prompt.breakpoints[:1], Breakpoint(5, "1h"))
    steps[8] = replace(steps[8], prompt=replace(steps[8].prompt, breakpoints=marks))
    built = build_lane(replace(lane, steps=tuple(steps)))
    for step in built.steps:
        assert step.anchors[0].where == "head"
        assert step.marks[-1].parts <= step.keep + len(step.tail)
    assert built.steps[9].anchors[1].where == "end"
    assert built.steps[9].marks[-1].parts == built.steps[9].keep + len(built.steps[9].tail)
    assert [m.ttl for m in built.steps[8].marks] == ["5m", "1h"]
    where, place, _ = built.steps[8].anchors[1]
    shown = list(steps[8].prompt.indices())
    assert where == "base"
    assert built.parts[built.base[place]] == lane.pool[shown[5]]


def test_a_rewind_takes_its_messages_out_of_the_transcript() -> None:
    r = random.Random(3)
    recorder = Recorder()
    start = [user("Please."), call("a"), result("a", words(r, 50))]
    tried = [*start, call("b"), result("b", words(r, 50))]
    other = [*start, user("No, the other way."), call("c"), result("c", words(r, 50))]
    for messages in (start, tried, other):
        recorder.send(messages)
    built = build_lane(recorder.lane())
    gone = {b for step in built.steps for b in step.gone}
    left = [built.parts[i] for b, i in enumerate(built.base) if b not in gone]
    assert [p.call_id for p in left if p.call_id] == ["a", "a", "c", "c"]
    assert not any(step.cut for step in built.steps)


def test_a_reminder_that_moves_with_the_end_stays_the_clients_doing() -> None:
    r = random.Random(4)
    recorder = Recorder()
    messages = [user("Please.")]
    for n in range(6):
        recorder.send([*messages, user("<system-reminder>be brief</system-reminder>")])
        messages = [*messages, call(f"c{n}"), result(f"c{n}", words(r, 30))]
    built = build_lane(recorder.lane())
    assert not any(step.cut for step in built.steps)
    gone = {b for step in built.steps for b in step.gone}
    left = [built.parts[i] for b, i in enumerate(built.base) if b not in gone]
    assert sum("reminder" in (p.body or "") for p in left) == 1


def test_placeholders_whose_original_nobody_saw_are_counted() -> None:
    r = random.Random(5)
    recorder = Recorder()
    messages = [user("Go on."), call("a"), result("a", STUB), call("b"), result("b", words(r, 9))]
    recorder.send(messages)
    built = build_lane(recorder.lane())
    assert built.unrecovered == 1
    assert [built.parts[i].body for i in built.base if built.parts[i].call_id == "a"][-1] == STUB


def test_texts_without_an_id_are_matched_by_their_place() -> None:
    def compact(messages: list[Message], n: int) -> list[Message]:
        if n != 8:
            return messages
        out = list(messages)
        out[1] = call("c0", "Step 0 [truncated]")
        return out

    lane = agent(12, compact=compact)
    assert base_of(lane) == base_of(agent(12))
    assert [n for n, step in enumerate(build_lane(lane).steps) if step.cut] == [8]


def test_recorded_marks_follow_their_parts() -> None:
    lane = build_lane(agent(3))
    step = lane.steps[2]
    assert [m.parts for m in step.marks] == [3, 3 + 1 + 2 * 3]
    assert [(a.where, a.place) for a in step.anchors] == [("head", 2), ("end", 0)]


def transcript(steps: int, cut: dict[int, int] | None = None, grown: int = 0) -> Lane:
    """As from a transcript: no system prompt, and cuts that show only in the totals."""
    lane = agent(steps, seed=9)
    out = []
    missing = total_before = 0
    for n, step in enumerate(lane.steps):
        assert step.prompt is not None
        indices = [i for i in step.prompt.indices() if lane.pool[i].section == "messages"]
        missing += (cut or {}).get(n, 0) - (grown if n == 5 else 0)
        visible = sum(lane.pool[i].estimate + lane.pool[i].envelope for i in indices)
        total = 18_000 + visible - missing
        hit = total_before if n not in (cut or {}) else 18_000
        usage = Usage(3, hit, total - hit - 3, total - hit - 3, 0, 50)
        total_before = total - 3
        ranges = tuple(r for r in step.prompt.ranges if lane.pool[r.start].section == "messages")
        first = step.prompt.ranges[0]
        ranges = ranges or (type(first)(3, first.stop),)
        out.append(replace(step, usage=usage, prompt=Prompt(ranges, recorded=False)))
    return replace(lane, steps=tuple(out))


def test_a_part_of_measured_size_stands_for_the_hidden_head() -> None:
    built = build_lane(transcript(10))
    (head,) = built.heads
    assert [built.tokens[i] for i in head.parts] == [18_000]
    for n, step in enumerate(built.steps):
        assert step.usage is not None
        sent = sum(built.tokens[i] for i in [*head.parts, *built.base[: step.stop]])
        assert sent == step.usage.prompt, n


def test_a_cut_out_of_sight_does_not_shrink_the_transcript() -> None:
    whole = build_lane(transcript(20))
    built = build_lane(transcript(20, cut={12: 1500}))
    assert [n for n, step in enumerate(built.steps) if step.cut] == [12]
    assert len(built.base) == len(whole.base)
    step = built.steps[15]
    assert step.usage is not None
    recorded = {p.digest: t for p, t in zip(built.parts, built.tokens, strict=True)}
    assert sum(recorded[p.digest] for p in built.recorded(15)) == step.usage.prompt
    assert sum(built.tokens[i] for i in built.base[: step.stop]) > step.usage.prompt - 18_000 + 1000


def test_a_fall_that_is_not_the_policys_leaves_the_newest_end() -> None:
    whole = build_lane(transcript(20))
    built = build_lane(transcript(20, cut={12: 1500}), cuts=())
    assert not any(step.cut for step in built.steps)
    assert len(built.heads) == 1
    sizes = {p.digest: t for p, t in zip(built.parts, built.tokens, strict=True)}
    for n in (11, 12, 15):
        usage = built.steps[n].usage
        assert usage is not None
        assert sum(sizes[p.digest] for p in built.recorded(n)) == usage.prompt
    # What stood there long before the fall is as large as it was.
    old = [p.digest for p in whole.recorded(8)]
    before = {p.digest: t for p, t in zip(whole.parts, whole.tokens, strict=True)}
    assert [p.digest for p in built.recorded(12)][: len(old)] == old
    assert [sizes[d] for d in old] == [before[d] for d in old]


def test_growth_out_of_sight_is_a_part_of_its_own() -> None:
    built = build_lane(transcript(20, grown=9000))
    whole = build_lane(transcript(20))
    assert len(built.base) == len(whole.base) + 1
    extra = [i for i in built.base if built.parts[i].kind == "other"]
    assert 8000 < built.tokens[extra[0]] <= 9000
