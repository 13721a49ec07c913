"""Cassettes of VCR (YAML): recorded HTTP calls, of which those to a model are steps.

Reads what went to OpenAI's, Anthropic's and Bedrock's APIs and to those that speak like them; other
calls (telemetry, token counting, tools) are left out. A cassette is one session.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import yaml
import zstandard

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey
from analyzer.sources.anthropic_stream import message_of
from analyzer.sources.base import BOM, GZIP_MAGIC, Context, Head, open_bytes, read_up_to
from analyzer.sources.bedrock import bedrock_stream
from analyzer.sources.decode import (
    Json,
    JsonObject,
    as_array,
    as_object,
    dump,
    get_object,
    get_text,
    parse,
)
from analyzer.sources.documents import problem, run_name, stem_of
from analyzer.sources.exchanges import exchange_key, exchange_of, record
from analyzer.sources.history import Call, HistoryLane, beginning, opening
from analyzer.sources.openai_stream import response_of
from analyzer.sources.wrappers import events_of

DOCUMENT_LIMIT = 64 << 20
"""Bytes of the largest cassette; YAML takes many times that as values."""
_START = re.compile(rb"\A(?:\s*#[^\n]*\n|\s*---[^\n]*\n|\s*version:[^\n]*\n)*\s*interactions:\s*\n")
_CALLS = re.compile(
    r"/(?:(completions|complete|responses|messages)|model/([^/]+)/(converse|converse-stream|invoke))"
    r"(?:\?[^/]*)?$",
    re.IGNORECASE,
)
_MAX_DEPTH = 64
_MAX_VALUES = 2_000_000
"""Values in one cassette, aliases followed: YAML can say a huge document in a few lines."""
_PROVIDERS = (
    ("bedrock", "bedrock"),
    ("anthropic", "anthropic"),
    ("openai", "openai"),
    ("openrouter", "openrouter"),
    ("mistral", "mistral"),
    ("deepseek", "deepseek"),
    ("googleapis", "google"),
)
"""Piece of a host's name, and the provider behind it."""


class VcrSource:
    """Reads one cassette."""

    name: ClassVar[str] = "vcr"
    title: ClassVar[str] = "VCR cassettes (YAML) of calls to model APIs"

    def detect(self, head: Head) -> bool:
        """A YAML document that begins with its interactions."""
        return _START.match(head.data) is not None

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        try:
            entries = _interactions(path)
        except DecodeError as error:
            yield problem(path, None, error)
            return
        cassette = _Cassette(path, context)
        for index, entry in enumerate(entries):
            try:
                cassette.add(as_object(entry, f"$.interactions[{index}]"), index)
            except DecodeError as error:
                yield problem(path, index + 1, error, entry)
        for lane in cassette.lanes.values():
            if len(lane):
                yield lane.take()


def _interactions(path: Path) -> Sequence[Json]:
    """The recorded calls of a cassette as JSON values. Raises `DecodeError`."""
    try:
        with open_bytes(path) as stream:
            raw = read_up_to(stream, DOCUMENT_LIMIT + 1)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise DecodeError(f"the archive is damaged or cut off: {error}") from error
    if len(raw) > DOCUMENT_LIMIT:
        raise DecodeError(f"expected at most {DOCUMENT_LIMIT:,} bytes, got more")
    # The C reader is an order of magnitude faster; where libyaml is missing it is too.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(raw.removeprefix(BOM), loader)  # noqa: S506 - both are safe loaders
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        short = " ".join(str(error).split())[:200]
        raise DecodeError(f"expected YAML: {short}") from error
    whole = as_object(_Values().json(document, 0))
    return as_array(whole.get("interactions"), "$.interactions")


class _Values:
    """Turns what YAML can say into JSON, within bounds that aliases cannot blow up."""

    def __init__(self) -> None:
        self.count = 0

    def json(self, value: object, depth: int) -> Json:
        """A value as JSON. Raises `DecodeError` where it is too deep or too large."""
        self.count += 1
        if depth > _MAX_DEPTH or self.count > _MAX_VALUES:
            raise DecodeError(f"expected {_MAX_DEPTH} levels and {_MAX_VALUES:,} values at most")
        match value:
            case None | bool() | int() | float() | str():
                return value
            case bytes():
                return _text(value)
            case dict():
                return {str(k): self.json(v, depth + 1) for k, v in value.items()}
            case list():
                return [self.json(v, depth + 1) for v in value]
            case _:
                return str(value)


def _text(body: bytes) -> str:
    """A binary body as text, unpacked where the server had packed it."""
    if body.startswith(GZIP_MAGIC):
        try:
            body = zlib.decompressobj(31).decompress(body, DOCUMENT_LIMIT)
        except zlib.error:
            return ""
    return body.decode("utf-8", "replace")


class _Cassette:
    """The lanes of one cassette: a conversation each."""

    def __init__(self, path: Path, context: Context) -> None:
        self.path = path
        self.context = context
        self.session: SessionKey | None = None
        """Named by the cassette's file, set apart by its first call: tests share their names."""
        self.lanes: dict[int, HistoryLane] = {}

    def add(self, entry: JsonObject, index: int) -> None:
        """One recorded call. Raises `DecodeError`."""
        sent, got = get_object(entry, "request"), get_object(entry, "response")
        uri = get_text(sent, "uri") or ""
        api = _CALLS.search(uri)
        if api is None:
            return
        request = _request(sent, f"$.interactions[{index}].request.body")
        response = _response(got, (api.group(1) or api.group(3)).lower())
        exchange = exchange_of(request, response, {})
        if self.session is None:
            first = opening(exchange.messages)
            body = None if first is None else first.body
            name = run_name(stem_of(self.path), body, response)
            self.session = SessionKey(self.context.project, self.context.user, name)
        lane = self._lane(self.session, beginning(exchange.messages))
        lane.recorded = exchange.previous is None
        identity = exchange_key(exchange, response)
        call = self._call(lane, request, response, got, uri, index, api.group(2), identity)
        record(lane, call, exchange)

    def _lane(self, session: SessionKey, digest: int) -> HistoryLane:
        if digest not in self.lanes:
            count = len(self.lanes)
            name = "main" if not count else f"main-{count + 1}"
            self.lanes[digest] = HistoryLane(session, name, "main" if count else None)
        return self.lanes[digest]

    @staticmethod
    def _call(
        lane: HistoryLane,
        request: JsonObject,
        response: JsonObject,
        got: JsonObject,
        uri: str,
        index: int,
        in_path: str | None,
        identity: str | None,
    ) -> Call:
        model = get_text(response, "model") or get_text(request, "model")
        if model is None and in_path:
            model = unquote(in_path)
        error = response.get("error")
        status = get_object(got, "status").get("code")
        if error is None and isinstance(status, int) and status >= 400:
            error = f"HTTP {status}"
        return Call(
            key=f"vcr:{identity or f'{lane.session.session_id}#{index}'}",
            model=model,
            ended_at=_answered(got),
            provider=_provider(uri),
            error=error if isinstance(error, str) or error is None else dump(error),
            line=index + 1,
            settings=request,
        )


def _provider(uri: str) -> str | None:
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        return None
    return next((provider for sign, provider in _PROVIDERS if sign in host), None)


def _request(sent: JsonObject, pointer: str) -> JsonObject:
    body = sent.get("parsed_body", sent.get("body"))
    if isinstance(body, str):
        body = parse(body.encode("utf-8", "surrogatepass"))
    return as_object(body, pointer)


def _response(got: JsonObject, api: str) -> JsonObject:
    """The response's body, put together where it was streamed. Raises `DecodeError`."""
    parsed = got.get("parsed_body")
    if isinstance(parsed, Mapping):
        return parsed
    text = get_text(get_object(got, "body"), "string") or get_text(got, "body") or ""
    if not text.strip():
        return {}
    match api:
        case "messages":
            return message_of(text)
        case "converse-stream":
            return bedrock_stream(text)
        case "complete":
            return completion_of(text)
        case _:
            return response_of(text)


def completion_of(text: str) -> JsonObject:
    """A response of Anthropic's old completions, whole or streamed. Raises `DecodeError`."""
    if text.lstrip().startswith("{"):
        return as_object(parse(text.encode("utf-8", "surrogatepass")))
    events = events_of(text)
    said = "".join(get_text(e, "completion") or "" for e in events)
    return {**(events[-1] if events else {}), "completion": said}


def _answered(got: JsonObject) -> datetime | None:
    """The `Date` header of a response; it is stamped when the response begins."""
    for name, values in get_object(got, "headers").items():
        value = values[0] if isinstance(values, list) and values else values
        if name.lower() == "date" and isinstance(value, str):
            try:
                at = parsedate_to_datetime(value)
                return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
            except (ValueError, OverflowError):
                return None
    return None
