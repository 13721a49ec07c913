"""One lane judged: a verdict for each step, and findings grouped by cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from analyzer.diagnose.accounting import accounting_findings
from analyzer.diagnose.base import (
    ACCOUNTING,
    Case,
    Evidence,
    Finding,
    Totalled,
    Totalling,
    Verdict,
    total,
    unpriced,
)
from analyzer.diagnose.floor import survived
from analyzer.diagnose.rules import LANE_RULES, NOTICES, RULES
from analyzer.diagnose.sliding import run_finding, sliding_runs
from analyzer.diagnose.thrash import KIND as THRASH
from analyzer.diagnose.thrash import thrash_finding, thrash_runs
from analyzer.ledger import LaneLedger, StepRow

KINDS: tuple[str, ...] = tuple(
    sorted(
        {
            *(rule.kind for rule in (*RULES, *NOTICES)),
            *(rule.kind for rule in LANE_RULES),
            "sliding-stubs",
            "sliding-window",
            THRASH,
            ACCOUNTING,
        }
    )
)
"""Every kind that a finding may have."""
AT_DIVERGENCE = frozenset(
    {
        "serialisation-drift",
        "volatile-prefix",
        "breakpoint-volatile",
        "thinking-stripped",
        "history-mutated",
    }
)
"""Causes read off the first part that differs: they explain one change, and the first names it."""
HEALTHY = Verdict("healthy")
FIRST = Verdict("first")
NONE = Verdict("none")


@dataclass(frozen=True)
class LaneDiagnosis:
    """A lane's ledger with a verdict for each row, and its findings."""

    ledger: LaneLedger
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]


def diagnose_lane(ledger: LaneLedger) -> LaneDiagnosis:
    """Judge every step of a lane."""
    judged = [_judge(ledger, row) for row in ledger.rows]
    findings: list[Finding] = []
    taken: set[int] = set()
    for run in sliding_runs(ledger, judged):
        findings.append(run_finding(ledger, run))
        taken.update(run.rows)
        for i in run.rows:
            judged[i] = _renamed(judged[i], run.kind, inferred=run.inferred)
    for rows in thrash_runs(ledger, taken):
        findings.append(thrash_finding(ledger, rows, judged))
        taken.update(rows)
        for i in rows:
            before = judged[i]
            judged[i] = _renamed(before, THRASH, inferred=before is not None and before.inferred)
    findings += _grouped(ledger, judged, taken)
    findings += [found for rule in LANE_RULES if (found := rule.find(ledger)) is not None]
    findings.sort(key=lambda f: (-(f.wasted_usd or Decimal(0)), f.first_step))
    findings += accounting_findings(ledger)
    verdicts = tuple(v or _quiet(row) for v, row in zip(judged, ledger.rows, strict=True))
    return LaneDiagnosis(ledger, verdicts, tuple(findings))


def _renamed(verdict: Verdict | None, kind: str, *, inferred: bool) -> Verdict:
    """The verdict of a step that is a part of a run."""
    return Verdict(kind, verdict.evidence if verdict else {}, inferred)


def _judge(ledger: LaneLedger, row: StepRow) -> Verdict | None:
    """The verdict of a break, or of a step that no cache served; None for any other step."""
    case = Case(ledger, row)
    if not row.is_break:
        return _noticed(case)
    answers = [verdict for rule in RULES if (verdict := rule.judge(case)) is not None]
    first = answers[0]
    # Mending the first cause uncovers the others; guesses and the residual class are no causes.
    same = AT_DIVERGENCE if first.kind in AT_DIVERGENCE else frozenset()
    also = [v.kind for v in answers[1:-1] if not v.inferred and v.kind not in same]
    if row.new_stubs and first.kind != "history-mutated" and "history-mutated" not in also:
        also.append("history-mutated")
    return replace(
        first,
        evidence={**first.evidence, "survived": survived(case), **({"also": also} if also else {})},
    )


def _noticed(case: Case) -> Verdict | None:
    # A first request has nothing to share but with one that runs beside it.
    rules = NOTICES if case.row.previous is not None else [r for r in NOTICES if case.row.step]
    return next((v for rule in rules if (v := rule.judge(case)) is not None), None)


def _quiet(row: StepRow) -> Verdict:
    """The verdict of a step that is no break."""
    if row.record.usage is None or row.prompt_tokens is None:
        return NONE
    if row.previous is None:
        return FIRST
    if row.compacted:
        return Verdict("compaction", expected=True)
    # Without cache counts on both sides nobody can tell whether the cache held.
    return NONE if row.lost_tokens is None else HEALTHY


def _grouped(ledger: LaneLedger, judged: list[Verdict | None], taken: set[int]) -> list[Finding]:
    """One finding for each cause of a lane, expected and avoidable apart."""
    groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for i, verdict in enumerate(judged):
        if verdict is not None and i not in taken:
            groups[verdict.kind, verdict.expected].append(i)
    rules = {rule.kind: rule for rule in (*RULES, *NOTICES)}
    findings = []
    for (kind, expected), indices in groups.items():
        rows = [ledger.rows[i] for i in indices]
        verdicts = [v for i in indices if (v := judged[i]) is not None]
        worst = max(zip(rows, verdicts, strict=True), key=lambda rv: rv[0].lost_tokens or 0)
        rule = rules[kind]
        sums = rule.total(ledger, rows) if isinstance(rule, Totalling) else Totalled()
        findings.append(
            Finding(
                kind=kind,
                lane=ledger.lane.name,
                steps=tuple(row.step for row in rows),
                tokens=sum(row.lost_tokens or 0 for row in rows if row.is_break),
                wasted_usd=_wasted(rows),
                evidence={
                    **worst[1].evidence,
                    "worst_step": worst[0].step,
                    "steps": [row.step for row in rows[:50]],
                    **sums.evidence,
                    **_reasons(rows),
                    **unpriced([row for row in rows if row.is_break]),
                },
                remedy=" ".join(filter(None, (worst[1].remedy or rule.remedy, sums.advice))),
                inferred=all(v.inferred for v in verdicts),
                expected=expected,
            )
        )
    return findings


def _wasted(rows: Sequence[StepRow]) -> Decimal | None:
    """USD lost in the breaks among some rows; 0 where none of them is one."""
    broken = [row for row in rows if row.is_break]
    return total(row.wasted_usd for row in broken) if broken else Decimal(0)


def _reasons(rows: Sequence[StepRow]) -> Evidence:
    """What the provider said of these steps, most frequent first; empty where it said nothing."""
    said = Counter(row.record.miss_reason for row in rows if row.record.miss_reason)
    return {"provider_says": [f"{reason} ×{n}" for reason, n in said.most_common()]} if said else {}
