"""Contradictions in what was recorded of usage and money: one finding a lane and contradiction.

They waste nothing: a finding says which figure is right, and its tokens are the difference. The
sources note what a sender's counts contradict (`Usage.doubts`); the laws of disjoint counts and the
recorded costs are checked here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from analyzer.diagnose.base import ACCOUNTING, Evidence, Finding
from analyzer.diagnose.reported_cost import reported_costs
from analyzer.ledger import LaneLedger, StepRow
from analyzer.model import Doubt

ABSURD_WINDOWS = 10
"""Windows that one prompt cannot fill; some models take several times what price lists say."""


@dataclass(frozen=True, slots=True)
class _Text:
    """What a contradiction means. Placeholders: {said}, {right}, {off}."""

    summary: str
    remedy: str


_DISJOINT = (
    "Send disjoint counts: `input` without what was read from and written to the cache, and a total "
    "that is the sum of the buckets."
)
_TEXTS = {
    "input_inclusive": _Text(
        "the sender's counts add up to {said} prompt tokens; {right} is right: `input` already "
        "includes the cached {off}",
        _DISJOINT,
    ),
    "write_inside_input": _Text(
        "the sender's counts add up to {said} prompt tokens; {right} is right: `input` already "
        "includes the {off} that were written to the cache",
        _DISJOINT,
    ),
    "clamped_input": _Text(
        "the sender's counts add up to {said} prompt tokens; {right} is right: `input` was cut off at "
        "0 and the sender's own total holds {off} more",
        "Subtract the cached tokens from a count that includes them only: the sender took them off an "
        "`input` that left them out.",
    ),
    "total_inflated": _Text(
        "the recorded total says {said} tokens; {right} is right: counts that are part of others, or "
        "the same count under several names, were added up",
        "Send each count under one name, and details of a count not beside it.",
    ),
    "total_mismatch": _Text(
        "the sender's total says {said} tokens; its counts give {right}: a count is missing, or counts "
        "of several requests were added up",
        _DISJOINT,
    ),
    "total_without_cache": _Text(
        "the sender's total says {said} tokens; {right} is right: it leaves out what was read from "
        "and written to the cache",
        _DISJOINT,
    ),
    "write_split": _Text(
        "the flat count says {said} tokens were written; the counts by lifetime say {right}, and "
        "those are what is billed",
        "Take the flat count from the same usage object as its split by lifetime.",
    ),
    "cached_over_input": _Text(
        "the sender says that {said} tokens came from or went to the cache, more than the input that "
        "should hold them; {right} prompt tokens are counted",
        "Cached tokens are part of the input in this format: send the whole input.",
    ),
    "iterations_mismatch": _Text(
        "the top level of the usage is no sum of its iterations (it says {said} where they give "
        "{right}); the iterations are what is billed",
        "Keep the provider's usage object as it came.",
    ),
    "total_delta": _Text(
        "the running total grew by {said} tokens; the requests themselves say {right}",
        "Record every request's own usage; the total holds something that no request shows.",
    ),
    "rows_differ": _Text(
        "rows of one response give prompts of {said} and of {right} tokens; the row with the final "
        "output is taken",
        "Write one row a response, or the same prompt counts in each.",
    ),
    "sent_twice": _Text(
        "the sender recorded {said} tokens; {right} is right: requests were sent again under new ids "
        "(a resumed or forked session), and each counts once",
        "Send a request under an id that stays the same when a session is resumed.",
    ),
    "over_window": _Text(
        "prompts of {said} tokens are more than ten times what the model takes ({right}): the counts "
        "sum up several requests, or are wrong",
        "Send the usage of each request with that request.",
    ),
    "split_over_write": _Text(
        "the writes by lifetime come to {said} tokens, more than the {right} written in all",
        "Send writes by lifetime that add up to all writes.",
    ),
    "reasoning_over_output": _Text(
        "{said} reasoning tokens are more than the {right} output tokens that should hold them",
        "Send an output that includes its reasoning.",
    ),
}


_OTHER = _Text("the sender's counts say {said}; {right} is right", _DISJOINT)


def accounting_findings(ledger: LaneLedger) -> list[Finding]:
    """What a lane's recorded counts and costs contradict."""
    found: dict[str, list[tuple[StepRow, Doubt]]] = defaultdict(list)
    for row in ledger.rows:
        for doubt in (*row.usage.doubts, *_broken_laws(row)):
            found[doubt.name].append((row, doubt))
    findings = [_finding(ledger, name, pairs) for name, pairs in found.items()]
    for story in reported_costs(ledger.rows, ledger.lane.source):
        findings.append(_made(ledger, story.rows, story.tokens, story.evidence, story.remedy))
    return findings


def _broken_laws(row: StepRow) -> Iterator[Doubt]:
    """What no disjoint counts can be; the sources see to the rest, this is the last look."""
    usage = row.usage
    if row.window_used is not None and row.window_used > ABSURD_WINDOWS:
        yield Doubt("over_window", usage.prompt, int((usage.prompt or 0) / row.window_used))
    split = (usage.cache_write_5m or 0) + (usage.cache_write_1h or 0)
    if usage.cache_write is not None and split > usage.cache_write:
        yield Doubt("split_over_write", split, usage.cache_write)
    if usage.reasoning and usage.output is not None and usage.reasoning > usage.output:
        yield Doubt("reasoning_over_output", usage.reasoning, usage.output)


def _finding(ledger: LaneLedger, name: str, pairs: Sequence[tuple[StepRow, Doubt]]) -> Finding:
    said = sum(d.said or 0 for _, d in pairs)
    right = sum(d.right or 0 for _, d in pairs)
    off = sum(abs((d.said or 0) - (d.right or 0)) for _, d in pairs)
    # A source of somebody else may know contradictions of its own.
    text = _TEXTS.get(name, _OTHER)
    numbers = {"said": f"{said:,}", "right": f"{right:,}", "off": f"{off:,}"}
    evidence: Evidence = {
        "summary": text.summary.format(**numbers),
        "contradiction": name,
        "said": said,
        "right": right,
        "steps": [row.step for row, _ in pairs[:50]],
    }
    return _made(ledger, [row for row, _ in pairs], off, evidence, text.remedy)


def _made(
    ledger: LaneLedger, rows: Sequence[StepRow], tokens: int, evidence: Evidence, remedy: str
) -> Finding:
    return Finding(
        kind=ACCOUNTING,
        lane=ledger.lane.name,
        steps=tuple(row.step for row in rows),
        tokens=tokens,
        wasted_usd=Decimal(0),
        evidence=evidence,
        remedy=f"At the sender: {remedy[0].lower()}{remedy[1:]}",
        inferred=False,
        expected=True,
    )
