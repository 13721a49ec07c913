"""One lane judged: a verdict for each step, and findings grouped by cause."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal

from analyzer.diagnose.accounting import accounting_findings
from analyzer.diagnose.base import Case, Finding, Verdict, total, unpriced
from analyzer.diagnose.rules import RULES
from analyzer.diagnose.sliding import run_finding, sliding_runs
from analyzer.ledger import LaneLedger, StepRow

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
    judged = [_judge(ledger, row) if row.is_break else None for row in ledger.rows]
    findings: list[Finding] = []
    taken: set[int] = set()
    for run in sliding_runs(ledger, judged):
        findings.append(run_finding(ledger, run))
        taken.update(run.rows)
        for i in run.rows:
            verdict = judged[i]
            judged[i] = Verdict(run.kind, verdict.evidence if verdict else {}, run.inferred)
    findings += _grouped(ledger, judged, taken)
    findings.sort(key=lambda f: (-(f.wasted_usd or Decimal(0)), f.first_step))
    findings += accounting_findings(ledger)
    verdicts = tuple(v or _quiet(row) for v, row in zip(judged, ledger.rows, strict=True))
    return LaneDiagnosis(ledger, verdicts, tuple(findings))


def _judge(ledger: LaneLedger, row: StepRow) -> Verdict:
    case = Case(ledger, row)
    answers = [verdict for rule in RULES if (verdict := rule.judge(case)) is not None]
    first = answers[0]
    # Mending the first cause uncovers the others; guesses and the residual class are no causes.
    also = [v.kind for v in answers[1:-1] if not v.inferred]
    if row.new_stubs and first.kind != "history-mutated" and "history-mutated" not in also:
        also.append("history-mutated")
    return replace(first, evidence={**first.evidence, "also": also}) if also else first


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
    remedies = {rule.kind: rule.remedy for rule in RULES}
    findings = []
    for (kind, expected), indices in groups.items():
        rows = [ledger.rows[i] for i in indices]
        verdicts = [v for i in indices if (v := judged[i]) is not None]
        worst = max(zip(rows, verdicts, strict=True), key=lambda rv: rv[0].lost_tokens or 0)
        findings.append(
            Finding(
                kind=kind,
                lane=ledger.lane.name,
                steps=tuple(row.step for row in rows),
                tokens=sum(row.lost_tokens or 0 for row in rows),
                wasted_usd=total(row.wasted_usd for row in rows),
                evidence={
                    **worst[1].evidence,
                    "worst_step": worst[0].step,
                    "steps": [row.step for row in rows[:50]],
                    **unpriced(rows),
                },
                remedy=worst[1].remedy or remedies[kind],
                inferred=all(v.inferred for v in verdicts),
                expected=expected,
            )
        )
    return findings
