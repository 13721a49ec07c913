"""One line of a step JSONL file as typed fields; the prompt itself stays raw bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import msgspec

from analyzer.errors import DecodeError
from analyzer.model import Compaction, Doubt, Ttl, Usage
from analyzer.sources.anthropic_usage import (
    AnthropicUsage,
    anthropic_usage,
    miss_reason,
    searches_in,
)
from analyzer.sources.blocks import response_message
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_array,
    as_object,
    dump,
    encode,
    get_array,
    get_count,
    get_text,
    kind_of,
    parse,
    parse_many,
)
from analyzer.sources.documents import outline
from analyzer.sources.openai_usage import openai_usage
from analyzer.sources.prompts import CACHE_KEY_SETTINGS
from analyzer.sources.terms import terms_of

Raw: TypeAlias = msgspec.Raw
ABSENT = msgspec.Raw()
MOST = 1e15
"""Larger numbers mean nothing in any of the fields."""
VERSION = 1
"""Version of the format that this program reads."""


class UnfinishedLineError(DecodeError):
    """A line that is no whole JSON text; at the end of a file it is still being written."""


class RequestRow(msgspec.Struct):
    """The `request` of a line: the prompt and the parameters that belong to the cache key."""

    tools: Raw = ABSENT
    system: Raw = ABSENT
    messages: Raw = ABSENT
    cache_control: Raw = ABSENT
    model: Raw = ABSENT
    input: Raw = ABSENT
    instructions: Raw = ABSENT
    context_management: Raw = ABSENT
    disable_parallel_tool_use: Raw = ABSENT
    effort: Raw = ABSENT
    output_config: Raw = ABSENT
    output_format: Raw = ABSENT
    parallel_tool_calls: Raw = ABSENT
    prompt_cache_key: Raw = ABSENT
    reasoning: Raw = ABSENT
    reasoning_effort: Raw = ABSENT
    response_format: Raw = ABSENT
    speed: Raw = ABSENT
    text: Raw = ABSENT
    thinking: Raw = ABSENT
    tool_choice: Raw = ABSENT
    verbosity: Raw = ABSENT

    def settings(self) -> dict[str, Json]:
        """Every parameter besides the prompt that the line gives."""
        prompt = ("tools", "system", "messages", "cache_control", "model", "input", "instructions")
        names = [name for name in self.__struct_fields__ if name not in prompt]
        return {name: value(getattr(self, name)) for name in names if getattr(self, name) != ABSENT}

    def responses(self) -> RequestRow:
        """A request of OpenAI's Responses API as one with messages. Raises `DecodeError`."""
        given = value(self.input)
        said = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return RequestRow(
            tools=self.tools,
            system=self.instructions,
            messages=Raw(encode(as_array(said, "$.request.input"))),
            **{name: getattr(self, name) for name in CACHE_KEY_SETTINGS},
        )


class StepRow(msgspec.Struct):
    """A line. Every field may be absent; `request` and `append` are what reading needs."""

    v: Raw = ABSENT
    type: Raw = ABSENT
    session: Raw = ABSENT
    lane: Raw = ABSENT
    parent: Raw = ABSENT
    project: Raw = ABSENT
    user: Raw = ABSENT
    title: Raw = ABSENT
    attributes: Raw = ABSENT
    id: Raw = ABSENT
    at: Raw = ABSENT
    ts: Raw = ABSENT
    timestamp: Raw = ABSENT
    ended_at: Raw = ABSENT
    model: Raw = ABSENT
    provider: Raw = ABSENT
    request: RequestRow | None = None
    append: Raw = ABSENT
    replace: Raw = ABSENT
    drop: Raw = ABSENT
    response: Raw = ABSENT
    usage: Raw = ABSENT
    compaction: Raw = ABSENT
    cache_miss_reason: Raw = ABSENT
    stop_reason: Raw = ABSENT
    error: Raw = ABSENT
    cost_usd: Raw = ABSENT
    labels: Raw = ABSENT

    @property
    def began(self) -> Raw:
        """The start of the request, also under the names that request logs give it."""
        return next((raw for raw in (self.at, self.ts, self.timestamp) if raw != ABSENT), ABSENT)

    @property
    def is_delta(self) -> bool:
        """Whether the line tells what changed since the lane's last prompt."""
        return any(raw != ABSENT for raw in (self.append, self.replace, self.drop))


_COUNTS = (
    "cache_read",
    "cache_write",
    "cache_write_5m",
    "cache_write_1h",
    "output",
    "reasoning",
)
_PROMPTS = ("request", "append", "attributes", "title")
_rows = msgspec.json.Decoder(StepRow)


def is_step_line(line: bytes) -> bool:
    """Whether a line, or its beginning, names a session and a prompt or the session's title."""
    if b'"session"' not in line or line[:1] != b"{":
        return False
    keys = outline(line)
    named = keys.get("session", "") not in ("", "null", "true", "false")
    return named and any(name in keys for name in _PROMPTS)


def decode_row(line: bytes) -> StepRow:
    """A line as a row. Raises `msgspec.DecodeError` where it is no JSON object of this form."""
    return _rows.decode(line)


def decode_rows(line: bytes) -> list[StepRow]:
    """The rows of a line that a strict parser refuses: glued objects, lone surrogates, NaN.

    Raises `UnfinishedLineError` where it is not JSON, `DecodeError` where it has another form.
    """
    try:
        found = parse_many(line)
    except DecodeError as error:
        raise UnfinishedLineError(error.message) from error
    try:
        texts = [dump(as_object(one)) for one in found]
        return [_rows.decode(text.encode("utf-8", "surrogatepass")) for text in texts]
    except msgspec.DecodeError as error:
        raise typed_error(error) from error


def typed_error(error: msgspec.DecodeError) -> DecodeError:
    """The same complaint with its place apart."""
    message, _, place = str(error).partition(" - at `")
    return DecodeError(message.replace("`", ""), place.rstrip("`") or "$")


def value(raw: Raw) -> Json:
    """A raw field as JSON; None where absent."""
    return None if raw == ABSENT else parse(bytes(raw))


def text(raw: Raw, name: str) -> str | None:
    """A field that is a text; numbers count as text. Raises `DecodeError` on anything else."""
    found = value(raw)
    if found is None or isinstance(found, str):
        return found or None
    if isinstance(found, int | float) and not isinstance(found, bool):
        return str(found)
    raise DecodeError(f"expected a string, got {kind_of(found)}", f"$.{name}")


def number(raw: Raw, name: str) -> float | None:
    """A field that is a number. Raises `DecodeError` on anything else."""
    return get_number(value(raw), name)


def get_number(found: Json, name: str) -> float | None:
    """The same for a value that was parsed."""
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise DecodeError(f"expected a number, got {kind_of(found)}", f"$.{name}")
    if abs(found) > MOST:
        raise DecodeError(f"expected a number up to {MOST:g}, got a larger one", f"$.{name}")
    return float(found)


def pairs(raw: Raw) -> dict[str, str]:
    """An object of labels; values that are not text become JSON. Anything else gives none."""
    found = value(raw)
    if not isinstance(found, Mapping):
        return {}
    return {k: v if isinstance(v, str) else dump(v) for k, v in found.items() if v is not None}


def lifetime(raw: Raw) -> Ttl | None:
    """The lifetime of a top-level `cache_control`; None where absent."""
    found = value(raw)
    if not isinstance(found, Mapping):
        return None
    return "1h" if found.get("ttl") == "1h" else "5m"


def usage(found: Json, asked: str | None = None) -> AnthropicUsage | None:
    """Recorded usage in our names, or as Anthropic or OpenAI wrote it. Raises `DecodeError`.

    `asked` is the model that the request named.
    """
    if found is None:
        return None
    obj = as_object(found, "$.usage")
    if any(key.startswith(("cache_creation", "cache_read_input", "iterations")) for key in obj):
        return anthropic_usage(obj, asked=asked)
    return AnthropicUsage(_usage(obj))


def _usage(obj: JsonObject) -> Usage:
    if any(key in obj for key in ("prompt_tokens", "input_tokens_details")):
        return _openai_usage(obj)
    counts = {field: get_count(obj, f"{field}_tokens", "$.usage") for field in _COUNTS}
    five, hour = counts["cache_write_5m"], counts["cache_write_1h"]
    if counts["cache_write"] is None and (five is not None or hour is not None):
        counts["cache_write"] = (five or 0) + (hour or 0)
    found = Usage(
        get_count(obj, "input_tokens", "$.usage"),
        counts["cache_read"],
        counts["cache_write"],
        counts["cache_write_5m"],
        counts["cache_write_1h"],
        counts["output"],
        counts["reasoning"],
    )
    words = (get_text(obj, k) for k in ("service_tier", "speed", "inference_geo"))
    return replace(found, terms=terms_of(*words), apart=searches_in(obj), doubts=_doubts(counts))


def _doubts(counts: Mapping[str, int | None]) -> tuple[Doubt, ...]:
    split = (counts["cache_write_5m"] or 0) + (counts["cache_write_1h"] or 0)
    said = counts["cache_write"]
    return (Doubt("write_split", said, split),) if said is not None and split > said else ()


def _openai_usage(obj: JsonObject) -> Usage:
    found = openai_usage(obj)
    for doubt in found.doubts:
        if doubt.name == "cached_over_input":
            raise DecodeError(
                f"expected cached tokens to be part of the prompt tokens, got {doubt.said} cached "
                "of fewer",
                "$.usage",
            )
    return found


def compaction(raw: Raw) -> Compaction | None:
    """A recorded compaction event. Raises `DecodeError`."""
    found = value(raw)
    if found is None:
        return None
    obj = as_object(found, "$.compaction")
    tier = obj.get("tier")
    used = get_number(obj.get("window_used"), "compaction.window_used")
    called = obj.get("summary_called")
    kind = obj.get("kind", "clear" if called is False else "summary")
    counts = {
        name: get_count(obj, name, "$.compaction")
        for name in (
            "pre_tokens",
            "post_tokens",
            "snipped",
            "pruned",
            "tokens_saved",
            "decisions_reused",
        )
    }
    return Compaction(
        kind="summary" if kind == "summary" else "clear" if kind == "clear" else "other",
        trigger=get_text(obj, "trigger"),
        tier=None if tier is None else str(tier),
        window_used=used,
        summary_called=called if isinstance(called, bool) else None,
        **counts,
    )


def provider_reason(raw: Raw) -> str | None:
    """The provider's `cache_miss_reason`, a text or an object with a `type`."""
    return miss_reason({"cache_miss_reason": value(raw)})


def replacements(raw: Raw) -> dict[int, Raw]:
    """`replace` as message by index. Raises `DecodeError`."""
    out: dict[int, Raw] = {}
    for i, row in enumerate(as_array(value(raw) or (), "$.replace")):
        place = f"$.replace[{i}]"
        obj = as_object(row, place)
        index = get_count(obj, "index", place)
        if index is None or "message" not in obj:
            raise DecodeError("expected an `index` and a `message`", place)
        out[index] = Raw(dump(obj["message"]).encode("utf-8", "surrogatepass"))
    return out


def drops(raw: Raw) -> list[tuple[int, int]]:
    """`drop` as half-open ranges of indices. Raises `DecodeError`."""
    out = []
    for i, row in enumerate(as_array(value(raw) or (), "$.drop")):
        bounds = [n for n in as_array(row, f"$.drop[{i}]") if type(n) is int]
        if len(bounds) != 2:
            raise DecodeError("expected two indices [first, past the last]", f"$.drop[{i}]")
        out.append((bounds[0], bounds[1]))
    return out


def answers(found: Json) -> Sequence[Json]:
    """The messages or contents inside what a client got back: of a choice, or a Responses output."""
    if isinstance(found, Mapping):
        choices: Sequence[Json] = get_array(found, "choices")
        if choices and isinstance(choices[0], Mapping):
            return [choices[0].get("message")]
        if found.get("object") == "response":
            return [response_message(as_object(entry)) for entry in get_array(found, "output")]
    return [found]
