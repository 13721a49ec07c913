"""Ways to spoil a recording: its bytes, its lines, and the values of its JSON."""

from __future__ import annotations

import copy
import gzip
import json
import random
from typing import Any

import zstandard

from tests.samples import Sample

DEEP = 5_000
RAW = {
    "deep array": "[" * DEEP + "]" * DEEP,
    "deep object": '{"a":' * DEEP + "1" + "}" * DEEP,
    "nan": "NaN",
    "infinite": "-Infinity",
    "too large": "1e999",
    "long number": "9" * 5_000,
    "long integer": "9" * 400,
    "surrogate": r'"\ud83d"',
    "surrogate pair the wrong way": r'"\udc00\ud800 a"',
    "nul": r'"a\u0000b"',
    "twice": '{"a":1,"a":{"a":[]}}',
}
"""What the writer of JSON would not write, by the name that stands for it until it is text."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e300,
    5e-324,
    2**31,
    2**53,
    2**63,
    2**64,
    10**30,
    -(2**63) - 1,
    "",
    " ",
    "x",
    "0",
    "-5",
    "1e5",
    "null",
    "{}",
    '[{"role": "user"}]',
    "2026-13-45T99:99:99Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "\ud83d",
    "\0",
    "x" * 5_000,
    [],
    {},
    [None],
    [[]],
    [1, "a", {}],
    {"": None},
    {"a": {"b": []}},
    *(f"\x01{name}\x01" for name in RAW),
)
_MARKS = {json.dumps(f"\x01{name}\x01"): text for name, text in RAW.items()}


def spoiled(rng: random.Random, sample: Sample) -> bytes:
    """The bytes of a file that was valid before one to four things happened to it."""
    if sample.form == "bytes" or rng.random() < 0.2:
        return _packed(rng, _bytes(rng, sample.encode()))
    value = copy.deepcopy(sample.value)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = _structure(rng, value)
    if sample.form == "lines" and rng.random() < 0.3:
        value = _rows(rng, value)
    if not isinstance(value, type(sample.value)):
        return _text(document=value)
    raw = _unmarked(sample.encode(value))
    if rng.random() < 0.2:
        raw = _bytes(rng, raw)
    return _packed(rng, raw)


def _text(document: Any) -> bytes:
    return _unmarked(json.dumps(document).encode())


def _unmarked(raw: bytes) -> bytes:
    for mark, text in _MARKS.items():
        raw = raw.replace(mark.encode(), text.encode())
    return raw


def _packed(rng: random.Random, raw: bytes) -> bytes:
    way = rng.random()
    if way < 0.9:
        return raw
    packed = gzip.compress(raw) if way < 0.95 else zstandard.compress(raw)
    return _bytes(rng, packed) if rng.random() < 0.5 else packed


def _bytes(rng: random.Random, raw: bytes) -> bytes:
    out = bytearray(raw)
    at, to = sorted((rng.randrange(len(out) + 1), rng.randrange(len(out) + 1)))
    match rng.randrange(8):
        case 0:
            del out[at:]
        case 1:
            del out[:at]
        case 2:
            del out[at:to]
        case 3:
            out[at:at] = out[at:to]
        case 4:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        case 5:
            for _ in range(rng.randrange(1, 9)):
                if out:
                    out[rng.randrange(len(out))] = rng.randrange(256)
        case 6:
            out[at:at] = rng.choice((b"\0" * 100, b"\n\n\r\n", b"}{", b"[" * DEEP, b"\xef\xbb\xbf"))
        case _:
            for _ in range(rng.randrange(1, 4)):
                if out:
                    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _rows(rng: random.Random, rows: Any) -> Any:
    if not isinstance(rows, list) or not rows:
        return rows
    match rng.randrange(5):
        case 0:
            rng.shuffle(rows)
        case 1:
            rows.insert(rng.randrange(len(rows)), copy.deepcopy(rng.choice(rows)))
        case 2:
            rows = rows + copy.deepcopy(rows)
        case 3:
            rows.reverse()
        case _:
            del rows[rng.randrange(len(rows))]
    return rows


def _structure(rng: random.Random, value: Any) -> Any:
    """One place of a value replaced, left out, doubled, exchanged or wrapped."""
    places = list(_places(value))
    if not places:
        return copy.deepcopy(rng.choice(VALUES))
    holder, key = rng.choice(places)
    old = holder[key]
    match rng.randrange(9):
        case 0 | 1 | 2:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        case 3:
            del holder[key]
        case 4:
            other, place = rng.choice(places)
            holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(old)
        case 5:
            holder[key] = rng.choice(([old], {"content": old}, [old, old], json.dumps(old)))
        case 6:
            holder[key] = _as_other_type(old)
        case 7 if isinstance(old, str):
            holder[key] = _inner(rng, old)
        case _ if isinstance(holder, dict):
            name = rng.choice(sorted(map(str, holder)))
            holder[name] = holder.pop(key)
        case _:
            holder.append(copy.deepcopy(old))
    return value


def _as_other_type(value: Any) -> Any:
    if isinstance(value, str):
        return list(value[:5])
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return {str(i): entry for i, entry in enumerate(value)}
    return str(value)


def _inner(rng: random.Random, text: str) -> Any:
    """JSON inside a text is spoiled too; any other text is cut."""
    try:
        inner = json.loads(text)
    except ValueError:
        return text[: rng.randrange(len(text) + 1)]
    return json.dumps(_structure(rng, inner))


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict | list):
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            found += [(holder, key) for key in keys]
            waiting += [holder[key] for key in keys]
    return found
