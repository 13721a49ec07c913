"""Caches of inference servers: blocks of tokens in GPU memory, least recently used first out.

Owns the rules of vLLM and SGLang. Nothing is billed; the counts say what need not be computed.
"""

from __future__ import annotations

import math
from typing import ClassVar

from analyzer.caching.base import Request, Served, bill, key_of
from analyzer.caching.forest import Entry, Forest, Forests


class BlockCache:
    """vLLM: a block is found by its tokens and all before it; only full blocks of 16 are shared.

    The last token of a prompt is always computed. Source: docs.vllm.ai design/prefix_caching.
    """

    name: ClassVar[str] = "vllm"
    block: ClassVar[int] = 16
    """Tokens per block."""

    def __init__(self, capacity: int | None = None) -> None:
        """Set up an empty cache; `capacity` in tokens per scope and model, None without limit."""
        self._capacity = capacity
        self._forests = Forests()

    def peek(self, request: Request) -> Served:
        """See `CacheModel`."""
        forest = self._forests.look(request)
        return self._bill(request, forest.longest(request) if forest is not None else None)

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        forest = self._forests.open(request)
        found = forest.longest(request)
        served = self._bill(request, found)
        start = found.parts if found is not None else 0
        forest.extend(request, math.inf, found)
        if self._capacity is not None:
            # Sizes are only known while the request's own view is at hand.
            view = request.prefix
            for n in range(start + 1, len(view) + 1):
                forest.by_parts[n][key_of(request, n)].size = view.tokens(n) - view.tokens(n - 1)
            _evict(forest, self._capacity)
        return served

    def forget(self, request: Request, tokens: int) -> None:
        """See `CacheModel`."""
        forest = self._forests.look(request)
        if forest is not None:
            forest.forget(request, tokens)

    def _bill(self, request: Request, found: Entry | None) -> Served:
        view = request.prefix
        total = view.tokens(len(view))
        shared = min(view.tokens(found.parts) if found is not None else 0, max(0, total - 1))
        read = shared // self.block * self.block
        return bill(total, read, [], found.parts if found is not None and read else 0)


class RadixCache(BlockCache):
    """SGLang: a radix tree over single tokens. Source: docs.sglang.ai, page size 1."""

    name: ClassVar[str] = "sglang"
    block: ClassVar[int] = 1


def _evict(forest: Forest, capacity: int) -> None:
    """Drop entries, least recently used first and the deepest of those first, until all fit."""
    stored = forest.entries()
    held = sum(entry.size for entry in stored)
    if held <= capacity:
        return
    # Deepest first among equals, so that no entry outlives the ones it continues.
    for entry in sorted(stored, key=lambda e: (e.cell.last, -e.parts)):
        if held <= capacity:
            return
        held -= entry.size
        forest.drop(entry)
