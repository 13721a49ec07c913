"""Why the cache broke: one verdict a step, and findings with evidence, money and a remedy.

To add a cause: write a class with `kind`, `remedy` and `judge` in a file of its own (see
`base.Rule`), and name it in `rules.RULES`.
"""

from analyzer.diagnose.base import (
    ACCOUNTING,
    Case,
    Evidence,
    Finding,
    Rule,
    Verdict,
    changed_span,
    excerpts,
    total,
)
from analyzer.diagnose.lane import LaneDiagnosis, diagnose_lane
from analyzer.diagnose.rules import RULES
from analyzer.diagnose.session import SessionDiagnosis, diagnose_session

__all__ = [
    "ACCOUNTING",
    "RULES",
    "Case",
    "Evidence",
    "Finding",
    "LaneDiagnosis",
    "Rule",
    "SessionDiagnosis",
    "Verdict",
    "changed_span",
    "diagnose_lane",
    "diagnose_session",
    "excerpts",
    "total",
]
