"""Whose a trace is: session, user and name, from whichever of its spans says so best.

An attribute that was made for it counts before one that often holds it, then the root before what is
inside, then the earlier span. Source: the order in which Langfuse's server looks for a session
(github.com/langfuse/langfuse at 62751446149b, 2026-08-22), widened by other conventions.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.sources.otlp.span import Span
from analyzer.sources.otlp.values import Attributes, text_at
from analyzer.sources.spans.rows import TraceRow

_NAMES = {
    "session": (
        "langfuse.session.id",
        "session.id",
        "gen_ai.conversation.id",
        "traceloop.association.properties.session_id",
        "traceloop.association.properties.thread_id",
        "ai.telemetry.metadata.sessionId",
        "metadata.session_id",
        "metadata.thread_id",
        "gcp.vertex.agent.session_id",
    ),
    "user": (
        "langfuse.user.id",
        "user.id",
        "enduser.id",
        "traceloop.association.properties.user_id",
        "ai.telemetry.metadata.userId",
        "metadata.user_id",
    ),
    "name": ("langfuse.trace.name",),
}
_Claim = tuple[bool, int, bool, int, str, str]
"""From a resource, place of the attribute, not the root, start, span id, value: the least holds."""


class Owners:
    """What the spans of each trace say of it as a whole; their order does not matter."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[str, _Claim]] = {}

    def add(self, span: Span, given: Attributes) -> None:
        """Take what a span says; `given` are its attributes."""
        sources = ((False, given), (True, span.origins.resource))
        for from_resource, attributes in sources:
            for field, rank, value in _stated(attributes):
                inner = span.parent_id is not None
                claim = (from_resource, rank, inner, span.start or 0, span.id, value)
                known = self._claims.setdefault(span.trace_id, {})
                known[field] = min(known.get(field, claim), claim)

    def traces(self) -> Iterator[TraceRow]:
        """One row for each trace of which something was said."""
        for trace_id, claims in self._claims.items():
            told = {field: claim[-1] for field, claim in claims.items()}
            session, user = told.get("session"), told.get("user")
            yield TraceRow(trace_id, session, user, name=told.get("name"))


def _stated(given: Attributes) -> Iterator[tuple[str, int, str]]:
    for field, names in _NAMES.items():
        for rank, name in enumerate(names):
            value = text_at(given, name) if name in given else None
            if value:
                yield field, rank, value
                break
