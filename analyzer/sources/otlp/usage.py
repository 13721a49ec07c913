"""The token counts of a span, by the names that `spans.keys` knows, and what is promised of them.

A span may carry the same counts under the names of several conventions. One family of names is
taken, and others only for what it lacks, so that nothing counts twice.

Sources, read 2026-11: the GenAI conventions say that `gen_ai.usage.input_tokens` "SHOULD include all
types of input tokens, including cached tokens"; OpenInference says that prompt_details are parts of
prompt; the contract of Langfuse's usage_details says that its buckets are exclusive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzer.sources.decode import Json, JsonObject
from analyzer.sources.otlp.values import Attributes, below
from analyzer.sources.spans.blocks import decoded
from analyzer.sources.spans.keys import PRICED_APART, Bucket, bucket_of

_RENAMED = {
    "prompt": "prompt_tokens",
    "completion": "completion_tokens",
    "total": "total_tokens",
    "prompt_details.cache_input": "cached_tokens",
    "thinking_tokens": "reasoning_tokens",
    "reasoning_output_tokens": "reasoning_tokens",
    "input_tokens.cached": "input_cached_tokens",
    "input_tokens.cache_write": "input_cache_write",
    "output_tokens.reasoning": "reasoning_tokens",
    "reasoning.output_tokens": "reasoning_tokens",
    "inputTokenDetails.cacheReadTokens": "cachedInputTokens",
    "inputTokenDetails.cacheWriteTokens": "cacheWriteInputTokens",
    "outputTokenDetails.reasoningTokens": "reasoningTokens",
    "completion_tokens_details.reasoning": "reasoning_tokens",
}
_HINTS = ("usage", "token", "providerMetadata", "llm_response")
"""Most spans are of databases and servers; none of these is in the names of their attributes."""
_CLAUDE_CODE = ("input_tokens", "cache_read_tokens", "cache_creation_tokens", "output_tokens")
_PREFIXES = ("details.", "experimental.")
_PARTS: frozenset[Bucket] = frozenset({"read", "write", "write_5m", "write_1h", "reasoning"})


@dataclass(frozen=True, slots=True)
class SpanUsage:
    """Token counts under known names."""

    counts: JsonObject
    promised: bool | None
    """Whether the convention says that the input holds cached tokens."""
    family: str


def usage_of(given: Attributes) -> SpanUsage | None:
    """The token counts of a span; None where it has none."""
    if not any(hint in name for name in given for hint in _HINTS):
        return None
    stated, _ = decoded(given.get("langfuse.observation.usage_details"))
    if not isinstance(stated, Mapping):
        stated = below(given, "langfuse.observation.usage_details.")
    if stated:
        return SpanUsage(stated, None, "langfuse")
    raw = _provider_usage(given)
    if any(bucket_of(key) == "input" for key in raw):
        return SpanUsage(raw, False, "provider")
    if given.get("span.type") == "llm_request":
        # Claude Code names Anthropic's own counts, which are exclusive, without any prefix.
        own = {key: _whole(given[key]) for key in _CLAUDE_CODE if given.get(key) is not None}
        return SpanUsage(own, False, "claude-code") if own else None
    families = [(name, dict(_known(below(given, prefix)))) for name, prefix in _FAMILIES]
    families = [(name, counts) for name, counts in families if counts]
    if not families:
        return None
    name, counts = families[0]
    covered = {bucket_of(key) for key in counts}
    for _, more in [*families[1:], ("provider", raw)]:
        fresh = {key: v for key, v in more.items() if bucket_of(key) not in covered}
        counts |= fresh
        covered.update(bucket_of(key) for key in fresh)
    return _without_remainder(given, SpanUsage(counts, True, name))


_FAMILIES = (
    ("gen_ai", "gen_ai.usage."),
    ("openinference", "llm.token_count."),
    ("ai", "ai.usage."),
    ("llm", "llm.usage."),
    ("openai", "gen_ai.openai.usage."),
)


def _known(counts: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Counts with a known meaning. Others are parts of these, prices, or settings."""
    for key, value in counts.items():
        if key == "prompt_details.cache_input" and "prompt_details.cache_read" in counts:
            continue  # it overlaps the others without saying how
        if key in PRICED_APART and value is not None:
            yield key, _whole(value)
            continue
        inner = next((key.removeprefix(p) for p in _PREFIXES if key.startswith(p)), None)
        name = _RENAMED.get(inner or key, inner or key)
        bucket = bucket_of(name)
        if bucket and value is not None and (inner is None or bucket in _PARTS):
            yield name, _whole(value)


def _whole(value: Json) -> Json:
    """A count as a whole number, which some SDKs write as a text or with a point."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 17:
        return int(value)
    return value


def _without_remainder(given: Attributes, usage: SpanUsage) -> SpanUsage:
    """The AI SDK from 6 on states the uncached remainder itself: then nothing is left to judge."""
    rest = given.get("ai.usage.inputTokenDetails.noCacheTokens")
    if not isinstance(rest, int) or isinstance(rest, bool):
        return usage
    kept = {k: v for k, v in usage.counts.items() if bucket_of(k) not in ("input", "total")}
    return SpanUsage({"inputTokens": rest, **kept}, False, "ai remainder")


def _provider_usage(given: Attributes) -> dict[str, Json]:
    """What the provider's own response says, where a span keeps that beside the convention.

    Anthropic's counts are exclusive; those of others are taken for their cached parts alone.
    """
    metadata, _ = decoded(given.get("ai.response.providerMetadata"))
    response, _ = decoded(given.get("gcp.vertex.agent.llm_response"))
    out: dict[str, Json] = {}
    for name, holder in metadata.items() if isinstance(metadata, Mapping) else ():
        for counts in _objects(holder, ("usage", "usageMetadata")):
            out |= {
                key: value
                for key, value in _leaves(counts)
                if bucket_of(key) in _PARTS or (name == "anthropic" and bucket_of(key))
            }
    for counts in _objects(response, ("usage_metadata", "usageMetadata"))[1:]:
        out |= {k: v for k, v in _leaves(counts) if bucket_of(k) in (*_PARTS, "total")}
    return out


def _objects(holder: Json, names: Sequence[str]) -> list[JsonObject]:
    """An object and those under some names in it."""
    if not isinstance(holder, Mapping):
        return []
    inner = [holder.get(name) for name in names]
    return [holder, *(value for value in inner if isinstance(value, Mapping))]


def _leaves(counts: JsonObject) -> Iterator[tuple[str, Json]]:
    for key, value in counts.items():
        if isinstance(value, Mapping):
            for inner, count in value.items():
                if isinstance(count, int):
                    yield f"{key}.{inner}", count
        elif isinstance(value, int) and not isinstance(value, bool):
            yield key, value
