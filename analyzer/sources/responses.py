"""What the rows of one response say together: its final usage, and when its request started."""

from __future__ import annotations

from datetime import datetime, timedelta

from analyzer.model import Doubt, Usage

ROWS_DIFFER = "rows_differ"
LATENCY_BASE = timedelta(seconds=120)
LATENCY_PER_TOKEN = timedelta(seconds=0.1)
"""A response that took longer than this to begin was not being waited for: the process slept, and
the request started late. Slowest plausible generation: ten tokens a second."""


def differing(before: Usage | None, now: Usage | None) -> tuple[Doubt, ...]:
    """The doubts about two rows of one response, whose prompts can only have one size.

    A first row without any count is a placeholder, and so is an output that grows: what such a row
    contradicts in itself is not what was billed.
    """
    if before is None or now is None:
        return ()
    kept = now if output_of(now) >= output_of(before) else before
    other = before if kept is now else now
    found = [doubt for doubt in (*before.doubts, *now.doubts) if doubt.name == ROWS_DIFFER]
    if other.prompt and kept.prompt and other.prompt != kept.prompt:
        found.append(Doubt(ROWS_DIFFER, other.prompt, kept.prompt))
    return tuple(dict.fromkeys((*kept.doubts, *found)))


def output_of(usage: Usage | None) -> int:
    """Output tokens, -1 where there are none, for comparing rows of one response."""
    return -1 if usage is None or usage.output is None else usage.output


def started(asked: datetime | None, first: datetime | None, usage: Usage | None) -> datetime | None:
    """When a request started: when it was asked, unless its answer came implausibly late.

    Transcripts stamp rows when they are written. The previous user or tool-result row is the best
    estimate of the request's start, but a process that slept in between sent it only on waking.
    """
    if asked is None or first is None:
        return first or asked
    patience = LATENCY_BASE + LATENCY_PER_TOKEN * max(0, output_of(usage))
    return asked if timedelta(0) <= first - asked <= patience else first
