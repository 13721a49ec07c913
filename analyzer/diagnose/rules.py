"""The rules in the order they are asked. The first that answers wins.

The order follows the provider's own: was caching asked for at all (with both counters at 0 no
other cause matters); was it looked up under the same key; were the entries still alive; is the
content the same, from the head of the prompt on; can a breakpoint see the entry. Within a level the
special case stands before the general one, and certain before inferred. What is left is residual.
"""

from __future__ import annotations

from analyzer.diagnose.base import LaneRule, Rule
from analyzer.diagnose.below_minimum import BelowMinimum
from analyzer.diagnose.breakpoint_missing import BreakpointMissing
from analyzer.diagnose.breakpoint_volatile import BreakpointVolatile
from analyzer.diagnose.compaction import Compaction
from analyzer.diagnose.compaction_cold_summary import CompactionColdSummary
from analyzer.diagnose.concurrency import Concurrency
from analyzer.diagnose.history_mutated import HistoryMutated
from analyzer.diagnose.key_randomised import KeyRandomised
from analyzer.diagnose.lookback_exceeded import LookbackExceeded
from analyzer.diagnose.resume import Resume
from analyzer.diagnose.routing_or_eviction import RoutingOrEviction
from analyzer.diagnose.serialisation_drift import SerialisationDrift
from analyzer.diagnose.settings_changed import SettingsChanged
from analyzer.diagnose.thinking_stripped import ThinkingStripped
from analyzer.diagnose.tools_changed import ToolsChanged
from analyzer.diagnose.ttl_downgrade import TtlDowngrade
from analyzer.diagnose.ttl_expired import TtlExpired
from analyzer.diagnose.ttl_over_use import TtlOverUse
from analyzer.diagnose.volatile_prefix import VolatilePrefix

RULES: tuple[Rule, ...] = (
    BreakpointMissing(),
    BelowMinimum(),
    CompactionColdSummary(),
    SettingsChanged(),
    KeyRandomised(),
    Compaction(),
    TtlDowngrade(),
    TtlExpired(),
    SerialisationDrift(),
    Resume(),
    ToolsChanged(),
    VolatilePrefix(),
    BreakpointVolatile(),
    ThinkingStripped(),
    HistoryMutated(),
    LookbackExceeded(),
    RoutingOrEviction(),
)
NOTICES: tuple[Rule, ...] = (BreakpointMissing(), BelowMinimum(), Concurrency())
"""Asked for steps that are no break, since nothing had been stored that they could have lost."""
LANE_RULES: tuple[LaneRule, ...] = (TtlOverUse(),)
"""Asked once a lane."""
