"""What a transcript does not show of the prompts that were sent: head, growth and cuts.

Totals are known, content is not. What is missing or too much is laid to a part of measured size,
where the recorded reads allow it to be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from analyzer.edits import resized_unseen
from analyzer.model import Lane, Part, Prompt, Step
from analyzer.replay.align import Aligned, Aligner

STUB_TOKENS = 12
"""Size of a stub that nobody saw."""
FIT = (0.75, 1.33)
"""Estimated sizes of new parts may be off by this much before a difference means a hidden change."""
HEAD_READ = 0.9
"""Share of the head that a read must cover to say that the head is what it was."""


class Laying(Protocol):
    """What the pass over a lane has laid so far."""

    lane: Lane
    cuts: Collection[int] | None
    parts: list[Part]
    tokens: list[int]
    base: list[int]
    aligner: Aligner
    previous: list[int]
    head_parts: list[int]
    shown: Prompt | None

    def add_part(self, part: Part, tokens: int) -> int:
        """Index of a new part of this size."""
        ...


class Unseen:
    """What a transcript does not show: the hidden head, hidden growth, and hidden cuts."""

    def __init__(self, builder: Laying) -> None:
        self.builder = builder
        self.head: int | None = None
        self.messages: list[int] = []
        self.shown: list[int] = []
        self.size = 0
        """Tokens of `messages`."""
        self.stand_ins: dict[int, int] = {}

    def resolve(
        self, number: int, step: Step, messages: list[int], aligned: Aligned
    ) -> tuple[list[int], list[int]]:
        """Head and messages of a prompt whose total is known and whose head is not.

        Adds to the base what is new, with a part for growth that nothing visible explains.
        """
        builder = self.builder
        if builder.shown is not None and builder.shown.recorded:
            # Until now every prompt was seen: go on from the last one.
            self.messages = builder.previous[len(builder.head_parts) :]
            self.shown = list(self.messages)
            self.size = sum(builder.tokens[i] for i in self.messages)
        added = [messages[k] for k in aligned.added]
        total = step.usage.prompt if step.usage is not None else None
        if self.head is None:
            visible = sum(builder.tokens[i] for i in messages)
            size = max(0, (total if total is not None else visible) - visible)
            self.head = builder.add_part(_pseudo("system", "hidden", 0, size), size)
        kept = self._kept(messages, added)
        difference = 0
        if total is not None:
            size = self.size if kept == self.messages else sum(builder.tokens[i] for i in kept)
            expected = builder.tokens[self.head] + size
            difference = total - expected - sum(builder.tokens[i] for i in added)
        if difference and not self._fits(number, added, difference):
            aligned.cut |= self._place(number, difference, kept, added)
        builder.base.extend(added)
        grown = kept == self.messages
        self.messages, self.shown = [*kept, *added], messages
        counted = added if grown else self.messages
        self.size = (self.size if grown else 0) + sum(builder.tokens[i] for i in counted)
        return [self.head], self.messages

    def count(self, seen: Sequence[int], position: int) -> int:
        """Parts of the laid prompt up to and with one of the seen prompt; 1 is the hidden head."""
        if position == len(seen) - 1:
            return 1 + len(self.messages)
        part = self.stand_ins.get(seen[position], seen[position])
        return 2 + self.messages.index(part) if part in self.messages else 1

    def _kept(self, messages: list[int], added: list[int]) -> list[int]:
        """The earlier messages as they stand now: stand-ins for cut ones, growth in its place."""
        if messages[: len(self.shown)] == self.shown:
            return list(self.messages)
        fresh, held = set(added), set(messages)
        was_shown = set(self.shown)
        survivors = {self.stand_ins.get(i, i) for i in held}
        first = next(iter(messages), None)
        if first is not None and first in was_shown:
            pool = [i for i in self.messages if i in survivors or i >= len(self.builder.lane.pool)]
            stale = {self.stand_ins[i] for i in was_shown - held if i in self.stand_ins}
            return [i for i in pool if i not in stale]
        return [self.stand_ins.get(i, i) for i in messages if i not in fresh]

    def _fits(self, number: int, added: list[int], difference: int) -> bool:
        """Put a difference on the new parts, whose sizes are estimates, where it is small enough."""
        tokens = self.builder.tokens
        estimated = sum(tokens[i] for i in added)
        if not estimated or (self.builder.cuts is not None and number in self.builder.cuts):
            return False
        if not FIT[0] <= (estimated + difference) / estimated <= FIT[1]:
            return False
        left = estimated + difference
        for n, i in enumerate(added):
            share = (
                left
                if n == len(added) - 1
                else max(1, tokens[i] + difference * tokens[i] // estimated)
            )
            tokens[i] = max(1, share)
            left -= tokens[i]
        return True

    def _place(self, number: int, difference: int, kept: list[int], added: list[int]) -> bool:
        """Growth, a cut, or a shorter end; tells whether it was a cut."""
        builder = self.builder
        if difference > 0:
            growth = _pseudo("messages", "growth", number, difference)
            added.append(builder.add_part(growth, difference))
            builder.aligner.append(1)
        elif builder.cuts is None or number in builder.cuts:
            self._cut(number, -difference, kept)
            return True
        else:
            self._lose(number, -difference, kept, added)
        return False

    def _lose(self, number: int, missing: int, kept: list[int], added: list[int]) -> None:
        """Take what is missing from the newest end, or from a head that was not read whole."""
        builder = self.builder
        assert self.head is not None
        usage = builder.lane.steps[number].usage
        size = builder.tokens[self.head]
        if usage is not None and (usage.cache_read or 0) >= size * HEAD_READ:
            for i in reversed(added):
                taken = min(missing, builder.tokens[i] - 1)
                builder.tokens[i] -= taken
                missing -= taken
            missing = self._shrink(number, missing, kept, range(len(kept) - 1, -1, -1), 1)
        if missing > 0:
            size = max(0, size - missing)
            self.head = builder.add_part(_pseudo("system", "hidden", number, size), size)

    def _cut(self, number: int, missing: int, kept: list[int]) -> None:
        """Take tokens from the oldest results, then from the oldest other parts."""
        parts = self.builder.parts
        results = [n for n, i in enumerate(kept) if parts[i].kind == "tool_result"]
        others = [n for n in range(len(kept)) if n not in set(results)]
        missing = self._shrink(number, missing, kept, results, STUB_TOKENS)
        self._shrink(number, missing, kept, others, 1)

    def _shrink(
        self, number: int, missing: int, kept: list[int], places: Iterable[int], floor: int
    ) -> int:
        """Stand-ins for parts, smaller by what is missing; what is still missing after them."""
        builder = self.builder
        for n in places:
            if missing <= 0:
                break
            size = builder.tokens[kept[n]]
            taken = min(missing, size - floor)
            if taken <= 0:
                continue
            part = resized_unseen(builder.parts[kept[n]], f"cut:{number}:{taken}", 0, size - taken)
            original = next((k for k, v in self.stand_ins.items() if v == kept[n]), kept[n])
            self.stand_ins[original] = kept[n] = builder.add_part(part, size - taken)
            missing -= taken
        return missing


def _pseudo(section: str, name: str, number: int, tokens: int) -> Part:
    """A part that nobody saw; only its size is known."""
    body = f"{name} {number} {tokens}"
    in_system = section == "system"
    return resized_unseen(
        Part(
            section="system" if in_system else "messages",
            role="system" if in_system else "user",
            kind="other",
            digest=body.encode().ljust(16, b"\0")[:16],
            chars=0,
            estimate=tokens,
        ),
        body,
        0,
        tokens,
    )
