"""What a LangSmith run says of its tokens, disjoint.

LangChain's `usage_metadata` includes the cache in its input. Wrapped Anthropic clients left it out
until langsmith 0.7.14 (Python) and 0.5.8 (JavaScript), and the older of them gave the sum of what
was read and written as read. Source: langchain-ai/langsmith-sdk, PR 2519 and the packages 0.4.60
to 0.7.16 and 0.5.6 to 0.5.8; LangSmith, "log token usage", read 2026-12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Literal, NamedTuple

from analyzer.errors import DecodeError
from analyzer.model import Usage
from analyzer.sources.decode import (
    Json,
    JsonObject,
    get_array,
    get_count,
    get_object,
    get_text,
    kind_of,
)
from analyzer.sources.openai_usage import disjoint, reported_usage

_WRITTEN_5M = "ephemeral_5m_input_tokens"
_WRITTEN_1H = ("ephemeral_1h_input_tokens", "ephemeral_1hr_input_tokens")
"""The JavaScript client writes the second."""
_WRITTEN = ("cache_creation", "cache_write")
_INCLUDES_SINCE = {"langsmith-py": (0, 7, 14), "langsmith-js": (0, 5, 8)}

Reading = Literal["unsure", "apart", "merged"]
"""How an input relates to the cache: to be found out, without it, or with reads and writes in one."""


class RunUsage(NamedTuple):
    """Usage of one run, and the tokens of which only the sum of reads and writes is known."""

    usage: Usage | None
    merged: int | None = None


def run_usage(run: JsonObject, outputs: JsonObject, message: JsonObject) -> RunUsage:
    """The counts of a run, wherever its client put them. Raises `DecodeError`.

    `message` is the answer as LangChain keeps it, with its `response_metadata`.
    """
    reading = _reading(run, outputs)
    found: list[RunUsage] = []
    for place, pointer in _provider_places(outputs, message):
        usage = reported_usage(place, pointer)
        if usage is not None and (usage.prompt is not None or usage.output is not None):
            found.append(RunUsage(usage))
    for place, pointer in _client_places(run, outputs, message):
        if place:
            found.append(usage_metadata(place, pointer, reading))
    known = (f for f in found if f.merged is not None or (f.usage and f.usage.knows_cache))
    return next(known, found[0] if found else RunUsage(None))


def _provider_places(outputs: JsonObject, message: JsonObject) -> Iterator[tuple[JsonObject, str]]:
    """Usage objects as the provider wrote them."""
    metadata = get_object(message, "response_metadata")
    overall = get_object(outputs, "llm_output")
    for name in ("token_usage", "usage"):
        yield get_object(metadata, name), f"$.outputs.message.response_metadata.{name}"
        yield get_object(overall, name), f"$.outputs.llm_output.{name}"
    yield get_object(outputs, "usage"), "$.outputs.usage"


def _client_places(
    run: JsonObject, outputs: JsonObject, message: JsonObject
) -> Iterator[tuple[JsonObject, str]]:
    """Counts in the form of LangChain, and last those that LangSmith keeps of the run itself."""
    for holder, pointer in (
        (outputs, "$.outputs"),
        (message, "$.outputs.message"),
        (get_object(get_object(run, "extra"), "metadata"), "$.extra.metadata"),
    ):
        yield get_object(holder, "usage_metadata"), f"{pointer}.usage_metadata"
    own = {
        "input_tokens": run.get("prompt_tokens"),
        "output_tokens": run.get("completion_tokens"),
        "total_tokens": run.get("total_tokens"),
        "input_token_details": run.get("prompt_token_details"),
        "output_token_details": run.get("completion_token_details"),
    }
    # A run that was not counted has zeros there.
    yield (own if own["total_tokens"] or own["input_tokens"] or own["output_tokens"] else {}), "$"


def usage_metadata(obj: JsonObject, pointer: str, reading: Reading = "unsure") -> RunUsage:
    """Counts in the form of LangChain's `usage_metadata`. Raises `DecodeError`."""
    details, at = get_object(obj, "input_token_details"), f"{pointer}.input_token_details"
    thought = get_object(obj, "output_token_details")
    # Tiers of service have their own names: `priority_cache_read`, `flex_cache_read`.
    read = _sum(details, [k for k in details if k == "cache_read" or k.endswith("_cache_read")], at)
    five, hour = get_count(details, _WRITTEN_5M, at), _sum(details, _WRITTEN_1H, at)
    split = None if five is None and hour is None else (five or 0) + (hour or 0)
    # Where both are given, they are the same tokens.
    counted = split if split else _sum(details, _WRITTEN, at)
    output = get_count(obj, "output_tokens", pointer)
    whole, total = get_count(obj, "input_tokens", pointer), get_count(obj, "total_tokens", pointer)
    usage = Usage(
        output=output,
        reasoning=get_count(thought, "reasoning", f"{pointer}.output_token_details"),
    )
    if reading == "merged" and read:
        return RunUsage(usage, read)
    if reading == "unsure":
        uncached, written = disjoint(whole, read, counted, output, total)
    else:
        uncached, written = whole, 0 if reading == "merged" else counted
    known = split is not None and written == split
    return RunUsage(
        replace(
            usage,
            input=uncached,
            cache_read=read,
            cache_write=written,
            cache_write_5m=(five or 0) if known else None,
            cache_write_1h=(hour or 0) if known else None,
        )
    )


def _sum(obj: JsonObject, keys: list[str] | tuple[str, ...], pointer: str) -> int | None:
    counts = [c for key in keys if (c := get_count(obj, key, pointer)) is not None]
    return sum(counts) if counts else None


def _reading(run: JsonObject, outputs: JsonObject) -> Reading:
    """How a wrapped Anthropic client of this version counted; `unsure` for every other client."""
    extra = get_object(run, "extra")
    runtime = get_object(extra, "runtime")
    sdk, version = get_text(runtime, "sdk"), _version(get_text(runtime, "sdk_version"))
    provider = get_text(get_object(extra, "metadata"), "ls_provider")
    inner = get_object(outputs, "message")
    wrapped = "stop_reason" in (inner or outputs) and not get_array(outputs, "generations")
    if provider not in (None, "anthropic") or not wrapped or sdk not in _INCLUDES_SINCE:
        return "unsure"
    if version is None or version >= _INCLUDES_SINCE[sdk]:
        return "unsure"
    # The clients that merged kept the message inside, or with the type that it has in the API.
    merged = sdk == "langsmith-py" and (bool(inner) or outputs.get("type") == "message")
    return "merged" if merged else "apart"


def _version(text: str | None) -> tuple[int, ...] | None:
    numbers = (text or "").split("-")[0].removeprefix("v").split(".")[:3]
    return tuple(int(n) for n in numbers) if all(n.isdecimal() for n in numbers) else None


def cost_of_run(run: JsonObject) -> float | None:
    """The cost in USD that LangSmith worked out; None where it did not. Raises `DecodeError`."""
    value: Json = run.get("total_cost")
    if value is None or isinstance(value, Mapping):
        return None
    try:
        cost = Decimal(str(value))
    except InvalidOperation:
        cost = Decimal(-1)
    if not cost.is_finite() or cost < 0:
        raise DecodeError(f"expected a cost in USD, got {kind_of(value)}", "$.total_cost")
    # Nothing is said of a run that was not priced.
    return float(cost) or None
