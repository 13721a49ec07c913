"""A conversation with sizes in tokens, and the step JSONL lines that it gives."""

from __future__ import annotations

import copy
import gzip
import io
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import trace_text as text
from trace_cache import Block, PromptCache, Usage

PROSE, CODE, LOG, JSON_ARGS = 4.2, 3.4, 3.1, 3.3
"""Characters per token of the kinds of text; they differ, as they do in real vocabularies."""
MESSAGE, CALL, RESULT = 3, 14, 12
"""Tokens around a text, a call and a result."""
MARK = {"type": "ephemeral"}


def text_block(role: str, body: str, per_token: float = PROSE) -> Block:
    """A text block, sized by its length."""
    return Block(role, {"type": "text", "text": body}, MESSAGE + round(len(body) / per_token))


def say(rng: Random, role: str, tokens: int) -> Block:
    """A text block of an exact size."""
    body = text.prose(rng, round((tokens - MESSAGE) * PROSE))
    return Block(role, {"type": "text", "text": body}, tokens)


def call_block(call_id: str, name: str, arguments: dict, tokens: int | None = None) -> Block:
    """A tool call; sized by its arguments unless a size is given."""
    size = CALL + round(len(json.dumps(arguments)) / JSON_ARGS)
    body = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return Block("assistant", body, size if tokens is None else tokens)


def result_block(call_id: str, content: str, tokens: int | None = None) -> Block:
    """A tool result; sized by its length unless a size is given."""
    size = RESULT + round(len(content) / PROSE)
    body = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return Block("user", body, size if tokens is None else tokens)


@dataclass
class Message:
    """One entry of the messages array."""

    role: str
    blocks: list[Block]

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)

    def json(self, marked: bool) -> dict:
        content = [dict(block.body) for block in self.blocks]
        if marked:
            content[-1]["cache_control"] = MARK
        return {"role": self.role, "content": content}


@dataclass
class Head:
    """Tools and system prompt of a request."""

    tools: list[Block]
    system: list[Block]

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in (*self.tools, *self.system))

    def json(self) -> dict:
        tools = [{k: v for k, v in block.body.items() if k != "type"} for block in self.tools]
        system = [dict(block.body) for block in self.system]
        system[-1]["cache_control"] = MARK
        return {"tools": tools, "system": system}


def make_head(rng: Random, prompt: str, names: dict[str, tuple[str, ...]], tool_tokens: int) -> Head:
    """Tool definitions of about a size each, and a system prompt."""
    tools = []
    for name, parameters in names.items():
        about = f"{name.replace('_', ' ').capitalize()}. " + text.prose(rng, tool_tokens * 3)
        schema = {
            "type": "object",
            "properties": {
                p: {"type": "string", "description": text.prose(rng, 60)} for p in parameters
            },
            "required": list(parameters[:1]),
        }
        body = {"type": "tool", "name": name, "description": about, "input_schema": schema}
        tools.append(Block("system", body, 10 + round(len(json.dumps(body)) / PROSE)))
    return Head(tools, [text_block("system", prompt)])


@dataclass
class Recorder:
    """Serves the steps of one session through the cache and writes them down."""

    session: str
    project: str
    model: str
    start: datetime
    cache: PromptCache = field(default_factory=PromptCache)
    lines: list[dict] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    last: list[dict] | None = None
    _digests: dict[int, tuple[Block, bool, bytes]] = field(default_factory=dict)

    def step(
        self,
        after_s: float,
        took_s: float,
        head: Head,
        messages: list[Message],
        answer: list[Block],
        *,
        marked: frozenset[int] = frozenset(),
        whole: bool = True,
        reasoning: int = 0,
        extra: dict | None = None,
    ) -> Usage:
        """Record one request; `marked` are the messages with an explicit breakpoint.

        The system prompt is marked too, and the end of the prompt by the automatic mark.
        """
        usage = self._serve(after_s, head, messages, marked)
        at = self.start + timedelta(seconds=after_s)
        now = [message.json(i in marked) for i, message in enumerate(messages)]
        number = len(self.lines)
        line = {
            "v": 1,
            "session": self.session,
            "project": self.project,
            "step": number,
            "id": f"{self.session}-{number:03}",
            "at": _stamp(at),
            "ended_at": _stamp(at + timedelta(seconds=took_s)),
            "model": self.model,
            "provider": "anthropic",
        }
        if whole or self.last is None:
            line["request"] = {**head.json(), "cache_control": MARK, "messages": now}
        else:
            changed = [i for i, was in enumerate(self.last) if was != now[i]]
            if changed:
                line["replace"] = [{"index": i, "message": now[i]} for i in changed]
            line["append"] = now[len(self.last) :]
        line["response"] = [block.body for block in answer]
        line["usage"] = usage_fields(usage, sum(block.tokens for block in answer), reasoning)
        line.update(extra or {})
        self.lines.append(line)
        self.usages.append(usage)
        self.last = now
        return usage

    def _serve(
        self, after_s: float, head: Head, messages: list[Message], marked: frozenset[int]
    ) -> Usage:
        blocks = [*head.tools, *head.system]
        opens = [False] * len(blocks)
        marks = [len(blocks)]
        for i, message in enumerate(messages):
            opens += [j == 0 for j in range(len(message.blocks))]
            blocks += message.blocks
            if i in marked:
                marks.append(len(blocks))
        if marks[-1] != len(blocks):
            marks.append(len(blocks))
        digests = [self._digest(b, o) for b, o in zip(blocks, opens, strict=True)]
        return self.cache.serve(after_s, digests, blocks, marks)

    def _digest(self, block: Block, opens: bool) -> bytes:
        known = self._digests.get(id(block))
        if known is None or known[0] is not block or known[1] != opens:
            known = self._digests[id(block)] = (block, opens, block.digest(opens))
        return known[2]

    def cost(self) -> dict[str, float]:
        """USD at Sonnet's 3 / 15 / 3.75 / 0.30 per million tokens."""
        output = sum(line["usage"]["output_tokens"] for line in self.lines)
        money = {
            "write": sum(u.write for u in self.usages) * 3.75e-6,
            "read": sum(u.read for u in self.usages) * 0.30e-6,
            "input": sum(u.input for u in self.usages) * 3e-6,
            "output": output * 15e-6,
        }
        return {**money, "total": sum(money.values())}

    def text(self) -> bytes:
        """The lines of the file."""
        rows = [json.dumps(line, separators=(",", ":")) for line in self.lines]
        return ("\n".join(rows) + "\n").encode()


def usage_fields(usage: Usage, visible: int, reasoning: int) -> dict[str, int]:
    """Usage as a line tells it; the answer's visible tokens and hidden reasoning are output."""
    fields = {
        "input_tokens": usage.input,
        "cache_read_tokens": usage.read,
        "cache_write_tokens": usage.write,
        "cache_write_5m_tokens": usage.write,
        "cache_write_1h_tokens": 0,
        "output_tokens": visible + reasoning,
    }
    return {**fields, "reasoning_tokens": reasoning} if reasoning else fields


def prompts(lines: list[dict]) -> list[list[dict]]:
    """The messages array of every step, rebuilt from the lines alone."""
    out: list[list[dict]] = []
    messages: list[dict] = []
    for line in lines:
        if "request" in line:
            messages = copy.deepcopy(line["request"]["messages"])
        else:
            messages = list(messages)
            for edit in line.get("replace", ()):
                messages[edit["index"]] = edit["message"]
            messages += line.get("append", ())
        out.append(messages)
    return out


def write(path: Path, content: bytes) -> None:
    """Write a file, packed where its name says so; the same bytes every time."""
    if path.suffix == ".gz":
        packed = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as out:
            out.write(content)
        content = packed.getvalue()
    path.write_bytes(content)


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
