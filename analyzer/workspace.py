"""A store that answers questions: the one object that the command line and the dashboard hold.

It loads sessions within a scope, judges them, replays policies over them, and keeps what an
analysis found beside the sessions, so that an overview of a million steps needs no analysis.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

import polars as pl

from analyzer.advice import Advice, advise
from analyzer.comparison import Comparison, LeftOut, compare_policies, fidelity_of
from analyzer.diagnose import Finding, SessionDiagnosis, Verdict, diagnose_session
from analyzer.errors import UsageError
from analyzer.ledger import StepRow
from analyzer.model import Session, SessionKey
from analyzer.pricing import PriceBook
from analyzer.replay import Fidelity
from analyzer.store import STEP_FACT_COLUMNS, FindingRow, Scope, SessionFacts, Store

ANALYSIS_VERSION = "6"
"""Goes up whenever a rule or a definition changes, so that stored facts are made again."""
EVIDENCE_SESSIONS = 12
EVIDENCE_STEPS = 2_000
Progress = Callable[[int, int], None]
"""Called with (done, of all)."""


class Workspace:
    """Questions to one store, within one scope."""

    def __init__(
        self, store: Store, scope: Scope | None = None, book: PriceBook | None = None
    ) -> None:
        """Without a scope the whole store is seen: for its owner, not for a shared page."""
        self.store = store
        self.scope = scope or Scope.everything()
        self.book = book or PriceBook.default()
        self._diagnose = lru_cache(maxsize=32)(self._judge)

    @classmethod
    def open(cls, path: Path, scope: Scope | None = None, prices: Path | None = None) -> Workspace:
        """Open a store for reading. Raises `StoreError`."""
        return cls(Store.open(path), scope, PriceBook.default(prices))

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    # -- sessions -----------------------------------------------------------------------------

    def sessions(self) -> pl.DataFrame:
        """The overview: one row a session, newest first, with its facts where they were made."""
        return self.store.query("sessions", self.scope)

    def keys(self, names: Sequence[str] = ()) -> list[SessionKey]:
        """Keys of the named sessions, or of all. A name is an id or the beginning of one."""
        frame = self.sessions()
        known = [
            SessionKey(*row) for row in frame.select("project", "user_id", "session_id").iter_rows()
        ]
        return [_named(name, known) for name in names] if names else known

    def load(self, key: SessionKey, *, content: bool = False) -> Session:
        """A session with all its steps; bodies only where asked for."""
        return self.store.load_session(key, content=content)

    def bodies(self, key: SessionKey, lane: str, indices: Sequence[int]) -> list[str | None]:
        """The content of some parts of a lane; None where it was not kept."""
        return self.store.part_bodies(key, lane, indices)

    # -- diagnosis ----------------------------------------------------------------------------

    def diagnose(self, key: SessionKey) -> SessionDiagnosis:
        """Why a session's cache broke, step by step."""
        return self._diagnose(key)

    def _judge(self, key: SessionKey) -> SessionDiagnosis:
        return diagnose_session(self.load(key, content=True), self.book)

    # -- replay -------------------------------------------------------------------------------

    def compare(
        self,
        keys: Sequence[SessionKey],
        specs: Sequence[str],
        cache: str | None = None,
        placement: str = "recorded",
    ) -> Comparison:
        """Sessions replayed under policies with one placement. Raises `UsageError` for new names."""
        diagnoses = [self.diagnose(key) for key in keys]
        evidence = [] if cache else self._evidence(keys)
        return compare_policies(
            diagnoses, specs, self.book, cache=cache, placement=placement, evidence=evidence
        )

    def backtest(
        self, keys: Sequence[SessionKey], cache: str | None = None
    ) -> tuple[tuple[Fidelity, ...], tuple[LeftOut, ...]]:
        """The recorded policy replayed against recorded usage."""
        diagnoses = [self.diagnose(key) for key in keys]
        evidence = [] if cache else self._evidence(keys)
        return fidelity_of(diagnoses, self.book, cache=cache, evidence=evidence)

    def advise(
        self, keys: Sequence[SessionKey], cache: str | None = None
    ) -> tuple[tuple[Advice, ...], tuple[LeftOut, ...]]:
        """The recorded prompts under every placement of marks. Raises `UsageError`."""
        return advise([self.diagnose(key) for key in keys], self.book, cache=cache)

    def _evidence(self, keys: Sequence[SessionKey]) -> list[SessionDiagnosis]:
        """Other sessions of the same projects that may show which cache rule the provider follows.

        Sessions whose cache broke tell most, so the most wasteful ones are asked first.
        """
        projects = {key.project for key in keys}
        frame = self.sessions().sort("wasted_usd", descending=True, nulls_last=True)
        others = [
            SessionKey(*row)
            for row in frame.filter(pl.col("n_steps") <= EVIDENCE_STEPS)
            .select("project", "user_id", "session_id")
            .iter_rows()
        ]
        chosen = [k for k in others if k.project in projects and k not in keys]
        return [self.diagnose(key) for key in chosen[:EVIDENCE_SESSIONS]]


def _named(name: str, known: Sequence[SessionKey]) -> SessionKey:
    exact = [key for key in known if key.session_id == name]
    found = exact or [key for key in known if key.session_id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        some = ", ".join(key.session_id for key in known[:5]) or "none at all"
        raise UsageError(f"there is no session {name!r}; there are {len(known)}, such as: {some}")
    several = ", ".join(f"{k.session_id} (project {k.project})" for k in found[:5])
    raise UsageError(
        f"{name!r} is the beginning of {len(found)} sessions: {several}; give more of it"
    )


def analyse(store_path: Path, progress: Progress | None = None, prices: Path | None = None) -> int:
    """Judge every session that was touched since its facts were made; how many were judged.

    Raises `StoreError` where the store is busy or missing.
    """
    with Store.open(store_path) as reader:
        if not reader.stale_sessions(ANALYSIS_VERSION):
            return 0
    with Store.open(store_path, "write") as writer:
        return judge_stale(writer, progress, prices)


def judge_stale(store: Store, progress: Progress | None = None, prices: Path | None = None) -> int:
    """`analyse` in a store that is open for writing; the caller publishes."""
    book = PriceBook.default(prices)
    stale = store.stale_sessions(ANALYSIS_VERSION)

    def judged() -> Iterator[SessionFacts]:
        for done, key in enumerate(stale, 1):
            yield session_facts(diagnose_session(store.load_session(key, content=True), book))
            if progress:
                progress(done, len(stale))

    if stale:
        store.put_all_facts(judged(), ANALYSIS_VERSION)
    return len(stale)


def session_facts(diagnosis: SessionDiagnosis) -> SessionFacts:
    """What the store keeps of a diagnosis."""
    rows = [_step_fact(row, verdict) for row, verdict in diagnosis.rows]
    frame = pl.DataFrame(rows, schema=STEP_FACT_COLUMNS, orient="row")
    return SessionFacts(diagnosis.session.key, frame, [_finding_row(f) for f in diagnosis.findings])


def _step_fact(row: StepRow, verdict: Verdict) -> tuple[object, ...]:
    return (
        row.lane,
        row.step,
        row.prompt_tokens,
        row.n_messages,
        row.n_stubs,
        row.last_stub_index,
        _float(row.cost_usd),
        row.gap_s,
        row.window_used,
        row.shared_prefix_tokens,
        row.divergence_index,
        row.expected_read,
        row.lost_tokens,
        verdict.kind,
        verdict.inferred,
        _float(row.break_usd),
        verdict.expected,
    )


def _finding_row(finding: Finding) -> FindingRow:
    return FindingRow(
        finding.kind,
        finding.lane,
        finding.first_step,
        finding.last_step,
        len(finding.steps),
        finding.tokens,
        _float(finding.wasted_usd),
        not finding.expected,
        finding.inferred,
        json.dumps(dict(finding.evidence), ensure_ascii=True),
        finding.remedy,
    )


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)


__all__ = ["ANALYSIS_VERSION", "Progress", "Workspace", "analyse", "judge_stale", "session_facts"]
