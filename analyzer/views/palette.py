"""Colours, markers and words that every chart shares, so that one thing looks the same everywhere."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.views.prefix_map import ABSENT, BEHIND, CHANGED, KEPT, NEW, STUB
from analyzer.views.table import UNKNOWN, one_line

READ, WRITE, UNCACHED = "#3B8BC4", "#E69F00", "#8A8F98"
"""Blue, orange and grey of the Okabe-Ito family: told apart with any colour vision."""
NEUTRAL, ACCENT = "#8A8F98", "#D55E00"
CHEAPER, DEARER = "#00805D", "#AA3377"
GRID = "rgba(128,128,128,0.18)"
WATERMARKS = (0.60, 0.80, 0.95)
"""Shares of the window at which tiered compaction usually acts."""

VERDICT_STYLE: Mapping[str, tuple[str, str]] = {
    "sliding-stubs": ("#D55E00", "diamond"),
    "sliding-window": ("#D55E00", "triangle-right"),
    "history-mutated": ("#AA3377", "x"),
    "tools-changed": ("#009E73", "square"),
    "volatile-prefix": ("#CC79A7", "star"),
    "ttl-expired": ("#B08D00", "hourglass"),
    "compaction": ("#56B4E9", "triangle-down"),
    "settings-changed": ("#7A5BC7", "pentagon"),
    "lookback-exceeded": ("#44AA99", "cross"),
    "compaction-thrash": ("#0072B2", "triangle-down"),
    "compaction-cold-summary": ("#0072B2", "triangle-up"),
    "breakpoint-missing": ("#8B5E3C", "square-open"),
    "breakpoint-volatile": ("#8B5E3C", "star-open"),
    "serialisation-drift": ("#009E73", "square-open"),
    "thinking-stripped": ("#AA3377", "x-open"),
    "ttl-downgrade": ("#B08D00", "hourglass-open"),
    "key-randomised": ("#7A5BC7", "pentagon-open"),
    "resume": ("#44AA99", "bowtie"),
    "routing-or-eviction": ("#6E7781", "circle"),
}
"""Colour and marker of each cause, the same in every chart."""
OTHER_VERDICT = ("#6E7781", "circle-open")

STATE_STYLE: Mapping[int, tuple[str, str]] = {
    ABSENT: ("absent", "rgba(0,0,0,0)"),
    KEPT: ("kept", "#86B9DE"),
    BEHIND: ("kept, but behind the change", "#F2D6A2"),
    STUB: ("stub", "#6E7781"),
    NEW: ("new", "#009E73"),
    CHANGED: ("changed", "#D55E00"),
}


@dataclass(frozen=True)
class Chart:
    """A figure, the finding that it shows as a sentence, and a name for those who cannot see it."""

    title: str
    figure: Any
    alt: str


def escape(text: str, width: int = 80) -> str:
    """A text from a trace as literal text of a label or hover box."""
    return html.escape(one_line(text, width))


def place(message: int | None) -> str:
    """A message index in words."""
    if message is None:
        return UNKNOWN
    return "tools or system" if message < 0 else f"{message:,}"
