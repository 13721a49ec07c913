"""What OTLP writes around a value: ids, times, typed attribute values, lists spread over keys.

The protocol's JSON form names fields in camel case and writes ids in hex and 64-bit numbers as text;
a dump of the protobuf messages has snake case and base64. Both are read everywhere.

Source: github.com/open-telemetry/opentelemetry-proto (docs/specification.md, 1.x, 2026-11).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeGuard

from analyzer.sources.decode import EARLIEST_EPOCH, Json, JsonObject, to_time

Attributes = Mapping[str, Json]
"""Values by their whole dotted names; no value is a non-empty object, except inside a list."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000_000
_ID_BYTES = (16, 8)
_HEX = frozenset("0123456789abcdef")
_LONGEST_PATH = 24
_DEEPEST = 64
_PLAIN = ("stringValue", "string_value", "boolValue", "bool_value", "bytesValue", "bytes_value")
_NUMBERS = ("intValue", "int_value", "doubleValue", "double_value")


def is_list(value: Json) -> TypeGuard[Sequence[Json]]:
    """Whether a value is a JSON array."""
    return isinstance(value, Sequence) and not isinstance(value, str)


# -- ids and times ----------------------------------------------------------------------------


def hex_id(value: Json, size: int) -> str | None:
    """A trace or span id of `size` bytes as lower-case hex; None for none and for all zeros.

    Takes hex with or without `0x`, base64 of the bytes, and a whole number; an id of another kind
    is kept as it is.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        value = f"{value:x}"
    if not isinstance(value, str) or not value:
        return None
    text = value.lower().removeprefix("0x")
    if text and len(text) <= 2 * size and set(text) <= _HEX and "=" not in value:
        return text.zfill(2 * size) if text.strip("0") else None
    raw = _from_base64(value)
    if len(raw) in _ID_BYTES:
        return raw.hex() if any(raw) else None
    return value


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def nanoseconds(value: Json, pointer: str) -> int | None:
    """An instant in nanoseconds since 1970; None for none, and for 0, which is "not set".

    Takes what `to_time` takes, and [seconds, nanoseconds]. Raises `DecodeError`.
    """
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:20])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if is_list(value) and len(value) == 2:
        seconds, rest = value
        if isinstance(seconds, int) and isinstance(rest, int):
            value = seconds * _SECOND + rest
    if not value:
        return None
    if isinstance(value, int) and EARLIEST_EPOCH <= value // _SECOND < EARLIEST_EPOCH * 10:
        return value
    at = to_time(value, pointer)
    return None if at is None else (at - EPOCH) // timedelta(microseconds=1) * 1000


def instant(nanos: int | None) -> datetime | None:
    """Nanoseconds since 1970 as aware UTC, cut to the microsecond."""
    return None if nanos is None else EPOCH + timedelta(microseconds=nanos // 1000)


# -- attributes -------------------------------------------------------------------------------


def any_value(value: Json) -> Json:
    """The JSON behind an OTLP `AnyValue`; what is none is given back as it is."""
    if not isinstance(value, Mapping):
        return value
    for key in _PLAIN:
        if key in value:
            return value[key]
    for key in _NUMBERS:
        if key in value:
            return _number(value[key])
    listed = value.get("arrayValue", value.get("array_value"))
    if isinstance(listed, Mapping):
        return [any_value(entry) for entry in _values(listed)]
    pairs = value.get("kvlistValue", value.get("kvlist_value"))
    if isinstance(pairs, Mapping):
        return {name: any_value(inner) for name, inner in _pairs(_values(pairs))}
    return value or None


def _number(value: Json) -> Json:
    if isinstance(value, str):
        digits = value[1:] if value[:1] == "-" else value
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            return int(value)
    return value


def _values(holder: JsonObject) -> Sequence[Json]:
    values = holder.get("values")
    return values if is_list(values) else ()


def _pairs(entries: Iterable[Json]) -> Iterator[tuple[str, Json]]:
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get("key"), str):
            yield str(entry["key"]), entry.get("value")


def attributes(given: Json) -> dict[str, Json]:
    """Attributes by their whole names, from OTLP's list of pairs or from an object, nested or not."""
    out: dict[str, Json] = {}
    if isinstance(given, Mapping):
        for name, value in given.items():
            _spread(out, name, value, 0)
    elif is_list(given):
        for name, value in _pairs(given):
            _spread(out, name, any_value(value), 0)
    return out


def _spread(out: dict[str, Json], name: str, value: Json, depth: int) -> None:
    if isinstance(value, Mapping) and value and depth < _DEEPEST:
        for inner, deeper in value.items():
            _spread(out, f"{name}.{inner}", deeper, depth + 1)
    else:
        out[name] = value


def text_at(given: Attributes, *names: str) -> str | None:
    """The first of some attributes that holds a non-empty text, or a number as text."""
    for name in names:
        value = given.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def below(given: Attributes, prefix: str) -> dict[str, Json]:
    """The attributes whose names go on after `prefix`, under the rest of their names."""
    return {name[len(prefix) :]: v for name, v in given.items() if name.startswith(prefix)}


def tree_at(given: Attributes, name: str) -> Json:
    """The value that is spread over the names below one name; numbered names are a list."""
    if given.get(name) is not None:
        value = given[name]
        return [unfold(entry) for entry in value] if is_list(value) else value
    found = below(given, f"{name}.")
    return unfold(found) if found else None


def unfold(value: Json) -> Json:
    """An object with dotted names as nested objects and lists; lists in it likewise."""
    if not isinstance(value, Mapping):
        return value
    root: dict[str, Json] = {}
    for name, leaf in value.items():
        *path, last = name.split(".", _LONGEST_PATH)
        place = root
        for key in path:
            inner = place.setdefault(key, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            place[last] = [unfold(entry) for entry in leaf] if is_list(leaf) else leaf
    return _listed(root)


def _listed(value: Json) -> Json:
    if not isinstance(value, dict) or not value:
        return value
    inner = {key: _listed(v) for key, v in value.items()}
    if all(key.isascii() and key.isdigit() and len(key) < 10 for key in inner):
        return [inner[key] for key in sorted(inner, key=int)]
    return inner
