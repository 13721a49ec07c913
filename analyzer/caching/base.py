"""What a provider's prompt cache is: it looks at a request and says what it reads and writes.

A request is seen through `PrefixView`, so that one model serves prompts that were rebuilt part by
part (the naive engine) and prompts that exist only as sums over arrays (the fast one).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
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


class Entry:
    """One stored prefix."""

    __slots__ = ("cell", "key", "parts", "ready", "size", "unit")

    def __init__(self, parts: int, key: int, ready: float, cell: Cell) -> None:
        self.parts = parts
        self.key = key
        self.ready = ready
        """It can be read from this time on, epoch seconds."""
        self.cell = cell
        self.size = 0
        """Tokens it adds to the entry before it, where a model counts its memory."""
        self.unit = False
        """Whether a model that reads whole units may stop here."""


class Cell:
    """A stretch of one path whose entries were last used together, so that they expire together."""

    __slots__ = ("entries", "last", "parent", "ttl")

    def __init__(self, ttl: float, last: float, parent: Entry | None) -> None:
        self.ttl = ttl
        self.last = last
        self.parent = parent
        """The entry that the first one here continues."""
        self.entries: list[Entry] = []


class Forest:
    """The stored prefixes of one scope and model.

    A request that reads a prefix keeps every earlier entry on its path warm. Refreshing them one by
    one would make a long lane quadratic, so entries used together share a cell, which is cut in two
    when a request stops in its middle.
    """

    def __init__(self) -> None:
        self.by_parts: dict[int, dict[int, Entry]] = {}
        self._count = 0
        self._sweep_at = 2048

    def find(self, parts: int, key: int, at: float) -> Entry | None:
        """The entry of exactly this prefix, if it can be read at this time."""
        bucket = self.by_parts.get(parts)
        if bucket is None:
            return None
        entry = bucket.get(key)
        if entry is None or entry.ready > at or at - entry.cell.last >= entry.cell.ttl:
            return None
        return entry

    def touch(self, entry: Entry, at: float) -> None:
        """Note a use of an entry and of all live entries before it on its path."""
        cell, parts = entry.cell, entry.parts
        while True:
            if cell.entries and cell.entries[-1].parts > parts:
                cell = self._cut(cell, parts)
            if cell.last < at < cell.last + cell.ttl:
                cell.last = at
            up = cell.parent
            if up is None:
                return
            if not up.cell.entries:
                # Expired and swept: skip it from now on, or chains of dead cells would grow.
                cell.parent = up.cell.parent
            cell, parts = up.cell, up.parts

    def _cut(self, cell: Cell, parts: int) -> Cell:
        """Cut a cell behind a prefix; returns the front. The smaller side moves."""
        entries = cell.entries
        i = bisect_right(entries, parts, key=lambda e: e.parts)
        if i == 0:
            # The entry itself was dropped; what is left here is none of its ancestors.
            return Cell(cell.ttl, cell.last, cell.parent)
        if 2 * i >= len(entries):
            tail = Cell(cell.ttl, cell.last, entries[i - 1])
            tail.entries = entries[i:]
            for entry in tail.entries:
                entry.cell = tail
            del entries[i:]
            return cell
        front = Cell(cell.ttl, cell.last, cell.parent)
        front.entries = entries[:i]
        for entry in front.entries:
            entry.cell = front
        del entries[:i]
        cell.parent = front.entries[-1]
        return front

    def add(
        self, parts: int, key: int, ttl: float, at: float, ready: float, after: Entry | None
    ) -> Entry:
        """Store a prefix behind `after`, the longest entry of the request before it."""
        bucket = self.by_parts.setdefault(parts, {})
        old = bucket.get(key)
        if old is not None:
            if at - old.cell.last < old.cell.ttl and old.cell.ttl >= ttl:
                # Written by a request that has not begun to answer: whichever answers first counts.
                old.ready = min(old.ready, ready)
                self.touch(old, at)
                return old
            # Dropping the last entry of a bucket drops the bucket.
            self.drop(old)
            bucket = self.by_parts.setdefault(parts, {})
        cell = after.cell if after is not None else None
        if cell is None or (cell.ttl, cell.last) != (ttl, at) or cell.entries[-1:] != [after]:
            cell = Cell(ttl, at, after)
        entry = Entry(parts, key, ready, cell)
        cell.entries.append(entry)
        bucket[key] = entry
        self._count += 1
        if self._count > self._sweep_at:
            self._sweep(at)
        return entry

    def drop(self, entry: Entry) -> None:
        """Forget one entry."""
        bucket = self.by_parts.get(entry.parts)
        if bucket is None or bucket.get(entry.key) is not entry:
            return
        del bucket[entry.key]
        if not bucket:
            del self.by_parts[entry.parts]
        entry.cell.entries.remove(entry)
        self._count -= 1

    def _sweep(self, at: float) -> None:
        """Drop what has expired, so that memory follows the live entries."""
        dead = [e for e in self.entries() if at - e.cell.last >= e.cell.ttl]
        for entry in dead:
            del self.by_parts[entry.parts][entry.key]
            entry.cell.entries.clear()
        self.by_parts = {n: bucket for n, bucket in self.by_parts.items() if bucket}
        self._count -= len(dead)
        self._sweep_at = max(2048, 2 * self._count)

    def entries(self) -> list[Entry]:
        """Every stored entry, expired ones included."""
        return [entry for bucket in self.by_parts.values() for entry in bucket.values()]

    def forget(self, request: Request, tokens: int) -> None:
        """Drop every entry on a request's path that is longer than `tokens`."""
        view = request.prefix
        for n in [n for n in self.by_parts if n <= len(view) and view.tokens(n) > tokens]:
            if entry := self.by_parts[n].get(key_of(request, n)):
                self.drop(entry)

    def longest(self, request: Request) -> Entry | None:
        """The longest live prefix of a request, where every part end on a path is stored.

        Such paths have no gaps, so growing steps from the end and then halving find it.
        """
        low, high, step = 0, len(request.prefix) + 1, 1
        found: Entry | None = None
        while low + 1 < high:
            probe = max(low + 1, high - step)
            if found is not None or step > high - low:
                probe = (low + high) // 2
            entry = self.find(probe, key_of(request, probe), request.at)
            if entry is None:
                high = probe
                step *= 2
            else:
                low, found = probe, entry
        return found

    def extend(self, request: Request, ttl: float, found: Entry | None) -> Entry | None:
        """Store every part end of a request behind the longest prefix found; the last of them."""
        if found is not None:
            self.touch(found, request.at)
        last = found
        for n in range(found.parts + 1 if found is not None else 1, len(request.prefix) + 1):
            last = self.add(n, key_of(request, n), ttl, request.at, request.ready_at, last)
        return last


class Forests:
    """One forest per scope and model: nothing is ever read across either."""

    def __init__(self) -> None:
        self._forests: dict[tuple[str, str], Forest] = {}

    def look(self, request: Request) -> Forest | None:
        """The forest of a request, without making one."""
        return self._forests.get((request.scope, request.model))

    def open(self, request: Request) -> Forest:
        """The forest of a request."""
        return self.look(request) or self._forests.setdefault(
            (request.scope, request.model), Forest()
        )
