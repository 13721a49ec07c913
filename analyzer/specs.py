"""The text form of a plug-in with parameters: `name:key=value,key=value` (policies, placements).

Owns splitting, quoting and typing of values; which names exist is the caller's knowledge.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from analyzer.errors import UsageError

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value that a spec may set."""

    default: Value
    help: str = ""
    low: float | None = None
    high: float | None = None


def parameters(kind: Callable[..., object]) -> dict[str, Parameter]:
    """What a class can be built with that a spec can set."""
    return {
        name: Parameter(argument.default)
        for name, argument in inspect.signature(kind).parameters.items()
        if isinstance(argument.default, str | int | float | bool)
    }


def split(spec: str) -> tuple[str, dict[str, str]]:
    """Name and raw parameters of a spec. Raises `UsageError` on a malformed one.

    A value in double quotes may hold commas. A name may hold colons (`module:Class`).
    """
    head, equals, _ = spec.partition("=")
    name, colon, _ = head.rpartition(":") if equals else (spec, "", "")
    if equals and not colon:
        raise UsageError(
            f"expected 'name:key=value,key=value', got {spec!r}; put the name in front"
        )
    rest = spec[len(name) + 1 :] if equals else ""
    out: dict[str, str] = {}
    while rest:
        key, equals, rest = rest.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"expected 'key=value' in {spec!r}, got {key!r}")
        raw, rest = _value(rest, spec)
        out[key.strip()] = raw
    return name.strip(), out


def _value(text: str, spec: str) -> tuple[str, str]:
    if not text.startswith('"'):
        raw, _, rest = text.partition(",")
        return raw.strip(), rest
    try:
        raw, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"expected a closing quote in {spec!r}, got {text!r}") from error
    rest = text[end:]
    if rest and not rest.startswith(","):
        raise UsageError(f"expected a comma behind {text[:end]} in {spec!r}, got {rest!r}")
    return str(raw), rest[1:]


def join(name: str, values: Iterable[tuple[str, Value]]) -> str:
    """The spec of a name and its values; the inverse of `split`."""
    pairs = [f"{key}={_quoted(value)}" for key, value in values]
    return f"{name}:{','.join(pairs)}" if pairs else name


def _quoted(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    plain = value == value.strip() and value and not any(c in value for c in ',"=')
    return value if plain else json.dumps(value, ensure_ascii=False)


def typed(
    name: str, raw: Mapping[str, str], known: Mapping[str, Parameter], what: str = "policy"
) -> dict[str, Value]:
    """Raw parameters in the types of their defaults; `what` is the kind of thing that has the name.

    Raises `UsageError` for an unknown name, a value of another type, or one out of bounds.
    """
    out: dict[str, Value] = {}
    for key, text in raw.items():
        if key not in known:
            takes = ", ".join(known) if known else "none"
            raise UsageError(f"{what} {name!r} has no parameter {key!r}; it takes: {takes}")
        out[key] = _convert(f"{what} {name!r}", key, text, known[key])
    return out


def _convert(owner: str, key: str, text: str, parameter: Parameter) -> Value:
    kind = type(parameter.default)
    if kind is str:
        return text
    if kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise UsageError(f"{owner}: expected true or false for {key!r}, got {text!r}")
    try:
        value = int(text) if kind is int else float(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise UsageError(f"{owner}: expected {wanted} for {key!r}, got {text!r}") from None
    low, high = parameter.low, parameter.high
    if not (low is None or value >= low) or not (high is None or value <= high):
        raise UsageError(f"{owner}: expected {key!r} from {low} to {high}, got {text}")
    return value
