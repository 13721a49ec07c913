"""Sessions in the store of Cline's SDK: `<session>.messages.json`, one JSON document each.

Beside it may lie what a compaction made of it (the same messages under the same ids) and a file
that describes the session. Whether `inputTokens` holds what the cache read and wrote depends on the
provider; the counts tell it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from analyzer.model import Compaction, LaneSteps, Part, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head
from analyzer.sources.blocks import make_part, message_parts
from analyzer.sources.decode import (
    JsonObject,
    get_array,
    get_object,
    get_text,
    to_cost,
    to_time,
)
from analyzer.sources.documents import run_name, stem_of
from analyzer.sources.journal import (
    counts_of,
    document_lanes,
    labels_of,
    new_answer,
    read_object,
)
from analyzer.sources.transcript import LaneBuilder

_MESSAGES = (b'"sessionId"', b'"messages"', b'"version"')
_DESCRIPTION = (b'"session_id"', b'"messages_path"', b'"version"')
_AGENT = re.compile(rb'"agent"\s*:\s*"')
_METRICS = "$.metrics"


class ClineSource:
    """Reads one document of a session."""

    name: ClassVar[str] = "cline"
    title: ClassVar[str] = "Cline SDK sessions (<session>.messages.json)"

    def detect(self, head: Head) -> bool:
        """A versioned document of a session: its messages, or its description."""
        if head.data.lstrip()[:1] != b"{" or b'"projectHash"' in head.data:
            return False
        if all(key in head.data for key in _DESCRIPTION):
            return True
        return all(key in head.data for key in _MESSAGES) and _AGENT.search(head.data) is not None

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`. A description holds no step."""
        document = read_object(path)
        if isinstance(document, Problem):
            return iter((document,))
        session = _Session(document, path, context)
        return document_lanes(path, document, session.message, session.lane, None)


class _Session:
    def __init__(self, document: JsonObject, path: Path, context: Context) -> None:
        named = get_text(document, "sessionId", "session_id")
        self.id = named or run_name(stem_of(path), *get_array(document, "messages")[:1])
        self.lane = LaneBuilder(SessionKey(context.project, context.user, self.id), "main")
        self.agent = get_text(document, "agent")
        self.tools: dict[str, str] = {}
        system = get_text(document, "system_prompt")
        if system is not None:
            self.lane.lead([make_part("system", "system", "text", system)])

    def message(self, message: JsonObject, index: int) -> None:
        parts = [marked.part for marked in message_parts(message, self.tools)]
        meta = get_object(message, "metadata")
        if message.get("role") == "assistant":
            self._answer(message, parts, index)
        elif meta.get("kind") == "compaction":
            done = Compaction(kind="summary", trigger=get_text(meta, "reason"), summary_called=None)
            self.lane.compact(done, _as_summary(parts))
        else:
            at = to_time(message.get("ts"), "$.ts")
            human = any(p.kind != "tool_result" for p in parts)
            self.lane.say(parts, at, human=human)

    def _answer(self, message: JsonObject, parts: list[Part], index: int) -> None:
        at = to_time(message.get("ts"), "$.ts")
        metrics = get_object(message, "metrics")
        usage, ambiguous = _usage(metrics)
        model = get_object(message, "modelInfo")
        key = f"{self.id}:{get_text(message, 'id') or index}"
        answer = new_answer(key, at, get_text(model, "id"), usage, index + 1)
        answer.provider = get_text(model, "provider")
        answer.reported_cost = to_cost(metrics.get("cost"), f"{_METRICS}.cost")
        answer.labels = labels_of(
            agent=self.agent, provider=answer.provider, raw_input_tokens=ambiguous
        )
        self.lane.answer(answer, parts)
        self.lane.close()


def _as_summary(parts: list[Part]) -> list[Part]:
    """The text behind the person's own is the summary."""
    return [
        replace(part, kind="summary") if part.kind == "text" and i else part
        for i, part in enumerate(parts)
    ]


def _usage(metrics: JsonObject) -> tuple[Usage | None, int | None]:
    """Disjoint usage, and the raw input count where the cache may or may not be part of it."""
    given, output, read, write = counts_of(
        metrics, _METRICS, "inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"
    )
    if not any((given, output, read, write)):
        return None, None
    cached = (read or 0) + (write or 0)
    # A prompt is never smaller than its cached part: where the count is, it is the remainder.
    rest = given - cached if given is not None and given >= cached else given
    usage = Usage(input=rest, cache_read=read, cache_write=write, output=output)
    return usage, given if cached else None
