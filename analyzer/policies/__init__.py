"""Compaction policies: presets, recipe files, and Python classes, by spec.

`parse_spec` reads `name:key=value,…`, a path to a recipe file, or `module:Class`; `spec` writes it.
Outside packages register under the entry point group `analyzer.policies`.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import cast

import msgspec

from analyzer.errors import InputError, UsageError
from analyzer.policies.base import Forecast, Policy, Turn
from analyzer.policies.recipe import Recipe
from analyzer.policies.recorded import Recorded
from analyzer.specs import Parameter, Value, join, parameters, split, typed

__all__ = [
    "POLICIES",
    "Forecast",
    "Policy",
    "Preset",
    "Recipe",
    "Recorded",
    "Turn",
    "parse_spec",
    "presets",
    "spec",
]

ENTRY_POINTS = "analyzer.policies"

POLICIES: Mapping[str, str | Callable[..., Policy]] = {
    "recorded": Recorded,
    "raw": "raw.toml",
    "sliding-stubs": "sliding-stubs.toml",
    "watermarks": "watermarks.toml",
}
"""Name to a recipe in `presets`, or to a class."""


@dataclass(frozen=True)
class Preset:
    """A policy that can be named, with what it takes."""

    name: str
    title: str
    source: str
    parameters: Mapping[str, Parameter]
    build: Callable[[Mapping[str, Value]], Policy]


def presets() -> list[Preset]:
    """All policies that have a name, those of installed packages included."""
    names = [*POLICIES, *(e.name for e in metadata.entry_points(group=ENTRY_POINTS))]
    return [_named(name) for name in dict.fromkeys(names)]


def parse_spec(text: str) -> Policy:
    """The policy that a spec names.

    Raises `UsageError` for an unknown name or parameter (the message lists the known ones) and
    `InputError` for a recipe file that cannot be read.
    """
    name, raw = split(text)
    preset = _preset(name)
    return preset.build(typed(name, raw, preset.parameters))


def spec(policy: Policy) -> str:
    """The shortest spec that gives an equal policy."""
    if isinstance(policy, Recipe):
        return join(policy.name, policy.parameters)
    kind = type(policy)
    name = policy.name
    if POLICIES.get(name) is not kind and not _is_entry_point(name):
        name = f"{kind.__module__}:{kind.__qualname__}"
    given = {key: getattr(policy, key) for key in parameters(kind)}
    return join(name, [(k, v) for k, v in given.items() if v != parameters(kind)[k].default])


def _is_entry_point(name: str) -> bool:
    return bool(metadata.entry_points(group=ENTRY_POINTS, name=name))


def _preset(name: str) -> Preset:
    if name in POLICIES or _is_entry_point(name):
        return _named(name)
    if name.endswith(".toml"):
        return _recipe_file(name, _read(Path(name)))
    module, colon, attribute = name.partition(":")
    if colon:
        return _class(name, _load_class(module, attribute))
    raise UsageError.unknown("policy", name, [preset.name for preset in presets()])


@cache
def _named(name: str) -> Preset:
    target = POLICIES.get(name)
    if isinstance(target, str):
        text = resources.files(__name__).joinpath("presets", target).read_text("utf-8")
        return _recipe_file(name, text)
    if target is None:
        (entry, *_) = metadata.entry_points(group=ENTRY_POINTS, name=name)
        target = cast("Callable[..., Policy]", entry.load())
    return _class(name, target)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"expected a recipe file at {path}, but it cannot be read: {error}"
        ) from error


def _load_class(module: str, attribute: str) -> Callable[..., Policy]:
    try:
        loaded = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"expected a policy class at '{module}:{attribute}': {error}") from error
    if not callable(getattr(loaded, "edits", None)):
        raise UsageError(f"expected '{module}:{attribute}' to have edits(turn), got {loaded!r}")
    return cast("Callable[..., Policy]", loaded)


def _class(name: str, kind: Callable[..., Policy]) -> Preset:
    title = getattr(kind, "title", None) or (kind.__doc__ or "").strip().partition("\n")[0]
    return Preset(name, str(title), "", parameters(kind), lambda values: kind(**values))


class _Toml(msgspec.Struct, forbid_unknown_fields=True):
    """A recipe file before its parameters are filled in."""

    title: str = ""
    source: str = ""
    parameters: dict[str, Parameter] = {}
    persistence: object = "persisted"
    cumulative: object = False
    protect_tokens: object = None
    protect_tools: object = ()
    window: object = 0
    rules: list[dict[str, object]] = []


def _recipe_file(name: str, text: str) -> Preset:
    try:
        raw = tomllib.loads(text)
        shape = msgspec.convert(raw, _Toml)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"recipe {name!r} cannot be read: {error}") from error
    known = shape.parameters

    def build(values: Mapping[str, Value]) -> Recipe:
        chosen = {key: p.default for key, p in known.items()} | dict(values)
        tree = {
            key: _filled(name, value, chosen) for key, value in raw.items() if key != "parameters"
        }
        differing = tuple((k, v) for k, v in chosen.items() if v != known[k].default)
        return _recipe(name, tree | {"name": name, "parameters": differing})

    return Preset(name, shape.title, shape.source, known, build)


def _filled(name: str, value: object, chosen: Mapping[str, Value]) -> object:
    """A tree with every `$parameter` replaced by its value."""
    if isinstance(value, str) and value.startswith("$"):
        if value[1:] not in chosen:
            raise InputError(f"recipe {name!r} uses {value}, which its [parameters] do not define")
        return chosen[value[1:]]
    if isinstance(value, dict):
        return {key: _filled(name, v, chosen) for key, v in value.items()}
    if isinstance(value, list):
        return [_filled(name, v, chosen) for v in value]
    return value


def _recipe(name: str, tree: dict[str, object]) -> Recipe:
    try:
        recipe = msgspec.convert(tree, Recipe)
    except msgspec.ValidationError as error:
        raise InputError(f"recipe {name!r} cannot be used: {error}") from error
    _refuse_unknown(name, tree, msgspec.to_builtins(recipe), "$")
    return recipe


def _refuse_unknown(name: str, given: object, understood: object, pointer: str) -> None:
    """Misspelt keys would otherwise be left out in silence."""
    if isinstance(given, dict) and isinstance(understood, dict):
        for key, value in given.items():
            if key not in understood:
                raise InputError(
                    f"recipe {name!r} has no field {key!r} at `{pointer}`; "
                    f"there are: {', '.join(understood)}"
                )
            _refuse_unknown(name, value, understood[key], f"{pointer}.{key}")
    elif isinstance(given, list | tuple) and isinstance(understood, list | tuple):
        for i, (mine, theirs) in enumerate(zip(given, understood, strict=False)):
            _refuse_unknown(name, mine, theirs, f"{pointer}[{i}]")
