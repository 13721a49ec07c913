"""Caches that need no breakpoints: exact prefixes, boundaries of messages, stored content.

Owns the automatic rules of OpenAI, DeepSeek and Gemini, and the plain rules that serve as yardstick
(`prefix`: everything that was sent before is read; `none`: nothing ever is).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from analyzer.caching.base import (
    Mark,
    Request,
    Served,
    bill,
    key_of,
)
from analyzer.caching.forest import Entry, Forest, Forests
from analyzer.model import Ttl


class PrefixCache:
    """Reads the longest prefix shared with any earlier request; what is not read is written."""

    name: ClassVar[str] = "prefix"
    ttl: ClassVar[float] = 300
    """Seconds without use after which a prefix is gone."""
    minimum: ClassVar[int] = 1
    """Shortest read, in tokens."""
    unit: ClassVar[int] = 1
    """A read is the minimum and a multiple of this, in tokens."""
    writes: ClassVar[bool] = True
    """Whether what is not read is billed as written."""
    whole_units: ClassVar[bool] = False
    """Reads end where an earlier request ended, or where two requests were seen to part."""

    def __init__(
        self, ttl: float | None = None, minimum: int | Callable[[str], int] | None = None
    ) -> None:
        """Set up an empty cache; `ttl` in seconds and `minimum` in tokens replace the rule's own."""
        self._ttl = self.ttl if ttl is None else ttl
        self._minimum = self.minimum if minimum is None else minimum
        self._forests = Forests()

    def peek(self, request: Request) -> Served:
        """See `CacheModel`."""
        forest = self._forests.look(request)
        found = forest.longest(request) if forest is not None else None
        return self._bill(request, forest, found)

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        forest = self._forests.open(request)
        found = forest.longest(request)
        served = self._bill(request, forest, found)
        last = forest.extend(request, self._ttl, found)
        # Both ends are units from now on: this request's, and where it left an earlier one.
        if found is not None:
            found.unit = True
        if last is not None:
            last.unit = True
        return served

    def forget(self, request: Request, tokens: int) -> None:
        """See `CacheModel`."""
        forest = self._forests.look(request)
        if forest is not None:
            forest.forget(request, tokens)

    def _bill(self, request: Request, forest: Forest | None, found: Entry | None) -> Served:
        view = request.prefix
        if self.whole_units and forest is not None:
            found = _last_unit(forest, request, found)
        parts = found.parts if found is not None else 0
        read = self._rounded(view.tokens(parts), request.model)
        total = view.tokens(len(view))
        # Below the minimum nothing is stored, so nothing can be billed as written.
        least = self._least(request.model)
        written: list[tuple[int, Ttl]] = [(total, "5m")] if self.writes and total >= least else []
        return bill(total, read, written, parts if read else 0)

    def _least(self, model: str) -> int:
        return self._minimum(model) if callable(self._minimum) else self._minimum

    def _rounded(self, tokens: int, model: str) -> int:
        least = self._least(model)
        if tokens < least:
            return 0
        return least + (tokens - least) // self.unit * self.unit


def _last_unit(forest: Forest, request: Request, found: Entry | None) -> Entry | None:
    # Units of the same path may expire apart from what was stored behind them.
    for n in range(found.parts if found is not None else 0, 0, -1):
        entry = forest.find(n, key_of(request, n), request.at)
        if entry is not None and entry.unit:
            return entry
    return None


class OpenAiCache(PrefixCache):
    """OpenAI before GPT-5.6: 1,024 tokens and then steps of 128, nothing billed for writing.

    Source: platform.openai.com prompt caching guide, classic text. It promises 5 to 10 minutes
    without use and an hour at most; the shorter end is taken.
    """

    name: ClassVar[str] = "openai"
    minimum: ClassVar[int] = 1024
    unit: ClassVar[int] = 128
    writes: ClassVar[bool] = False


class IntervalCache(OpenAiCache):
    """gpt-5.5: boundaries at fixed intervals, counted from a hidden system message; kept for a day.

    What is reported is the boundary less the hidden tokens, rounded down to 128. The guide says
    2,048 tokens and not how many are hidden; each of 1,760 recorded reads of 16 sessions is 128
    below a multiple of 512, so that is what is taken. Source: developers.openai.com prompt caching
    guide, 2 October 2026 (gpt-5.5 and 5.5-pro know only the retention of 24 hours).
    """

    name: ClassVar[str] = "openai-5.5"
    ttl: ClassVar[float] = 86_400

    def __init__(self, interval: int = 512, hidden: int = 128) -> None:
        """Set up an empty cache; `hidden` are the tokens in front of every prompt."""
        super().__init__()
        self._interval = interval
        self._hidden = hidden

    def _rounded(self, tokens: int, model: str) -> int:
        reached = (tokens + self._hidden) // self._interval * self._interval - self._hidden
        return reached // self.unit * self.unit if reached >= self.minimum else 0


class XaiCache(PrefixCache):
    """xAI: blocks of 128 tokens (measured by users), kept as long as the server likes.

    Source: docs.x.ai, 2026; a lifetime is not stated and taken as five minutes.
    """

    name: ClassVar[str] = "xai"
    minimum: ClassVar[int] = 128
    unit: ClassVar[int] = 128
    writes: ClassVar[bool] = False


class KimiCache(PrefixCache):
    """Moonshot: chunks of 256 tokens (measured by users on the coding endpoint), five minutes.

    Writes of five minutes cost what input costs, so none are billed apart. Source:
    platform.kimi.ai, 2026.
    """

    name: ClassVar[str] = "kimi"
    minimum: ClassVar[int] = 256
    unit: ClassVar[int] = 256
    writes: ClassVar[bool] = False


class QwenCache(PrefixCache):
    """Alibaba's implicit cache: from 256 tokens on (the newest Chinese page says 1,024).

    Source: help.aliyun.com model-studio context cache, 2026; no lifetime is stated.
    """

    name: ClassVar[str] = "qwen"
    minimum: ClassVar[int] = 256
    writes: ClassVar[bool] = False


class MiniMaxCache(PrefixCache):
    """MiniMax's passive cache: from 512 tokens on. Source: platform.minimax.io, 2026."""

    name: ClassVar[str] = "minimax"
    minimum: ClassVar[int] = 512
    writes: ClassVar[bool] = False


class DeepSeekCache(PrefixCache):
    """DeepSeek on disk: units of 64 tokens, kept for hours (here a day), nothing for writing.

    Source: api-docs.deepseek.com/guides/kv_cache and /news/news0802 (2024 rule).
    """

    name: ClassVar[str] = "deepseek"
    ttl: ClassVar[float] = 86_400
    minimum: ClassVar[int] = 64
    unit: ClassVar[int] = 64
    writes: ClassVar[bool] = False


class DeepSeekUnitsCache(PrefixCache):
    """DeepSeek's guide for V4: whole units, which end with a request or where two requests part.

    Source: api-docs.deepseek.com/guides/kv_cache, 2026. The fixed intervals of the guide have no
    published length and are left out.
    """

    name: ClassVar[str] = "deepseek-units"
    ttl: ClassVar[float] = 86_400
    minimum: ClassVar[int] = 64
    writes: ClassVar[bool] = False
    whole_units: ClassVar[bool] = True


class GeminiCache(PrefixCache):
    """Gemini's implicit cache: exact prefixes above a minimum, best effort, no write price.

    Source: ai.google.dev/gemini-api/docs/caching, May 2026; the lifetime is not stated and taken
    as five minutes.
    """

    name: ClassVar[str] = "gemini"
    minimum: ClassVar[int] = 1024
    writes: ClassVar[bool] = False


class ExactCache(PrefixCache):
    """An automatic cache of unpublished grain: exact prefixes, no minimum, no write price."""

    name: ClassVar[str] = "automatic"
    writes: ClassVar[bool] = False


class NoCache:
    """No cache at all: every token is plain input."""

    name: ClassVar[str] = "none"

    def peek(self, request: Request) -> Served:
        """See `CacheModel`."""
        return bill(request.prefix.tokens(len(request.prefix)), 0, [])

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        return self.peek(request)

    def forget(self, request: Request, tokens: int) -> None:
        """See `CacheModel`; there is nothing to forget."""


class BoundaryCache:
    """OpenAI from GPT-5.6 on: entries at message boundaries only, writes billed.

    A request marks its own end (implicit mode) and any boundary that it names. It finds what
    earlier requests wrote there, at up to 20 earlier ends, and at the end of the first developer
    block; an unmarked prefix is never found. Lifetimes: the short one is 30 minutes, the long one
    12 hours. Source: developers.openai.com prompt caching guide, 2 October and November 2026; the
    latest 50 explicit marks are looked up there (the SDK says 80).
    """

    name: ClassVar[str] = "openai-5.6"
    minimum: ClassVar[int] = 1024
    earlier_ends: ClassVar[int] = 20
    first_marks: ClassVar[int] = 2
    latest_marks: ClassVar[int] = 50
    max_writes: ClassVar[int] = 4

    def __init__(self, short_ttl: float = 1800, long_ttl: float = 43_200) -> None:
        """Set up an empty cache; lifetimes in seconds."""
        self._seconds: dict[Ttl, float] = {"5m": short_ttl, "1h": long_ttl}
        self._forests = Forests()

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
        if hit is not None:
            forest.touch(hit, request.at)
        last = hit
        for mark in written:
            key = key_of(request, mark.parts)
            ttl = self._seconds[mark.ttl]
            last = forest.add(mark.parts, key, ttl, request.at, request.ready_at, last)
        return served

    def forget(self, request: Request, tokens: int) -> None:
        """See `CacheModel`."""
        forest = self._forests.look(request)
        if forest is not None:
            forest.forget(request, tokens)

    def _marks(self, request: Request) -> tuple[Mark, ...]:
        end = len(request.prefix)
        if not request.implicit or not end or any(m.parts == end for m in request.marks):
            return request.marks
        ttl: Ttl = request.marks[-1].ttl if request.marks else "5m"
        return (*request.marks, Mark(end, ttl))

    def _find(self, forest: Forest, request: Request) -> Entry | None:
        # Too many marks is no error here: the provider looks up the first and the latest.
        named = [m.parts for m in request.marks]
        places = {*named[: self.first_marks], *named[-self.latest_marks :]}
        if request.implicit:
            places.update(self._endings(request))
            places.add(request.system_end)
        for n in sorted(places & forest.by_parts.keys(), reverse=True):
            entry = forest.find(n, key_of(request, n), request.at)
            if entry is not None:
                return entry
        return None

    def _endings(self, request: Request) -> range:
        """The end of the prompt and those before it that may be looked up.

        A group of tool outputs is one message ending, and so it is one position.
        """
        view = request.prefix
        end = len(view)
        first = end
        while first - 1 > request.system_end and (
            view.position(end) - view.position(first - 1) <= self.earlier_ends
        ):
            first -= 1
        return range(first, end + 1)

    def _bill(self, request: Request, hit: Entry | None) -> tuple[Served, list[Mark]]:
        view = request.prefix
        parts = hit.parts if hit is not None else 0
        # The end of the prompt is always among the latest marks, so it is never left out.
        marks = self._marks(request)[-self.max_writes :]
        written = [m for m in marks if m.parts > parts and view.tokens(m.parts) >= self.minimum]
        ends = [(view.tokens(m.parts), m.ttl) for m in written]
        return bill(view.tokens(len(view)), view.tokens(parts), ends, parts), written


class ContentCache:
    """Gemini's explicit cache: a request with a mark stores content until its time is over.

    Storing is billed as plain input (and storage by the hour, which is no token); uses do not
    lengthen the time. The mark's lifetime is the content's. Source:
    ai.google.dev/gemini-api/docs/caching, 2026.
    """

    name: ClassVar[str] = "gemini-explicit"

    def __init__(self) -> None:
        self._until: dict[tuple[str, str, int, int], tuple[float, float]] = {}
        self._lengths: set[int] = set()

    def peek(self, request: Request) -> Served:
        """See `CacheModel`."""
        view = request.prefix
        hit = self._find(request)
        return bill(view.tokens(len(view)), view.tokens(hit), [], hit)

    def serve(self, request: Request) -> Served:
        """See `CacheModel`."""
        served = self.peek(request)
        for mark in request.marks:
            seconds = 300 if mark.ttl == "5m" else 3600
            self._until[self._key(request, mark.parts)] = (request.ready_at, request.at + seconds)
            self._lengths.add(mark.parts)
        return served

    def forget(self, request: Request, tokens: int) -> None:
        """See `CacheModel`."""
        for n in self._lengths:
            if n <= len(request.prefix) and request.prefix.tokens(n) > tokens:
                self._until.pop(self._key(request, n), None)

    def _key(self, request: Request, n: int) -> tuple[str, str, int, int]:
        return request.scope, request.model, n, key_of(request, n)

    def _find(self, request: Request) -> int:
        # Contents are few and made by hand, so all lengths can be tried.
        for n in sorted(self._lengths, reverse=True):
            if n <= len(request.prefix):
                ready, until = self._until.get(self._key(request, n), (math.inf, 0.0))
                if ready <= request.at < until:
                    return n
        return 0
