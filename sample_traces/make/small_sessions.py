"""Four short sessions of one agent: a healthy one, and three ways to treat a prompt cache.

Run it to write them to `../steps/`. Standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent))

import trace_text as text
from trace_cache import Block
from trace_session import (
    CODE,
    LOG,
    RESULT,
    Head,
    Message,
    Recorder,
    call_block,
    make_head,
    result_block,
    say,
    text_block,
    write,
)

FOLDER = Path(__file__).resolve().parent.parent / "steps"
START = datetime(2026, 5, 18, 13, 20, 0, tzinfo=timezone.utc)
WINDOW = 200_000
TOOLS = {
    "read_file": ("path", "offset", "limit"),
    "grep": ("pattern", "path"),
    "run": ("command",),
    "edit_file": ("path", "new_text"),
}
LATE_TOOL = {"web_search": ("query", "domains")}
SYSTEM = (
    "You maintain a Python service. Read before you write, run the tests you touched, and keep "
    "changes small.\n\n"
)
TASKS = {
    "healthy": "The retry queue drops entries when a worker restarts. Find the cause and fix it.",
    "timestamp-in-system": "Add paging to the invoice listing, with tests.",
    "tools-changed": "Upgrade the payment client to the new version of its API.",
    "batch-clear": "Three integration tests are flaky on the build machine. Make them reliable.",
}


class Session:
    """One agent at work; `before` may change its state ahead of a step."""

    def __init__(self, name: str, steps: int, seed: int, largest: int) -> None:
        """`largest`: tokens of the largest tool result."""
        self.name = name
        self.largest = largest
        self.steps = steps
        self.rng = Random(seed)
        self.head = make_head(self.rng, SYSTEM + text.prose(self.rng, 7_000), TOOLS, 420)
        self.messages = [Message("user", [text_block("user", TASKS[name])])]
        self.recorder = Recorder(name, "sample", "claude-sonnet-4-6", START)
        self.whole = False
        self.extra: dict = {}
        self.reads: list[int] = []

    @property
    def tokens(self) -> int:
        return self.head.tokens + sum(message.tokens for message in self.messages)

    def run(self, before: Callable[[Session, int], None]) -> Recorder:
        """Record every step."""
        clock = 0.0
        for step in range(1, self.steps + 1):
            before(self, step)
            answer = self.answer(step)
            took = 4 + sum(block.tokens for block in answer) / 60
            self.recorder.step(
                clock, took, self.head, list(self.messages), answer, whole=self.whole,
                extra=self.extra,
            )
            self.extra, self.whole = {}, False
            clock += took + self.rng.uniform(3, 16)
            if step < self.steps:
                self.messages.append(Message("assistant", answer))
                self.messages.append(Message("user", [self.result(answer[-1])]))
        return self.recorder

    def answer(self, step: int) -> list[Block]:
        said = say(self.rng, "assistant", self.rng.randint(60, 260))
        if step == self.steps:
            return [said]
        where = text.path(self.rng)
        name, given = self.rng.choice(
            (
                ("read_file", {"path": where}),
                ("read_file", {"path": where, "offset": self.rng.randint(1, 300)}),
                ("grep", {"pattern": self.rng.choice(text.NOUNS), "path": "src"}),
                ("run", {"command": f"python -m pytest -q {where}"}),
                ("edit_file", {"path": where, "new_text": text.code(self.rng, 900)}),
            )
        )
        return [said, call_block(f"toolu_{step:03}", name, given)]

    def result(self, call: Block) -> Block:
        call_id, name = call.body["id"], call.body["name"]
        if name == "edit_file":
            return result_block(call_id, f"Applied 1 edit to {call.body['input']['path']}.")
        self.reads.append(len(self.messages))
        kinds = {"read_file": (text.file_listing, CODE), "grep": (text.grep, LOG)}
        make, per_token = kinds.get(name, (text.test_log, LOG))
        tokens = self.rng.randint(self.largest // 7, self.largest)
        return result_block(call_id, make(self.rng, round((tokens - RESULT) * per_token)), tokens)


def stay(_session: Session, _step: int) -> None:
    """Nothing changes but what is appended."""


def tick(session: Session, step: int) -> None:
    """The system prompt tells the time of the request."""
    now = START + timedelta(seconds=17 * step)
    told = f"{SYSTEM}Current time: {now:%Y-%m-%d %H:%M:%S} UTC\n\n"
    body = session.head.system[0].body["text"].split("\n\n", 1)[1]
    rest = body.split(" UTC\n\n", 1)[-1]
    session.head = Head(session.head.tools, [text_block("system", told + rest)])
    session.whole = True


def connect(session: Session, step: int) -> None:
    """A server with one more tool connects before step 12, and leaves before step 21."""
    if step == 12:
        late = make_head(session.rng, "", LATE_TOOL, 420).tools
        session.head = Head([*session.head.tools, *late], session.head.system)
    if step == 21:
        session.head = Head(session.head.tools[: len(TOOLS)], session.head.system)
    session.whole = step in (12, 21)


def clear_batch(session: Session, step: int) -> None:
    """Before step 24 all old results but the newest three are cleared at once."""
    if step != 24:
        return
    used, was = session.tokens / WINDOW, session.tokens
    old = session.reads[:-3]
    for place in old:
        message = session.messages[place]
        call_id = message.blocks[0].body["tool_use_id"]
        stub = result_block(call_id, "[Old tool result content cleared]")
        session.messages[place] = replace(message, blocks=[stub])
    session.extra = {
        "compaction": {
            "kind": "clear",
            "trigger": "watermark",
            "tier": 2,
            "pre_tokens": was,
            "post_tokens": session.tokens,
            "window_used": round(used, 4),
            "snipped": 0,
            "pruned": len(old),
            "summary_called": False,
            "tokens_saved": was - session.tokens,
            "decisions_reused": 0,
        }
    }


CASES: dict[str, tuple[int, int, int, Callable[[Session, int], None]]] = {
    "healthy": (36, 11, 3_400, stay),
    "timestamp-in-system": (25, 12, 1_100, tick),
    "tools-changed": (32, 13, 2_400, connect),
    "batch-clear": (40, 14, 3_400, clear_batch),
}
"""Steps, seed, tokens of the largest tool result, and what happens before a step."""


def build(name: str) -> bytes:
    """The lines of one file."""
    steps, seed, largest, before = CASES[name]
    return Session(name, steps, seed, largest).run(before).text()


if __name__ == "__main__":
    for case in CASES:
        write(FOLDER / f"{case}.jsonl", build(case))
