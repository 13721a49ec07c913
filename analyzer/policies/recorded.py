"""The recording's own prompts as a policy: the baseline that every replay must reproduce."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from analyzer.edits import Edit, diff
from analyzer.policies.base import Memory, Turn


@dataclass(frozen=True, slots=True)
class Recorded:
    """Edits that turn each prompt into the one that was really sent."""

    name: ClassVar[str] = "recorded"
    title: ClassVar[str] = "The prompts as they were sent"
    memory: ClassVar[Memory] = "persisted"

    def edits(self, turn: Turn) -> Iterable[Edit]:
        """See `Policy`."""
        return diff(turn.prompt, turn.recorded)
