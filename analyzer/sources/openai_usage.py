"""The `usage` object of OpenAI's APIs, and of those that speak like them, as disjoint counts.

Chat completions and Responses, DeepSeek, LiteLLM and OpenRouter. Their input counts include what
was read from and written to the cache. Source: platform.openai.com (prompt caching),
api-docs.deepseek.com (context caching), docs.litellm.ai (prompt caching), read 2026-11.
"""

from __future__ import annotations

from analyzer.model import Usage
from analyzer.sources.anthropic_usage import anthropic_usage
from analyzer.sources.decode import JsonObject, get_count, get_object

_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")
_READ = ("cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens")
_WRITTEN = ("cache_creation_input_tokens", "cache_write_tokens")
_WRITTEN_DETAILS = ("cache_write_tokens", "cache_creation_tokens")
_ANTHROPIC = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")


def reported_usage(obj: JsonObject, pointer: str = "$.usage") -> Usage | None:
    """A usage object of OpenAI's or of Anthropic's shape; None where there is none.

    Proxies put either shape beside either form of messages, so the shape of the usage alone
    decides. Raises `DecodeError` where a count is not a count.
    """
    if not obj:
        return None
    if is_anthropic(obj):
        return anthropic_usage(obj, pointer).usage
    return openai_usage(obj, pointer)


def is_anthropic(obj: JsonObject) -> bool:
    """Whether a usage object is of Anthropic's shape, whose input leaves the cache out."""
    if "prompt_tokens" in obj or "input_tokens_details" in obj:
        return False
    return "input_tokens" in obj and any(key in obj for key in _ANTHROPIC)


def openai_usage(obj: JsonObject, pointer: str = "$.usage") -> Usage:
    """Read a usage object of OpenAI's shape. Raises `DecodeError` where a count is not a count."""
    details, details_at = _nested(obj, _INPUT_DETAILS, pointer)
    thought, thought_at = _nested(obj, _OUTPUT_DETAILS, pointer)
    whole = _first(obj, _INPUT, pointer)
    output = _first(obj, _OUTPUT, pointer)
    read = _first(details, ("cached_tokens",), details_at)
    if read is None:
        read = _first(obj, _READ, pointer)
    written = _first(details, _WRITTEN_DETAILS, details_at)
    if written is None:
        written = _first(obj, _WRITTEN, pointer)
    missed = get_count(obj, "prompt_cache_miss_tokens", pointer)
    if whole is None and missed is not None:
        whole = missed + (read or 0)
    total = get_count(obj, "total_tokens", pointer)
    uncached, written = disjoint(whole, read, written, output, total)
    return Usage(
        input=uncached,
        cache_read=read,
        cache_write=written,
        output=output,
        reasoning=get_count(thought, "reasoning_tokens", thought_at),
    )


def disjoint(
    whole: int | None,
    read: int | None,
    written: int | None,
    output: int | None = None,
    total: int | None = None,
) -> tuple[int | None, int | None]:
    """The uncached remainder and the written tokens, of an input count that includes the cache.

    A sender left the cache out of its input where only that gives its own `total`, or where it
    counts more from the cache than it sent. Tokens that one request wrote and read at once (a
    cache made for it, as with Gemini) count as read.
    """
    if whole is None or not (read or written):
        return whole, written
    cached, larger = (read or 0) + (written or 0), max(read or 0, written or 0)
    if larger > whole or (total is not None and total == whole + cached + (output or 0)):
        return whole, written
    if cached > whole:
        return whole - larger, larger - (read or 0)
    return whole - cached, written


def _nested(obj: JsonObject, names: tuple[str, ...], pointer: str) -> tuple[JsonObject, str]:
    name = next((n for n in names if obj.get(n) is not None), names[0])
    return get_object(obj, name), f"{pointer}.{name}"


def _first(obj: JsonObject, names: tuple[str, ...], pointer: str) -> int | None:
    name = next((n for n in names if obj.get(n) is not None), None)
    return None if name is None else get_count(obj, name, pointer)
