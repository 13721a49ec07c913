"""A cache that stores and finds prefixes at explicit breakpoints (Anthropic, Bedrock, Vertex).

Rules: platform.claude.com/docs/en/build-with-claude/prompt-caching, text of September 2026. It is a
model: evictions, hidden tokens and the grey zone behind a lifetime are not in any documentation.

One simplification: a live entry that no request ever read through and that this request does not
mark is not kept warm by a longer prefix that was written without finding it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from analyzer.caching.base import (
    BreakpointTerms,
    Mark,
    Request,
    Served,
    bill,
    key_of,
)
from analyzer.caching.forest import Entry, Forest, Forests
from analyzer.model import TTL_SECONDS

LOOKBACK = 20
"""Positions examined per breakpoint, itself the first; same page, "automatic prefix checking"."""
GRACE = 1.1
"""Entries are deleted promptly but not at once; a tenth of the lifetime is our inference."""


class BreakpointCache:
    """Writes one entry per breakpoint, reads by looking back from each breakpoint."""

    name: ClassVar[str] = "anthropic"
    per_block: ClassVar[bool] = False
    """Every part is a look-back position, runs of calls and results too."""

    def __init__(
        self,
        minimum: int | Callable[[str], int] = 1024,
        lookback: int = LOOKBACK,
        grace: bool = False,
    ) -> None:
        """Set up an empty cache.

        `minimum`: smallest prefix that is stored, in tokens, or how to tell it from a model's name.
        `grace`: entries live a tenth longer than promised.
        """
        self._minimum = minimum if callable(minimum) else _constant(minimum)
        self._lookback = lookback
        self._stretch = GRACE if grace else 1.0
        self._forests = Forests()
        self._minimums: dict[str, int] = {}

    @property
    def breakpoint_rule(self) -> BreakpointTerms:
        """The numbers of the rule."""
        return BreakpointTerms(self._minimum, self._lookback, self._stretch, self.per_block)

    def peek(self, request: Request) -> Served:
        """See `CacheModel`."""
        forest = self._forests.look(request)
        hit = self._find(forest, request) if forest is not None else None
        return self._bill(request, hit)[0]

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        forest = self._forests.open(request)
        hit = self._find(forest, request)
        served, written = self._bill(request, hit)
        at = request.at
        if hit is not None:
            forest.touch(hit, at)
            self._touch_marked(forest, request, hit.parts)
        last = hit
        for mark in written:
            ttl = TTL_SECONDS[mark.ttl] * self._stretch
            key = key_of(request, mark.parts)
            last = forest.add(mark.parts, key, ttl, at, request.ready_at, last)
        return served

    def _touch_marked(self, forest: Forest, request: Request, parts: int) -> None:
        """Keep warm what the request marks itself, though another request may have written it."""
        for mark in request.marks:
            if mark.parts >= parts:
                return
            entry = forest.find(mark.parts, key_of(request, mark.parts), request.at)
            if entry is not None and entry.cell.last < request.at:
                forest.touch(entry, request.at)

    def forget(self, request: Request, tokens: int) -> None:
        """See `CacheModel`."""
        forest = self._forests.look(request)
        if forest is not None:
            forest.forget(request, tokens)

    def _find(self, forest: Forest, request: Request) -> Entry | None:
        """The first entry found, from the last breakpoint to the first, each with its window."""
        view, by_parts = request.prefix, forest.by_parts
        position = _each if self.per_block else view.position
        for mark in reversed(request.marks):
            lowest = position(mark.parts) - self._lookback + 1
            # Most lengths hold no entry at all, and a digest costs more than this look.
            for n in range(mark.parts, 0, -1):
                if position(n) < lowest:
                    break
                if n in by_parts:
                    entry = forest.find(n, key_of(request, n), request.at)
                    if entry is not None:
                        return entry
        return None

    def _bill(self, request: Request, hit: Entry | None) -> tuple[Served, list[Mark]]:
        view = request.prefix
        parts = hit.parts if hit is not None else 0
        minimum = self._minimums.get(request.model)
        if minimum is None:
            minimum = self._minimums[request.model] = self._minimum(request.model)
        # A mark below the minimum stores nothing, and so bills nothing either.
        written = [m for m in request.marks if m.parts > parts and view.tokens(m.parts) >= minimum]
        ends = [(view.tokens(m.parts), m.ttl) for m in written]
        return bill(view.tokens(len(view)), view.tokens(parts), ends, parts), written


class BedrockCache(BreakpointCache):
    """Claude on Bedrock: the same rule with a table of minimums of its own, block by block.

    Source: public report claude-code 63930 (every block counts) and LiteLLM's copy of the table of
    minimums, 2026; the current AWS page was not seen.
    """

    name: ClassVar[str] = "bedrock"
    per_block: ClassVar[bool] = True


class QwenMarkedCache(BreakpointCache):
    """Alibaba's explicit cache: marks as Anthropic's, five minutes, 20 blocks back.

    Source: help.aliyun.com model-studio context cache, 2026.
    """

    name: ClassVar[str] = "qwen-marks"
    per_block: ClassVar[bool] = True


class MiniMaxMarkedCache(QwenMarkedCache):
    """MiniMax's active cache: the same with a minimum of 512. Source: platform.minimax.io, 2026."""

    name: ClassVar[str] = "minimax-marks"


def _each(parts: int) -> int:
    return parts


def _constant(tokens: int) -> Callable[[str], int]:
    return lambda _model: tokens
