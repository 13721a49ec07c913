"""Tells by the first bytes of a log whether its requests are of OpenAI's form.

Shared by the readers of request logs, so that each file belongs to one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analyzer.errors import DecodeError
from analyzer.sources.base import Head
from analyzer.sources.decode import Json, as_object, dump, parse
from analyzer.sources.documents import outline
from analyzer.sources.steps_rows import is_step_line
from analyzer.sources.wrappers import BODY, REQUEST, RESPONSE, opened, unquoted

_FOREIGN = ("traceId", "trace_id", "trace", "observations", "projectId", "run_type", "info")
_CHAT_ROLES = ("system", "developer", "tool")
_CHAT_SIGNS = ("messages.[].tool_calls", "tools.[].function")
_MESSAGES_SIGNS = ("system", "tools.[].input_schema")
_RESPONSES_SIGNS = ("instructions", "previous_response_id", "input.[].role", "input.[].type")


def is_openai(head: Head) -> bool:
    """Whether the first line holds a chat or Responses request, by its messages or its usage."""
    text = head.data.lstrip()
    if text[:1] != b"{" or is_step_line(text.split(b"\n", 1)[0]):
        return False
    keys = outline(_unquoted(head))
    if any(name in keys for name in _FOREIGN):
        return False
    return any(_is_request(keys, prefix) for prefix in _prefixes(keys))


def _unquoted(head: Head) -> bytes:
    """The head, with a first line whose bodies are JSON in strings opened up."""
    try:
        record = as_object(parse(head.lines[0])) if head.lines else {}
        return dump({k: _opened(v) for k, v in record.items()}).encode("utf-8", "replace")
    except DecodeError:
        return unquoted(head.data)


def _opened(value: Json) -> Json:
    message = opened(value)
    if not isinstance(message, Mapping):
        return message
    return {k: opened(v) if k in BODY else v for k, v in message.items()}


def _prefixes(keys: Mapping[str, str]) -> Iterator[str]:
    """Where in a record its request may stand."""
    if "model" in keys or "usage" in keys:
        yield ""
    for name in REQUEST:
        for inner in ("", "body.", "json."):
            if f"{name}.{inner}".rstrip(".") in keys:
                yield f"{name}.{inner}"


def _is_request(keys: Mapping[str, str], at: str) -> bool:
    usages = ("usage", *(f"{r}{inner}.usage" for r in RESPONSE for inner in ("", ".body")))
    if f"{at}messages" in keys:
        return _is_chat(keys, at, usages)
    if f"{at}input" not in keys or f"{at}model" not in keys:
        return False
    if any(f"{u}.input_tokens_details" in keys for u in usages):
        return True
    return any(f"{at}{sign}" in keys for sign in _RESPONSES_SIGNS)


def _is_chat(keys: Mapping[str, str], at: str, usages: tuple[str, ...]) -> bool:
    if any(f"{u}.prompt_tokens" in keys for u in usages):
        return True
    if any(f"{at}{sign}" in keys for sign in _MESSAGES_SIGNS):
        return False
    bodies = [f"{r}{inner}" for r in RESPONSE for inner in ("", ".body")]
    if any(f"{body}.choices" in keys for body in bodies):
        return True
    if any(keys.get(f"{body}.type") == "message" for body in bodies):
        return False
    if any(f"{at}{sign}" in keys for sign in _CHAT_SIGNS):
        return True
    if keys.get(f"{at}messages.[].role") in _CHAT_ROLES:
        return True
    return keys.get(f"{at}model", "").startswith(("gpt", "o1", "o3", "o4"))
