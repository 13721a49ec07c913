"""A small prompt cache with explicit breakpoints, to give made-up traces usage that is true to them.

Rules of Anthropic's prompt cache (platform.claude.com, "Prompt caching", September 2026): a
breakpoint writes one entry, the prefix that ends there; a read looks back 20 positions from each
breakpoint, the last one first; a run of tool calls or of tool results is one position; an entry
lives five minutes from the start of the request that wrote it or read through it. Written apart
from the product's own model, so that the two can be held against each other.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

LOOKBACK = 20
LIFETIME_S = 300
MINIMUM = 1024
TRAILER = 3
"""Tokens that stand behind the last block of every request and are never cached."""


@dataclass(frozen=True)
class Block:
    """One content block and its size."""

    role: str
    body: dict
    tokens: int

    @property
    def kind(self) -> str:
        return self.body["type"]

    def digest(self, opens_message: bool) -> bytes:
        text = json.dumps([self.role, opens_message, self.body], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True)
class Usage:
    read: int
    write: int
    input: int


@dataclass
class PromptCache:
    """Entries by prefix: the time they were last used."""

    entries: dict[bytes, float] = field(default_factory=dict)

    def serve(self, at: float, digests: list[bytes], blocks: list[Block], marks: list[int]) -> Usage:
        """Serve a request whose breakpoints stand behind the first `marks` blocks.

        `digests` are the blocks' own digests.
        """
        prefixes, tokens, positions = [b""], [0], [0]
        for i, (digest, block) in enumerate(zip(digests, blocks, strict=True)):
            prefixes.append(hashlib.sha256(prefixes[-1] + digest).digest())
            tokens.append(tokens[-1] + block.tokens)
            runs = block.kind in ("tool_use", "tool_result")
            same = i > 0 and runs and blocks[i - 1].kind == block.kind
            positions.append(positions[-1] + (0 if same else 1))
        hit = self._find(at, prefixes, positions, marks)
        for n in range(1, hit + 1):
            if self._alive(prefixes[n], at):
                self.entries[prefixes[n]] = at
        for mark in marks:
            if mark > hit and tokens[mark] >= MINIMUM:
                self.entries[prefixes[mark]] = at
        last = max([hit, *(m for m in marks if tokens[m] >= MINIMUM)])
        return Usage(tokens[hit], tokens[last] - tokens[hit], tokens[-1] - tokens[last] + TRAILER)

    def _alive(self, prefix: bytes, at: float) -> bool:
        return prefix in self.entries and at - self.entries[prefix] < LIFETIME_S

    def _find(
        self, at: float, prefixes: list[bytes], positions: list[int], marks: list[int]
    ) -> int:
        for mark in sorted(marks, reverse=True):
            n = mark
            while n > 0 and positions[mark] - positions[n] < LOOKBACK:
                if self._alive(prefixes[n], at):
                    return n
                n -= 1
        return 0
