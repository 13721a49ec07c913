"""Usage by rule: recorded requests are served by the model of the provider's cache."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import xxhash

from analyzer.caching import ListPrefix, Mark, Request, collapsed_runs, make_cache, settings_levels

_KEYS = ("tool_choice", "thinking", "speed")


def serve(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give every response the usage that the cache would have billed; the records, changed."""
    cache = make_cache("anthropic")
    for record in records:
        request = record["request"]
        record["response"]["model"] = request["model"]
        served = cache.serve(_request(request, datetime.fromisoformat(record["ts"]).timestamp()))
        record["response"]["usage"] = {
            "input_tokens": served.input,
            "cache_read_input_tokens": served.read,
            "cache_creation_input_tokens": served.write_5m + served.write_1h,
            "cache_creation": {
                "ephemeral_5m_input_tokens": served.write_5m,
                "ephemeral_1h_input_tokens": served.write_1h,
            },
            "output_tokens": 120,
        }
    return records


def _request(request: dict[str, Any], at: float) -> Request:
    blocks = [(tool, "tool") for tool in request["tools"]]
    tools_end = len(blocks)
    blocks += [(block, "system") for block in request["system"]]
    system_end = len(blocks)
    blocks += [(b, m["role"]) for m in request["messages"] for b in m["content"]]
    texts = [
        json.dumps([role, {k: v for k, v in block.items() if k != "cache_control"}])
        for block, role in blocks
    ]
    digests = [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
    kinds = [block.get("type", "tool") for block, _ in blocks]
    marks = tuple(
        Mark(i + 1, block["cache_control"].get("ttl", "5m"))
        for i, (block, _) in enumerate(blocks)
        if "cache_control" in block
    )
    settings = {k: json.dumps(request[k]) for k in _KEYS if k in request}
    settings["images"] = "true" if "image" in kinds else "false"
    return Request(
        prefix=ListPrefix(digests, [max(1, len(t) // 4) for t in texts], collapsed_runs(kinds)),
        marks=marks,
        model=request["model"],
        scope="test",
        at=at,
        ready_at=at + 1,
        settings=settings_levels("anthropic", settings),
        tools_end=tools_end,
        system_end=system_end,
    )
