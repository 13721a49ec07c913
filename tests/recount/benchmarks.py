"""The trajectories of benchmarks, counted by their own rules."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.recount.requests import Request, document, inside, lines, rest


def openai(session: str, key: str, usage: dict[str, Any] | None) -> Request:
    """Cached and written tokens are parts of the prompt."""
    if not usage:
        return Request(session, key)
    chat = "prompt_tokens" in usage
    details = usage.get("prompt_tokens_details" if chat else "input_tokens_details") or {}
    read = details.get("cached_tokens")
    if read is None:
        read = usage.get("prompt_cache_hit_tokens")
    write = details.get("cache_write_tokens")
    left = rest(usage.get("prompt_tokens" if chat else "input_tokens"), read, write)
    if left is not None and left < 0 and read == write:
        # A cache that was made for this request: written and read at once, and paid as read.
        left, write = left + (write or 0), 0
    output = usage.get("completion_tokens" if chat else "output_tokens")
    return Request(session, key, left, read, write, None, None, output)


def mini_swe_agent(path: Path) -> Iterator[Request]:
    whole = document(path)
    messages = whole if isinstance(whole, list) else whole["messages"]
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            usage = inside(message, "extra", "response", "usage")
            yield openai(path.name, str(number), usage)


def swe_agent(path: Path) -> Iterator[Request]:
    """One model call an entry; only their sum is recorded."""
    for number, _ in enumerate(document(path)["trajectory"]):
        yield Request(path.name, str(number))


def openhands(path: Path) -> Iterator[Request]:
    """Events of one response repeat its usage."""
    for number, run in enumerate(lines(path)):
        session = f"{run['instance_id']}-{number}"
        events = [
            e for pair in run["history"] for e in (pair if isinstance(pair, list) else [pair])
        ]
        seen: set[str] = set()
        for place, event in enumerate(events):
            answer = inside(event, "tool_call_metadata", "model_response")
            if event.get("source") != "agent" or "action" not in event:
                continue
            key = inside(answer, "id") or f"event {place}"
            if event["action"] in ("system", "condensation", "recall", "change_agent_state"):
                continue
            if key not in seen:
                seen.add(key)
                yield openai(session, key, inside(answer, "usage"))


def tau_bench(path: Path) -> Iterator[Request]:
    for number, run in enumerate(document(path)):
        for place, message in enumerate(run["traj"]):
            if message["role"] == "assistant":
                session = f"{run['task_id']}-{run['trial']}-{number}"
                yield Request(session, f"{session}-{place}")


def atif(path: Path) -> Iterator[Request]:
    """Cached tokens are part of the prompt."""
    whole = document(path)
    for step in whole["steps"]:
        if step["source"] == "agent":
            made = step.get("metrics") or {}
            read = made.get("cached_tokens")
            left = rest(made.get("prompt_tokens"), read)
            output = made.get("completion_tokens")
            key = str(step["step_id"])
            yield Request(whole["session_id"], key, left, read, None, None, None, output)


def inspect(path: Path) -> Iterator[Request]:
    """Model events; input leaves out what was read from the cache."""
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n.startswith("samples/")]
            samples = [json.loads(archive.read(name)) for name in names]
    else:
        samples = document(path)["samples"]
    for sample in samples:
        for number, event in enumerate(sample["events"]):
            if event["event"] == "model":
                usage = inside(event, "output", "usage") or {}
                session = f"{sample['id']}-{sample['epoch']}"
                yield Request(
                    session,
                    f"{session}-{number}",
                    usage.get("input_tokens"),
                    usage.get("input_tokens_cache_read"),
                    usage.get("input_tokens_cache_write"),
                    output=usage.get("output_tokens"),
                )
