"""Recorded API calls and observability exports, counted by their own rules."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.recount.agents import anthropic, rounds
from tests.recount.benchmarks import openai
from tests.recount.requests import Request, document, inside, lines, rest, unpacked

CALLS = re.compile(r"/(?:completions|complete|responses|messages|converse|converse-stream)(?:\?|$)")


def vcr(path: Path) -> Iterator[Request]:
    """Each recorded call of a model; a count of tokens is no call of one."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    cassette = yaml.load(unpacked(path), loader)
    for number, entry in enumerate(cassette["interactions"]):
        if not CALLS.search(entry["request"]["uri"]):
            continue
        answer = answer_of(entry["response"])
        usage = answer.get("usage") or {}
        key = str(number)
        if "inputTokens" in usage:
            yield bedrock(path.name, key, usage)
        elif "cache_read_input_tokens" in usage or answer.get("type") == "message":
            for at, counts in enumerate(rounds(usage)):
                yield anthropic(path.name, f"{key}-{at}", counts)
        else:
            yield openai(path.name, key, usage)


def answer_of(response: dict[str, Any]) -> dict[str, Any]:
    parsed = response.get("parsed_body")
    if isinstance(parsed, dict):
        return parsed
    body = response["body"]
    text = body.get("string", "") if isinstance(body, dict) else body
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    try:
        found = json.loads(raw)
        return found if isinstance(found, dict) else {}
    except ValueError:
        return streamed(raw.decode("utf-8", "replace"))


def streamed(text: str) -> dict[str, Any]:
    """The counts of a stream: later events complete or replace those of earlier ones."""
    out: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.startswith("data:") or "[DONE]" in line:
            continue
        event = json.loads(line[5:])
        for holder in (event, event.get("message"), event.get("response")):
            usage = inside(holder, "usage")
            if isinstance(usage, dict):
                known = out.setdefault("usage", {})
                known.update({k: v for k, v in usage.items() if v is not None})
        if event.get("type") == "message_start":
            out["type"] = "message"
    return out


def bedrock(session: str, key: str, usage: dict[str, Any]) -> Request:
    """Additive counts. What was not written has no lifetime to be told."""
    written = usage.get("cacheWriteInputTokens")
    split = 0 if written == 0 else None
    return Request(
        session,
        key,
        usage["inputTokens"],
        usage.get("cacheReadInputTokens"),
        written,
        split,
        split,
        usage["outputTokens"],
    )


def langfuse(path: Path) -> Iterator[Request]:
    """Generations without another generation inside; the counts are disjoint buckets."""
    whole = document(path)
    rows = whole["observations"]
    model_calls = {row["id"] for row in rows if row["type"] in ("GENERATION", "EMBEDDING")}
    parents = {row["id"]: row.get("parentObservationId") for row in rows}
    outer: set[str] = set()
    for row in rows:
        at = row.get("parentObservationId") if row["id"] in model_calls else None
        while at:
            outer.add(at)
            at = parents.get(at)
    session = inside(whole, "trace", "sessionId") or f"trace:{inside(whole, 'trace', 'id')}"
    for row in rows:
        if row["id"] in model_calls - outer:
            yield buckets(session, row["id"], row.get("usageDetails") or legacy(row))


def legacy(row: dict[str, Any]) -> dict[str, Any]:
    """Older rows tell sums only."""
    names = {"input": "inputUsage", "output": "outputUsage", "total": "totalUsage"}
    return {key: row[name] for key, name in names.items() if row.get(name)}


def buckets(session: str, key: str, usage: dict[str, Any]) -> Request:
    reads = [v for k, v in usage.items() if k in ("input_cache_read", "prompt_details.cache_read")]
    output = usage.get("output")
    total = usage.get("total")
    thought = usage.get("output_reasoning")
    if thought and output is not None and (usage.get("input") or 0) + output + thought == total:
        output += thought
    return Request(session, key, usage.get("input"), reads[0] if reads else None, output=output)


def langsmith(path: Path) -> Iterator[Request]:
    """Runs of a model, posted and then patched; or the recorded calls of a client."""
    if path.suffix == ".jsonl":
        yield from managed_agents(path)
        return
    batch = document(path)
    runs: dict[str, dict[str, Any]] = {}
    for run in (*batch["post"], *batch["patch"]):
        # A patch may name its run only at the end of its order.
        name = run.get("id") or run["dotted_order"].rpartition("Z")[2]
        runs.setdefault(name, {}).update({k: v for k, v in run.items() if v is not None})
    for key, run in runs.items():
        if run["run_type"] == "llm":
            usage = inside(run, "outputs", "usage_metadata") or {}
            read = inside(usage, "input_token_details", "cache_read")
            left = rest(usage.get("input_tokens"), read)
            output = usage.get("output_tokens")
            yield Request(run["trace_id"], key, left, read, None, None, None, output)


def managed_agents(path: Path) -> Iterator[Request]:
    """The ends of model requests in a stream of events; a stream may repeat an event."""
    for call in lines(path):
        name, *given = call
        for event in given if name.endswith("events.stream") else ():
            for one in event if isinstance(event, list) else [event]:
                if inside(one, "type") == "span.model_request_end":
                    usage = one["model_usage"]
                    written = usage["cache_creation_input_tokens"]
                    split = 0 if written == 0 else None
                    yield Request(
                        path.name,
                        one["id"],
                        usage["input_tokens"],
                        usage["cache_read_input_tokens"],
                        written,
                        split,
                        split,
                        usage["output_tokens"],
                    )


def telemetry(path: Path) -> Iterator[Request]:
    """Answers in the messages that each end of a run repeats."""
    for row in lines(path):
        for message in inside(row, "messages") or ():
            usage = inside(message, "usage")
            if inside(message, "role") == "assistant" and usage:
                key = f"{message.get('timestamp')}:{json.dumps(usage, sort_keys=True)}"
                yield Request(
                    path.name,
                    key,
                    usage["input"],
                    usage["cacheRead"],
                    usage["cacheWrite"],
                    output=usage["output"],
                )
