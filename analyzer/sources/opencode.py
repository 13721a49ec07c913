"""OpenCode session exports: `opencode export`, one JSON document a session.

Call and result of a tool stand in one record, `tokens.input` leaves the cache out, and a fork
copies messages under new ids. Ids may have been replaced by the word `REDACTED` before the file
came here, so nothing is ever joined on that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import xxhash

from analyzer.errors import DecodeError
from analyzer.model import Compaction, Kind, LaneSteps, Part, Problem, SessionKey, Usage
from analyzer.sources.base import Context, Head
from analyzer.sources.blocks import make_part, text_of
from analyzer.sources.decode import (
    JsonObject,
    as_object,
    dump,
    get_array,
    get_object,
    get_text,
    to_cost,
)
from analyzer.sources.documents import outline
from analyzer.sources.journal import (
    counts_of,
    document_lanes,
    labels_of,
    new_answer,
    read_object,
    soft_time,
    with_total,
)
from analyzer.sources.transcript import LaneBuilder

REDACTED = "REDACTED"
_SIGNS = ("info.projectID", "info.parentID", "messages.[].info.sessionID", "messages.[].parts")
_RECAP = "What did we do so far?"
"""What OpenCode asks in place of the history that a summary replaced."""


class OpenCodeSource:
    """Reads one exported session; sub-agents are sessions of their own that name their parent."""

    name: ClassVar[str] = "opencode"
    title: ClassVar[str] = "OpenCode session exports (opencode export)"

    def detect(self, head: Head) -> bool:
        """A document of session `info` and `messages`."""
        if head.data.lstrip()[:1] != b"{":
            return False
        keys = outline(head.data)
        # What stands behind many messages may not be seen.
        whole = "info" in keys or "messages.[].info.role" in keys
        return whole and any(sign in keys for sign in _SIGNS)

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        document = read_object(path)
        if isinstance(document, Problem):
            return iter((document,))
        reader = _Export(document, context)
        return document_lanes(path, document, reader.message, reader.lane, reader.title)


class _Clearing(NamedTuple):
    """A tool result that was cleared at some time after it came."""

    at: float
    call: str


class _Export:
    def __init__(self, document: JsonObject, context: Context) -> None:
        info = get_object(document, "info")
        self.id = _known(info, "id")
        self.version = get_text(info, "version")
        self.title = get_text(info, "title")
        self.is_sub_agent = get_text(info, "parentID") is not None
        own = self.id or _stand_in(document)
        parent = _known(info, "parentID")
        key = SessionKey(context.project, context.user, parent or own)
        # A parent whose name was taken out cannot be joined: the sub-agent stands alone.
        self.lane = LaneBuilder(key, own, "main") if parent else LaneBuilder(key, "main")
        self.clearings = sorted(_clearings(document))
        self.trigger: str | None = None

    def message(self, message: JsonObject, index: int) -> None:
        info = get_object(message, "info")
        parts = [as_object(part, "$.parts") for part in get_array(message, "parts")]
        match info.get("role"):
            case "user":
                self._user(info, parts)
            case "assistant":
                self._assistant(info, parts, index)
            case role:
                raise DecodeError(
                    f"expected the role user or assistant, got {role!r}", "$.info.role"
                )

    def _user(self, info: JsonObject, parts: Sequence[JsonObject]) -> None:
        texts: list[Part] = []
        human = False
        for part in parts:
            match part.get("type"):
                case "text" if not part.get("ignored"):
                    texts.append(_part("user", "text", text_of(part.get("text")), not texts))
                    human = human or not part.get("synthetic")
                case "file":
                    texts.append(_part("user", "document", dump(_content(part)), not texts))
                    human = True
                case "compaction":
                    self.trigger = "auto" if part.get("auto") else "manual"
        at = soft_time(get_object(info, "time").get("created"))
        self.lane.say(texts, at, human=human and not self.is_sub_agent)

    def _assistant(self, info: JsonObject, parts: Sequence[JsonObject], index: int) -> None:
        requests = _requests(parts)
        if requests is None:
            # The client ran a tool by itself and wrote it down as the model's.
            response, results = _said(parts, index)
            self.lane.say([*response, *results], None, human=False)
            return
        created = get_object(info, "time").get("created")
        self._clear(created if isinstance(created, int | float) else None)
        for number, request in enumerate(requests):
            only = len(requests) == 1
            source = info if only else request[-1]
            self._step(info, source, request, index, number)
        if info.get("summary") is True:
            self._summarised(parts)

    def _step(
        self,
        info: JsonObject,
        source: JsonObject,
        parts: Sequence[JsonObject],
        index: int,
        number: int,
    ) -> None:
        usage, ambiguous = _usage(get_object(source, "tokens"))
        cost = to_cost(source.get("cost"), "$.info.cost")
        model = get_text(info, "modelID")
        times = get_object(info, "time")
        created = soft_time(times.get("created"))
        response, results = _said(parts, index)
        answer = new_answer(
            self._key(info, source, index, number), created, model, usage, index + 1
        )
        answer.last_at = soft_time(times.get("completed")) or created
        answer.started_at = None if number else created
        answer.provider = get_text(info, "providerID")
        answer.stop_reason = get_text(info, "finish")
        answer.error = _error(info)
        answer.reported_cost = None if usage is None else cost
        answer.labels = labels_of(
            version=self.version,
            agent=get_text(info, "agent", "mode"),
            provider=answer.provider,
            raw_output_tokens=ambiguous,
        )
        session = _known(info, "sessionID")
        answer.copied_from = session if session and self.id and session != self.id else None
        self.lane.answer(answer, response)
        self.lane.close()
        self.lane.say(results, soft_time(times.get("completed")), human=False)

    def _key(self, info: JsonObject, source: JsonObject, index: int, number: int) -> str:
        """Equal for a message and its copy in a fork, whose ids differ."""
        tokens = get_object(source, "tokens")
        cache = get_object(tokens, "cache")
        counts = counts_of(tokens, "$.info.tokens", "input", "output", "reasoning")
        counts += counts_of(cache, "$.info.tokens.cache", "read", "write")
        created = get_object(info, "time").get("created")
        when = f"{self.lane.session.session_id}:{index}" if created is None else str(created)
        shown = "-".join("" if count is None else str(count) for count in counts)
        return f"{when}:{get_text(info, 'modelID')}:{shown}" + (f"#{number}" if number else "")

    def _clear(self, created: float | None) -> None:
        due = [c for c in self.clearings if created is not None and c.at <= created]
        if due:
            self.clearings = self.clearings[len(due) :]
            cleared = Compaction(kind="clear", pruned=len(due), summary_called=False)
            self.lane.clear_results({c.call for c in due}, cleared)

    def _summarised(self, parts: Sequence[JsonObject]) -> None:
        texts = [text_of(p.get("text")) for p in parts if p.get("type") == "text"]
        summary = [_part("user", "text", _RECAP, True)]
        summary += [_part("assistant", "summary", text, i == 0) for i, text in enumerate(texts)]
        trigger, self.trigger = self.trigger, None
        done = Compaction(kind="summary", trigger=trigger, summary_called=True)
        self.lane.compact(done, summary)


def _known(info: JsonObject, key: str) -> str | None:
    """An id, unless it was taken out."""
    value = get_text(info, key)
    return None if value is None or REDACTED in value else value


def _stand_in(document: JsonObject) -> str:
    """A name for a session whose id was taken out: the same for the same session."""
    info = get_object(document, "info")
    marks = [info.get("slug"), info.get("title"), get_object(info, "time").get("created")]
    digest = xxhash.xxh3_64_hexdigest(dump(marks).encode("utf-8", "replace"))
    return f"opencode-{digest}"


def _clearings(document: JsonObject) -> Iterator[_Clearing]:
    for index, message in enumerate(get_array(document, "messages")):
        parts = get_array(as_object(message), "parts") if isinstance(message, dict) else ()
        for place, part in enumerate(parts):
            if isinstance(part, dict):
                at = get_object(get_object(part, "state"), "time").get("compacted")
                if isinstance(at, int | float) and not isinstance(at, bool):
                    yield _Clearing(at, _call_id(part, index, place))


def _call_id(part: JsonObject, index: int, place: int) -> str:
    return _known(part, "callID") or f"call-{index}-{place}"


def _requests(parts: Sequence[JsonObject]) -> list[Sequence[JsonObject]] | None:
    """The parts of each model request in a message; None if no model was asked."""
    ends = [i for i, part in enumerate(parts) if part.get("type") == "step-finish"]
    if len(ends) > 1:
        starts = [0, *(end + 1 for end in ends)]
        return [parts[a : b + 1] for a, b in zip(starts, ends, strict=False)]
    kinds = {get_text(part, "type") for part in parts}
    if kinds == {"tool"}:
        return None
    return [parts]


def _said(parts: Sequence[JsonObject], index: int) -> tuple[list[Part], list[Part]]:
    """What the model said in a message, and the results that its calls brought."""
    response: list[Part] = []
    results: list[Part] = []
    for place, part in enumerate(parts):
        match part.get("type"):
            case "text":
                text = text_of(part.get("text"))
                response.append(_part("assistant", "text", text, not response))
            case "reasoning":
                text = text_of(part.get("text"))
                response.append(_part("assistant", "thinking", text, not response))
            case "tool":
                call = _call_id(part, index, place)
                use, result = _tool(part, call, not response)
                response.append(use)
                results.extend(result)
    return response, results


def _tool(part: JsonObject, call: str, first: bool) -> tuple[Part, list[Part]]:
    name = get_text(part, "tool") or "?"
    state = get_object(part, "state")
    given = dump(state.get("input"))
    use = _part("assistant", "tool_use", given, first, tool=name, call_id=call)
    failed = state.get("status") == "error"
    output = state.get("error") if failed else state.get("output")
    if output is None:
        return use, []
    salt = "error" if failed else ""
    body = text_of(output)
    result = _part("tool", "tool_result", body, True, tool=name, call_id=call, salt=salt)
    return use, [result]


def _part(
    role: str,
    kind: Kind,
    body: str,
    first: bool,
    *,
    tool: str | None = None,
    call_id: str | None = None,
    salt: str = "",
) -> Part:
    return make_part(
        "messages", role, kind, body, tool=tool, call_id=call_id, starts_message=first, salt=salt
    )


def _usage(tokens: JsonObject) -> tuple[Usage | None, int | None]:
    """Usage of one request, and its raw output count where it may or may not hold the reasoning.

    All zero is a request of which nothing was reported.
    """
    pointer = "$.info.tokens"
    plain, output, reasoning, total = counts_of(
        tokens, pointer, "input", "output", "reasoning", "total"
    )
    cache = get_object(tokens, "cache")
    read, write = counts_of(cache, f"{pointer}.cache", "read", "write")
    if not any((plain, output, reasoning, read, write)):
        return None, None
    ambiguous = output if reasoning and total is None else None
    if reasoning and output is not None and total is not None:
        apart = (plain or 0) + output + reasoning + (read or 0) + (write or 0)
        output = output + reasoning if total == apart else output
    usage = Usage(
        input=plain, cache_read=read, cache_write=write, output=output, reasoning=reasoning
    )
    return with_total(usage, total), ambiguous


def _error(info: JsonObject) -> str | None:
    error = get_object(info, "error")
    return get_text(get_object(error, "data"), "message") or get_text(error, "name", "message")


def _content(part: JsonObject) -> JsonObject:
    """A file part without the ids of its record."""
    return {k: v for k, v in part.items() if k not in ("id", "sessionID", "messageID")}
