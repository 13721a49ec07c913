"""What a provider's prompt cache is: it looks at a request and says what it reads and writes.

A request is seen through `PrefixView`, so that one model serves prompts that were rebuilt part by
part (the naive engine) and prompts that exist only as sums over arrays (the fast one).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple, Protocol

import xxhash

from analyzer.errors import LawError
from analyzer.model import Ttl


class PrefixView(Protocol):
    """The prefixes of one prompt. `n` counts parts; prefix 0 is empty, prefix `len` the prompt."""

    def __len__(self) -> int:
        """Number of parts."""
        ...

    def digest(self, n: int) -> int:
        """64-bit digest of the first n parts; equal prefixes give equal digests in every lane."""
        ...

    def tokens(self, n: int) -> int:
        """Tokens of the first n parts."""
        ...

    def position(self, n: int) -> int:
        """Look-back position of the end of the first n parts, runs of calls or results collapsed."""
        ...


class Mark(NamedTuple):
    """A breakpoint in a request: cache the first `parts` parts for `ttl`."""

    parts: int
    ttl: Ttl


@dataclass(frozen=True, slots=True)
class Request:
    """One request as a cache sees it."""

    at: float
    """Start, epoch seconds."""
    ready_at: float
    """When the response began: an entry can be read only from then on."""
    model: str
    prefix: PrefixView
    marks: tuple[Mark, ...]
    """In prompt order."""
    scope: str = ""
    """Isolation (workspace, organisation); entries of another scope are never seen."""
    tools_end: int = 0
    """Number of parts in the tools section."""
    system_end: int = 0
    """Number of parts in the tools and system sections."""
    settings: tuple[str, str, str] = ("", "", "")
    """Request parameters that invalidate from tools, from system, from messages on."""
    implicit: bool = True
    """The provider may set a mark of its own at the end of the prompt (OpenAI from GPT-5.6 on);
    providers without that mode ignore it."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a request reads and writes, in tokens; the four add up to the prompt."""

    read: int
    write_5m: int
    write_1h: int
    input: int
    hit_parts: int = 0
    """Parts of the prefix that was found."""

    @property
    def write(self) -> int:
        """All tokens written."""
        return self.write_5m + self.write_1h


class BreakpointTerms(NamedTuple):
    """The numbers of a rule with breakpoints."""

    minimum: Callable[[str], int]
    """Smallest stored prefix of a model, in tokens."""
    lookback: int
    """Positions examined per mark."""
    stretch: float
    """Factor on lifetimes."""
    per_block: bool
    """Every part is a position."""


class CacheModel(Protocol):
    """A provider's cache. `peek` looks; `serve` looks and changes, and bills what `peek` said."""

    name: ClassVar[str]

    def peek(self, request: Request) -> Served:
        """What the request would read and write now; changes nothing."""
        ...

    def serve(self, request: Request) -> Served:
        """Serve the request: bill it, refresh what it read, store what it wrote."""
        ...

    def forget(self, request: Request, tokens: int) -> None:
        """Drop every entry on the request's path that is longer than `tokens` (an eviction or a
        hidden change that the recording shows)."""
        ...


class ListPrefix:
    """A prompt as plain lists of part digests and sizes; the reference `PrefixView`."""

    def __init__(
        self, digests: list[int], tokens: list[int], collapsed: list[bool] | None = None
    ) -> None:
        """`collapsed[i]`: part i shares the look-back position of part i-1."""
        self._digest = [0]
        self._tokens = [0]
        self._position = [0]
        for i, (d, t) in enumerate(zip(digests, tokens, strict=True)):
            self._digest.append((self._digest[-1] + mix(i, d)) & _MASK)
            self._tokens.append(self._tokens[-1] + t)
            step = 0 if collapsed and collapsed[i] and i else 1
            self._position.append(self._position[-1] + step)

    def __len__(self) -> int:
        return len(self._tokens) - 1

    def digest(self, n: int) -> int:
        """See `PrefixView`."""
        return self._digest[n]

    def tokens(self, n: int) -> int:
        """See `PrefixView`."""
        return self._tokens[n]

    def position(self, n: int) -> int:
        """See `PrefixView`."""
        return self._position[n]


def collapsed_runs(kinds: Sequence[str]) -> list[bool]:
    """For each part, whether it shares the look-back position of the one before it.

    A run of tool calls is one position, and so is a run of tool results. Source:
    platform.claude.com prompt caching page, September 2026 text; earlier text and Bedrock count
    every block. The cache only sees `PrefixView.position`, so the caller chooses.
    """
    runs = ("tool_use", "tool_result")
    return [i > 0 and kind in runs and kinds[i - 1] == kind for i, kind in enumerate(kinds)]


_MASK = (1 << 64) - 1


def mix(index: int, digest: int) -> int:
    """Pseudo-random 64 bits for "this part at this place" (splitmix64).

    Their sum is the digest of a prefix: changing one part is one subtraction and one addition.
    """
    z = (digest + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


@lru_cache(maxsize=4096)
def _salts(settings: tuple[str, str, str]) -> tuple[int, int, int]:
    """Added to a digest so that other settings never find it, by level of the prefix."""

    def salt(values: tuple[str, ...]) -> int:
        return xxhash.xxh3_64_intdigest("\0".join(values).encode()) if any(values) else 0

    return salt(settings[:1]), salt(settings[:2]), salt(settings)


def key_of(request: Request, n: int) -> int:
    """Key of the first n parts: their digest, and the settings that act up to that level."""
    tools, system, messages = _salts(request.settings)
    salt = tools if n <= request.tools_end else system if n <= request.system_end else messages
    return (request.prefix.digest(n) + salt) & _MASK


def bill(total: int, read: int, marks: Sequence[tuple[int, Ttl]], hit_parts: int = 0) -> Served:
    """Divide a prompt among read, writes and uncached input.

    `marks` are the tokens and lifetimes of the breakpoints that write. With A the tokens read, B
    those at the highest 1h mark after A (else A) and C those at the last mark: read = A, 1h write =
    B - A, 5m write = C - B, input = total - C. Source: platform.claude.com prompt caching page,
    "Mixing different TTLs", 2026-09. Raises `LawError` where the four would not add up.
    """
    long = max((tokens for tokens, ttl in marks if ttl == "1h"), default=read)
    last = max((tokens for tokens, _ in marks), default=read)
    b = max(read, long)
    c = max(b, last)
    if not 0 <= read <= b <= c <= total:
        raise LawError(
            f"expected 0 <= read <= written <= prompt, got read {read}, 1h up to {b}, 5m up to {c},"
            f" prompt {total} tokens"
        )
    return Served(read, c - b, b - read, total - c, hit_parts)
