"""Rebuilds the session of the article: 4 turns, 177 steps, 59 minutes, $77.3, 83 % cache writes.

The agent keeps the newest 11 tool results and judges that again at every step. An exchange that
leaves this window loses its heavy half: the result of a reading call becomes a stub, the arguments
of a writing call become a note. Breakpoints stand behind the system prompt, behind the last
cleared exchange as it was when the turn began, and at the end of the prompt.

Run it to write `../steps/blowup-177.jsonl.gz`. Standard library only.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent))

import trace_text as text
from trace_cache import Block
from trace_session import (
    CODE,
    LOG,
    MESSAGE,
    RESULT,
    Message,
    Recorder,
    call_block,
    make_head,
    prompts,
    result_block,
    say,
    text_block,
    write,
)

TARGET = Path(__file__).resolve().parent.parent / "steps" / "blowup-177.jsonl.gz"
SEED = 177
TURNS = (60, 45, 40, 32)
KEEP = 11
KEEP_AT_START = 9
"""At the start of a turn the agent clears down to nine results."""
KEEP_AT_RESUME = 5
"""The process that resumed the conversation loaded it with the newest five results only."""
FLOOR = 102_795
"""Tokens of tools, system prompt and messages 0..165: the read that the article shows from step 7."""
PROMPTS = {4: 175_958, 5: 176_253, 6: 176_485, 7: 177_350, 8: 180_033, 9: 180_429, 58: 219_883}
"""Prompt tokens (read + written) of the article's rows, by step (steps count from 0)."""
RESUMED_MESSAGES = 176
CLEARED_UP_TO = 165
EARLIER_EDITS = 7
"""Of the 82 exchanges before the resume, as many were writing calls, so 75 results are stubs."""
EDITS_UNTIL_58 = 27
"""Writing calls among the 53 exchanges that leave the window in steps 7 to 58: 75 + 26 = 101."""
TWIN_STEP = 54
"""The step whose prompt brings the results of two parallel calls, so that at step 58 the newest
11 results stand in 10 messages and the last stub at 273."""
WRITE_AT_START, WRITE_AT_END = 94_230, 117_500
"""Written tokens a step in turns 2 to 4; chosen so that all writes cost $64.8."""
REASONING = 634
"""Mean hidden reasoning a step; chosen so that the session costs $77.3."""
TOOLS = {
    "read_file": ("path", "offset", "limit"),
    "grep": ("pattern", "path", "glob"),
    "run": ("command", "timeout_s"),
    "list_dir": ("path",),
    "edit_file": ("path", "new_text"),
    "write_file": ("path", "text"),
    "todo_write": ("todos",),
    "web_fetch": ("url", "prompt"),
    "sql_query": ("query", "database"),
    "git": ("arguments",),
    "open_pull_request": ("title", "body"),
    "notify": ("channel", "text"),
}
SYSTEM = (
    "You are the engineering agent of a payments company. You work in a checkout of the monorepo, "
    "read before you write, and run the tests of what you touched. Say what you found before each "
    "call. Never push to a protected branch and never touch files under vendor/.\n\n"
)
REQUESTS = (
    "Settlement is off by one batch for merchants in two regions since last Thursday. Find out "
    "why, fix it, and add a test that would have caught it.",
    "Good. The same helper is used by the refund worker; check it there too and remove the old "
    "code path behind the flag.",
    "The report job still takes four minutes. See whether the window query can use the snapshot "
    "instead of the ledger, and show me the numbers before and after.",
    "Now write the migration for the new index, run the whole suite, and summarise all changes "
    "for the pull request.",
)


@dataclass(frozen=True)
class Result:
    """Where a tool result and its call stand, and what they are about."""

    message: int
    block: int
    reads: bool
    about: str


class Agent:
    """The agent with its sliding window."""

    def __init__(self) -> None:
        self.count = self._texts = 0
        prompt = SYSTEM + text.prose(self.rng, 26_000)
        self.head = make_head(self.rng, prompt, TOOLS, 1_500)
        self.messages: list[Message] = []
        self.results: list[Result] = []
        self.cleared = 0

    @property
    def rng(self) -> Random:
        """A source of its own for every text, so that sizes can be tuned without new contents."""
        self._texts += 1
        return Random(f"{SEED}/{self._texts}")

    @property
    def tokens(self) -> int:
        return self.head.tokens + sum(message.tokens for message in self.messages)

    def talk(self, role: str, blocks: list[Block]) -> None:
        self.messages.append(Message(role, blocks))

    def answer(self, reads: bool, said: int, calls: int = 1, arguments: int = 0) -> list[Block]:
        """What the model answers: some words, and one call or two parallel ones."""
        blocks = [say(self.rng, "assistant", said)]
        for _ in range(calls):
            self.count += 1
            call_id, where = f"toolu_{self.count:04}", text.path(self.rng)
            if reads:
                name, given = self.rng.choice(
                    (
                        ("read_file", {"path": where}),
                        ("grep", {"pattern": self.rng.choice(text.NOUNS), "path": "src"}),
                        ("run", {"command": f"python -m pytest -q {where}"}),
                    )
                )
                blocks.append(call_block(call_id, name, given))
            else:
                body = text.code(self.rng, round(arguments * CODE))
                given = {"path": where, "new_text": body}
                blocks.append(call_block(call_id, "edit_file", given, arguments + 30))
        return blocks

    def result(self, call: Block, tokens: int) -> Block:
        """The result of a call, of an exact size."""
        call_id, name = call.body["id"], call.body["name"]
        if name == "edit_file":
            return result_block(call_id, f"Applied 1 edit to {call.body['input']['path']}.")
        kinds = {"read_file": (text.file_listing, CODE), "grep": (text.grep, LOG)}
        make, per_token = kinds.get(name, (text.test_log, LOG))
        return result_block(call_id, make(self.rng, round((tokens - RESULT) * per_token)), tokens)

    def exchange(self, answer: list[Block], tokens: int) -> None:
        """Append an answer and its results, which share `tokens`."""
        self.talk("assistant", answer)
        calls = [block for block in answer if block.kind == "tool_use"]
        blocks = [self.result(call, tokens // len(calls)) for call in calls[:-1]]
        blocks.append(self.result(calls[-1], tokens - tokens // len(calls) * (len(calls) - 1)))
        self.talk("user", blocks)
        for i, call in enumerate(calls):
            where = call.body["input"].get("path", call.body["input"].get("command", "src"))
            reads = call.body["name"] != "edit_file"
            self.results.append(Result(len(self.messages) - 1, i, reads, where))

    def slide(self, keep: int) -> None:
        """Clear all but the newest results."""
        while len(self.results) - self.cleared > keep:
            self.clear(self.results[self.cleared])
            self.cleared += 1

    def clear(self, result: Result) -> None:
        """Take away the heavy half of one exchange."""
        place = result.message if result.reads else result.message - 1
        blocks = list(self.messages[place].blocks)
        at = result.block if result.reads else len(blocks) - 1
        body = blocks[at].body
        if result.reads:
            stub = f"[Old tool result cleared to save context: {result.about}]"
            blocks[at] = result_block(body["tool_use_id"], stub)
        else:
            given = {"path": result.about, "note": "new text not kept"}
            blocks[at] = call_block(body["id"], body["name"], given)
        self.messages[place] = replace(self.messages[place], blocks=blocks)

    def resume(self) -> None:
        """The 176 messages before the recording: 87 exchanges, of which 82 are cleared."""
        self.talk("user", [text_block("user", "")])
        self.talk("user", [say(self.rng, "user", 240)])
        cleared = (CLEARED_UP_TO - 1) // 2
        edits = set(self.rng.sample(range(1, cleared - 1), EARLIER_EDITS))
        share = (FLOOR - self.tokens - 3_000) // cleared
        for i in range(cleared):
            said = round(share * self.rng.uniform(0.75, 1.25)) - 75
            self.exchange(self.answer(i not in edits, said, arguments=40), 40)
        self.slide(0)
        notes = FLOOR - self.tokens + MESSAGE
        self.messages[0] = Message("user", [say(self.rng, "user", notes)])


def kinds_of_first_turn(rng: Random) -> dict[int, bool]:
    """Whether the exchange whose result stands at an index reads, for turn 1 and the window."""
    leaving = [*range(CLEARED_UP_TO + 2, RESUMED_MESSAGES, 2), *range(179, 274, 2)]
    fixed = {167, 169, 171, 185, 187, 189, 191, 193, 195, 273}
    free = [index for index in leaving if index not in fixed]
    # One of each pair of neighbours writes, so that the window's weight stays even.
    edits = {rng.choice(pair) for pair in zip(free[::2], free[1::2])}
    rest = [index for index in free if index not in edits]
    edits |= set(rng.sample(rest, EDITS_UNTIL_58 - len(edits)))
    return {index: index not in edits for index in leaving}


def record() -> Recorder:
    """The whole session, served step by step."""
    agent = Agent()
    rng = Random(SEED + 1)
    agent.resume()
    kinds = kinds_of_first_turn(rng)
    for index in range(CLEARED_UP_TO + 2, RESUMED_MESSAGES, 2):
        agent.exchange(agent.answer(kinds[index], rng.randint(420, 900), arguments=1_300), 9_700)
    start = datetime(2026, 5, 12, 9, 41, 7, tzinfo=timezone.utc)
    recorder = Recorder("blowup-177", "sample", "claude-sonnet-4-6", start)
    clock = 0.0
    answer = [say(rng, "assistant", 380)]
    for turn, steps in enumerate(TURNS):
        agent.talk("assistant", answer)
        agent.talk("user", [text_block("user", REQUESTS[turn])])
        agent.slide(KEEP_AT_START if turn else KEEP_AT_RESUME)
        marked = agent.results[agent.cleared - 1].message
        floor = agent.head.tokens + sum(m.tokens for m in agent.messages[: marked + 1])
        for step in range(steps):
            if step > 0:
                grow(agent, answer, goal(turn, step, steps, floor, rng))
            answer = next_answer(agent, kinds, rng, turn, step, steps)
            took = 5 + sum(block.tokens for block in answer) / 190
            recorder.step(
                clock,
                took,
                agent.head,
                list(agent.messages),
                answer,
                marked=frozenset({marked}),
                whole=step == 0,
                reasoning=round(REASONING * agent.rng.uniform(0.5, 1.5)),
                extra={"stop_reason": "end_turn" if step == steps - 1 else "tool_use"},
            )
            clock += took + rng.uniform(3.7, 9.8)
        clock += rng.uniform(100, 125)
    return recorder


def goal(turn: int, step: int, steps: int, floor: int, rng: Random) -> tuple[int, bool]:
    """Prompt tokens that a step should come to, and whether exactly."""
    if turn == 0:
        if step in PROMPTS:
            return PROMPTS[step], True
        if step < 4:
            return PROMPTS[4] - (4 - step) * 6_000, False
        known = max(s for s in PROMPTS if s < step and s != 58)
        if step == 57:
            return PROMPTS[58] - 2_600, False
        share = (step - known) / (58 - known)
        path = PROMPTS[known] + share * (PROMPTS[58] - PROMPTS[known])
        return round(path + rng.uniform(-1_500, 1_500)), False
    share = step / (steps - 1)
    path = floor + WRITE_AT_START + share * (WRITE_AT_END - WRITE_AT_START)
    return round(path + rng.uniform(-1_500, 1_500)), False


def grow(agent: Agent, answer: list[Block], wanted: tuple[int, bool]) -> None:
    """Append an exchange, slide the window, and size the result so that the prompt fits its goal."""
    total, exact = wanted
    count = sum(block.kind == "tool_use" for block in answer)
    small = 24 * count
    agent.exchange(answer, small)
    agent.slide(KEEP)
    message = agent.messages[-1]
    if not agent.results[-1].reads:
        return
    size = total - agent.tokens + message.tokens
    if not exact:
        size = min(max(size, 640), 18_000)
    assert size >= small, f"no room for a result: {size} tokens"
    calls = [block for block in answer if block.kind == "tool_use"]
    parts = [size // count] * (count - 1)
    parts.append(size - sum(parts))
    agent.messages[-1] = Message("user", [agent.result(c, t) for c, t in zip(calls, parts)])


def next_answer(
    agent: Agent, kinds: dict[int, bool], rng: Random, turn: int, step: int, steps: int
) -> list[Block]:
    """The response of a step; its result will stand behind the messages of now."""
    if step == steps - 1:
        return [say(rng, "assistant", 640)]
    index = len(agent.messages) + 1
    calm = turn == 0 and step in (4, 5)
    said = 78 if calm else rng.randint(380, 860)
    # The last steps of the first turn still read, so that step 58 comes out to the token.
    usual = rng.random() < 0.82 or (turn == 0 and index > 273)
    reads = kinds.get(index, usual) if turn == 0 else usual
    calls = 2 if turn == 0 and step + 1 == TWIN_STEP else 1
    return agent.answer(reads, said, calls, rng.randint(1_400, 3_600))


def check(recorder: Recorder) -> None:
    """The published rows, the rebuilt prompts and the bill. Raises `AssertionError`."""
    rows = {5: (188, 75, 165, 175_958, 295), 6: (190, 75, 165, 176_253, 232)}
    rows |= {7: (192, 76, 167, 102_795, 74_555), 8: (194, 77, 169, 102_795, 77_238)}
    rows |= {9: (196, 78, 171, 102_795, 77_634), 58: (294, 101, 273, 102_795, 117_088)}
    rebuilt = prompts(recorder.lines)
    for step, row in rows.items():
        messages, usage = rebuilt[step], recorder.usages[step]
        stubs = [
            i
            for i, message in enumerate(messages)
            for block in message["content"]
            if str(block.get("content", "")).startswith("[Old tool result cleared")
        ]
        got = (len(messages), len(stubs), max(stubs), usage.read, usage.write)
        assert got == row, f"step {step}: expected {row}, got {got}"
    assert len(recorder.lines) == 177
    assert all(usage.read == FLOOR for usage in recorder.usages[7 : TURNS[0]])
    cost = recorder.cost()
    assert abs(cost["total"] - 77.3) < 0.05 and abs(cost["write"] - 64.8) < 0.05, cost


def build() -> bytes:
    """The file's lines, checked."""
    recorder = record()
    check(recorder)
    return recorder.text()


if __name__ == "__main__":
    write(TARGET, build())
