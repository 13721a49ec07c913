"""What the usage counts of a span mean, as disjoint buckets.

Senders disagree on the names of the keys and on whether `input` holds the cached tokens. The tests
here follow the arithmetic against the sender's own total; where one record cannot decide, all the
records of one sender do (`senders.judge`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from analyzer.model import Usage
from analyzer.sources.decode import Json
from analyzer.sources.spans.doubts import Stated, doubts_of
from analyzer.sources.spans.keys import (
    ALIASES,
    INCLUSIVE_BY_NAME,
    PRICED_APART,
    REASONING_BESIDE_OUTPUT,
    Bucket,
    bucket_of,
)

Evidence = Literal["none", "inclusive", "exclusive", "bare_total", "doubtful"]
"""What a record says of its sender; bare_total: the sender's total leaves the cached tokens out."""

_MAX_COUNT = 1 << 53


@dataclass(frozen=True, slots=True)
class Sender:
    """What all records of one sender (scope, integration, model) tell about each of them."""

    inclusive: bool | None = None
    """Whether `input` holds the cached tokens; None where the records do not tell."""
    reports_read: bool = False
    """Some record has a cache read count, so one without has read nothing."""
    reports_write: bool = False
    bare_total: bool = False
    """Its total is input + output without cached tokens, so it says nothing about `input`."""
    promised: bool = False
    """The convention of its names says that `input` holds them, so that contradicts nothing."""
    by_convention: bool = False
    """`inclusive` is what the convention of its names promises; no record proves it."""


@dataclass(frozen=True, slots=True)
class NormalisedUsage:
    """Disjoint counts of one observation, and how sure the reading is."""

    usage: Usage
    context: int | None
    """Tokens of the whole prompt: uncached + read + written; None where unknown."""
    flags: tuple[str, ...] = ()
    """Sorted names of what was odd about the counts."""
    evidence: Evidence = "none"
    """What this record says about its sender's `input`."""
    stated_input: int = 0
    """The sender's own `input`, before any reading."""
    cached: int = 0
    """Tokens read and written."""
    reports_read: bool = False
    reports_write: bool = False
    bad_keys: tuple[str, ...] = ()
    """Keys whose value is no token count."""


@dataclass(slots=True)
class _Counts:
    buckets: dict[Bucket, int] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    bad: list[str] = field(default_factory=list)
    extra_input: int = 0
    extra_output: int = 0
    own_total: bool = False
    """The total comes from the sender and not from the server's sum over all keys."""
    server_total: int | None = None
    sum_all: int = 0
    reasoning_beside: bool = False
    inclusive_name: bool = False
    apart: dict[str, int] = field(default_factory=dict)

    def set_apart(self, key: str, count: int) -> None:
        """Keep a count that has a price of its own."""
        if key in PRICED_APART and count:
            self.apart[PRICED_APART[key]] = count

    def get(self, bucket: Bucket) -> int:
        return self.buckets.get(bucket, 0)


@dataclass(frozen=True, slots=True)
class _Reading:
    uncached: int
    output: int
    evidence: Evidence = "none"
    flags: tuple[str, ...] = ()


def normalise_usage(
    raw: Mapping[str, Json], sender: Sender | None = None, *, aggregate: bool = False
) -> NormalisedUsage:
    """The disjoint token counts behind a `usageDetails` object.

    `sender` is what other records of the same sender say; `aggregate` marks a span whose usage sums
    up several requests. Nothing is raised: a value that is no count is left out and named in
    `bad_keys`.
    """
    sender = sender or Sender()
    counts = _fold(raw)
    flags = counts.flags
    if aggregate:
        flags.add("aggregate_span")
    if counts.bad:
        flags.add("bad_count")
    if not set(counts.buckets) - {"total"}:
        flags.add("no_split" if "total" in counts.buckets else "no_usage")
        return NormalisedUsage(
            Usage(),
            None,
            tuple(sorted(flags - {"no_cache_keys"})),
            bad_keys=tuple(sorted(counts.bad)),
        )
    write = _written(counts)
    reading = _solve(counts, write or 0, sender)
    flags.update(reading.flags)
    _note_totals(counts, write or 0, reading, flags)
    return _result(counts, write, reading, sender)


def _fold(raw: Mapping[str, Json]) -> _Counts:
    """Sort keys into buckets; equal figures under several names count once."""
    counts = _Counts()
    found: dict[Bucket, list[tuple[str, int]]] = {}
    for key, value in _flat(raw):
        count = _count(value)
        if count is None:
            if value is not None:
                counts.bad.append(key)
            continue
        if key == "total":
            counts.server_total = count
        else:
            counts.sum_all += count
        counts.set_apart(key, count)
        bucket = bucket_of(key)
        if bucket:
            found.setdefault(bucket, []).append((key, count))
        elif key.startswith("input") and "." not in key:
            counts.extra_input += count
        elif key.startswith("output") and "." not in key:
            counts.extra_output += count
    for bucket, named in found.items():
        _settle(counts, bucket, named)
    if not {"read", "write", "write_5m", "write_1h"} & set(found) and found:
        counts.flags.add("no_cache_keys")
    return counts


def _settle(counts: _Counts, bucket: Bucket, named: list[tuple[str, int]]) -> None:
    order = {key: i for i, key in enumerate(ALIASES[bucket])}
    named.sort(key=lambda pair: order.get(pair[0], len(order)))
    if bucket in ("input", "output", "total"):
        key, count = next((pair for pair in named if pair[1]), named[0])
    else:
        key, count = max(named, key=lambda pair: pair[1])
    counts.buckets[bucket] = count
    if bucket == "total":
        counts.own_total = key != "total"
    elif sum(1 for _, n in named if n) > 1:
        counts.flags.add("alias_duplicated")
    if bucket == "reasoning":
        counts.reasoning_beside = any(k in REASONING_BESIDE_OUTPUT for k, n in named if n == count)
    if bucket == "input":
        counts.inclusive_name = key in INCLUSIVE_BY_NAME


def _flat(raw: Mapping[str, Json]) -> Iterable[tuple[str, Json]]:
    for key, value in raw.items():
        if isinstance(value, Mapping):
            for inner, deeper in value.items():
                if not isinstance(deeper, Mapping):
                    yield f"{key}.{inner}", deeper
        else:
            yield key, value


def _count(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 17:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        return None
    return int(value) if 0 <= value < _MAX_COUNT else None


def _written(counts: _Counts) -> int | None:
    """Tokens written: the split by lifetime if there is one, else the flat count."""
    split = counts.get("write_5m") + counts.get("write_1h")
    flat = counts.get("write")
    if split and flat:
        total = counts.buckets.get("total")
        rest = counts.get("input") + counts.get("read") + counts.get("output")
        # A sender may keep only the writes of unknown lifetime in the flat key; its own total,
        # which the server's sum over all keys would not match, then needs both.
        if flat != split and counts.own_total and total == rest + flat + split:
            return flat + split
        counts.flags.add("write_alias_duplicated")
    if split:
        return split
    present = {"write", "write_5m", "write_1h"} & set(counts.buckets)
    return flat if present else None


def _outputs(counts: _Counts) -> list[int]:
    """Possible sums of generated tokens, the one that the key names promise first."""
    base, extra, reasoning = counts.get("output"), counts.extra_output, counts.get("reasoning")
    beside = [base + extra + reasoning, base + reasoning]
    inside = [base + extra, base]
    # The output can never be less than the reasoning that is said to be in it.
    inside = [o for o in inside if o >= reasoning] or beside
    ordered = [*beside, *inside] if counts.reasoning_beside else [*inside, *beside]
    return list(dict.fromkeys(ordered))


def _solve(counts: _Counts, write: int, sender: Sender) -> _Reading:
    """Apply the tests of the arithmetic, in order, and fall back to the contract's reading."""
    read, total = counts.get("read"), counts.buckets.get("total")
    outputs = _outputs(counts)
    inputs = list(dict.fromkeys([counts.get("input") + counts.extra_input, counts.get("input")]))
    plain = _plain(counts, inputs[0], read + write, outputs[0], sender)
    if total is None:
        return plain
    summed = inputs[0] + read + write + outputs[0]
    if not counts.own_total and total in (counts.sum_all, summed):
        return plain
    for given in inputs:
        for output in outputs:
            if given + read + write + output == total:
                kind: Evidence = "exclusive" if counts.own_total and read + write else "none"
                return _Reading(given, output, kind)
    for given in inputs:
        for output in outputs:
            found = _inside(given, output, read=read, write=write, total=total, sender=sender)
            if found:
                return found
    if inputs[0] == 0 and read + write and total >= outputs[0]:
        rest = total - outputs[0]
        uncached = rest - read - write if rest >= read + write else rest
        flag = "clamped_input" if "input" in counts.buckets else "input_from_total"
        return _Reading(uncached, outputs[0], flags=(flag,))
    return _mismatch(counts, plain, inputs[0], read + write, total)


def _inside(
    given: int, output: int, *, read: int, write: int, total: int, sender: Sender
) -> _Reading | None:
    """Readings where `input` holds some of the cached tokens and the sender's total shows it."""
    cached = read + write
    if cached and given + output == total and given >= cached:
        if sender.bare_total:
            return _Reading(given, output, "doubtful", ("total_without_cache",))
        return _Reading(given - cached, output, "inclusive", ("input_inclusive",))
    if write and given + read + output == total and given >= write:
        return _Reading(given - write, output, flags=("write_inside_input",))
    return None


def _mismatch(counts: _Counts, plain: _Reading, given: int, cached: int, total: int) -> _Reading:
    flags = {*plain.flags, "total_mismatch"}
    evidence = plain.evidence
    if cached and given < cached and given + plain.output == total:
        flags = {*plain.flags, "total_without_cache"}
        evidence = "bare_total"
    if "input" not in counts.buckets and total >= plain.output:
        return _Reading(
            total - plain.output, plain.output, evidence, (*sorted(flags), "input_from_total")
        )
    return _Reading(plain.uncached, plain.output, evidence, tuple(sorted(flags)))


def _plain(counts: _Counts, given: int, cached: int, output: int, sender: Sender) -> _Reading:
    """The reading where no total helps: the contract's, unless the name or the sender says else."""
    if not cached:
        return _Reading(given, output)
    if given < cached:
        return _Reading(given, output, "exclusive" if "input" in counts.buckets else "none")
    if sender.inclusive or (counts.inclusive_name and sender.inclusive is None):
        kind: Evidence = "inclusive" if counts.inclusive_name else "doubtful"
        flags = ("by_convention", "input_inclusive")[0 if sender.by_convention else 1 :]
        return _Reading(given - cached, output, kind, flags)
    if sender.inclusive is False:
        return _Reading(given, output, "doubtful")
    return _Reading(given, output, "doubtful", ("maybe_inclusive",))


def _note_totals(counts: _Counts, write: int, reading: _Reading, flags: set[str]) -> None:
    if counts.get("reasoning") and reading.output < counts.get("output") + counts.get("reasoning"):
        flags.add("reasoning_inside_output")
    whole = reading.uncached + counts.get("read") + write + reading.output
    if counts.server_total == counts.sum_all and counts.sum_all > whole:
        flags.add("total_inflated")


def _result(
    counts: _Counts, write: int | None, reading: _Reading, sender: Sender
) -> NormalisedUsage:
    flags = counts.flags
    read = counts.buckets.get("read")
    # Senders leave zeros out: who reports writes reports reads too, but not the other way round.
    if read is None and (write is not None or sender.reports_read):
        read = 0
    if write is None and sender.reports_write:
        write = 0
    if read is not None:
        flags.discard("no_cache_keys")
    has_input = bool({"input"} & set(counts.buckets)) or counts.extra_input > 0
    knows = has_input or "input_from_total" in flags or bool(read or write)
    split = bool({"write_5m", "write_1h"} & set(counts.buckets))
    split = split and (counts.get("write_5m") + counts.get("write_1h") > 0 or not write)
    usage = Usage(
        input=reading.uncached if knows else None,
        cache_read=read,
        cache_write=write,
        cache_write_5m=counts.get("write_5m") if split else None,
        cache_write_1h=counts.get("write_1h") if split else None,
        output=reading.output if _generated(counts) else None,
        reasoning=counts.buckets.get("reasoning"),
        apart=tuple(sorted(counts.apart.items())),
    )
    cached = counts.get("read") + (write or 0)
    given = counts.get("input") + counts.extra_input
    flat = counts.buckets.get("write") if split else None
    total = counts.buckets.get("total")
    promised = counts.inclusive_name or sender.promised
    named = flags - {"input_inclusive", "write_inside_input"} if promised else flags
    stated = Stated(given, cached, total, counts.server_total or 0, flat)
    usage = replace(usage, doubts=doubts_of(named, stated, usage))
    return NormalisedUsage(
        usage=usage,
        context=usage.prompt,
        flags=tuple(sorted(flags)),
        evidence=reading.evidence,
        stated_input=given,
        cached=cached,
        reports_read="read" in counts.buckets,
        reports_write=bool({"write", "write_5m", "write_1h"} & set(counts.buckets)),
        bad_keys=tuple(sorted(counts.bad)),
    )


def _generated(counts: _Counts) -> bool:
    return bool({"output", "reasoning"} & set(counts.buckets)) or counts.extra_output > 0
