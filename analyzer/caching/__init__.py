"""Provider prompt caches: `CACHES` by name, and which of them a provider applies by default.

A model bills what `peek` said; see `base` for the interface and each module for its rule's source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analyzer.caching.automatic import (
    BoundaryCache,
    ContentCache,
    DeepSeekCache,
    DeepSeekUnitsCache,
    ExactCache,
    GeminiCache,
    IntervalCache,
    KimiCache,
    MiniMaxCache,
    NoCache,
    OpenAiCache,
    PrefixCache,
    QwenCache,
    XaiCache,
)
from analyzer.caching.base import (
    CacheModel,
    ListPrefix,
    Mark,
    PrefixView,
    Request,
    Served,
    collapsed_runs,
    mix,
)
from analyzer.caching.blocks import BlockCache, RadixCache
from analyzer.caching.breakpoints import (
    BedrockCache,
    BreakpointCache,
    MiniMaxMarkedCache,
    QwenMarkedCache,
)
from analyzer.caching.examples import Result
from analyzer.caching.examples import simulate as _simulate
from analyzer.caching.limits import (
    Hint,
    Lifetimes,
    Minimum,
    bedrock_tokens,
    cache_for,
    hints,
    lifetimes,
    minimum,
    minimum_tokens,
    rule_for,
    settings_levels,
)
from analyzer.caching.placement import (
    AS_RECORDED,
    PLACEMENTS,
    Placement,
    parse_placement,
    placement_spec,
)
from analyzer.errors import UsageError

__all__ = [
    "AS_RECORDED",
    "CACHES",
    "PLACEMENTS",
    "CacheModel",
    "Hint",
    "Lifetimes",
    "ListPrefix",
    "Mark",
    "Minimum",
    "Placement",
    "PrefixView",
    "Request",
    "Served",
    "cache_for",
    "collapsed_runs",
    "hints",
    "lifetimes",
    "make_cache",
    "minimum",
    "minimum_tokens",
    "mix",
    "parse_placement",
    "placement_spec",
    "rule_for",
    "settings_levels",
    "simulate",
]

# Factories and not instances: a cache has state, and every replay starts with an empty one.
CACHES: dict[str, Callable[[], CacheModel]] = {
    "anthropic": lambda: BreakpointCache(minimum=minimum_tokens),
    "anthropic-grace": lambda: BreakpointCache(minimum=minimum_tokens, grace=True),
    "bedrock": lambda: BedrockCache(minimum=bedrock_tokens),
    "prefix": PrefixCache,
    "automatic": ExactCache,
    "openai": OpenAiCache,
    "openai-24h": lambda: OpenAiCache(ttl=86_400),
    "openai-5.5": IntervalCache,
    "openai-5.6": BoundaryCache,
    "deepseek": DeepSeekCache,
    "deepseek-units": DeepSeekUnitsCache,
    "gemini": lambda: GeminiCache(minimum=minimum_tokens),
    "gemini-explicit": ContentCache,
    "xai": XaiCache,
    "kimi": KimiCache,
    "qwen": QwenCache,
    "qwen-marks": lambda: QwenMarkedCache(minimum=1024),
    "minimax": MiniMaxCache,
    "minimax-marks": lambda: MiniMaxMarkedCache(minimum=512),
    "vllm": BlockCache,
    "sglang": RadixCache,
    "none": NoCache,
}


def make_cache(name: str) -> CacheModel:
    """An empty cache of a registered rule. Raises `UsageError` with the names that exist."""
    try:
        return CACHES[name]()
    except KeyError:
        raise UsageError.unknown("cache rule", name, CACHES) from None


def _example_cache(name: str, least: int | None) -> CacheModel:
    """A cache for one example, which may state its own minimum."""
    if least is None:
        return make_cache(name)
    # Other rules have one minimum for all models, which no example overrides.
    limited: Mapping[str, Callable[[], CacheModel]] = {
        "anthropic": lambda: BreakpointCache(minimum=least),
        "bedrock": lambda: BedrockCache(minimum=least),
        "gemini": lambda: GeminiCache(minimum=least),
    }
    return limited[name]() if name in limited else make_cache(name)


def simulate(examples: object) -> list[Result]:
    """Send the prompts of a parsed example file through their cache models.

    The result is JSON as it stands, in the file's order: name, and per step the tokens read,
    written and uncached, and the cost in USD (`None` where no price is known). Raises `InputError`
    with the place in the file.
    """
    return _simulate(examples, _example_cache, cache_for, settings_levels)
