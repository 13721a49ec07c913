"""Small valid recordings, one or more of every source, for what has to hold of all of them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tests import spans
from tests.builders import Transcript, anthropic_records
from tests.sources import test_atif as atif
from tests.sources import test_inspect_eval as inspect_eval
from tests.sources import test_langfuse as langfuse
from tests.sources import test_langfuse_tables as tables
from tests.sources import test_langsmith as langsmith
from tests.sources import test_managed_agents as managed
from tests.sources import test_mini_swe_agent as mini
from tests.sources import test_openai_log as openai_log
from tests.sources import test_openclaw_telemetry as telemetry
from tests.sources import test_openhands as openhands
from tests.sources import test_recordings as recordings
from tests.sources import test_swe_agent as swe_agent
from tests.sources import test_tau_bench as tau_bench
from tests.sources import test_vcr as vcr
from tests.step_rows import call, result, user, whole

Form = Literal["lines", "document", "yaml", "zip", "bytes"]
CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Sample:
    """A recording as a value, and how a file of its source writes it."""

    source: str
    name: str
    form: Form
    value: Any

    def encode(self, value: Any = None, **options: Any) -> bytes:
        """The bytes of a file that holds the value, or another one in its place."""
        return WRITERS[self.form](self.value if value is None else value, **options)


def lines(rows: list[Any], **options: Any) -> bytes:
    return b"".join(document(row, **options) + b"\n" for row in rows)


def document(value: Any, **options: Any) -> bytes:
    return json.dumps(value, **options).encode("utf-8", "surrogatepass")


def cassette(value: Any, **_: Any) -> bytes:
    return str(yaml.safe_dump({"interactions": value, "version": 1})).encode()


def archive(members: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, value in members.items():
            made.writestr(name.encode("utf-8", "replace").decode(), document(value, **options))
    return out.getvalue()


WRITERS: dict[str, Callable[..., bytes]] = {
    "lines": lines,
    "document": document,
    "yaml": cassette,
    "zip": archive,
    "bytes": lambda value, **_: value,
}


def claude_code() -> list[Any]:
    t = Transcript()
    t.rows.append({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}})
    t.user("go")
    t.answer("a", 900, 128)
    t.result("call-a", "out")
    inner = Transcript()
    inner.user("sub")
    inner.answer("x", 1, 2)
    for row in inner.rows:
        data = {"type": "agent_progress", "agentId": "ag", "message": row}
        t.row("progress", data=data, toolUseID="call-a")
    t.row("system", subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
    t.user("summary", isCompactSummary=True)
    t.answer("b", 100, 900)
    meta = {"compactedToolIds": ["call-a"], "tokensSaved": 5}
    t.row("system", subtype="microcompact_boundary", microcompactMetadata=meta)
    t.answer("c", 100, 900, isSidechain=True)
    t.rows.append({"type": "summary", "summary": "title", "leafUuid": "u1"})
    return t.rows


def step_rows() -> list[Any]:
    usage = {"input_tokens": 3, "cache_read_tokens": 900, "cache_write_tokens": 5}
    usage["output_tokens"] = 7
    lost = {"kind": "clear", "tier": 2, "pre_tokens": 9, "window_used": 0.5}
    more = {"cost_usd": 0.5, "labels": {"arm": "raw"}, "compaction": lost}
    return [
        {"type": "session", "session": "s", "title": "t", "attributes": {"a": "b"}},
        whole(user("go"), id="k0", usage=usage, at="2026-01-01T00:00:00Z", **more),
        whole(user("go"), call("c"), result("c", "out"), id="k1", usage=usage),
        {"session": "s", "id": "k2", "append": [user("more")], "usage": usage},
        whole(user("sub"), lane="sub", id="k3", usage=usage, model="m"),
    ]


def timed(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "duration_ms": 900, "session_id": "s"}


def langfuse_rows() -> list[Any]:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "hi"}]
    call_ = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    said = {"role": "assistant", "content": "ok", "tool_calls": [call_]}
    more = [*messages, said, {"role": "tool", "tool_call_id": "t1", "content": "out"}]
    agent = langfuse.row(0, type="AGENT", id="agent", name="sub-agent", usageDetails={})
    return [
        agent,
        langfuse.row(1, input={"messages": messages, "tools": [{"name": "f"}]}, output=said),
        langfuse.row(2, input=more, output="done", parentObservationId="agent", metadata={"a": 1}),
    ]


def members() -> dict[str, Any]:
    asked = [inspect_eval.USER]
    usage = {"input_tokens": 90, "output_tokens": 3, "total_tokens": 93}
    events = [inspect_eval.model(asked, "one", usage), inspect_eval.model(asked, "two", usage)]
    return {
        "_journal/start.json": inspect_eval.header(),
        "samples/1_epoch_1.json": inspect_eval.sample(events),
        "header.json": inspect_eval.header(),
    }


def samples() -> Iterator[Sample]:
    """Every sample anew, so that nobody can change another's."""
    yield Sample("steps", "s.jsonl", "lines", step_rows())
    yield Sample("claude-code", "a.jsonl", "lines", claude_code())
    for name, journal in recordings.JOURNALS.items():
        yield Sample(name, "a.jsonl", "lines", journal())
    for name, written in recordings.DOCUMENTS.items():
        yield Sample(name, "a.json", "document", written())
    yield Sample("mini-swe-agent", "a.traj.json", "document", mini.run())
    yield Sample("swe-agent", "a.traj", "document", swe_agent.run())
    yield Sample("atif", "a.json", "document", atif.run())
    yield Sample("openhands", "output.jsonl", "lines", [openhands.run()])
    yield Sample("tau-bench", "a.json", "document", [tau_bench.run(0, 0), tau_bench.run(1, 0)])
    yield Sample("inspect", "a.eval", "zip", members())
    log = inspect_eval.header(samples=[members()["samples/1_epoch_1.json"]])
    yield Sample("inspect", "a.json", "document", log)
    calls = [vcr.chat_call(), vcr.message_call("one"), vcr.message_call("two")]
    yield Sample("vcr", "a.yaml", "yaml", calls)
    yield Sample("langsmith", "a.json", "document", langsmith.batch())
    yield Sample("managed-agents", "a.jsonl", "lines", [managed.SESSION, *managed.conversation()])
    told = [telemetry.user("Go", 1), telemetry.answer("Done", 2)]
    yield Sample("openclaw-telemetry", "a.jsonl", "lines", [telemetry.FIRST, telemetry.end(*told)])
    chats = spans.run(_short(anthropic_records(3)), spans.genai)
    yield Sample("otlp", "a.json", "document", spans.request(chats))
    yield Sample("otlp", "b.jsonl", "lines", [spans.request([chat]) for chat in chats])
    rows = langfuse_rows()
    yield Sample("langfuse", "a.json", "document", {"data": rows, "meta": {"page": 1}})
    yield Sample("langfuse", "b.jsonl", "lines", [langfuse.blob(row) for row in rows])
    page = {"data": [langfuse.v2(row) for row in rows], "meta": {}}
    yield Sample("langfuse", "c.json", "document", page)
    yield Sample("langfuse", "d.csv", "bytes", tables.as_csv(tables.ROWS))
    yield Sample("langfuse", "e.parquet", "bytes", tables.as_parquet(tables.ROWS))
    records = [openai_log.record(n) for n in range(3)]
    yield Sample("openai-log", "a.jsonl", "lines", records)
    asked = [{"role": "user", "content": "hi"}]
    yield Sample("openai-log", "b.jsonl", "lines", [openai_log.responses(0, asked)])
    raw = [timed(record) for record in _short(anthropic_records(3))]
    yield Sample("anthropic-log", "a.jsonl", "lines", raw)


def _short(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same requests with little text, so that mutations hit what matters."""
    for record in records:
        record["request"]["system"][0]["text"] = "S"
        record["request"]["tools"] = record["request"]["tools"][:1]
        record["request"]["tools"][0]["description"] = "d"
        for message in record["request"]["messages"]:
            for block in message["content"]:
                if block["type"] == "tool_result":
                    block["content"] = block["content"][:20]
    return records
