"""Mode `none`: digests, kinds and sizes; no text that somebody wrote, and none that a record holds."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from analyzer.content.standins import stand_in
from analyzer.model import Part

_CLOSED: Final = frozenset(
    {
        "disable_parallel_tool_use",
        "effort",
        "inference_geo",
        "parallel_tool_calls",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_effort",
        "service_tier",
        "speed",
        "thinking",
        "tool_choice",
        "verbosity",
        "version",
    }
)
"""Labels and request parameters whose values are names and numbers that a provider or a client
chose, and that prices and cache keys depend on."""
_NAMES = re.compile(r"[\w.:/+\-\[\]{}\",]{0,160}")
_TERM = re.compile(r"[\w.:/+-]{0,80}")
_PLAIN = re.compile(
    r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|True|False"
    r"|(?:[{}\":,]|type|format|text|json_object|verbosity|low|medium|high|auto|disabled)+"
)
"""Numbers, and parameters at their usual values (which means the same as leaving them out)."""
_QUOTED = re.compile(r"(?<!\w)b?(?:'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?)")
"""What `repr` writes: messages quote a record in no other way (docs/add-a-source.md)."""


class Bare:
    """See `Filter`."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def body(self, part: Part) -> str | None:
        """See `Filter`."""
        return None

    def prose(self, text: str) -> str | None:
        """See `Filter`."""
        return None

    def value(self, name: str, text: str) -> str:
        """See `Filter`."""
        if _PLAIN.fullmatch(text) or (name in _CLOSED and _NAMES.fullmatch(text)):
            return text
        return stand_in(self._key, "TEXT", text)

    def term(self, text: str) -> str:
        """See `Filter`."""
        return _term(self._key, text)

    def message(self, text: str) -> str:
        """See `Filter`."""
        return _QUOTED.sub("…", text)

    def raw(self, record: bytes) -> bytes:
        """See `Filter`."""
        return b""


@lru_cache(maxsize=4096)
def _term(key: bytes, text: str) -> str:
    """Kept, since every part asks for its role."""
    return text if _TERM.fullmatch(text) else stand_in(key, "TEXT", text)
