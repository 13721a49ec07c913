"""Reading spans in tests, and what the lanes that come of them say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analyzer.diagnose.lane import diagnose_lane
from analyzer.ledger import lane_ledger
from analyzer.model import Lane, LaneSteps, Part, Problem, Step
from analyzer.pricing import PriceBook
from analyzer.sources.base import Context
from analyzer.sources.otlp import OtlpSource
from tests import spans as otel

BOOK = PriceBook.default()


class Reader:
    """Writes documents into files of a folder and reads them together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *documents: Any) -> tuple[dict[str, Lane], list[Problem]]:
        paths = []
        for i, document in enumerate(documents):
            raw = document if isinstance(document, bytes) else json.dumps(document).encode()
            paths.append(self.folder / f"{i}.json")
            paths[-1].write_bytes(raw)
        entries = list(OtlpSource().read_many(paths, Context()))
        batches = [e for e in entries if isinstance(e, LaneSteps)]
        return (
            {f"{b.session.session_id}/{b.lane}": _lane(b) for b in batches},
            [e for e in entries if isinstance(e, Problem)],
        )

    def clean(self, *documents: Any) -> dict[str, Lane]:
        """The lanes of documents in which nothing is wrong."""
        lanes, problems = self(*documents)
        assert problems == []
        return lanes

    def one(self, *documents: Any) -> Lane:
        """The only lane."""
        (lane,) = self.clean(*documents).values()
        return lane


def _lane(batch: LaneSteps) -> Lane:
    pool = tuple(part for step in batch.steps for part in step.new_parts)
    return Lane(batch.session, batch.lane, batch.steps, pool, batch.parent)


def counted(lane: Lane) -> list[tuple[int | None, ...]]:
    """Input, read, written and output tokens of the steps."""
    usages = [step.usage for step in lane.steps if step.usage is not None]
    return [(u.input, u.cache_read, u.cache_write, u.output) for u in usages]


def said(lane: Lane, step: Step) -> list[tuple[str, str | None, Any]]:
    """Kind, tool and content of the parts of a prompt, whatever the dialect was."""
    assert step.prompt is not None
    return [_said(part) for part in lane.parts(step.prompt) if part.section != "tools"]


def _said(part: Part) -> tuple[str, str | None, Any]:
    body = part.body or ""
    return part.kind, part.tool, json.loads(body) if part.kind == "tool_use" else body


def tools(lane: Lane) -> list[str | None]:
    """The tools that the last request offered."""
    prompt = lane.steps[-1].prompt
    assert prompt is not None
    return [part.tool for part in lane.parts(prompt) if part.section == "tools"]


def answers(lane: Lane, step: Step) -> list[str | None]:
    return [lane.pool[i].body for r in step.response for i in range(*r)]


def verdicts(lane: Lane) -> list[str]:
    return [v.kind for v in diagnose_lane(lane_ledger(lane, BOOK)).verdicts]


def flags(step: Step) -> set[str]:
    return set(dict(step.labels).get("usage.flags", "").split(",")) - {""}


def usage_only(*rows: otel.Attributes, **more: Any) -> Any:
    """Model calls of which nothing but counts is known."""
    common = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-sonnet-4-6"}
    spans = [
        otel.span(n + 1, 1.78e9 + n * 60, {**common, "session.id": "s", **row})
        for n, row in enumerate(rows)
    ]
    return otel.request(spans, **more)


def stated(whole: int, read: int | None, write: int | None = None) -> otel.Attributes:
    names = ("input_tokens", "cache_read.input_tokens", "cache_creation.input_tokens")
    given = {f"gen_ai.usage.{k}": v for k, v in zip(names, (whole, read, write), strict=True)}
    return {k: v for k, v in given.items() if v is not None} | {"gen_ai.usage.output_tokens": 9}


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **stated(100, None)}
AGENT = {"gen_ai.operation.name": "invoke_agent", **stated(1000, None)}


def spans_of(lane: Lane) -> list[int]:
    return [int(dict(step.labels)["otlp.span"], 16) for step in lane.steps]
