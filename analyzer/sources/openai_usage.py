"""The `usage` object of OpenAI's APIs, and of those that speak like them, as disjoint counts.

Chat completions and Responses, DeepSeek, LiteLLM and OpenRouter. Their input counts include what
was read from and written to the cache. Source: platform.openai.com (prompt caching),
api-docs.deepseek.com (context caching), docs.litellm.ai (prompt caching), read 2026-11.
"""

from __future__ import annotations

from analyzer.model import Doubt, Usage
from analyzer.sources.anthropic_usage import AnthropicUsage, anthropic_usage
from analyzer.sources.decode import JsonObject, get_count, get_object, get_text
from analyzer.sources.terms import terms_of

_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")
_READ = ("cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens")
_WRITTEN = ("cache_creation_input_tokens", "cache_write_tokens")
_WRITTEN_DETAILS = ("cache_write_tokens", "cache_creation_tokens")
_ANTHROPIC = (
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation",
    "iterations",
)


def reported_usage(obj: JsonObject, pointer: str = "$.usage") -> Usage | None:
    """A usage object of OpenAI's or of Anthropic's shape; None where there is none.

    Proxies put either shape beside either form of messages, so the shape of the usage alone
    decides. Raises `DecodeError` where a count is not a count.
    """
    found = reported_rounds(obj, pointer)
    return None if found is None else found.usage


def reported_rounds(
    obj: JsonObject, pointer: str = "$.usage", asked: str | None = None
) -> AnthropicUsage | None:
    """The same, with the requests inside the response that came before its answer."""
    if not obj:
        return None
    if is_anthropic(obj):
        return anthropic_usage(obj, pointer, asked)
    return AnthropicUsage(openai_usage(obj, pointer))


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
    uncached, kept = disjoint(whole, read, written, output, total)
    by_ttl = get_object(details, "cache_write_tokens_details")
    short = get_count(by_ttl, "ttl_30m_tokens", details_at)
    long = get_count(by_ttl, "ttl_12h_tokens", details_at)
    return Usage(
        input=uncached,
        cache_read=read,
        cache_write=kept,
        # The two lifetimes that OpenAI grants stand in the columns of the short and the long one.
        cache_write_5m=short if kept == (short or 0) + (long or 0) else None,
        cache_write_1h=long if kept == (short or 0) + (long or 0) else None,
        output=output,
        reasoning=get_count(thought, "reasoning_tokens", thought_at),
        terms=terms_of(get_text(obj, "service_tier")),
        apart=_apart(details, details_at, thought, thought_at),
        doubts=doubts_of(whole, read, written, output, total),
    )


def _apart(
    details: JsonObject, details_at: str, made: JsonObject, made_at: str
) -> tuple[tuple[str, int], ...]:
    """Audio and pictures, which have prices of their own."""
    audio = get_count(details, "audio_tokens", details_at) or 0
    cached = get_object(details, "cached_tokens_details")
    read = get_count(cached, "audio_tokens", details_at) or 0
    found = {
        "audio_input": max(0, audio - read),
        "audio_output": get_count(made, "audio_tokens", made_at) or 0,
        "audio_read": read,
        "image_input": get_count(details, "image_tokens", details_at) or 0,
    }
    return tuple((name, count) for name, count in found.items() if count)


def openai_miss_reason(diagnostics: object) -> str | None:
    """OpenAI's own reason for a cache miss, from `prompt_cache_diagnostics`; None for a hit.

    Source: developers.openai.com, prompt cache diagnostics, read 2026-11.
    """
    if not isinstance(diagnostics, dict):
        return None
    inner = get_object(diagnostics, "cache_miss") or diagnostics
    kind = get_text(diagnostics, "type")
    return get_text(inner, "reason") or (kind if kind not in ("cache_hit", "cache_miss") else None)


def doubts_of(
    whole: int | None,
    read: int | None,
    written: int | None,
    output: int | None = None,
    total: int | None = None,
) -> tuple[Doubt, ...]:
    """What contradicts itself in counts whose input should hold the cache; see `disjoint`.

    Nothing is doubted where the sender's own total shows that its input leaves the cache out.
    """
    cached = (read or 0) + (written or 0)
    if whole is None:
        return ()
    if cached > whole and total != whole + cached + (output or 0):
        uncached, kept = disjoint(whole, read, written, output, total)
        return (Doubt("cached_over_input", cached, (uncached or 0) + (read or 0) + (kept or 0)),)
    if total is None or output is None or total in (whole + output, whole + output + cached):
        return ()
    return (Doubt("total_mismatch", total, whole + output),)


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
