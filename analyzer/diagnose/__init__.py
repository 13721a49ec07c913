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
    total,
)
from analyzer.diagnose.lane import KINDS, LaneDiagnosis, diagnose_lane
from analyzer.diagnose.reasons import ProviderReason, provider_reasons
from analyzer.diagnose.rules import NOTICES, RULES
from analyzer.diagnose.session import SessionDiagnosis, diagnose_session
from analyzer.diagnose.variation import changed_span, excerpts

__all__ = [
    "ACCOUNTING",
    "KINDS",
    "NOTICES",
    "RULES",
    "Case",
    "Evidence",
    "Finding",
    "LaneDiagnosis",
    "ProviderReason",
    "Rule",
    "SessionDiagnosis",
    "Verdict",
    "changed_span",
    "diagnose_lane",
    "diagnose_session",
    "excerpts",
    "provider_reasons",
    "total",
]
