"""How a rule works on a draft of the prompt: it selects, edits, and summarizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.edits import SummaryCall, resized_unseen, rewritten, summary_part
from analyzer.model import Part
from analyzer.policies.base import (
    Draft,
    Turn,
    is_spoken,
)
from analyzer.policies.recipe.base import Action, Change, Rebuild, Rule, Selector, Summary, Trigger
from analyzer.policies.recipe.texts import code_blocks, head_chars, head_lines, sentences

TYPICAL_LINE_CHARS = 60
TYPICAL_SENTENCE_CHARS = 90
"""Stand in for the real cut where a recording kept no content."""


def still_over(trigger: Trigger, draft: Draft) -> bool:
    """Whether the counter is over the threshold after what this turn already saved."""
    used = draft.used()
    return used is not None and used >= trigger.limit(draft.turn.window, trigger.at_least)


def run_rule(rule: Rule, draft: Draft) -> None:
    """Run one rule on a draft: its actions in order, then its summary."""
    planned = [plan for action in rule.actions for plan in _plans(action, draft)]
    if rule.guard.min_savings > sum(_saving(draft, position, new) for position, new, _ in planned):
        return
    stop_at = None
    if rule.trigger.down_to is not None:
        stop_at = rule.trigger.limit(draft.turn.window, rule.trigger.down_to)
    for position, new, kind in planned:
        used = draft.used()
        if stop_at is not None and used is not None and used < stop_at:
            break
        if new is not None:
            draft.replace(position, new, rule.name)
        elif kind == "drop":
            draft.drop(position, rule.name)
        else:
            draft.delete(position, rule.name)
    if rule.summarize is not None:
        summarize(rule, rule.summarize, draft)


def _plans(action: Action, draft: Draft) -> Iterator[tuple[int, Part | None, str]]:
    """Position, new part (None: it goes) and kind of change of all that an action would do."""
    kind = action.change.kind
    memo = draft.turn.memo.setdefault(action.change, {})
    for position in select(action.select, draft):
        if kind in ("drop", "server_delete"):
            yield position, None, kind
            continue
        part = draft.parts[position]
        if part.digest in memo:
            new = memo[part.digest]
        else:
            new = memo[part.digest] = changed(part, action.change)
        if new is not None and draft.size(position, new) < draft.tokens[position]:
            yield position, new, kind


def _saving(draft: Draft, position: int, new: Part | None) -> int:
    return draft.tokens[position] - (0 if new is None else draft.size(position, new))


def in_domain(part: Part, select: Selector) -> bool:
    """Whether a selector is about such a part at all."""
    return (
        part.section == "messages"
        and part.kind in select.kinds
        and (not select.roles or part.role in select.roles)
        and (not select.tools or part.tool in select.tools)
        and part.tool not in select.exclude_tools
    )


def editable(part: Part, tokens: int, edited: str, select: Selector) -> bool:
    """Whether a part of the domain may be edited; placeholders have nothing left to give."""
    return (
        not part.placeholder
        and edited in select.edited_by
        and tokens >= select.min_tokens
        and part.chars >= select.min_chars
    )


def protected_from(turn: Turn, tokens: Sequence[int], select: Selector) -> int:
    """First position of the protected tail."""
    border = len(turn.prompt)
    if select.protect_tokens:
        behind = 0
        while border and behind < select.protect_tokens:
            border -= 1
            behind += tokens[border]
    if select.protect_turns:
        spoken = [i for i, part in enumerate(turn.prompt) if is_spoken(part)]
        newest = spoken[-select.protect_turns :]
        border = min(border, newest[0] if len(newest) == select.protect_turns else 0)
    return border


def select(selector: Selector, draft: Draft) -> list[int]:
    """Positions that a selector picks, in the order in which they are edited."""
    domain = [
        i for i, part in enumerate(draft.parts) if in_domain(part, selector) and draft.here(i)
    ]
    stop = max(0, len(domain) - selector.protect_newest)
    border = protected_from(draft.turn, draft.turn.tokens, selector)
    picked = [
        i
        for i in domain[selector.protect_first : stop]
        if i < border and editable(draft.parts[i], draft.tokens[i], draft.edited[i], selector)
    ]
    if selector.order == "newest":
        picked.reverse()
    elif selector.order == "largest":
        picked.sort(key=lambda i: (-draft.tokens[i], i))
    return picked[: selector.count] if selector.stop == "count" else picked


def changed(part: Part, change: Change) -> Part | None:
    """A part after an edit; None where the edit leaves it as it is."""
    if change.kind == "clear":
        return rewritten(part, change.placeholder, placeholder=True)
    if part.body is None:
        return _changed_unseen(part, change)
    body: str | None
    match change.kind:
        case "head_lines":
            body = head_lines(part.body, change.lines)
        case "head_chars":
            body = head_chars(part.body, change.chars, change.placeholder)
        case "code_blocks":
            body = code_blocks(part.body, change.lines)
        case "sentences":
            body = sentences(part.body, change.sentences)
        case _:
            return None
    return None if body is None else rewritten(part, body)


def _changed_unseen(part: Part, change: Change) -> Part | None:
    """The edit of a content that was not kept: only its usual size can be told."""
    match change.kind:
        case "head_lines":
            chars = change.lines * TYPICAL_LINE_CHARS
        case "head_chars":
            chars = change.chars
        case "sentences":
            chars = change.sentences * TYPICAL_SENTENCE_CHARS
        case _:
            return None
    if chars >= part.chars:
        return None
    tokens = max(1, part.estimate * chars // part.chars)
    return resized_unseen(part, f"{change.kind}:{chars}", chars, tokens)


def summarize(rule: Rule, summary: Summary, draft: Draft) -> None:
    """Replace what lies between the last summary and the protected tail by a merged summary."""
    turn, rebuild = draft.turn, summary.rebuild
    tail = protected_from(turn, draft.tokens, Selector(protect_tokens=rebuild.protect_tokens))
    tail = pair_safe(turn.prompt, tail)
    kept = _kept(draft, rebuild, tail)
    gone = [
        i
        for i, part in enumerate(draft.parts[:tail])
        if part.section == "messages" and i not in kept and draft.here(i)
    ]
    covered = sum(draft.tokens[i] for i in gone)
    fresh = [i for i in gone if draft.parts[i].kind != "summary"]
    if not fresh or sum(draft.tokens[i] for i in fresh) <= summary.tokens:
        return
    read = covered if summary.max_input is None else min(covered, summary.max_input)
    call = SummaryCall(
        summary.cost_class,
        read + summary.instruction_tokens,
        summary.tokens,
        summary.model,
        summary.instruction_tokens,
    )
    part = summary_part([draft.parts[i] for i in gone], summary.tokens, rebuild.summary_role)
    draft.summarize(gone, part, call, rule.name)


def pair_safe(prompt: Sequence[Part], border: int) -> int:
    """The nearest border at or before one that starts a message and parts no call from its result."""
    calls = {p.call_id: i for i, p in enumerate(prompt) if p.kind == "tool_use" and p.call_id}
    scanned = len(prompt)
    while border < scanned:
        needed = [
            calls[p.call_id]
            for p in prompt[border:scanned]
            if p.kind == "tool_result" and p.call_id in calls
        ]
        scanned, border = border, min([border, *needed])
        while border and prompt[border].section == "messages" and not prompt[border].starts_message:
            border -= 1
    return border


def _kept(draft: Draft, rebuild: Rebuild, tail: int) -> set[int]:
    kept: set[int] = set()
    budget = rebuild.keep_user_tokens
    for i in range(tail - 1, -1, -1):
        part = draft.parts[i]
        if part.tool in rebuild.keep_tools and part.kind in ("tool_use", "tool_result"):
            kept.add(i)
        elif rebuild.keep_user_text and is_spoken(part):
            if budget is not None and draft.tokens[i] > budget:
                continue
            budget = None if budget is None else budget - draft.tokens[i]
            kept.add(i)
    return kept
