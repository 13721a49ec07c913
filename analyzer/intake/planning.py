"""Which files an ingest reads: walking, recognising, and knowing what was read before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import xxhash

from analyzer.content import Mode, keeps_more
from analyzer.errors import UsageError
from analyzer.model import Problem
from analyzer.reading import Job, reference
from analyzer.records import identity, plain
from analyzer.sources.base import Head, Source, is_packed, read_head
from analyzer.store import FileRow

BLOCK = 1 << 20
PASSED_BY = {".git", "node_modules", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file to look at; `named` if a person named it, not only a folder above it."""

    path: Path
    size: int
    named: bool

    @property
    def name(self) -> str:
        """The path as text that can be stored and shown, whatever bytes it is made of."""
        return plain(str(self.path))


class SkippedKind(NamedTuple):
    """Files that no source recognises: their suffix, their first bytes, how many, one of them."""

    suffix: str
    head: str
    files: int
    example: str


@dataclass(slots=True)
class Planned:
    """A job with the rows of `files` it leads to (a set's own row first) and what it replaces."""

    job: Job
    files: list[FileRow]
    replaces: list[int]
    size: int
    forgets: bool
    """What it replaces held content that must not stay anywhere in the store."""


class _Hashed(NamedTuple):
    size: int
    digest: bytes
    earlier: frozenset[bytes]
    """Digests of known earlier states that are a prefix of this one."""


def found_files(paths: Sequence[Path | str]) -> list[Found]:
    """The regular files among some paths and below them, each once, largest first.

    Links are followed, and loops of them end. Raises `UsageError` for a path that does not exist.
    """
    seen: set[tuple[int, int]] = set()
    found: list[Found] = []
    for given in paths:
        path = Path(os.path.abspath(given))
        if not path.exists():
            raise UsageError(f"expected a file or a folder, and there is nothing at {path}")
        if path.is_dir():
            found += _below(path, seen)
        else:
            found += _file(path, seen, named=True)
    return sorted(found, key=lambda file: (-file.size, str(file.path)))


def _below(top: Path, seen: set[tuple[int, int]]) -> Iterator[Found]:
    for folder, inner, names in os.walk(top, followlinks=True):
        status = os.stat(folder)
        mark = (status.st_dev, status.st_ino)
        if mark in seen:
            inner.clear()
            continue
        seen.add(mark)
        inner[:] = sorted(set(inner) - PASSED_BY)
        for name in sorted(names):
            yield from _file(Path(folder, name), seen, named=False)


def _file(path: Path, seen: set[tuple[int, int]], *, named: bool) -> Iterator[Found]:
    try:
        status = path.stat()
    except OSError:
        # A dangling link, or a file that went away meanwhile.
        return
    mark = (status.st_dev, status.st_ino)
    if stat.S_ISREG(status.st_mode) and mark not in seen:
        seen.add(mark)
        yield Found(path, status.st_size, named)


def recognised(
    file: Found, sources: Mapping[str, Source], forced: bool
) -> tuple[Source | None, Head]:
    """The source of a file, None where no one knows it, and the file's head."""
    head = read_head(file.path)
    if forced and file.named:
        return next(iter(sources.values())), head
    return next((source for source in sources.values() if source.detect(head)), None), head


@dataclass
class Plan:
    """The jobs of one run. `jobs` is pulled by several threads, one at a time."""

    found: list[Found]
    sources: Mapping[str, Source]
    forced: bool
    """The sources were named by a person, so a named file is read without being recognised."""
    project: str
    user: str
    content: Mode = "full"
    key: bytes = b""
    """See `content.keeping`."""
    live: frozenset[Path] = frozenset()
    """Files whose readers stay to read on when they grow, where the format allows it."""
    problems: list[Problem] = field(default_factory=list)
    unchanged: int = 0
    known_problems: int = 0
    """Unreadable records of such files."""
    known_steps: int = 0
    """Steps of files that were stored before this run and met again."""
    again: dict[int, int] = field(default_factory=dict)
    """Files of this run that were met once more, and how often."""
    _planned: dict[int, Planned] = field(default_factory=dict)
    _kinds: dict[tuple[str, bytes], list[str]] = field(default_factory=dict)
    _stored: dict[tuple[str, bytes], tuple[int, str]] = field(default_factory=dict)
    _faults: dict[int, int] = field(default_factory=dict)
    _steps: dict[int, int] = field(default_factory=dict)
    _held: dict[int, str] = field(default_factory=dict)
    """What is kept of the content of stored files and sets."""
    _at_path: dict[tuple[str, str], list[tuple[int, bytes, int]]] = field(default_factory=dict)
    _sets: dict[str, dict[int, set[bytes]]] = field(default_factory=dict)

    @property
    def total_files(self) -> int:
        """Files that were found."""
        return len(self.found)

    @property
    def total_bytes(self) -> int:
        """Bytes of the files that were found."""
        return sum(file.size for file in self.found)

    def learn(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Take note of the files that a store holds (rows of the query `files`)."""
        for values in rows:
            # The query `files` has the fields of `FileRow` in their types; a frame does not say so.
            row = FileRow(*(values[name] for name in FileRow._fields))  # type: ignore[arg-type]
            if row.owner == row.file_id:
                self._stored[row.source, row.digest] = row.file_id, row.content
                self._faults[row.file_id] = row.n_problems
                self._steps[row.file_id] = row.n_steps
                self._held[row.file_id] = row.content
            else:
                members = self._sets.setdefault(row.source, {}).setdefault(row.owner, set())
                members.add(row.digest)
            self._at_path.setdefault((row.source, row.path), []).append(
                (row.size, row.digest, row.owner)
            )

    def of(self, job: Job) -> Planned:
        """What a job of this plan leads to."""
        return self._planned[job.file_id]

    def skipped_kinds(self) -> list[SkippedKind]:
        """What no source recognises, most frequent first."""
        kinds = [
            SkippedKind(suffix, head.decode("utf-8", "backslashreplace"), len(paths), paths[0])
            for (suffix, head), paths in self._kinds.items()
        ]
        return sorted(kinds, key=lambda kind: (-kind.files, kind.suffix, kind.head))

    def jobs(self) -> Iterator[Job]:
        """What is to be read, in the order of `found`; jointly read files come last."""
        together: dict[str, list[Found]] = {}
        for file in self.found:
            source = self._recognise(file)
            if source is None:
                continue
            if getattr(source, "joint", False):
                together.setdefault(source.name, []).append(file)
                continue
            growing = file.path in self.live and not is_packed(file.path)
            planned = self._single(file, source, live=growing)
            if planned is not None:
                yield planned.job
        for name, files in together.items():
            joint = self._set(sorted(files, key=lambda f: str(f.path)), self.sources[name])
            if joint is not None:
                yield joint.job

    def _recognise(self, file: Found) -> Source | None:
        source, head = recognised(file, self.sources, self.forced)
        if source is not None:
            return source
        if file.named:
            self.problems.append(
                Problem(
                    file.name,
                    None,
                    "$",
                    f"no source recognises this file (it begins with {head.data[:20]!r}); "
                    f"known: {', '.join(sorted(self.sources))}",
                )
            )
        else:
            kind = (file.path.suffix.lower(), head.data[:4])
            self._kinds.setdefault(kind, []).append(file.name)
        return None

    def _hash(self, file: Found, source: Source) -> _Hashed | None:
        """Digest of a file's bytes, and of its earlier lengths; None if it cannot be read."""
        earlier: dict[int, set[bytes]] = {}
        for length, digest, _ in self._known(file, source):
            # The only file of a set has the set's path and size, and another digest.
            earlier.setdefault(length, set()).add(digest)
        hasher = xxhash.xxh3_128()
        size, held = 0, set()
        stops = [*sorted(length for length in earlier if length < file.size), file.size]
        try:
            with file.path.open("rb") as stream:
                for stop in stops:
                    while size < stop and (block := stream.read(min(BLOCK, stop - size))):
                        hasher.update(block)
                        size += len(block)
                    if size < file.size and hasher.digest() in earlier.get(size, ()):
                        held.add(hasher.digest())
        except OSError as error:
            self.problems.append(Problem(file.name, None, "$", f"the file cannot be read: {error}"))
            return None
        return _Hashed(size, hasher.digest(), frozenset(held))

    def _known(self, file: Found, source: Source) -> list[tuple[int, bytes, int]]:
        return self._at_path.get((source.name, file.name), [])

    def _single(self, file: Found, source: Source, *, live: bool) -> Planned | None:
        hashed = self._hash(file, source)
        if hashed is None:
            return None
        replaces = [
            owner for _, digest, owner in self._known(file, source) if digest in hashed.earlier
        ]
        stored = self._stored.get((source.name, hashed.digest))
        if live:
            # Its bytes will change, so they cannot be its name.
            own = self._identity(source, b"live", uuid4().bytes)
            replaces += [stored[0]] if stored is not None else []
        else:
            own = self._identity(source, hashed.digest)
        row = self._row(own, own, source, file.path, hashed)
        return self._plan(source, [file], [row], replaces, live=live)

    def _set(self, files: list[Found], source: Source) -> Planned | None:
        hashed = [(file, h) for file in files if (h := self._hash(file, source)) is not None]
        if not hashed:
            return None
        digests = {h.digest for _, h in hashed}
        covered = digests.union(*(h.earlier for _, h in hashed))
        sets = self._sets.get(source.name, {})
        for owner, members in sets.items():
            if digests < members:
                self._met(owner, len(files))
                return None
        replaces = [owner for owner, members in sets.items() if members <= covered]
        whole = xxhash.xxh3_128(b"".join(sorted(digests))).digest()
        own = self._identity(source, whole)
        total = _Hashed(sum(h.size for _, h in hashed), whole, frozenset())
        top = Path(os.path.commonpath([file.path for file, _ in hashed]))
        rows = [self._row(own, own, source, top, total)]
        for file, h in hashed:
            member = self._identity(source, h.digest, b"member of", whole)
            rows.append(self._row(member, own, source, file.path, h))
        return self._plan(source, [file for file, _ in hashed], rows, replaces, joint=True)

    def _identity(self, source: Source, *digests: bytes) -> int:
        return identity(source.name, self.project, self.user, self.content, *digests)

    def _row(self, own: int, owner: int, source: Source, path: Path, hashed: _Hashed) -> FileRow:
        return FileRow(
            own,
            owner,
            source.name,
            self.project,
            self.user,
            plain(str(path)),
            hashed.size,
            hashed.digest,
            self.content,
        )

    def _met(self, file_id: int, files: int) -> None:
        """Note that stored bytes were met again."""
        self.unchanged += files
        self.known_problems += self._faults.get(file_id, 0)
        if file_id in self._planned:
            self.again[file_id] = self.again.get(file_id, 0) + 1
        else:
            self.known_steps += self._steps[file_id]

    def _plan(
        self,
        source: Source,
        files: list[Found],
        rows: list[FileRow],
        replaces: list[int],
        *,
        joint: bool = False,
        live: bool = False,
    ) -> Planned | None:
        own = rows[0].file_id
        stored = None if live else self._stored.get((source.name, rows[0].digest))
        if own in self._planned:
            self._met(own, len(files))
            return None
        if stored is not None and stored[1] == self.content:
            self._met(stored[0], len(files))
            return None
        job = Job(
            [os.fsencode(file.path) for file in files],
            reference(source),
            own,
            self.project,
            self.user,
            self.content,
            self.key,
            joint,
            live,
        )
        if stored is not None:
            # What was asked for last holds: the bytes are read anew, for more content or for less.
            replaces = [*replaces, stored[0]]
        forgets = any(keeps_more(self._held.get(owner, ""), self.content) for owner in replaces)
        planned = Planned(job, rows, sorted(set(replaces)), rows[0].size, forgets)
        self._planned[own] = planned
        return planned
