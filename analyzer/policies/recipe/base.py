"""The primitives that recipes are made of: counter, trigger, guard, selector, change, summary.

Frozen values; the tree of them is at once the parameters, the stored form and the form to fill in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyzer.edits import CostClass
from analyzer.model import Kind
from analyzer.policies.base import Floats, Forecast, Turn


@dataclass(frozen=True, slots=True)
class Counter:
    """What a trigger looks at."""

    kind: Literal[
        "always", "last_usage", "last_usage+est", "prompt", "est", "items", "chars", "idle_s"
    ] = "always"
    """last_usage: tokens of the previous request as measured. last_usage+est: with what came since.
    prompt: measured tokens of the prompt. est: characters / `chars_per_token`. items: parts of
    `part_kind`. chars: their characters. idle_s: seconds since the previous request."""
    part_kind: Kind = "tool_result"
    chars_per_token: float = 3.0


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a rule fires: a counter at or above a threshold."""

    counter: Counter = Counter()
    at_least: float = 0.0
    of: Literal["window", "absolute", "headroom"] = "absolute"
    """window: a share of the window, and 1.0 or more never fires. headroom: the window less so much."""
    once_per_crossing: bool = False
    """Fire when the counter comes from below, not again while it stays above."""
    down_to: float | None = None
    """Low watermark, in the unit of `at_least`: selection stops when the counter is below it."""

    @property
    def enabled(self) -> bool:
        """Whether the trigger can fire at all."""
        return not (self.of == "window" and self.at_least >= 1.0)

    def limit(self, window: int, value: float) -> float:
        """A threshold in the counter's own unit."""
        match self.of:
            case "window":
                return value * window
            case "headroom":
                return window - value
            case "absolute":
                return value

    def fires(self, turn: Turn) -> bool:
        """Whether the rule runs at this turn."""
        if not self.enabled:
            return False
        if self.counter.kind == "always":
            return True
        now, before = self._read(turn)
        limit = self.limit(turn.window, self.at_least)
        if now is None or now < limit:
            return False
        return not (self.once_per_crossing and before is not None and before >= limit)

    def _read(self, turn: Turn) -> tuple[float | None, float | None]:
        """The counter now and at the turn before (None where it cannot be known)."""
        messages = [p for p in turn.prompt if p.kind == self.counter.part_kind]
        match self.counter.kind:
            case "last_usage":
                return turn.used, turn.used_before
            case "last_usage+est":
                total = sum(turn.tokens)
                return max(total, turn.used or 0), turn.used
            case "prompt":
                return sum(turn.tokens), turn.used
            case "est":
                return sum(p.chars for p in turn.prompt) / self.counter.chars_per_token, None
            case "items":
                return len(messages), None
            case "chars":
                return sum(p.chars for p in messages), None
            case "idle_s":
                return turn.gap, None
            case "always":
                return None, None

    def next_step(self, forecast: Forecast, start: int) -> int:
        """First step from `start` on at which the rule may fire if nothing is edited before.

        Never later than the real one; the number of steps if there is none.
        """
        steps = len(forecast.used)
        if not self.enabled or start >= steps:
            return steps
        match self.counter.kind:
            case "last_usage":
                values: Floats = forecast.used.astype(np.float64)
            case "idle_s":
                values = forecast.gaps
            case _:
                return start
        windows = forecast.window[start:]
        limits = np.array([self.limit(int(w), self.at_least) for w in np.unique(windows)])
        limits = limits[np.searchsorted(np.unique(windows), windows)]
        over = (values[start:] >= limits) & (values[start:] >= 0)
        if self.once_per_crossing and self.counter.kind == "last_usage":
            before = np.concatenate(
                [values[start - 1 : start] if start else [-1.0], values[start:-1]]
            )
            over &= ~((before >= limits) & (before >= 0))
        first = int(np.argmax(over)) if over.any() else -1
        return steps if first < 0 else start + first


@dataclass(frozen=True, slots=True)
class Guard:
    """What must hold besides the trigger."""

    still_over: bool = False
    """Run only if the earlier rules of this turn did not bring the counter below the threshold."""
    min_savings: int = 0
    """Tokens that the rule must save; otherwise none of its edits is made."""
    warm_only: bool = False
    cold_only: bool = False
    """Only if the prompt would be read from the cache, or only if it would not."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Which parts a rule may edit."""

    kinds: tuple[Kind, ...] = ("tool_result",)
    roles: tuple[str, ...] = ()
    """Empty: every role."""
    tools: tuple[str, ...] = ()
    """Empty: every tool but `exclude_tools`."""
    exclude_tools: tuple[str, ...] = ()
    edited_by: tuple[str, ...] = ("",)
    """Names of rules whose edits may be edited again; the empty name is an untouched part."""
    min_tokens: int = 0
    min_chars: int = 0
    order: Literal["oldest", "newest", "largest"] = "oldest"
    protect_first: int = 0
    protect_newest: int = 0
    """Newest so many parts of the domain stay (stubs in the recording count)."""
    protect_tokens: int = 0
    """Newest so many tokens of the prompt stay; a part that begins inside them stays whole."""
    protect_turns: int = 0
    """Newest so many texts of a person stay, with everything behind them."""
    stop: Literal["none", "target", "count"] = "none"
    """target: until the trigger's low watermark; count: so many parts."""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """How a selected part is edited."""

    kind: Literal[
        "clear", "head_lines", "head_chars", "code_blocks", "sentences", "drop", "server_delete"
    ] = "clear"
    placeholder: str = "[Old tool result content cleared]"
    """Text of `clear`, marker of `head_chars`."""
    lines: int = 5
    chars: int = 2000
    sentences: int = 2


@dataclass(frozen=True, slots=True)
class Action:
    """One selector with its edit."""

    select: Selector = Selector()
    change: Change = Change()


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What stays beside the summary when it replaces the history."""

    keep_user_text: bool = True
    """Texts of a person stay as they are."""
    keep_user_tokens: int | None = None
    """Budget for them, newest first; None has no limit."""
    keep_tools: tuple[str, ...] = ()
    """Calls and results of these tools stay."""
    protect_tokens: int = 8000
    """Newest so many tokens stay; the border moves back so that no result loses its call."""
    summary_role: str = "user"


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary in the place of everything between the last one and the protected tail."""

    cost_class: CostClass = "cold_messages"
    tokens: int = 1500
    """Expected length of the summary."""
    instruction_tokens: int = 500
    max_input: int | None = None
    """Cap of the tokens given to the summarizer."""
    model: str | None = None
    rebuild: Rebuild = Rebuild()


@dataclass(frozen=True, slots=True)
class Rule:
    """One tier: when, where, what."""

    name: str
    trigger: Trigger = Trigger()
    guard: Guard = Guard()
    checkpoint: Literal["pre_request", "pre_turn"] = "pre_request"
    """pre_turn: only when a person spoke since the previous request."""
    actions: tuple[Action, ...] = ()
    summarize: Summary | None = None
