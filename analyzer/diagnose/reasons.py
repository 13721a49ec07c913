"""The provider's own reasons beside our verdicts, counted over any number of sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from analyzer.diagnose.base import Verdict
from analyzer.ledger import StepRow

_CHANGED_MESSAGES = frozenset(
    {
        "history-mutated",
        "sliding-stubs",
        "sliding-window",
        "compaction",
        "compaction-thrash",
        "breakpoint-volatile",
        "serialisation-drift",
        "thinking-stripped",
        "volatile-prefix",
    }
)
MEANT: Mapping[str, frozenset[str]] = {
    "model_changed": frozenset({"settings-changed"}),
    "system_changed": frozenset({"volatile-prefix", "serialisation-drift"}),
    "tools_changed": frozenset({"tools-changed", "serialisation-drift"}),
    "messages_changed": _CHANGED_MESSAGES,
    "input_changed": _CHANGED_MESSAGES,
    "prompt_cache_key_changed": frozenset({"key-randomised"}),
    "text_format_changed": frozenset({"settings-changed"}),
    "reasoning_effort_changed": frozenset({"settings-changed"}),
    "verbosity_changed": frozenset({"settings-changed"}),
    "service_tier_changed": frozenset({"settings-changed"}),
    "context_compacted": frozenset({"compaction", "compaction-thrash", "history-mutated"}),
}
"""Which of our causes a reason means. Source: Anthropic, cache diagnostics, 2026-08; OpenAI, prompt
caching guide, 2026-10."""
_NO_BREAK = frozenset({"healthy", "first", "none"})


@dataclass(frozen=True, slots=True)
class ProviderReason:
    """How often a reason of the provider met a verdict of ours."""

    theirs: str
    ours: str
    steps: int
    agree: bool | None
    """None where the reason names no cause, or the step was no break (a late change behind a
    breakpoint that survived)."""
    on_their_word: int
    """Steps where our verdict rests on the reason itself, so that agreement proves nothing."""


def provider_reasons(rows: Iterable[tuple[StepRow, Verdict]]) -> tuple[ProviderReason, ...]:
    """The agreement table, most frequent first."""
    steps: Counter[tuple[str, str]] = Counter()
    believed: Counter[tuple[str, str]] = Counter()
    for row, verdict in rows:
        theirs = row.record.miss_reason
        if theirs:
            pair = (theirs, verdict.kind)
            steps[pair] += 1
            believed[pair] += "provider" in verdict.evidence
    return tuple(
        ProviderReason(theirs, ours, n, _agree(theirs, ours), believed[theirs, ours])
        for (theirs, ours), n in sorted(steps.items(), key=lambda kv: (-kv[1], kv[0]))
    )


def _agree(theirs: str, ours: str) -> bool | None:
    meant = MEANT.get(theirs)
    return None if meant is None or ours in _NO_BREAK else ours in meant
