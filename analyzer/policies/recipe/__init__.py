"""A policy as a recipe of primitives, so that a new product is a new file and not new code.

Rules run in order, and a later rule sees what an earlier one did in the same turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzer.edits import Edit
from analyzer.policies.base import Draft, Forecast, Memory, Turn
from analyzer.policies.recipe.base import Action, Change, Guard, Rule, Selector
from analyzer.policies.recipe.rules import changed, editable, in_domain, run_rule, still_over

__all__ = ["Action", "Change", "Recipe", "Rule", "changed", "editable", "in_domain"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A policy made of rules; `evaluate` in the engine's protocol is `edits`."""

    name: str
    rules: tuple[Rule, ...] = ()
    persistence: Memory = "persisted"
    cumulative: bool = False
    """A rule also runs when a later rule's trigger fires: a higher tier does the lower ones first."""
    protect_tokens: int | None = None
    """The tail that this policy promises not to touch; crossing it is a red line."""
    protect_tools: tuple[str, ...] = ()
    """Tools whose calls and results it promises not to touch."""
    window: int = 0
    """Window to judge by, tokens; 0 is the model's own."""
    title: str = ""
    source: str = ""
    """Where the defaults come from, with date."""
    parameters: tuple[tuple[str, str | int | float | bool], ...] = field(default=())
    """Values that differ from the preset's defaults, for `spec`."""

    @property
    def memory(self) -> Memory:
        """See `Policy`."""
        return self.persistence

    def edits(self, turn: Turn) -> Iterable[Edit]:
        """See `Policy`."""
        if self.window:
            turn = replace(turn, window=self.window)
        fired = [rule.trigger.fires(turn) for rule in self.rules]
        if not any(fired):
            return []
        draft = Draft(turn)
        for i, rule in enumerate(self.rules):
            runs = any(fired[i:]) if self.cumulative and rule.trigger.enabled else fired[i]
            if runs and self._allowed(rule, draft):
                run_rule(rule, draft)
        return draft.edits()

    def _allowed(self, rule: Rule, draft: Draft) -> bool:
        turn = draft.turn
        if rule.checkpoint == "pre_turn" and not turn.human and turn.step:
            return False
        if rule.guard.still_over and not still_over(rule.trigger, draft):
            return False
        if rule.guard.warm_only and turn.would_read == 0:
            return False
        return not (rule.guard.cold_only and turn.would_read > 0)

    def next_step(self, forecast: Forecast, start: int) -> int:
        """First step from `start` on at which any rule may fire if nothing is edited before."""
        if self.window:
            forecast = replace(forecast, window=np.full_like(forecast.window, self.window))
        return min(
            (rule.trigger.next_step(forecast, start) for rule in self.rules),
            default=len(forecast.used),
        )

    @property
    def looks(self) -> bool:
        """Whether any rule asks what the cache would read."""
        return any(rule.guard.warm_only or rule.guard.cold_only for rule in self.rules)

    @property
    def slides(self) -> Sequence[Action] | None:
        """The actions, where judging anew at each request only ever adds edits at the front line.

        That holds for rules that always run, keep the newest parts by count and edit every older
        part in a way that does not depend on the step. None where it does not hold.
        """
        actions: list[Action] = []
        for rule in self.rules:
            if rule.trigger.counter.kind != "always" or rule.summarize or rule.guard != Guard():
                return None
            if rule.checkpoint != "pre_request":
                return None
            actions.extend(rule.actions)
        if len(actions) != 1:
            return None
        select, change = actions[0].select, actions[0].change
        plain = Selector(
            kinds=select.kinds,
            roles=select.roles,
            tools=select.tools,
            exclude_tools=select.exclude_tools,
            min_chars=select.min_chars,
            min_tokens=select.min_tokens,
            protect_first=select.protect_first,
            protect_newest=select.protect_newest,
        )
        if select != plain or change.kind in ("drop", "server_delete"):
            return None
        return actions
