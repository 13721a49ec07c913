"""The names under which senders file token counts on a span.

Sources: langfuse.com/docs/observability/features/token-and-cost-tracking and the ingestion code of
github.com/langfuse/langfuse at 62751446149b (2026-08-22).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Bucket = Literal["input", "read", "write", "write_5m", "write_1h", "output", "reasoning", "total"]

ALIASES: Mapping[Bucket, tuple[str, ...]] = {
    "read": (
        "cache_read_input_tokens",
        "input_cached_tokens",
        "input_cache_read",
        "cache_read_tokens",
        "cached_tokens",
        "cached_content_token_count",
        "cachedContentTokenCount",
        "cache_read.input_tokens",
        "prompt_details.cache_read",
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "input_token_details.cache_read",
        "cacheReadInputTokens",
        "cachedInputTokens",
        "input_cached_text_tokens",
        "prompt_cache_hit_tokens",
    ),
    "write": (
        "cache_creation_input_tokens",
        "input_cache_creation",
        "input_cache_write",
        "cache_write_tokens",
        "cache_creation.input_tokens",
        "prompt_details.cache_write",
        "input_token_details.cache_creation",
        "cacheCreationInputTokens",
        "cacheWriteInputTokens",
    ),
    "write_5m": (
        "input_cache_creation_5m",
        "input_ephemeral_5m_input_tokens",
        "cache_creation_ephemeral_5m_input_tokens",
        "cache_creation.ephemeral_5m_input_tokens",
        "ephemeral_5m_input_tokens",
    ),
    "write_1h": (
        "input_cache_creation_1h",
        "input_ephemeral_1h_input_tokens",
        "cache_creation_ephemeral_1h_input_tokens",
        "cache_creation.ephemeral_1h_input_tokens",
        "ephemeral_1h_input_tokens",
    ),
    "input": (
        "input",
        "input_tokens",
        "inputTokens",
        "prompt_tokens",
        "promptTokens",
        "prompt_token_count",
        "promptTokenCount",
    ),
    "output": (
        "output",
        "output_tokens",
        "outputTokens",
        "completion_tokens",
        "completionTokens",
        "candidates_token_count",
        "candidatesTokenCount",
    ),
    "reasoning": (
        "output_reasoning_tokens",
        "output_reasoning",
        "thoughts_token_count",
        "thoughtsTokenCount",
        "reasoning_tokens",
        "reasoningTokens",
        "completion_details.reasoning",
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "output_token_details.reasoning",
    ),
    "total": ("total_tokens", "totalTokens", "total_token_count", "totalTokenCount", "total"),
}
PRICED_APART: Mapping[str, str] = {
    "input_audio_tokens": "audio_input",
    "input_audio": "audio_input",
    "prompt_details.audio": "audio_input",
    "prompt_tokens_details.audio_tokens": "audio_input",
    "input_image_tokens": "image_input",
    "output_audio_tokens": "audio_output",
    "output_audio": "audio_output",
    "completion_details.audio": "audio_output",
    "completion_tokens_details.audio_tokens": "audio_output",
}
"""Counts with a price of their own, by their name in `Usage.apart`."""
BUCKET_OF: Mapping[str, Bucket] = {key: b for b, keys in ALIASES.items() for key in keys}
REASONING_BESIDE_OUTPUT = frozenset(ALIASES["reasoning"][:4])
INCLUSIVE_BY_NAME = frozenset(ALIASES["input"][3:])
"""The providers that named these keys count cached tokens in them."""


def bucket_of(key: str) -> Bucket | None:
    """The bucket a key counts into; None for a detail or a name that says nothing."""
    known = BUCKET_OF.get(key)
    if known or "cach" not in key:
        return known
    name = key.lower()
    if "5m" in name or "1h" in name:
        return "write_1h" if "1h" in name else "write_5m"
    if "creat" in name or "write" in name:
        return "write"
    return "read" if "read" in name or "cached" in name else None
