"""Step by step: shared prefix, divergence, gap, lost tokens, money; the step table."""

from analyzer.ledger.prefix import (
    Divergence,
    PoolIndex,
    common_parts,
    divergence,
    head,
    part_at,
    stubs_of,
)
from analyzer.ledger.rows import LaneLedger, StepRow, Thresholds, expired, lane_ledger

__all__ = [
    "Divergence",
    "LaneLedger",
    "PoolIndex",
    "StepRow",
    "Thresholds",
    "common_parts",
    "divergence",
    "expired",
    "head",
    "lane_ledger",
    "part_at",
    "stubs_of",
]
