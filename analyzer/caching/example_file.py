"""The shape of example files, and the prompt of a step as the provider renders it."""

from __future__ import annotations

import msgspec

from analyzer.caching.limits import keeps_thinking

SECTIONS = ("tools", "system", "messages")
SERVER_RESULTS = (
    "server_tool_result",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
)
"""Kinds of blocks behind which the provider sets a mark of five minutes of its own, once a request
has any. Source: platform.claude.com, tool use with prompt caching, 2026-08."""


class Block(msgspec.Struct):
    """One content block; its id is its content."""

    id: str
    tokens: int
    section: str = "messages"
    kind: str = "text"
    role: str | None = None
    """Who wrote it, where the file says so."""


class Breakpoint(msgspec.Struct):
    """A mark behind a block."""

    block: str
    ttl: str = "5m"
    auto: bool = False
    create: bool = False


class Iteration(msgspec.Struct):
    """Counts of one sampling inside a response."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0


class Expect(msgspec.Struct):
    """What a file expects; only the output is taken from it."""

    output: int | None = None


class Step(msgspec.Struct):
    """One request."""

    at_s: float
    blocks: list[Block] = []
    breakpoints: list[Breakpoint] | None = None
    params: dict[str, str | int | float | bool | None] | None = None
    duration_s: float | None = None
    first_token_s: float | None = None
    iterations: list[Iteration] | None = None
    output: int | None = None
    expect: Expect | None = None

    @property
    def generated(self) -> int:
        """Output tokens."""
        if self.output is not None:
            return self.output
        return (self.expect.output if self.expect else None) or 0

    @property
    def settings(self) -> dict[str, str]:
        """Parameters as text."""
        given = (self.params or {}).items()
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in given}


class Example(msgspec.Struct):
    """Requests that share a cache."""

    name: str
    steps: list[Step]
    provider: str | None = None
    model: str | None = None
    rule: str | None = None
    prices_per_mtok: dict[str, str | float | None] | None = None
    min_cacheable_tokens: int | None = None


def rendered(blocks: list[Block], model: str) -> list[Block]:
    """The blocks in the provider's order, without the thinking that it strips.

    Models that keep the thinking of the last turn only lose what came before a user message that
    brings no tool result; where the file names no roles, its blocks are what was rendered.
    """
    ordered = sorted(blocks, key=lambda b: SECTIONS.index(b.section))
    if keeps_thinking(model):
        return ordered
    asked = [n for n, b in enumerate(ordered) if b.role == "user" and b.kind != "tool_result"]
    last = asked[-1] if asked else 0
    return [b for n, b in enumerate(ordered) if n > last or b.kind != "thinking"]


def may_carry_mark(block: Block) -> bool:
    """Whether an automatic mark stays on a block; thinking and empty text cannot carry one."""
    return block.kind != "thinking" and not (block.kind == "text" and block.tokens == 0)
