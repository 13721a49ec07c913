"""Step by step: shared prefix, divergence, gap, lost tokens, money; the step table."""

from analyzer.ledger.prefix import (
    Divergence,
    PoolIndex,
    divergence,
    stubs_of,
)
from analyzer.ledger.rows import LaneLedger, StepRow, Thresholds, expired, lane_ledger

__all__ = [
    "Divergence",
    "LaneLedger",
    "PoolIndex",
    "StepRow",
    "Thresholds",
    "divergence",
    "expired",
    "lane_ledger",
    "stubs_of",
]
