"""Checks a step JSONL file against the published schema, a line at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.errors import DecodeError
from analyzer.model import Problem
from analyzer.sources.base import read_records
from analyzer.sources.decode import Json, JsonObject, as_object, kind_of, parse, to_time

if TYPE_CHECKING:
    from jsonschema import ValidationError

SCHEMA_FILE = "steps_schema.json"
MOST_PROBLEMS = 1000
"""A file of another format fails on every line; the first thousand complaints say so."""
PER_LINE = 20


@cache
def schema() -> JsonObject:
    """The published JSON Schema (draft 2020-12) of one line."""
    return as_object(parse(files("analyzer.sources").joinpath(SCHEMA_FILE).read_bytes()))


def validate_file(path: Path) -> list[Problem]:
    """What a file breaks the schema with: line, pointer, and expected against got.

    An empty list is a valid file. At most `MOST_PROBLEMS`. Raises `OSError` where the file cannot
    be opened.
    """
    return list(islice(iter_problems(path), MOST_PROBLEMS))


def iter_problems(path: Path) -> Iterator[Problem]:
    """The same, one by one and without a limit."""
    # Only validation needs the library, and it takes a tenth of a second to load.
    from jsonschema import Draft202012Validator, FormatChecker  # noqa: PLC0415 - see above

    formats = FormatChecker(formats=())
    formats.checks("instant", raises=DecodeError)(_is_instant)
    check = Draft202012Validator(schema(), format_checker=formats)

    def breaches(line: bytes, number: int) -> list[Problem]:
        found = islice(check.iter_errors(parse(line)), PER_LINE)
        return [Problem(str(path), number, *_explain(breach)) for breach in found]

    for found in read_records(path, breaches):
        yield from [found] if isinstance(found, Problem) else found


def _explain(error: ValidationError) -> tuple[str, str]:
    """Where a value breaks the schema, and what was expected and came."""
    pointer = "$" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path
    )
    got: Json = error.instance
    match error.validator:
        case "type":
            kinds = error.validator_value
            names = " or ".join(kinds) if isinstance(kinds, list) else kinds
            return pointer, f"expected {names}, got {_shown(got)}"
        case "required":
            missing = [key for key in error.validator_value if key not in as_object(got)]
            return pointer, f"expected the field {missing[0]!r}, got an object without it"
        case "additionalProperties":
            known = sorted(error.schema.get("properties", {}))
            unknown = [k for k in as_object(got) if k not in known and not k.startswith("x_")]
            return pointer, f"expected only known fields ({', '.join(known)}), got {unknown}"
        case "enum" | "const":
            wanted = json.dumps(error.validator_value)
            return pointer, f"expected one of {wanted}, got {_shown(got)}"
        case "format":
            return pointer, f"expected an ISO 8601 time or an epoch, got {_shown(got)}"
        case "anyOf" | "oneOf":
            wanted = error.schema.get("$comment") or error.schema.get("description", "")
            return (
                pointer,
                f"expected {wanted or 'one of the forms of the schema'}, got {_shown(got)}",
            )
        case _:
            return pointer, f"expected {error.validator} {error.validator_value}, got {_shown(got)}"


def _is_instant(value: object) -> bool:
    """Whether the reader would take a value as a time. Raises `DecodeError`."""
    if isinstance(value, str | int | float):
        to_time(value)
    return True


def _shown(value: Json) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return f"{kind_of(value)} ({json.dumps(value)[:60]})"
    if isinstance(value, dict):
        return f"an object with {', '.join(sorted(value)[:8]) or 'no fields'}"
    return kind_of(value)
