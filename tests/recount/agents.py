"""The recordings of coding agents, counted by their own rules (see the reference to each)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.recount.requests import Request, document, inside, lines, rest


def claude_code(path: Path) -> Iterator[Request]:
    """A response is the rows of one message id and request id; its last row is the final count."""
    last: dict[tuple[str, str | None], tuple[dict[str, Any], str]] = {}
    for line in lines(path):
        if not isinstance(line, dict):
            continue
        row, outer = line, line.get("sessionId", "")
        if inside(line, "data", "type") == "agent_progress":
            row = inside(line, "data", "message") or {}
        message = inside(row, "message")
        if row.get("type") != "assistant" or not isinstance(message, dict):
            continue
        if message.get("model") == "<synthetic>" or row.get("isApiErrorMessage"):
            continue
        key = (message.get("id") or row.get("uuid"), row.get("requestId"))
        usage = message.get("usage") or {}
        known = last.get(key)
        if known is None or (usage.get("output_tokens") or 0) >= (
            known[0].get("output_tokens") or 0
        ):
            last[key] = usage, row.get("sessionId") or outer
    for key, (usage, session) in last.items():
        for number, counts in enumerate(rounds(usage)):
            yield anthropic(session, f"{key}{number}", counts)


def rounds(usage: dict[str, Any]) -> list[dict[str, Any]]:
    """The top-level counts repeat the last iteration only; those before it were billed as well."""
    iterations = [one for one in usage.get("iterations") or [] if isinstance(one, dict)]
    return [*iterations[:-1], usage]


def anthropic(session: str, key: str, usage: dict[str, Any]) -> Request:
    """Additive counts: input is what was neither read nor written."""
    five = inside(usage, "cache_creation", "ephemeral_5m_input_tokens")
    hour = inside(usage, "cache_creation", "ephemeral_1h_input_tokens")
    write = usage.get("cache_creation_input_tokens")
    if five is None and hour is None and write == 0:
        five = hour = 0
    return Request(
        session,
        key,
        usage.get("input_tokens"),
        usage.get("cache_read_input_tokens"),
        write,
        five,
        hour,
        usage.get("output_tokens"),
    )


def codex(path: Path) -> Iterator[Request]:
    """A request is a count whose running total changed; cached tokens are part of the input."""
    session, before = "", None
    for number, row in enumerate(lines(path)):
        payload = inside(row, "payload") or {}
        if row.get("type") == "session_meta" and not session:
            spawn = inside(payload, "source", "subagent", "thread_spawn", "parent_thread_id")
            session = spawn or payload.get("id")
        info = payload.get("info") if payload.get("type") == "token_count" else None
        total = inside(info, "total_token_usage")
        if info is None or total == before:
            continue
        before, last = total, info["last_token_usage"]
        read, write = last.get("cached_input_tokens"), last.get("cache_write_input_tokens")
        left = rest(last["input_tokens"], read, write)
        output = last["output_tokens"]
        yield Request(session, str(number), left, read, write, None, None, output)


def opencode(path: Path) -> Iterator[Request]:
    """An answer of the assistant with a step of a model; a shell command of the person has none."""
    whole = document(path)
    session = inside(whole, "info", "parentID") or inside(whole, "info", "id")
    for number, message in enumerate(whole["messages"]):
        info = message["info"]
        kinds = {part["type"] for part in message["parts"]}
        if info["role"] != "assistant":
            continue
        tokens = info.get("tokens") or {}
        cache = tokens.get("cache") or {}
        counts = (tokens.get("input"), cache.get("read"), cache.get("write"), tokens.get("output"))
        if not any(counts):
            if kinds & {"step-start", "step-finish"} or not kinds:
                yield Request(session, str(number))
            continue
        plain, read, write, output = counts
        yield Request(session, str(number), plain, read, write, None, None, output)


def pi(path: Path) -> Iterator[Request]:
    """Additive counts; all zero is a call that failed before anything was counted."""
    session = ""
    for number, row in enumerate(lines(path)):
        if row.get("type") == "session":
            session = session or row.get("id", "")
        message = inside(row, "message")
        if inside(message, "role") != "assistant" or message.get("provider") == "openclaw":
            continue
        usage = message.get("usage") or {}
        counts = [usage.get(name) for name in ("input", "cacheRead", "cacheWrite", "output")]
        plain, read, write, output = counts if any(counts) else (None,) * 4
        yield Request(session, str(number), plain, read, write, None, None, output)


def gemini_cli(path: Path) -> Iterator[Request]:
    """Cached tokens are part of the input; thoughts are output that `output` leaves out."""
    whole = document(path)
    for number, message in enumerate(whole["messages"]):
        if message.get("type") != "gemini":
            continue
        tokens = message.get("tokens") or {}
        if not tokens.get("total"):
            yield Request(whole["sessionId"], str(number))
            continue
        output = tokens["output"] + tokens["thoughts"]
        left = rest(tokens["input"], tokens["cached"])
        yield Request(
            whole["sessionId"], str(number), left, tokens["cached"], None, None, None, output
        )


def cline(path: Path) -> Iterator[Request]:
    """Here input holds what was read: it grows by the size of the last exchange at each step."""
    whole = document(path)
    for number, message in enumerate(whole.get("messages", [])):
        if message["role"] != "assistant":
            continue
        made = message.get("metrics") or {}
        read, write = made.get("cacheReadTokens"), made.get("cacheWriteTokens")
        left = rest(made.get("inputTokens"), read, write)
        output = made.get("outputTokens")
        yield Request(whole["sessionId"], str(number), left, read, write, None, None, output)


def copilot_cli(path: Path) -> Iterator[Request]:
    """Only the output is told of each answer; what was cached is told once a session."""
    session = ""
    for number, row in enumerate(lines(path)):
        if row["type"] == "session.start":
            session = row["data"]["sessionId"]
        if row["type"] == "assistant.message":
            output = row["data"].get("outputTokens")
            yield Request(session, str(number), output=output)
