"""What of the content stays: all of it, all but secrets and personal data, or none.

Applied where a file is read, before anything leaves that process. Digests, sizes, estimates and
kinds are those of the original in every mode, so every figure and every verdict is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Protocol, TypeAlias

from analyzer.content.bare import Bare
from analyzer.model import Compaction, LaneSteps, Part, Problem, Prompt, Step

Mode = Literal["full", "redacted", "none"]
MODES: tuple[Mode, ...] = ("full", "redacted", "none")
"""From the most that is kept to the least."""
Entry: TypeAlias = "LaneSteps | Problem"
Keep: TypeAlias = Callable[[Entry], Entry]


class Filter(Protocol):
    """What becomes of each sort of text; None where nothing of it is kept."""

    def body(self, part: Part) -> str | None:
        """The content of a part."""
        ...

    def prose(self, text: str) -> str | None:
        """A text that somebody wrote, such as a title."""
        ...

    def value(self, name: str, text: str) -> str:
        """The value of a label or a request parameter; equal values stay equal."""
        ...

    def term(self, text: str) -> str:
        """What should be a word of a closed list, such as a role or a stop reason."""
        ...

    def message(self, text: str) -> str:
        """What is said of a record that could not be read."""
        ...

    def raw(self, record: bytes) -> bytes:
        """The bytes of such a record."""
        ...


def keeps_more(one: str, other: str) -> bool:
    """Whether a mode keeps content that another one does not; no mode keeps nothing."""
    ranks: dict[str, int] = {mode: rank for rank, mode in enumerate(MODES)}
    return ranks.get(one, len(MODES)) < ranks.get(other, len(MODES))


def keeping(mode: Mode, key: bytes) -> Keep:
    """What a mode makes of the entries of a source.

    `key` makes the stand-ins for values: equal under one key, unlike under another.
    """
    if mode == "full":
        return _everything
    if mode == "none":
        chosen: Filter = Bare(key)
    else:
        # The detectors load libraries that no other mode needs.
        from analyzer.content.redaction import Redactor  # noqa: PLC0415 - see above

        chosen = Redactor(key)

    def keep(entry: Entry) -> Entry:
        return _problem(chosen, entry) if isinstance(entry, Problem) else _batch(chosen, entry)

    return keep


def _everything(entry: Entry) -> Entry:
    return entry


def _problem(to: Filter, problem: Problem) -> Problem:
    return replace(
        problem,
        pointer=to.message(problem.pointer),
        message=to.message(problem.message),
        raw=to.raw(problem.raw),
    )


def _batch(to: Filter, batch: LaneSteps) -> LaneSteps:
    return replace(
        batch,
        title=None if batch.title is None else to.prose(batch.title),
        steps=tuple(_step(to, step) for step in batch.steps),
        tail_parts=tuple(_part(to, part) for part in batch.tail_parts),
    )


def _part(to: Filter, part: Part) -> Part:
    body = None if part.body is None else to.body(part)
    role = to.term(part.role)
    return part if body is part.body and role == part.role else replace(part, body=body, role=role)


def _step(to: Filter, step: Step) -> Step:
    return replace(
        step,
        new_parts=tuple(_part(to, part) for part in step.new_parts),
        prompt=_prompt(to, step.prompt),
        provider=_term(to, step.provider),
        miss_reason=_term(to, step.miss_reason),
        stop_reason=_term(to, step.stop_reason),
        error=None if step.error is None else to.value("error", step.error),
        labels=_pairs(to, step.labels),
        compaction=_compaction(to, step.compaction),
    )


def _prompt(to: Filter, prompt: Prompt | None) -> Prompt | None:
    if prompt is None or not prompt.settings:
        return prompt
    return replace(prompt, settings=_pairs(to, prompt.settings))


def _compaction(to: Filter, found: Compaction | None) -> Compaction | None:
    if found is None:
        return None
    return replace(found, trigger=_term(to, found.trigger), tier=_term(to, found.tier))


def _pairs(to: Filter, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, to.value(name, text)) for name, text in pairs)


def _term(to: Filter, text: str | None) -> str | None:
    return None if text is None else to.term(text)
