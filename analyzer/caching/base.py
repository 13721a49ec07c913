"""What a provider's prompt cache is: it looks at a request and says what it reads and writes.

A request is seen through `PrefixView`, so that one model serves prompts that were rebuilt part by
part (the naive engine) and prompts that exist only as sums over arrays (the fast one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

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


_MASK = (1 << 64) - 1


def mix(index: int, digest: int) -> int:
    """Pseudo-random 64 bits for "this part at this place" (splitmix64).

    Their sum is the digest of a prefix: changing one part is one subtraction and one addition.
    """
    z = (digest + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
