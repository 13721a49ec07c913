"""Step by step: shared prefix, divergence, gap, lost tokens, money; the step table."""

from analyzer.ledger.prefix import (
    Divergence,
    PoolIndex,
    divergence,
    stubs_of,
)
from analyzer.ledger.rows import LaneLedger, StepRow, Thresholds, lane_ledger, lifetime

__all__ = [
    "Divergence",
    "LaneLedger",
    "PoolIndex",
    "StepRow",
    "Thresholds",
    "divergence",
    "lane_ledger",
    "lifetime",
    "stubs_of",
]
