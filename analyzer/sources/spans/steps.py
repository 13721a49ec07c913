"""Steps of one lane: prompts as ranges into its pool, keys, labels, cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from analyzer.model import Breakpoint, Doubt, Part, Prompt, SessionKey, Step, Usage
from analyzer.sources.base import Pool, to_ranges
from analyzer.sources.blocks import Marked
from analyzer.sources.decode import dump, finite
from analyzer.sources.spans.lanes import Call, LaneCalls
from analyzer.sources.spans.rows import Row, ScoreRow, nested, scope_of
from analyzer.sources.spans.shapes import SETTINGS, Request
from analyzer.sources.terms import terms_of

_MISS_REASONS = (
    ("cache_miss_reason",),
    ("diagnostics", "cache_miss_reason"),
    ("attributes", "cache_miss_reason"),
    ("attributes", "diagnostics", "cache_miss_reason"),
    ("response", "diagnostics", "cache_miss_reason"),
)
_REMINDERS = ("<system-reminder", "<system_reminder")
_PROVIDERS = (
    ("claude", "anthropic"),
    ("gpt", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("codex", "openai"),
    ("text-embedding", "openai"),
    ("gemini", "google"),
    ("deepseek", "deepseek"),
    ("grok", "x-ai"),
    ("kimi", "moonshotai"),
    ("qwen", "qwen"),
    ("glm", "z-ai"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
)
_STATED_PROVIDERS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "google",
    "google_genai": "google",
    "google_vertexai": "google",
}


def provider_of(row: Row) -> str | None:
    """Who served a model, by its name, else by what the metadata says; None where neither tells."""
    name = (row.model or "").lower().rsplit("/", 1)[-1]
    for prefix, provider in _PROVIDERS:
        if name.startswith(prefix) or f".{prefix}" in name:
            return provider
    for path in (
        ("ls_provider",),
        ("attributes", "gen_ai.system"),
        ("attributes", "ai.model.provider"),
    ):
        stated = nested(row, *path)
        if isinstance(stated, str):
            found = _STATED_PROVIDERS.get(stated.lower().split(".", 1)[0])
            if found:
                return found
    return None


class Origin(NamedTuple):
    """Which source the rows come from, and what it calls things."""

    name: str
    """Begins the names of its labels."""
    span: str
    """Its word for a span."""
    usage_pointer: str
    """Where its records hold token counts, and where content."""
    content_pointer: str


class LaneWriter:
    """Turns the calls of one lane into steps, in order."""

    def __init__(
        self, lane: LaneCalls, scores: Sequence[ScoreRow], keep_content: bool, origin: Origin
    ) -> None:
        self.lane = lane
        self._origin = origin
        self._scores = scores
        self._keep = keep_content
        self._pool = Pool()
        self._places: dict[bytes, list[int]] = {}
        self._view: list[int] = []
        self._before: frozenset[int] = frozenset()
        self._deltas = any(call.request.delta for call in lane.calls)

    def steps(self, session: SessionKey) -> tuple[Step, ...]:
        """All steps; one that stands there twice under two ids counts once."""
        rows = Counter(call.leaf.row.key for call in self.lane.calls)
        seen: set[str] = set()
        out = []
        for call in self.lane.calls:
            key = call.leaf.row.key
            if key not in seen:
                seen.add(key)
                out.append(_sent(self._step(call, key, session), rows[key]))
        return tuple(out)

    def _step(self, call: Call, key: str, session: SessionKey) -> Step:
        row, request = call.leaf.row, call.request
        used: dict[bytes, int] = {}
        prompt = self._prompt(call, used)
        human = self._is_human(request.messages, prompt)
        response = self._add(request.response, used)
        if self._deltas:
            self._view.extend(response)
        usage = replace(call.usage.usage, terms=_terms(row))
        failed = row.level == "ERROR"
        return Step(
            key=key,
            lane=self.lane.name,
            at=row.start,
            ended_at=row.end,
            model=row.model,
            usage=None if usage == Usage(terms=usage.terms) else usage,
            prompt=prompt,
            new_parts=self._fresh(),
            response=to_ranges(response),
            provider=provider_of(row),
            human=human,
            miss_reason=_miss_reason(row),
            stop_reason=request.stop_reason,
            error=(row.status or "ERROR") if failed else None,
            labels=_labels(call, self._scores, session, self._origin),
            line=row.place.line,
            reported_cost=_cost(row),
        )

    def _prompt(self, call: Call, used: dict[bytes, int]) -> Prompt | None:
        request = call.request
        delta = request.delta or (self._deltas and (request.plain or not request.known))
        if not delta and not request.known:
            return None
        marked = self._news(request) if delta else request.parts()
        indices = self._append(marked) if delta else self._add(marked, used)
        start = len(self._view) if delta else 0
        self._view = [*self._view, *indices] if delta else indices
        if not self._view:
            return None
        marks = tuple(
            Breakpoint(start + i, m.mark) for i, m in enumerate(marked) if m.mark is not None
        )
        settings = dict(request.settings)
        for name, value in (call.leaf.row.parameters or {}).items():
            if name in SETTINGS:
                settings.setdefault(name, value if isinstance(value, str) else dump(value))
        return Prompt(to_ranges(self._view), marks, tuple(sorted(settings.items())), not delta)

    def _news(self, request: Request) -> Sequence[Marked]:
        """What a delta adds: tools and instructions go with each, but stand in the prompt once."""
        if not self._view:
            return request.parts()
        return [
            m
            for m in request.messages
            if m.part.role not in ("system", "developer") or m.part.digest not in self._places
        ]

    def _is_human(self, messages: Sequence[Marked], prompt: Prompt | None) -> bool:
        """Whether the newest message is a person's, and was not in the prompt before."""
        before, self._before = self._before, frozenset(prompt.indices() if prompt else ())
        if prompt is None or not messages:
            return False
        newest = list(prompt.indices())[-1]
        last: list[Part] = []
        for marked in reversed(messages):
            last.append(marked.part)
            if marked.part.starts_message:
                break
        if newest in before or any(p.kind == "tool_result" or p.role != "user" for p in last):
            return False
        return any(
            p.kind == "text" and p.body and not p.body.lstrip().startswith(_REMINDERS) for p in last
        )

    def _append(self, parts: Iterable[Marked]) -> list[int]:
        return [self._new(m.part) for m in parts]

    def _add(self, parts: Iterable[Marked], used: dict[bytes, int]) -> list[int]:
        """Places of parts; the second of two equal parts in a prompt has a place of its own."""
        if self._deltas:
            return self._append(parts)
        out = []
        for marked in parts:
            digest = marked.part.digest
            places = self._places.get(digest, ())
            nth = used.get(digest, 0)
            used[digest] = nth + 1
            out.append(places[nth] if nth < len(places) else self._new(marked.part))
        return out

    def _new(self, part: Part) -> int:
        index = self._pool.append(part)
        self._places.setdefault(part.digest, []).append(index)
        return index

    def _fresh(self) -> tuple[Part, ...]:
        fresh = self._pool.take()
        return fresh if self._keep else tuple(replace(part, body=None) for part in fresh)


def _sent(step: Step, times: int) -> Step:
    """A step that its sender recorded several times under new ids, and that counts once."""
    if times == 1 or step.usage is None:
        return step
    tokens = (step.usage.prompt or 0) + (step.usage.output or 0)
    doubt = Doubt("sent_twice", times * tokens, tokens)
    return replace(step, usage=replace(step.usage, doubts=(*step.usage.doubts, doubt)))


def _terms(row: Row) -> tuple[str, ...]:
    """How a request was billed: by the server's tier, else by what the request asked for."""
    given = row.parameters or {}
    words = [given.get(name) for name in ("service_tier", "speed", "inference_geo")]
    tier, speed, region = (w if isinstance(w, str) else None for w in words)
    return terms_of(row.tier) or terms_of(tier, speed, region)


def _miss_reason(row: Row) -> str | None:
    for path in _MISS_REASONS:
        value = nested(row, *path)
        if isinstance(value, Mapping):
            value = value.get("type")
        if isinstance(value, str) and value:
            return value
    return None


def _cost(row: Row) -> float | None:
    if row.total_cost is not None:
        return row.total_cost
    value = (row.costs or {}).get("total")
    cost = finite(value)
    return cost if cost is not None and cost >= 0 else None


def _labels(
    call: Call, scores: Sequence[ScoreRow], session: SessionKey, origin: Origin
) -> tuple[tuple[str, str], ...]:
    row, trace = call.leaf.row, call.leaf.trace
    labels: dict[str, str | None] = {
        **dict(row.labels),
        f"{origin.name}.{origin.span}": row.id,
        f"{origin.name}.trace": row.trace_id,
        f"{origin.name}.name": row.name,
        f"{origin.name}.trace_name": row.trace_name or (trace.row.name if trace.row else None),
        f"{origin.name}.scope": scope_of(row),
        "environment": row.environment,
        "version": row.version,
        "release": row.release or (trace.row.release if trace.row else None),
        "prompt_name": row.prompt_name,
        "service_tier": row.tier,
        "tags": ",".join(row.tags or (trace.row.tags if trace.row else None) or ()),
        "usage.raw": dump(row.usage) if row.usage else None,
        "usage.flags": ",".join(call.usage.flags),
        "input.flags": ",".join(call.request.flags),
    }
    for score in scores:
        if _applies(score, row, session):
            labels[f"score.{score.name}"] = score.value
    return tuple(sorted((k, v) for k, v in labels.items() if v))


def _applies(score: ScoreRow, row: Row, session: SessionKey) -> bool:
    if score.observation_id:
        return score.observation_id == row.id
    if score.trace_id:
        return score.trace_id == row.trace_id
    return bool(score.session_id) and score.session_id == session.session_id
