"""Reads a row's content the moment the row is read, so that only distinct parts stay in memory."""

from __future__ import annotations

from dataclasses import replace

import xxhash

from analyzer.sources.decode import dump
from analyzer.sources.spans.blocks import decoded
from analyzer.sources.spans.memory import Memory
from analyzer.sources.spans.rows import Row, nested
from analyzer.sources.spans.shapes import Request, read_request
from analyzer.tokens import estimate

_HOOK_NAMES = frozenset({"LLM Call", "Subagent LLM Call"})
_HOOK_KEYS = ("assistant_index", "claude.step_index", "turn_number")
UNREADABLE = Request(flags=("unparseable",))


def with_content(row: Row, memory: Memory) -> Row:
    """The row with its content read and its raw input and output dropped.

    Raises `RecursionError` for content nested absurdly deep.
    """
    if row.type != "GENERATION" and row.input is row.output is row.tool_definitions is None:
        return row
    content = None
    if row.type == "GENERATION":
        content = read_request(
            row.input,
            row.output,
            row.metadata or {},
            parsed=row.parsed_io,
            tool_definitions=row.tool_definitions,
            memory=memory,
        )
        # A page without content must not hide the content of another copy of the row.
        content = None if row.input is None and row.output is None else content
    return replace(
        row,
        content=content,
        input_size=_size(row),
        key=_turn_key(row) or row.key,
        input=None,
        output=None,
        tool_definitions=None,
    )


def _size(row: Row) -> int | None:
    if not row.input:
        return None
    return estimate(row.input if isinstance(row.input, str) else dump(row.input))


def _turn_key(row: Row) -> str | None:
    """Identity of a step that may be sent again as another span; None where the span is enough.

    The Claude Code hook sends old turns again under new ids when a session is resumed or forked, so
    there the request and its answer are the identity.
    """
    repeated = row.name in _HOOK_NAMES or any(nested(row, key) is not None for key in _HOOK_KEYS)
    if not repeated or row.start is None or row.output is None or not row.usage:
        return None
    what = "\0".join(
        (
            row.start.isoformat(),
            row.model or "",
            dump(dict(sorted(row.usage.items()))),
            dump(decoded(row.output)[0]),
            dump(decoded(row.input)[0]),
        )
    )
    digest = xxhash.xxh3_128_hexdigest(what.encode("utf-8", "surrogatepass"))
    origin = row.key.split(":", 1)[0]
    return f"{origin}:turn:{digest}"
