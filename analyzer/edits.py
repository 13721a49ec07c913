"""What a policy may do to a prompt, as values: replace, drop, insert, summarize, server delete.

The difference of two recorded prompts, the plan of a policy and its execution are the same values,
so `apply(a, diff(a, b)) == b` tests all three. All positions of one set of edits refer to the
prompt before any of them; they must not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

import xxhash

from analyzer.errors import LawError
from analyzer.model import Part
from analyzer.tokens import estimate
from analyzer.wording import opens_with_markup, reads_like_summary

CostClass = Literal[
    "shared",
    "shared_no_tools",
    "cold_messages",
    "cold_text",
    "in_band",
    "server_iteration",
    "precomputed",
]
COST_CLASSES: tuple[CostClass, ...] = (
    "shared",
    "shared_no_tools",
    "cold_messages",
    "cold_text",
    "in_band",
    "server_iteration",
    "precomputed",
)


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """The model call that writes a summary; the replay bills it on its own."""

    cost_class: CostClass
    input_tokens: int
    """Tokens of what is summarized, with the earlier summary and the instructions."""
    output_tokens: int
    """Expected length of the summary: no model is called, so this is a parameter."""
    model: str | None = None
    """Model that writes it; None is the model of the step."""
    instruction_tokens: int = 0
    """Part of `input_tokens` that asks for the summary; never in the cache."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Another part in the place of one part; the identity of the place stays."""

    position: int
    part: Part
    rule: str = ""
    """Name of the rule that decided it."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Parts taken out of the prompt, from `start` up to and without `stop`."""

    start: int
    stop: int
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Insert:
    """Parts put in before the part at `position` (the prompt's length: at the end)."""

    position: int
    parts: tuple[Part, ...]
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Summarize:
    """One summary part in the place of the parts from `start` up to `stop` (may be equal)."""

    start: int
    stop: int
    part: Part
    call: SummaryCall
    rule: str = ""


@dataclass(frozen=True, slots=True)
class ServerDelete:
    """A part that the provider takes out on its side: the request's bytes stay as they are.

    `apply` therefore leaves the part where it is; a replay bills the request without its tokens
    from the next position on and keeps the cached prefix.
    """

    position: int
    rule: str = ""


Edit = Replace | Drop | Insert | Summarize | ServerDelete


class Placed(NamedTuple):
    """One place of an edited prompt: what stands there, and where it came from."""

    origin: int
    """Position in the prompt before the edits; -1 for a part that was put in."""
    part: Part | None
    """The new part; None where the old one stays."""
    rule: str


def _span(edit: Edit) -> tuple[int, int, int]:
    """Start, stop and order among edits that begin at the same place (insertions come first)."""
    match edit:
        case Drop(start=start, stop=stop) | Summarize(start=start, stop=stop):
            return start, stop, int(stop > start)
        case Insert(position=position):
            return position, position, 0
        case Replace(position=position) | ServerDelete(position=position):
            return position, position + 1, 1


def arrange(length: int, edits: Iterable[Edit]) -> list[Placed]:
    """The places of a prompt of `length` parts after some edits.

    Raises `LawError` if two edits overlap or one lies outside the prompt.
    """
    out: list[Placed] = []
    at = 0
    for edit in sorted(edits, key=_span):
        start, stop, _ = _span(edit)
        if start < at or stop > length or stop < start:
            raise LawError(
                f"expected edits that do not overlap inside 0..{length}, got {type(edit).__name__} "
                f"over {start}..{stop} after everything up to {at} was decided"
            )
        out.extend(Placed(i, None, "") for i in range(at, start))
        match edit:
            case Replace(part=part, rule=rule):
                out.append(Placed(start, part, rule))
            case Insert(parts=parts, rule=rule):
                out.extend(Placed(-1, part, rule) for part in parts)
            case Summarize(part=part, rule=rule):
                out.append(Placed(-1, part, rule))
            case ServerDelete(rule=rule):
                out.append(Placed(start, None, rule))
            case Drop():
                pass
        at = stop
    out.extend(Placed(i, None, "") for i in range(at, length))
    return out


def apply(parts: Sequence[Part], edits: Iterable[Edit]) -> list[Part]:
    """The prompt after some edits. Raises `LawError` on edits that overlap or lie outside."""
    return [
        parts[place.origin] if place.part is None else place.part
        for place in arrange(len(parts), edits)
    ]


def diff(before: Sequence[Part], after: Sequence[Part]) -> list[Edit]:
    """Edits that turn one prompt into another; the common start and end cost one pass."""
    head = 0
    shortest = min(len(before), len(after))
    while head < shortest and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shortest - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old = before[head : len(before) - tail]
    new = after[head : len(after) - tail]
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    out: list[Edit] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal":
            out.extend(_gap(head + i, head + j, new[k:m]))
    return out


def _gap(start: int, stop: int, parts: Sequence[Part]) -> Iterable[Edit]:
    paired = min(stop - start, len(parts))
    for offset in range(paired):
        yield Replace(start + offset, parts[offset])
    if stop - start > paired:
        yield Drop(start + paired, stop)
    elif len(parts) > paired:
        yield Insert(stop, tuple(parts[paired:]))


def rewritten(part: Part, body: str, *, placeholder: bool = False) -> Part:
    """A part with another content and the same identity, as a request would carry it.

    The digest is that of a part read from a request with this content and no extra fields, so a
    policy that does what the recording did gives the prompts that were recorded.
    """
    head = (
        f"{part.section}\0{part.role}\0{part.kind}\0{part.tool or ''}\0{part.call_id or ''}"
        f"\0{int(part.starts_message)}\0\0"
    )
    hasher = xxhash.xxh3_128(head.encode("utf-8", "surrogatepass"))
    hasher.update(body.encode("utf-8", "surrogatepass"))
    return Part(
        section=part.section,
        role=part.role,
        kind=part.kind,
        digest=hasher.digest(),
        chars=len(body),
        estimate=estimate(body),
        body=body,
        tool=part.tool,
        call_id=part.call_id,
        starts_message=part.starts_message,
        placeholder=placeholder,
        envelope=part.envelope,
        summary=part.kind == "text" and reads_like_summary(body),
        markup=part.kind == "text" and opens_with_markup(body),
    )


def resized_unseen(part: Part, change: str, chars: int, tokens: int) -> Part:
    """A part of unknown content after a change that is known by name and size only.

    `tokens` are estimated tokens of the content.
    """
    digest = xxhash.xxh3_128(part.digest + change.encode()).digest()
    return replace(part, digest=digest, chars=chars, estimate=tokens, body=None)


def summary_part(covered: Sequence[Part], tokens: int, role: str = "user") -> Part:
    """The part that stands for some others; its text is not known, its size is a parameter.

    Equal content that is summarized gives an equal part.
    """
    hasher = xxhash.xxh3_128(b"summary\0%d\0" % tokens)
    for part in covered:
        hasher.update(part.digest)
    return Part(
        section="messages",
        role=role,
        kind="summary",
        digest=hasher.digest(),
        chars=0,
        estimate=tokens,
        starts_message=True,
    )
