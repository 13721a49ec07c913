"""Stored prefixes of caches: found by their digest, refreshed along a path, dropped when they expire.

Owns the memory that several rules share; which prefixes are stored and found is theirs to say.
"""

from __future__ import annotations

from bisect import bisect_right

from analyzer.caching.base import Request, key_of


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
