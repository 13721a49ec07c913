"""What providers publish about their caches, as data: minimums, settings in the key, default rules.

Owns the reading of `providers.toml`; every number there has its source and date beside it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec

from analyzer.pricing import canonical

_FILE = Path(__file__).with_name("providers.toml")
_NO_CACHE = "none"


@dataclass(frozen=True, slots=True)
class Minimum:
    """The shortest prefix that a provider caches for a model."""

    tokens: int
    source: str
    assumed: bool
    """No table names this model, so the provider's usual minimum stands in."""


class _Minimum(msgspec.Struct, forbid_unknown_fields=True):
    tokens: int
    models: list[str]
    source: str
    assumed: bool = False


class _Settings(msgspec.Struct, forbid_unknown_fields=True):
    tools: list[str]
    system: list[str]
    messages: list[str]
    source: str


class _Rule(msgspec.Struct, forbid_unknown_fields=True):
    cache: str
    models: list[str] = []
    providers: list[str] = []


class Lifetimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the lifetimes of a cache that is asked by marks are called."""

    caches: tuple[str, ...]
    short: str
    source: str
    long: str | None = None
    """None where there is only one."""
    implicit: bool = False
    """The provider marks the end of the prompt by itself."""


class Hint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something a client can do for its cache besides placing marks."""

    caches: tuple[str, ...]
    text: str
    source: str
    variant: str | None = None
    """Rule that the provider then applies, where that can be replayed."""


class _Published(msgspec.Struct, forbid_unknown_fields=True):
    checked: msgspec.Raw | object
    minimum: list[_Minimum]
    settings: dict[str, _Settings]
    defaults: dict[str, str]
    rule: list[_Rule]
    marks: list[Lifetimes]
    hint: list[Hint]


@cache
def _published() -> _Published:
    return msgspec.convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), _Published)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@cache
def minimum(model: str) -> Minimum:
    """Smallest cacheable prefix of a model, in tokens, with its source."""
    name = canonical(model)
    # The last row fits every name, so there always is one.
    found = next(m for m in _published().minimum if _fits(name, m.models))
    return Minimum(found.tokens, found.source, found.assumed)


def minimum_tokens(model: str) -> int:
    """Smallest cacheable prefix of a model, in tokens."""
    return minimum(model).tokens


@cache
def cache_for(provider: str | None, model: str | None) -> str:
    """Name of the cache rule that a provider applies to a model.

    The model decides before the provider, since gateways and clouds pass a vendor's rule on. `none`
    where neither is known.
    """
    name = canonical(model) if model else ""
    where = provider.lower() if provider else ""
    # Two passes: a model that any rule names beats a provider that an earlier rule names.
    for rule in _published().rule:
        if name and _fits(name, rule.models):
            return rule.cache
    for rule in _published().rule:
        if where and _fits(where, rule.providers):
            return rule.cache
    return _NO_CACHE


def lifetimes(cache_name: str) -> Lifetimes | None:
    """Names of a cache's lifetimes; None where marks mean nothing to it."""
    return next((m for m in _published().marks if cache_name in m.caches), None)


def hints(cache_name: str) -> tuple[Hint, ...]:
    """What a client can do for its reads besides placing marks, with sources."""
    return tuple(h for h in _published().hint if cache_name in h.caches)


def settings_levels(cache_name: str, settings: Mapping[str, str]) -> tuple[str, str, str]:
    """Sort request parameters by what a change of them loses: from tools, system, messages on.

    For `Request.settings`. Parameters that are in no provider's cache key, and values that mean the
    same as leaving the parameter out, are dropped.
    """
    # Other providers publish no such list; Anthropic's levels are the finer guess.
    family = "openai" if cache_name.startswith("openai") else "anthropic"
    published = _published()
    levels = published.settings[family]

    def chosen(names: list[str]) -> str:
        kept = [
            f"{name}={settings[name]}"
            for name in sorted(names)
            if name in settings and settings[name] != published.defaults.get(name)
        ]
        return ";".join(kept)

    return chosen(levels.tools), chosen(levels.system), chosen(levels.messages)
