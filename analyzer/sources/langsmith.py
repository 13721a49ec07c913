"""Runs of LangSmith: bodies of its batch ingestion, and arrays of exported runs.

Runs of the type `llm` are steps; their inputs and outputs are those of the wrapped client, or
messages of LangChain. A run that is posted and patched is one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_object,
    dump,
    get_array,
    get_count,
    get_object,
    get_text,
    to_time,
)
from analyzer.sources.documents import outline, problem, read_document, stem_of
from analyzer.sources.exchanges import exchange_of, record
from analyzer.sources.history import Call, HistoryLane, beginning
from analyzer.sources.openai_usage import disjoint, reported_usage

_PLACES = ("post.[]", "patch.[]", "[]")
_SESSION = ("session_id", "thread_id", "conversation_id")
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_WRITTEN_5M = "ephemeral_5m_input_tokens"
_WRITTEN_1H = "ephemeral_1h_input_tokens"


class LangSmithSource:
    """Reads one document of runs."""

    name: ClassVar[str] = "langsmith"
    title: ClassVar[str] = "LangSmith runs: ingestion batches and exported arrays"

    def detect(self, head: Head) -> bool:
        """Runs with a type, inputs and the order that LangSmith gives them."""
        if head.data.lstrip()[:1] not in (b"{", b"["):
            return False
        keys = outline(head.data)
        return any(
            f"{at}.dotted_order" in keys and (f"{at}.run_type" in keys or f"{at}.inputs" in keys)
            for at in _PLACES
        )

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        document, failed = read_document(path)
        if failed is not None:
            yield failed
            return
        runs: dict[str, JsonObject] = {}
        for pointer, entry in _runs(document):
            try:
                run = as_object(entry, pointer)
                identity = _identity(run) or pointer
                runs[identity] = _merged(runs.get(identity, {}), run)
            except DecodeError as error:
                yield problem(path, None, error, entry)
        reader = _Reader(path, context)
        ordered = sorted(runs.items(), key=lambda r: get_text(r[1], "dotted_order") or "")
        for identity, run in ordered:
            try:
                if run.get("run_type") == "llm":
                    reader.add(run, identity)
            except DecodeError as error:
                yield problem(path, None, error, run)
        for lane in reader.lanes.values():
            if len(lane):
                yield lane.take()


def _runs(document: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(document, list):
        yield from ((f"$[{i}]", run) for i, run in enumerate(document))
    elif isinstance(document, Mapping):
        for name in ("post", "patch"):
            entries = get_array(document, name)
            yield from ((f"$.{name}[{i}]", run) for i, run in enumerate(entries))


def _identity(run: JsonObject) -> str | None:
    """The id of a run; a patch may show it only at the end of its order (`<time>Z<id>`)."""
    order = get_text(run, "dotted_order") or ""
    return get_text(run, "id") or order.rpartition("Z")[2] or None


def _merged(posted: JsonObject, patched: JsonObject) -> JsonObject:
    """A run as it stands after a patch; what a patch leaves empty stays."""
    return {**posted, **{k: v for k, v in patched.items() if v not in (None, {}, [])}}


class _Reader:
    def __init__(self, path: Path, context: Context) -> None:
        self.stem = stem_of(path)
        self.context = context
        self.lanes: dict[tuple[str, int], HistoryLane] = {}

    def add(self, run: JsonObject, identity: str) -> None:
        """One model call. Raises `DecodeError`."""
        metadata = get_object(get_object(run, "extra"), "metadata")
        session = get_text(metadata, *_SESSION) or get_text(run, "trace_id") or self.stem
        request, response = _request(get_object(run, "inputs")), _response(run)
        exchange = exchange_of(request, response, {})
        exchange = exchange._replace(usage=_usage(run, metadata, response))
        error = run.get("error")
        named = get_text(metadata, "ls_model_name")
        call = Call(
            key=f"langsmith:{identity}",
            model=get_text(response, "model") or get_text(request, "model") or named,
            at=to_time(run.get("start_time"), "$.start_time"),
            ended_at=to_time(run.get("end_time"), "$.end_time"),
            provider=get_text(metadata, "ls_provider"),
            error=error if isinstance(error, str) or error is None else dump(error),
            settings=request,
        )
        record(self._lane(session, beginning(exchange.messages)), call, exchange)

    def _lane(self, session: str, digest: int) -> HistoryLane:
        """Conversations of one session are told apart by how they begin."""
        if (session, digest) not in self.lanes:
            count = sum(s == session for s, _ in self.lanes)
            key = SessionKey(self.context.project, self.context.user, session)
            name = "main" if not count else f"main-{count + 1}"
            self.lanes[session, digest] = HistoryLane(key, name, "main" if count else None)
        return self.lanes[session, digest]


def _request(inputs: JsonObject) -> JsonObject:
    """The inputs with their messages in the chat form; LangChain keeps a list for each prompt."""
    messages = get_array(inputs, "messages")
    if messages and isinstance(messages[0], list):
        messages = messages[0]
    if not messages:
        return inputs
    return {**inputs, "messages": [_message(m) for m in messages]}


def _response(run: JsonObject) -> JsonObject:
    outputs = get_object(run, "outputs")
    generations = get_array(outputs, "generations")
    if generations and isinstance(generations[0], list):
        generations = generations[0]
    if not generations or not isinstance(generations[0], Mapping):
        return outputs
    made = get_object(generations[0], "message")
    answer: Json = (
        _message(made)
        if made
        else {"role": "assistant", "content": get_text(generations[0], "text")}
    )
    metadata = get_object(get_object(made, "kwargs") or made, "usage_metadata")
    return {**outputs, "choices": [{"message": answer}], "usage_metadata": metadata}


def _message(message: Json) -> Json:
    """A message of LangChain (`kwargs` of a constructor) in the chat form; others as they are."""
    if not isinstance(message, Mapping):
        return message
    fields = get_object(message, "kwargs") or message
    kind = get_text(fields, "type")
    if kind not in _ROLES:
        return message
    calls: Sequence[Json] = [
        {
            "id": get_text(c, "id"),
            "function": {"name": get_text(c, "name"), "arguments": c.get("args")},
        }
        for c in get_array(fields, "tool_calls")
        if isinstance(c, Mapping)
    ]
    return {
        "role": _ROLES[kind],
        "content": fields.get("content"),
        "tool_call_id": fields.get("tool_call_id"),
        "tool_calls": calls or None,
    }


def _usage(run: JsonObject, metadata: JsonObject, response: JsonObject) -> Usage | None:
    """The counts of a run, wherever its client put them. Raises `DecodeError`."""
    for place, pointer in (
        (get_object(response, "usage_metadata"), "$.outputs.usage_metadata"),
        (get_object(metadata, "usage_metadata"), "$.extra.metadata.usage_metadata"),
    ):
        if place:
            return usage_metadata(place, pointer)
    return reported_usage(get_object(response, "usage"), "$.outputs.usage") or reported_usage(
        {k: run[k] for k in ("prompt_tokens", "completion_tokens", "total_tokens") if run.get(k)},
        "$",
    )


def usage_metadata(obj: JsonObject, pointer: str) -> Usage:
    """LangChain's `usage_metadata`, whose input includes the cache. Raises `DecodeError`.

    Source: LangSmith, "log token usage", read 2026-11.
    """
    details, at = get_object(obj, "input_token_details"), f"{pointer}.input_token_details"
    thought = get_object(obj, "output_token_details")
    read = get_count(details, "cache_read", at)
    five, hour = get_count(details, _WRITTEN_5M, at), get_count(details, _WRITTEN_1H, at)
    split = None if five is None and hour is None else (five or 0) + (hour or 0)
    counted = split if split else get_count(details, "cache_creation", at)
    output = get_count(obj, "output_tokens", pointer)
    whole, total = get_count(obj, "input_tokens", pointer), get_count(obj, "total_tokens", pointer)
    uncached, written = disjoint(whole, read, counted, output, total)
    known = split is not None and written == split
    return Usage(
        input=uncached,
        cache_read=read,
        cache_write=written,
        cache_write_5m=(five or 0) if known else None,
        cache_write_1h=(hour or 0) if known else None,
        output=output,
        reasoning=get_count(thought, "reasoning", f"{pointer}.output_token_details"),
    )
