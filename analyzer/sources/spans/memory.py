"""Messages that were translated before, found again by their bytes.

Every step carries its whole history, so nearly all messages were seen in the step before; they cost
one hash here instead of a translation, and their parts stand in memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import xxhash

from analyzer.sources.blocks import Marked, message_parts
from analyzer.sources.decode import Json, dump
from analyzer.sources.spans.blocks import Calls, decoded
from analyzer.sources.spans.messages import canonical


@dataclass(frozen=True, slots=True)
class _Known:
    parts: tuple[Marked, ...]
    calls: tuple[tuple[str, str], ...]
    """Calls that the message makes, as (name, id)."""
    results: tuple[tuple[str, str | None], ...]
    """Calls that it answers, with the tool that was known then; another prompt may know another."""


class Memory:
    """Parts of the messages, tools and system prompts seen so far."""

    def __init__(self) -> None:
        self._messages: dict[bytes, _Known] = {}
        self._sections: dict[bytes, tuple[Marked, ...]] = {}

    def message(self, message: Json, calls: Calls, role: str | None) -> tuple[Marked, ...]:
        """The parts of one message; `role` is the default for one that says none."""
        key = _key(role or "", message)
        known = self._messages.get(key)
        if known is not None and all(calls.names.get(i) == tool for i, tool in known.results):
            for name, call_id in known.calls:
                calls.called(name, call_id)
            return known.parts
        calls.mark()
        value, _ = decoded(message)
        parts = tuple(message_parts(canonical(value, calls, role), calls.names))
        if not calls.by_order:
            self._messages[key] = _Known(parts, calls.noted(), _results(parts))
        return parts

    def section(
        self, name: str, sources: Sequence[Json], read: Callable[[], Iterable[Marked]]
    ) -> tuple[Marked, ...]:
        """The parts of the tools or the system prompt; `read` makes them of `sources` once."""
        key = _key(name, list(sources))
        if key not in self._sections:
            self._sections[key] = tuple(read())
        return self._sections[key]


def _results(parts: Iterable[Marked]) -> tuple[tuple[str, str | None], ...]:
    return tuple(
        (m.part.call_id, m.part.tool)
        for m in parts
        if m.part.kind == "tool_result" and m.part.call_id
    )


def _key(name: str, value: Json) -> bytes:
    text = f"{name}\0{dump(value)}"
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))
