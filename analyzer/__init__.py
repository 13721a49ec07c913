"""Observability and replay analyzer for agent traces.

The public names, each loaded from its module on first use: importing the package runs nothing.
Their meanings are in docs/vocabulary.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzer.caching import CacheModel
    from analyzer.comparison import Comparison
    from analyzer.diagnose import Finding, SessionDiagnosis, Verdict
    from analyzer.edits import Edit
    from analyzer.errors import AnalyzerError, StoreError, UsageError
    from analyzer.intake import IngestReport, ingest
    from analyzer.model import (
        Breakpoint,
        Lane,
        Part,
        Problem,
        Prompt,
        Session,
        SessionKey,
        Step,
        Usage,
    )
    from analyzer.policies import Policy, parse_spec
    from analyzer.pricing import PriceBook
    from analyzer.sources import Source
    from analyzer.store import Scope, Store
    from analyzer.workspace import Workspace, analyse

__all__ = [
    "AnalyzerError",
    "Breakpoint",
    "CacheModel",
    "Comparison",
    "Edit",
    "Finding",
    "IngestReport",
    "Lane",
    "Part",
    "Policy",
    "PriceBook",
    "Problem",
    "Prompt",
    "Scope",
    "Session",
    "SessionDiagnosis",
    "SessionKey",
    "Source",
    "Step",
    "Store",
    "StoreError",
    "Usage",
    "UsageError",
    "Verdict",
    "Workspace",
    "analyse",
    "ingest",
    "parse_spec",
]

_HOMES = {
    "analyzer.caching": ("CacheModel",),
    "analyzer.comparison": ("Comparison",),
    "analyzer.diagnose": ("Finding", "SessionDiagnosis", "Verdict"),
    "analyzer.edits": ("Edit",),
    "analyzer.errors": ("AnalyzerError", "StoreError", "UsageError"),
    "analyzer.intake": ("IngestReport", "ingest"),
    "analyzer.model": (
        "Breakpoint",
        "Lane",
        "Part",
        "Problem",
        "Prompt",
        "Session",
        "SessionKey",
        "Step",
        "Usage",
    ),
    "analyzer.policies": ("Policy", "parse_spec"),
    "analyzer.pricing": ("PriceBook",),
    "analyzer.sources": ("Source",),
    "analyzer.store": ("Scope", "Store"),
    "analyzer.workspace": ("Workspace", "analyse"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'analyzer' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
