"""Step JSONL, the product's own format: one JSON object a line is one model request.

A line carries its whole prompt, or what was appended to and edited in the last prompt of its lane.
Sessions and lanes may take turns in a file. `docs/step-jsonl.md` describes the format for writers
and `steps_schema.json` is its schema; reading forgives more than validating does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import xxhash

import analyzer.sources.steps_rows as rows
from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, Prompt, Range, SessionKey, Step, Ttl
from analyzer.sources.anthropic_usage import with_rounds
from analyzer.sources.base import RAW_LIMIT, Context, Head, Pool, ends_with_newline, read_lines
from analyzer.sources.decode import MALFORMED, Json, dump, encode, to_cost, to_time
from analyzer.sources.prompts import PromptReader
from analyzer.sources.shared_prefix import Cut, SharedPrefix, split
from analyzer.sources.steps_rows import ABSENT, Raw, RequestRow, StepRow, UnfinishedLineError
from analyzer.sources.steps_schema import iter_problems, validate_file

__all__ = ["StepsSource", "iter_problems", "validate_file"]

MAIN = "main"
BATCH_STEPS = 256
BATCH_CHARS = 16_000_000
"""Characters of new content that may wait in batches before all of them are handed on."""


class StepsSource:
    """Reads step JSONL, plain or packed."""

    name: ClassVar[str] = "steps"
    title: ClassVar[str] = "Step JSONL (one model request a line, docs/step-jsonl.md)"

    def detect(self, head: Head) -> bool:
        """A first line with a `session` and a `request`, an `append` or a session's `title`."""
        return rows.is_step_line(head.data.lstrip().split(b"\n", 1)[0])

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        return _Reader(path, context).run()


class _LaneKey(NamedTuple):
    session: SessionKey
    lane: str


class _Line(NamedTuple):
    """A line and how it was read."""

    number: int
    data: bytes
    strict: bool
    """The rows' raw fields lie inside `data` (or inside the cut line)."""
    cut: Cut | None


class _Lane:
    """One lane while its lines come in."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.reader = PromptReader(self.pool)
        self.prompt: Prompt | None = None
        self.parent: str | None = None
        self.steps: list[Step] = []
        self.keys: set[str] = set()
        self.seen = 0
        """Number of the remembered line that its last prompt came from."""
        self.whole = False
        """A whole request was read, so tools and system are known."""
        self.gap = False
        """A line that may belong here was lost since the last whole request."""
        self.unknown = False
        """An edit could not be placed because of a gap, so the prompt is not known."""
        self.auto: Ttl | None = None
        self.model: str | None = None
        self.provider: str | None = None


class _Reader:
    def __init__(self, path: Path, context: Context) -> None:
        self.path = path
        self.context = context
        self.lanes: dict[_LaneKey, _Lane] = {}
        self.titles: dict[SessionKey, str] = {}
        self.attributes: dict[SessionKey, dict[str, str]] = {}
        self.shared = SharedPrefix()
        self.waiting = 0

    def run(self) -> Iterator[LaneSteps | Problem]:
        held: Problem | None = None
        for entry in read_lines(self.path):
            if held is not None:
                yield held
                held = None
            if isinstance(entry, Problem):
                yield entry
                continue
            number, line = entry
            try:
                yield from self._line(line, number)
            except UnfinishedLineError as error:
                # Only the last line may be cut off: the file is still being written.
                held = self._problem(number, error, line)
                self._lost(self.lanes.values())
            except DecodeError as error:
                yield self._problem(number, error, line)
        if held is not None and ends_with_newline(self.path):
            yield held
        yield from self._flush()

    def _problem(self, number: int, error: DecodeError, line: bytes) -> Problem:
        return Problem(str(self.path), number, error.pointer, error.message, line[:RAW_LIMIT])

    def _lost(self, lanes: Iterable[_Lane]) -> None:
        for lane in lanes:
            lane.gap = True

    def _line(self, data: bytes, number: int) -> Iterator[LaneSteps]:
        found, line = self._decode(data, number)
        for row in found:
            session = self._session(row)
            kind = rows.text(row.type, "type") or "step"
            if kind == "session":
                self._describe(session, row)
            elif kind == "step":
                yield from self._row(session, row, line)
            else:
                raise DecodeError(f"expected a type of step or session, got {kind!r}", "$.type")

    def _decode(self, data: bytes, number: int) -> tuple[list[StepRow], _Line]:
        cut = self.shared.cut(data)
        if cut is not None:
            try:
                row = rows.decode_row(cut.line)
            except MALFORMED:
                row = StepRow()
            found = ABSENT if row.request is None else row.request.messages
            if found != ABSENT and self.shared.confirms(cut, found):
                return [row], _Line(number, data, True, cut)
        try:
            return [rows.decode_row(data)], _Line(number, data, True, None)
        except msgspec.ValidationError as error:
            raise rows.typed_error(error) from error
        except MALFORMED:
            return rows.decode_rows(data), _Line(number, data, False, None)

    def _session(self, row: StepRow) -> SessionKey:
        version = rows.number(row.v, "v")
        if version is not None and version != rows.VERSION:
            raise DecodeError(
                f"expected version {rows.VERSION} of the format, got {version:g}; a newer analyzer "
                "may read it",
                "$.v",
            )
        session = rows.text(row.session, "session")
        if session is None:
            raise DecodeError("expected the id of a session, got none", "$.session")
        return SessionKey(
            rows.text(row.project, "project") or self.context.project,
            rows.text(row.user, "user") or self.context.user,
            session,
        )

    def _describe(self, session: SessionKey, row: StepRow) -> None:
        title = rows.text(row.title, "title")
        if title is not None:
            self.titles[session] = title
        self.attributes.setdefault(session, {}).update(rows.pairs(row.attributes))

    def _row(self, session: SessionKey, row: StepRow, line: _Line) -> Iterator[LaneSteps]:
        name = rows.text(row.lane, "lane") or MAIN
        lane = self.lanes.setdefault(_LaneKey(session, name), _Lane())
        lane.parent = rows.text(row.parent, "parent") or lane.parent
        try:
            steps = self._steps(session, name, lane, row, line)
        except DecodeError:
            self._lost([lane])
            raise
        lane.steps += steps
        self.waiting += sum(part.chars for step in steps for part in step.new_parts)
        if self.waiting > BATCH_CHARS:
            yield from self._flush()
        elif len(lane.steps) >= BATCH_STEPS:
            yield from self._flush(_LaneKey(session, name))

    def _steps(
        self, session: SessionKey, name: str, lane: _Lane, row: StepRow, line: _Line
    ) -> tuple[Step, ...]:
        key = _key(session, name, lane, row, line)
        if row.is_delta and key in lane.keys:
            return ()
        # All fields are read before the lane changes: a line counts whole or not at all.
        found = rows.value(row.response) if bytes(row.response)[:1] == b"{" else None
        counted = rows.usage(
            _inside(found, "usage") if row.usage == ABSENT else rows.value(row.usage), _model(row)
        )
        at = to_time(rows.value(row.began), "$.at")
        ended_at = to_time(rows.value(row.ended_at), "$.ended_at")
        compaction = rows.compaction(row.compaction)
        stop_reason = rows.text(row.stop_reason, "stop_reason")
        cost = to_cost(rows.value(row.cost_usd), "$.cost_usd")
        model, provider = _model(row), rows.text(row.provider, "provider")
        before = lane.prompt
        prompt = self._prompt(lane, row, line)
        response = self._response(lane, row)
        lane.prompt = prompt
        lane.keys.add(key)
        lane.model, lane.provider = model or lane.model, provider or lane.provider
        step = Step(
            key=key,
            lane=name,
            at=at,
            ended_at=ended_at,
            model=lane.model,
            usage=counted.usage if counted else None,
            prompt=prompt,
            new_parts=lane.pool.take(),
            response=response,
            provider=lane.provider,
            human=prompt is not None and lane.reader.human_since(before, prompt),
            compaction=compaction,
            miss_reason=rows.provider_reason(row.cache_miss_reason),
            stop_reason=stop_reason or _inside_text(found, "stop_reason"),
            error=_error(row),
            labels=self._labels(session, row),
            line=line.number,
            reported_cost=cost,
        )
        return with_rounds(step, counted.earlier if counted else ())

    def _prompt(self, lane: _Lane, row: StepRow, line: _Line) -> Prompt | None:
        if row.request is not None:
            prompt = self._whole(lane, row.request, line)
            lane.whole, lane.gap, lane.unknown = True, False, False
            return prompt
        if not row.is_delta:
            raise DecodeError(
                "expected a `request` with the whole prompt, or an `append` with what was added "
                "to the lane's last one",
            )
        if lane.gap and (row.replace != ABSENT or row.drop != ABSENT):
            # Indices count in a prompt that was lost; a wrong prompt would be worse than none.
            lane.unknown = True
        if lane.unknown:
            return None
        append = [] if row.append == ABSENT else _messages(row.append, "$.append")
        prompt = lane.reader.edit(
            append,
            replace=rows.replacements(row.replace),
            drop=rows.drops(row.drop),
            auto=lane.auto,
        )
        lane.seen = 0
        return prompt if lane.whole and not lane.gap else replace(prompt, recorded=False)

    def _whole(self, lane: _Lane, request: RequestRow, line: _Line) -> Prompt:
        cut = line.cut
        if cut is not None and cut.seen.number != lane.seen:
            # The line shares its messages with another lane's, which this reader has not seen.
            full = rows.decode_row(line.data).request
            assert full is not None
            request, cut = full, None
        if request.messages == ABSENT and request.input != ABSENT:
            # The Responses API has other names, and its entries are messages to the reader.
            request, line = request.responses(), line._replace(strict=False)
        if request.messages == ABSENT:
            raise DecodeError("expected `messages` in a request", "$.request.messages")
        fresh = _messages(request.messages, "$.request.messages")
        auto = rows.lifetime(request.cache_control)
        prompt = lane.reader.read(
            request.tools,
            request.system,
            fresh,
            request.settings(),
            auto=auto,
            kept=cut.kept if cut else 0,
        )
        lane.auto = auto
        if line.strict:
            lane.seen = self.shared.remember(line.data, request.messages, fresh, cut)
        return prompt

    def _response(self, lane: _Lane, row: StepRow) -> tuple[Range, ...]:
        if row.response == ABSENT or bytes(row.response) == b"null":
            return ()
        text = bytes(row.response)
        if b'"choices"' not in text and b'"output"' not in text:
            return lane.reader.response(row.response)
        found = [encode(answer) for answer in rows.answers(rows.value(row.response))]
        return tuple(r for answer in found for r in lane.reader.response(Raw(answer)))

    def _labels(self, session: SessionKey, row: StepRow) -> tuple[tuple[str, str], ...]:
        labels = {**self.attributes.get(session, {}), **rows.pairs(row.labels)}
        return tuple(sorted(labels.items()))

    def _flush(self, only: _LaneKey | None = None) -> Iterator[LaneSteps]:
        """Hand on what waits, of one lane or of all."""
        for key in [only] if only is not None else list(self.lanes):
            lane = self.lanes[key]
            if lane.steps:
                self.waiting -= sum(part.chars for s in lane.steps for part in s.new_parts)
                title = self.titles.get(key.session)
                yield LaneSteps(key.session, key.lane, tuple(lane.steps), lane.parent, title)
                lane.steps.clear()


def _key(session: SessionKey, name: str, lane: _Lane, row: StepRow, line: _Line) -> str:
    own = rows.text(row.id, "id")
    if own is None:
        # Equal deltas on different prompts are different steps.
        place = f"+{lane.reader.n_messages}" if row.request is None else ""
        own = xxhash.xxh3_128_hexdigest(line.data) + place
    return f"steps:{session.session_id}:{name}:{own}"


def _messages(raw: Raw, pointer: str) -> list[Raw]:
    try:
        return split(raw)
    except MALFORMED as error:
        raise DecodeError("expected an array of messages", pointer) from error


def _model(row: StepRow) -> str | None:
    if row.model == ABSENT and row.request is not None:
        return rows.text(row.request.model, "request.model")
    return rows.text(row.model, "model")


def _error(row: StepRow) -> str | None:
    found = rows.value(row.error)
    return found if isinstance(found, str) or found is None else dump(found)


def _inside(found: Json, name: str) -> Json:
    return found.get(name) if isinstance(found, Mapping) else None


def _inside_text(found: Json, name: str) -> str | None:
    inside = _inside(found, name)
    return inside if isinstance(inside, str) else None
