"""The prefix is shorter than what the provider caches for the model."""

from __future__ import annotations

from typing import ClassVar

from analyzer.caching import minimum
from analyzer.diagnose.base import Case, Verdict
from analyzer.ranges import head


class BelowMinimum:
    """Nothing is stored below the minimum, and no error says so."""

    kind: ClassVar[str] = "below-minimum"
    remedy: ClassVar[str] = (
        "Nothing is lost at this size. If such requests are many, put more of what is stable before "
        "the breakpoint, or choose a model with a lower minimum."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        if case.cache != "anthropic" or not case.uncached or not _asked(case):
            return None
        least, marked = minimum(case.model), _marked(case)
        if marked is None or marked >= least.tokens:
            return None
        assumed = " (assumed: no table names the model)" if least.assumed else ""
        return Verdict(
            self.kind,
            {
                "summary": f"the prefix up to the last breakpoint has {marked:,} tokens; "
                f"{case.row.record.model} caches from {least.tokens:,} on{assumed}",
                "prefix_tokens": marked,
                "prompt_tokens": case.row.prompt_tokens,
                "minimum_tokens": least.tokens,
                "source": least.source,
            },
            inferred=least.assumed,
        )


def _asked(case: Case) -> bool:
    """Whether caching was asked for: breakpoints are recorded, or other steps wrote entries."""
    if case.prompt is not None and case.prompt.breakpoints:
        return True
    return not case.recorded and any(row.usage.cache_write for row in case.ledger.rows)


def _marked(case: Case) -> int | None:
    """Tokens up to the last breakpoint, or of the whole prompt where that is shorter or not known."""
    whole, prompt = case.row.prompt_tokens, case.prompt
    if whole is None or prompt is None or not prompt.breakpoints or not prompt.recorded:
        return whole
    last = prompt.breakpoints[-1].position + 1
    return min(whole, case.ledger.sizes.of(head(prompt, last)))
