"""The rules in the order they are asked. The first that answers wins.

Certain causes stand before inferred ones, and the residual class is last.
"""

from __future__ import annotations

from analyzer.diagnose.base import Rule
from analyzer.diagnose.compaction import Compaction
from analyzer.diagnose.history_mutated import HistoryMutated
from analyzer.diagnose.lookback_exceeded import LookbackExceeded
from analyzer.diagnose.routing_or_eviction import RoutingOrEviction
from analyzer.diagnose.settings_changed import SettingsChanged
from analyzer.diagnose.tools_changed import ToolsChanged
from analyzer.diagnose.ttl_expired import TtlExpired
from analyzer.diagnose.volatile_prefix import VolatilePrefix

RULES: tuple[Rule, ...] = (
    SettingsChanged(),
    Compaction(),
    TtlExpired(),
    ToolsChanged(),
    VolatilePrefix(),
    HistoryMutated(),
    LookbackExceeded(),
    RoutingOrEviction(),
)
