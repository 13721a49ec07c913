"""The `usage` object of Anthropic's Messages API as disjoint counts.

Source: platform.claude.com, prompt caching and compaction pages, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from analyzer.model import Step, Usage
from analyzer.sources.decode import JsonObject, get_array, get_count, get_object, get_text


class AnthropicUsage(NamedTuple):
    """Usage of the request that answered, and of requests inside it that came before."""

    usage: Usage
    earlier: tuple[tuple[str | None, Usage], ...]
    """(model, usage) of a fallback's first try or of a server-side compaction. The top-level
    counts leave these out although they are billed."""


def anthropic_usage(obj: JsonObject, pointer: str = "$.usage") -> AnthropicUsage:
    """Read a usage object. Raises `DecodeError` where a count is not a count."""
    usage = _counts(obj, pointer)
    rounds = [r for r in get_array(obj, "iterations") if isinstance(r, dict)]
    earlier = tuple(
        (get_text(r, "model"), _counts(r, f"{pointer}.iterations[{i}]"))
        for i, r in enumerate(rounds[:-1])
    )
    return AnthropicUsage(usage, earlier)


def with_earlier(step: Step, earlier: Sequence[tuple[str | None, Usage]]) -> list[Step]:
    """A step behind steps for the requests inside it, which were sent the same prompt.

    What the prompt brought (new parts, a person's words, a compaction) belongs to the first.
    """
    if not earlier:
        return [step]
    bare = replace(step, response=(), miss_reason=None, stop_reason=None, reported_cost=None)
    out = [
        replace(bare, key=f"{step.key}#{number}", model=model or step.model, usage=usage)
        for number, (model, usage) in enumerate(earlier)
    ]
    out.append(step)
    return [out[0], *(replace(s, new_parts=(), human=False, compaction=None) for s in out[1:])]


def _counts(obj: JsonObject, pointer: str) -> Usage:
    nested = get_object(obj, "cache_creation")
    five = get_count(nested, "ephemeral_5m_input_tokens", f"{pointer}.cache_creation")
    hour = get_count(nested, "ephemeral_1h_input_tokens", f"{pointer}.cache_creation")
    flat = get_count(obj, "cache_creation_input_tokens", pointer)
    split = None if five is None and hour is None else (five or 0) + (hour or 0)
    if split is not None and (split or not flat):
        # Some clients wrote a flat 0 beside the nested counts; the split is what was billed.
        write: int | None = split
        five, hour = five or 0, hour or 0
    else:
        write, five, hour = flat, None, None
        if flat == 0:
            five = hour = 0
    details = get_object(obj, "output_tokens_details")
    return Usage(
        input=get_count(obj, "input_tokens", pointer),
        cache_read=get_count(obj, "cache_read_input_tokens", pointer),
        cache_write=write,
        cache_write_5m=five,
        cache_write_1h=hour,
        output=get_count(obj, "output_tokens", pointer),
        reasoning=get_count(details, "thinking_tokens", f"{pointer}.output_tokens_details"),
    )


def miss_reason(diagnostics: object) -> str | None:
    """The provider's own reason for a cache miss, from a response's `diagnostics`."""
    if not isinstance(diagnostics, dict):
        return None
    reason = diagnostics.get("cache_miss_reason")
    if isinstance(reason, str):
        return reason
    if isinstance(reason, dict) and isinstance(reason.get("type"), str):
        return str(reason["type"])
    return None
