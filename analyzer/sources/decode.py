"""JSON as typed values, with pointers in every error.

Nothing past this module sees an untyped value: sources take fields through the functions here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias, TypeGuard, cast

import msgspec

from analyzer.errors import DecodeError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, Json]

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a strict decoder raises; `parse` reads such bytes after all, or says why it cannot."""
_decoder = msgspec.json.Decoder()


def _finite(number: str) -> float | None:
    """A number that JSON can hold; null stands for the others (`NaN`, `1e999`)."""
    value = float(number)
    return value if math.isfinite(value) else None


_lenient = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
EARLIEST_EPOCH = 946_684_800
"""2000-01-01 in seconds; smaller numbers are not times."""
TOO_DEEP = "expected JSON of sane depth, got deeper nesting than can be read"


def parse(raw: bytes) -> Json:
    """Parse one JSON text.

    Falls back to the standard library for what strict parsers refuse but real logs hold
    (lone surrogates; NaN and infinities, which become null). Raises `DecodeError` with the byte
    offset.
    """
    try:
        return cast("Json", _decoder.decode(raw))
    except MALFORMED:
        pass
    try:
        return cast("Json", _lenient.decode(_text(raw)))
    except json.JSONDecodeError as error:
        raise DecodeError(f"expected JSON, got {_snippet(raw, error.pos)}: {error.msg}") from error
    except RecursionError as error:
        raise DecodeError(TOO_DEEP) from error
    except ValueError as error:
        raise DecodeError(f"expected numbers of sane length: {error}") from error


def parse_many(raw: bytes) -> list[Json]:
    """Parse one or more JSON texts glued together on a line (`{…}{…}`).

    Raises `DecodeError` if not even the first is whole.
    """
    try:
        return [parse(raw)]
    except DecodeError as error:
        text = _text(raw).strip()
        values: list[Json] = []
        at = 0
        while at < len(text):
            try:
                value, at = _lenient.raw_decode(text, at)
            except (ValueError, RecursionError):
                raise error from None
            values.append(cast("Json", value))
            while at < len(text) and text[at].isspace():
                at += 1
        return values


def _text(raw: bytes) -> str:
    """Bytes as text, whatever they are: encoded halves of surrogate pairs are those halves."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")


def _snippet(raw: bytes, at: int) -> str:
    piece = raw[max(0, at - 12) : at + 12]
    return f"{piece!r} near byte {at}" if raw else "nothing"


def is_object(value: Json) -> bool:
    """Whether a value is a JSON object."""
    return isinstance(value, Mapping)


def is_array(value: Json) -> TypeGuard[Sequence[Json]]:
    """Whether a value is a JSON array."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def as_object(value: Json, pointer: str = "$") -> JsonObject:
    """The value as an object. Raises `DecodeError`."""
    if isinstance(value, Mapping):
        return value
    raise DecodeError(f"expected an object, got {kind_of(value)}", pointer)


def as_array(value: Json, pointer: str = "$") -> Sequence[Json]:
    """The value as an array. Raises `DecodeError`."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    raise DecodeError(f"expected an array, got {kind_of(value)}", pointer)


def kind_of(value: Json) -> str:
    """The JSON name of a value's type, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def get_object(obj: JsonObject, key: str) -> JsonObject:
    """A nested object, or an empty one where it is absent or of another type."""
    value = obj.get(key)
    return value if isinstance(value, Mapping) else {}


def get_array(obj: JsonObject, key: str) -> Sequence[Json]:
    """A nested array, or an empty one where it is absent or of another type."""
    value = obj.get(key)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def get_text(obj: JsonObject, *keys: str) -> str | None:
    """The first of some keys that holds a non-empty string."""
    for key in keys:
        value = obj.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def get_count(obj: JsonObject, key: str, pointer: str = "$") -> int | None:
    """A token count: a whole number ≥ 0; None where absent. Raises `DecodeError` on anything else."""
    value = obj.get(key)
    if value is None:
        return None
    # Nearly every count takes this way out; `type` leaves booleans to the checks below.
    if type(value) is int and 0 <= value < 1 << 53:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DecodeError(f"expected a token count, got {kind_of(value)}", f"{pointer}.{key}")
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        raise DecodeError(f"expected a whole token count, got {value}", f"{pointer}.{key}")
    if not 0 <= value < 1 << 53:
        raise DecodeError(f"expected a token count from 0 to 2^53, got {value}", f"{pointer}.{key}")
    return int(value)


def finite(value: Json) -> float | None:
    """The value as a number to calculate with; None for all else, as for what no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def to_cost(value: Json, pointer: str = "$") -> float | None:
    """A recorded cost in USD; None where absent. Raises `DecodeError`."""
    if value is None:
        return None
    cost = finite(value)
    if cost is None or cost < 0:
        raise DecodeError(f"expected a cost in USD, got {kind_of(value)}", pointer)
    return cost


def to_time(value: Json, pointer: str = "$") -> datetime | None:
    """An instant as aware UTC: ISO 8601, or epoch seconds, milliseconds, micro- or nanoseconds.

    A text without a zone is taken as UTC. None for null. Raises `DecodeError`.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str) and not value.isdecimal():
        try:
            at = datetime.fromisoformat(value.strip())
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        except (ValueError, OverflowError):
            raise DecodeError(f"expected an ISO 8601 time, got {value[:40]!r}", pointer) from None
    if isinstance(value, str):
        value = int(value[:20])
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1 << 63:
        for scale in (1, 1_000, 1_000_000, 1_000_000_000):
            if EARLIEST_EPOCH <= value / scale < EARLIEST_EPOCH * 10:
                return datetime.fromtimestamp(value / scale, UTC)
    raise DecodeError(f"expected a time, got {kind_of(value)}", pointer)


def dump(value: Json, *, by_key: bool = False) -> str:
    """Compact JSON text, in the given order of keys or sorted `by_key`; lone surrogates stay.

    Raises `DecodeError` for nesting that can be parsed and no longer be written.
    """
    try:
        # An array that stays in its file (`elements`) is written like any other.
        order: Literal["sorted"] | None = "sorted" if by_key else None
        return msgspec.json.encode(value, enc_hook=list, order=order).decode()
    except (UnicodeEncodeError, TypeError):
        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=by_key, default=list
        )
    except RecursionError as error:
        raise DecodeError(TOO_DEEP) from error


def encode(value: Json) -> bytes:
    """Compact JSON that `parse` gives back as it was. Raises `DecodeError` as `dump` does."""
    try:
        return dump(value).encode()
    except UnicodeEncodeError:
        # Only as an escape does a lone surrogate get through bytes.
        return json.dumps(value, separators=(",", ":"), default=list).encode()
