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
    platform: str = ""
    """Where this table holds; elsewhere it is not looked at."""


class _Settings(msgspec.Struct, forbid_unknown_fields=True):
    tools: list[str]
    system: list[str]
    messages: list[str]
    source: str


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    last_turn_only: list[str]
    source: str


class _Isolation(msgspec.Struct, forbid_unknown_fields=True):
    by_organisation: list[str]
    source: str


class _Rule(msgspec.Struct, forbid_unknown_fields=True):
    cache: str
    models: list[str] = []
    providers: list[str] = []
    both: bool = False
    """Only where the model and the provider fit."""


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
    thinking: _Thinking
    isolation: _Isolation


@cache
def _published() -> _Published:
    return msgspec.convert(tomllib.loads(_FILE.read_text(encoding="utf-8")), _Published)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@cache
def minimum(model: str, platform: str = "") -> Minimum:
    """Smallest cacheable prefix of a model on a platform, in tokens, with its source."""
    name = canonical(model)
    tables = [m for m in _published().minimum if m.platform in ("", platform)]
    # The last row fits every name, so there always is one.
    found = next(m for m in tables if _fits(name, m.models))
    return Minimum(found.tokens, found.source, found.assumed)


def minimum_tokens(model: str) -> int:
    """Smallest cacheable prefix of a model, in tokens."""
    return minimum(model).tokens


def bedrock_tokens(model: str) -> int:
    """Smallest cacheable prefix of a model on Bedrock, in tokens."""
    return minimum(model, "bedrock").tokens


@dataclass(frozen=True, slots=True)
class Rule:
    """The cache rule that a provider applies to a model."""

    cache: str
    by: str
    """What decided: `model`, `provider` where no table names the model, or `nothing`."""


@cache
def rule_for(provider: str | None, model: str | None) -> Rule:
    """The cache rule that a provider applies to a model, and how it is known.

    The model decides before the provider, since gateways and clouds pass a vendor's rule on; both
    together come first. `none` where neither is known.
    """
    name = canonical(model) if model else ""
    where = provider.lower() if provider else ""
    rules = _published().rule
    named = [rule for rule in rules if name and _fits(name, rule.models)]
    hosted = [rule for rule in rules if where and _fits(where, rule.providers)]
    if together := [rule for rule in named if rule.both and rule in hosted]:
        return Rule(together[0].cache, "model")
    for found, by in ((named, "model"), (hosted, "provider")):
        alone = [rule for rule in found if not rule.both]
        if alone:
            return Rule(alone[0].cache, by)
    return Rule(_NO_CACHE, "nothing")


def cache_for(provider: str | None, model: str | None) -> str:
    """Name of the cache rule that a provider applies to a model; see `rule_for`."""
    return rule_for(provider, model).cache


def keeps_thinking(model: str) -> bool:
    """Whether a model keeps earlier thinking when a user message opens another turn."""
    return not _fits(canonical(model), _published().thinking.last_turn_only)


def scope_keys(provider: str | None) -> tuple[str, ...]:
    """Request parameters that keep entries apart on a provider's platform."""
    shared = _fits((provider or "").lower(), _published().isolation.by_organisation)
    names = ("organization", "organisation", "scope")
    return names if shared else ("workspace", *names)


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
