from __future__ import annotations

import msgspec
import pytest

from analyzer.errors import DecodeError
from analyzer.model import SessionKey
from analyzer.sources.history import Call, HistoryLane, beginning, to_raw

KEY = SessionKey("p", "u", "s")


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def bodies(lane_steps, prompt) -> list[str]:
    pool = [p for s in lane_steps.steps for p in s.new_parts]
    return [pool[i].body for i in prompt.indices()]


def test_a_step_sends_what_was_said_and_answered_before_it() -> None:
    lane = HistoryLane(KEY)
    lane.open(system="S")
    for n in range(3):
        lane.say(user(f"q{n}"))
        lane.step(Call(key=str(n), model="gpt-5"), {"content": f"a{n}"})
    taken = lane.take()
    assert bodies(taken, taken.steps[2].prompt) == ["S", "q0", "a0", "q1", "a1", "q2"]
    assert [len(s.prompt.ranges) for s in taken.steps] == [1, 1, 1]
    assert [s.human for s in taken.steps] == [True, True, True]
    assert len(lane) == 3
    assert lane.take().steps == ()


def test_what_was_really_sent_replaces_the_history() -> None:
    lane = HistoryLane(KEY)
    lane.say(user("q"))
    lane.step(Call(key="0"), {"content": "a"})
    call = Call(key="1")
    lane.answer(call, lane.ask(call, [to_raw(user("(cut)"))]), [{"content": "b"}])
    lane.say(user("r"))
    lane.step(Call(key="2"), {"content": "c"})
    taken = lane.take()
    assert [bodies(taken, s.prompt) for s in taken.steps] == [["q"], ["(cut)"], ["(cut)", "b", "r"]]


def test_a_request_that_cannot_be_read_does_not_spoil_the_next() -> None:
    lane = HistoryLane(KEY)
    lane.say(user("lost"))
    with pytest.raises(DecodeError):
        lane.ask(Call(key="0"), [msgspec.Raw(b"3")])
    lane.say(user("q"))
    lane.step(Call(key="1"), {"content": "a"})
    taken = lane.take()
    assert bodies(taken, taken.steps[0].prompt) == ["q"]


def test_conversations_are_told_apart_by_what_is_no_system_prompt() -> None:
    marked = {"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}
    one = [{"role": "system", "content": "S at 10:00"}, {"role": "user", "content": [marked]}]
    two = [{"role": "system", "content": "S at 10:01"}, user("q"), user("more")]
    assert beginning(one) == beginning(two) != beginning([user("other")])
    assert beginning([]) == 0
