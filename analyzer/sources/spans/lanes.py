"""The order of a session's steps, and lanes told apart by content where the tree cannot.

Many senders log one trace per request, or every request below one root: then only the prompts say
which steps are one growing context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile

from analyzer.model import Part
from analyzer.sources.decode import finite
from analyzer.sources.spans.rows import nested
from analyzer.sources.spans.shapes import Request
from analyzer.sources.spans.tree import LaneKey, Leaf
from analyzer.sources.spans.usage import NormalisedUsage

_LATEST = datetime.max.replace(tzinfo=UTC)
_OPEN_CONTEXTS = 32
"""Contexts that may take turns; older ones are not looked at again."""
_STEP_NUMBERS = (
    ("claude.step_index",),
    ("assistant_index",),
    ("langgraph_step",),
    ("step",),
    ("step_index",),
)


@dataclass(frozen=True, slots=True)
class Call:
    """One step with everything read of it."""

    leaf: Leaf
    request: Request
    usage: NormalisedUsage


@dataclass(slots=True)
class LaneCalls:
    """The steps of one lane in order."""

    name: str
    calls: list[Call]
    parent: str | None = None


@dataclass(slots=True)
class _Context:
    """Steps that continue each other; `last` and `heads` are of the newest whole prompt."""

    calls: list[Call] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    last: list[bytes] = field(default_factory=list)
    heads: frozenset[bytes] = frozenset()


def in_order(calls: Iterable[Call]) -> list[Call]:
    """Steps by trace start, start, own number, length of the whole prompt, end, id.

    Times are often milliseconds and real ties occur; a longer prompt then comes after what it continues.
    """
    starts: dict[str, datetime] = {}

    def place(call: Call) -> tuple[datetime, str, datetime, int, float, int, datetime, str]:
        row, trace = call.leaf.row, call.leaf.trace
        start = starts.setdefault(trace.id, trace.start)
        length = len(call.request.messages) if call.request.whole else 0
        at = row.start or _LATEST
        end = row.end or _LATEST
        return start, trace.id, at, row.subtick, _number(call), length, end, row.id

    return sorted(calls, key=place)


def _number(call: Call) -> float:
    for path in _STEP_NUMBERS:
        value = nested(call.leaf.row, *path)
        number = finite(value)
        if number is not None:
            return number
    return 0.0


def lanes(calls: Sequence[Call]) -> list[LaneCalls]:
    """The lanes of one session, the main one first; `calls` are in order."""
    groups: dict[LaneKey, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.leaf.lane, []).append(call)
    ordered = sorted(groups, key=lambda key: key.label != "main")
    names = _names(ordered)
    out: list[LaneCalls] = []
    for key in ordered:
        parent = groups[key][0].leaf.parent
        above = names.get(parent, parent.label) if parent and parent != key else None
        out.extend(_refined(names[key], groups[key], above))
    return _unique(out)


def _names(keys: Sequence[LaneKey]) -> dict[LaneKey, str]:
    seen: dict[str, int] = {}
    names: dict[LaneKey, str] = {}
    for key in keys:
        seen[key.label] = seen.get(key.label, 0) + 1
        count = seen[key.label]
        names[key] = key.label if count == 1 else f"{key.label} #{count}"
    return names


def _unique(found: list[LaneCalls]) -> list[LaneCalls]:
    taken: set[str] = set()
    for lane in found:
        name, number = lane.name, 2
        while lane.name in taken:
            lane.name, number = f"{name} #{number}", number + 1
        taken.add(lane.name)
    for lane in found:
        if lane.parent not in taken or lane.parent == lane.name:
            lane.parent = None
    return found


def _refined(name: str, calls: list[Call], parent: str | None) -> list[LaneCalls]:
    """Split a lane whose prompts show several contexts; the longest keeps the name."""
    chains = _chains(_contexts(calls))
    if len(chains) < 2:
        return [LaneCalls(name, calls, parent)]
    first = max(chains, key=lambda chain: len(chain.calls))
    out = [LaneCalls(name, first.calls, parent)]
    for chain in chains:
        if chain is not first:
            what = chain.calls[0].leaf.row.name or "call"
            out.append(LaneCalls(f"{name}: {what}", chain.calls, name))
    return out


def _contexts(calls: Sequence[Call]) -> list[_Context]:
    contexts: list[_Context] = []
    current: _Context | None = None
    for place, call in enumerate(calls):
        whole = call.request.whole and bool(call.request.messages)
        if whole:
            body = _body(call.request)
            current = _best(contexts[-_OPEN_CONTEXTS:], body, call.request.plain)
            if current is None:
                current = _Context()
                contexts.append(current)
            current.last = body
            current.heads = frozenset(_digests(_heads(call.request)))
        elif current is None:
            current = _Context()
            contexts.append(current)
        current.calls.append(call)
        current.places.append(place)
    return contexts


def _body(request: Request) -> list[bytes]:
    """What a prompt can be recognised by: its messages, or the lines of a bare text."""
    if request.plain:
        text = request.messages[0].part.body or ""
        return [b"|" + line.encode("utf-8", "surrogatepass") for line in text.splitlines()]
    return _digests(m.part for m in request.messages if not _is_head(m.part))


def _digests(parts: Iterable[Part]) -> list[bytes]:
    return [part.digest for part in parts]


def _is_head(part: Part) -> bool:
    return part.section != "messages" or part.role in ("system", "developer")


def _heads(request: Request) -> Iterable[Part]:
    return (m.part for m in request.parts() if _is_head(m.part))


def _best(contexts: Sequence[_Context], body: list[bytes], plain: bool) -> _Context | None:
    """The context that a prompt continues: the longest common beginning, then most in common.

    Edits of old messages keep most parts, so a broken prefix does not look like a new context. The
    lines of a template recur in texts that have nothing else in common, so there half must agree.
    """
    mine = set(body)
    best: tuple[int, int, int] | None = None
    found: _Context | None = None
    for age, context in enumerate(contexts):
        if not context.last and len(contexts) == 1:
            return context
        pairs = zip(context.last, body, strict=False)
        begin = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        shared = len(mine.intersection(context.last))
        if plain and begin * 2 < len(context.last):
            continue
        if shared and (best is None or (begin, shared, age) > best):
            best, found = (begin, shared, age), context
    return found


def _chains(contexts: Sequence[_Context]) -> list[_Context]:
    """Join a context that replaced another (a summary, a cleared history) to the one it replaced."""
    chains: list[_Context] = []
    for context in contexts:
        before = next((c for c in reversed(chains) if _replaces(context, c)), None)
        if before is None:
            chains.append(context)
            continue
        before.calls.extend(context.calls)
        before.places.extend(context.places)
        before.last, before.heads = context.last, context.heads
    return chains


def _replaces(context: _Context, before: _Context) -> bool:
    if before.places[-1] > context.places[0] or len(before.calls) < 2:
        return False
    if len(context.calls) > 1 or (not context.heads and not before.heads):
        return True
    return bool(context.heads & before.heads)
