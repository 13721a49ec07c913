"""What the sources give for a file beside what the recount gives, request by request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from analyzer.model import LaneSteps, Problem, Step, Usage
from analyzer.sources import detect
from analyzer.sources.base import Context, read_head
from tests.recount import agents, apis, benchmarks
from tests.recount.requests import Request

FORMATS: dict[str, tuple[str, Callable[[Path], Iterator[Request]]]] = {
    "claude-code": ("claude-code", agents.claude_code),
    "codex": ("codex", agents.codex),
    "opencode": ("opencode", agents.opencode),
    "pi": ("pi", agents.pi),
    "openclaw": ("pi", agents.pi),
    "gemini-cli": ("gemini-cli", agents.gemini_cli),
    "cline": ("cline", agents.cline),
    "copilot-cli": ("copilot-cli", agents.copilot_cli),
    "mini-swe-agent": ("mini-swe-agent", benchmarks.mini_swe_agent),
    "swe-agent": ("swe-agent", benchmarks.swe_agent),
    "openhands": ("openhands", benchmarks.openhands),
    "tau-bench": ("tau-bench", benchmarks.tau_bench),
    "atif": ("atif", benchmarks.atif),
    "inspect": ("inspect", benchmarks.inspect),
    "raw-api": ("vcr", apis.vcr),
    "langfuse": ("langfuse", apis.langfuse),
    "langsmith": ("langsmith managed-agents", apis.langsmith),
    "openclaw-telemetry": ("openclaw-telemetry", apis.telemetry),
}
"""Folder of the data set -> the source (or sources) that has to read it, and its recount."""


@dataclass(frozen=True)
class Result:
    """One file, counted twice."""

    format: str
    path: Path
    sessions: frozenset[str]
    ours: Counter[tuple[int | None, ...]]
    recounted: Counter[tuple[int | None, ...]]
    recounted_sessions: int
    problems: tuple[str, ...] = ()

    @property
    def difference(self) -> str:
        """Requests that only one of the two has; empty where all is equal."""
        only_ours, only_theirs = self.ours - self.recounted, self.recounted - self.ours
        if only_ours or only_theirs:
            return f"only the source has {dict(only_ours)}, only the recount {dict(only_theirs)}"
        if self.problems:
            return f"could not be read: {self.problems}"
        if len(self.sessions) != self.recounted_sessions:
            return f"{len(self.sessions)} sessions {set(self.sessions)}, {self.recounted_sessions}"
        return ""


def compared(folder: Path) -> Iterator[Result]:
    """Every file of the known formats that holds a request by either count."""
    for name, (source, recount) in FORMATS.items():
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and (found := detect(read_head(path))) is not None:
                assert found.name in source.split(), f"{path} is read as {found.name}"
                yield compare(name, path, recount)


def compare(name: str, path: Path, recount: Callable[[Path], Iterator[Request]]) -> Result:
    found = detect(read_head(path))
    assert found is not None, path
    steps: dict[str, Step] = {}
    sessions: set[str] = set()
    problems = []
    for entry in found.read(path, Context()):
        if isinstance(entry, Problem):
            problems.append(f"{entry.line} {entry.pointer}: {entry.message[:100]}")
            continue
        assert isinstance(entry, LaneSteps)
        sessions.add(entry.session.session_id)
        for step in entry.steps:
            # A sub-agent may stand in its own lane and in the rows that report its progress.
            steps.setdefault(step.key, step)
    theirs = {request.key: request for request in recount(path)}
    return Result(
        name,
        path,
        frozenset(sessions),
        Counter(counts_of(step.usage) for step in steps.values()),
        Counter(request.counts for request in theirs.values()),
        len({request.session for request in theirs.values()}),
        tuple(problems),
    )


def counts_of(usage: Usage | None) -> tuple[int | None, ...]:
    u = usage or Usage()
    return u.input, u.cache_read, u.cache_write, u.cache_write_5m, u.cache_write_1h, u.output


def tokens(counted: Counter[tuple[int | None, ...]]) -> int:
    """All tokens of a file; the split of the writes is left out, since the writes are in."""
    return sum(
        times * sum((counts[i] or 0) for i in (0, 1, 2, 5)) for counts, times in counted.items()
    )


def table(results: list[Result]) -> str:
    head = ("format", "files", "sessions", "steps", "problems", "tokens", "recount", "difference")
    rows = [head]
    for name in FORMATS:
        own = [result for result in results if result.format == name]
        ours = sum(tokens(result.ours) for result in own)
        recounted = sum(tokens(result.recounted) for result in own)
        figures = (
            len(own),
            len(set().union(*(result.sessions for result in own))),
            sum(result.ours.total() for result in own),
            sum(len(result.problems) for result in own),
            ours,
            recounted,
            ours - recounted,
        )
        rows.append((name, *(f"{figure:,}" for figure in figures)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
