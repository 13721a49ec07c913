"""The `usage` object of Anthropic's Messages API as disjoint counts.

Source: platform.claude.com, prompt caching, compaction, advisor tool, refusals and fallback, fast
mode and service tiers, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from analyzer.model import ADVISOR, ITERATION, Compaction, Doubt, Step, Usage
from analyzer.sources.decode import JsonObject, get_array, get_count, get_object, get_text
from analyzer.sources.terms import terms_of

UNKNOWN_MODEL = "unknown"
"""Stands for a model that is billed and not named; no price list knows it, so its cost is unknown."""
COUNTS = ("input", "cache_read", "cache_write", "output")


class Round(NamedTuple):
    """One of several samplings inside a response, billed at its own model."""

    kind: str
    """`message`, `compaction`, `advisor_message` or `fallback_message`."""
    model: str | None
    """None: the model of the response."""
    usage: Usage


class AnthropicUsage(NamedTuple):
    """Usage of the request that answered, and of those inside it that came before."""

    usage: Usage
    earlier: tuple[Round, ...] = ()
    """A fallback's first try, a server-side compaction, an advisor's consultation, and the rounds
    between server tools. They are all billed; the top-level counts leave some of them out."""


def anthropic_usage(
    obj: JsonObject, pointer: str = "$.usage", asked: str | None = None
) -> AnthropicUsage:
    """Read a usage object. Raises `DecodeError` where a count is not a count.

    With several `iterations` the bill is their sum; what the top level holds of them differs by
    feature and by date, so it is not looked at. `asked` is the model that the request named.
    """
    whole = _counts(obj, pointer)
    terms = terms_of(*(get_text(obj, k) for k in ("service_tier", "speed", "inference_geo")))
    apart = searches_in(obj, pointer)
    raw = [r for r in get_array(obj, "iterations") if isinstance(r, dict)]
    rounds = [
        Round(
            get_text(r, "type") or "message",
            get_text(r, "model"),
            replace(_counts(r, f"{pointer}.iterations[{i}]"), terms=terms),
        )
        for i, r in enumerate(raw)
    ]
    if len(rounds) == 1 and rounds[0].kind != "message":
        # Paused after its compaction: nothing else was sampled, and the top level leaves it out.
        rounds = [*rounds, Round("message", None, whole)] if _any(whole) else rounds
    if len(rounds) < 2:
        only = rounds[0].usage if rounds and rounds[0].kind != "message" else whole
        if only is whole and not terms and not apart:
            return AnthropicUsage(whole)
        return AnthropicUsage(replace(only, terms=terms, apart=apart, doubts=whole.doubts))
    last = rounds[-1].usage
    doubts = _against(whole, rounds)
    if all(getattr(last, n) == getattr(whole, n) for n in COUNTS):
        last = whole
    usage = replace(last, terms=terms, apart=apart, doubts=(*whole.doubts, *doubts))
    return AnthropicUsage(usage, _named(rounds, asked))


def searches_in(obj: JsonObject, pointer: str = "$.usage") -> tuple[tuple[str, int], ...]:
    """Web searches that a usage object counts, as `Usage.apart`. Raises `DecodeError`."""
    used = get_object(obj, "server_tool_use")
    count = get_count(used, "web_search_requests", f"{pointer}.server_tool_use")
    return (("web_searches", count),) if count else ()


def _named(rounds: Sequence[Round], asked: str | None) -> tuple[Round, ...]:
    """All rounds but the last, each with the model that it is billed at."""
    fell_back = any(r.kind == "fallback_message" for r in rounds)
    out = []
    for one in rounds[:-1]:
        model = one.model
        if model is None and one.kind == ADVISOR:
            model = UNKNOWN_MODEL
        elif model is None and fell_back:
            # The response names the model that took over, not the one that was asked first.
            model = asked or UNKNOWN_MODEL
        out.append(one._replace(model=model))
    return tuple(out)


def _against(whole: Usage, rounds: Sequence[Round]) -> tuple[Doubt, ...]:
    """A doubt where the top level is neither the last round, the first, nor a sum of rounds."""
    own = [r.usage for r in rounds if r.kind in ("message", "fallback_message")]
    for name in COUNTS:
        said = getattr(whole, name)
        counts = [getattr(u, name) or 0 for u in own]
        every = [getattr(r.usage, name) or 0 for r in rounds]
        fits = {sum(counts), sum(every), *counts[:1], *counts[-1:]}
        if said is not None and said not in fits:
            return (Doubt("iterations_mismatch", said, sum(every)),)
    return ()


def _any(usage: Usage) -> bool:
    return any(getattr(usage, name) for name in COUNTS)


def _counts(obj: JsonObject, pointer: str) -> Usage:
    nested = get_object(obj, "cache_creation")
    five = get_count(nested, "ephemeral_5m_input_tokens", f"{pointer}.cache_creation")
    hour = get_count(nested, "ephemeral_1h_input_tokens", f"{pointer}.cache_creation")
    flat = get_count(obj, "cache_creation_input_tokens", pointer)
    split = None if five is None and hour is None else (five or 0) + (hour or 0)
    doubts: tuple[Doubt, ...] = ()
    if split is not None and (split or not flat):
        # Some clients wrote a flat 0 beside the nested counts; the split is what was billed.
        write: int | None = split
        five, hour = five or 0, hour or 0
        if flat is not None and flat != split:
            doubts = (Doubt("write_split", flat, split),)
    else:
        write, five, hour = flat, None, None
        if flat == 0:
            five = hour = 0
    details = get_object(obj, "output_tokens_details")
    return Usage(
        input=get_count(obj, "input_tokens", pointer),
        cache_read=get_count(obj, "cache_read_input_tokens", pointer),
        cache_write=write,
        cache_write_5m=five,
        cache_write_1h=hour,
        output=get_count(obj, "output_tokens", pointer),
        reasoning=get_count(details, "thinking_tokens", f"{pointer}.output_tokens_details"),
        doubts=doubts,
    )


def miss_reason(diagnostics: object) -> str | None:
    """The provider's own reason for a cache miss, from a response's `diagnostics`."""
    if not isinstance(diagnostics, dict):
        return None
    reason = diagnostics.get("cache_miss_reason")
    if isinstance(reason, str):
        return reason
    if isinstance(reason, dict) and isinstance(reason.get("type"), str):
        return str(reason["type"])
    return None


def clearing(context_management: object) -> Compaction | None:
    """What the server cleared from the prompt of a request (`applied_edits`); None if nothing.

    Raises `DecodeError` where a count is not a count.
    """
    if not isinstance(context_management, dict):
        return None
    edits = [e for e in get_array(context_management, "applied_edits") if isinstance(e, dict)]
    place = "$.context_management.applied_edits[]"
    cleared = [get_count(e, "cleared_input_tokens", place) for e in edits]
    pruned = [
        get_count(e, name, place)
        for e in edits
        for name in ("cleared_tool_uses", "cleared_thinking_turns")
    ]
    if not any(cleared) and not any(pruned):
        return None
    kinds = dict.fromkeys(get_text(e, "type") or "?" for e in edits)
    return Compaction(
        kind="clear",
        trigger=", ".join(kinds),
        tokens_saved=_sum(cleared),
        pruned=_sum(pruned),
        summary_called=False,
    )


def with_rounds(step: Step, earlier: Sequence[Round]) -> tuple[Step, ...]:
    """The steps of a response: those inside it that came before, then the one that answered.

    What the prompt brought (new parts, a person's words, a compaction) belongs to the first, what
    the answer says to the last. An advisor's prompt is its own and shown by no recording.
    """
    if not earlier:
        return (step,)
    first = [
        replace(
            step,
            key=f"{step.key}#{number}",
            model=one.model or step.model,
            usage=one.usage,
            prompt=None if one.kind == ADVISOR else step.prompt,
            new_parts=() if number else step.new_parts,
            response=(),
            human=step.human and not number,
            compaction=None if number else step.compaction,
            miss_reason=None,
            stop_reason=None,
            error=None,
            labels=tuple(sorted({**dict(step.labels), ITERATION: one.kind}.items())),
            reported_cost=None,
        )
        for number, one in enumerate(earlier)
    ]
    last = replace(step, new_parts=(), human=False, compaction=_compacted_by(earlier))
    return (*first, last)


def _compacted_by(earlier: Sequence[Round]) -> Compaction | None:
    """The server-side compaction that a response's rounds tell of; None if there was none."""
    rounds = [r.usage for r in earlier if r.kind == "compaction"]
    if not rounds:
        return None
    return Compaction(
        kind="summary", trigger="server", pre_tokens=rounds[-1].prompt, summary_called=True
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [c for c in counts if c is not None]
    return sum(known) if known else None
