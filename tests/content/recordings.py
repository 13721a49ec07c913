"""A small recording of every source that the tests can make, with a text planted in its content."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.builders import Transcript, anthropic_records
from tests.sources import (
    test_atif,
    test_inspect_eval,
    test_langfuse,
    test_langsmith,
    test_mini_swe_agent,
    test_openai_log,
    test_openhands,
    test_swe_agent,
    test_tau_bench,
    test_vcr,
)
from tests.sources.test_recordings import DOCUMENTS, JOURNALS

_NAMES = """
    text content thinking summary arguments output result description title customTitle thread_name
    errorMessage error statusMessage thought action observation response message
"""
CONTENT = frozenset(_NAMES.split())
"""Names under which the formats keep what was said, sent, asked for or answered."""


def plant(value: Any, text: str, name: str = "") -> Any:
    """A record with a text added to everything that it says."""
    if isinstance(value, dict):
        out = {k: plant(v, text, k) for k, v in value.items()}
        if name in ("input", "parameters", "input_schema") and "role" not in value:
            out["note"] = text
        return out
    if isinstance(value, list):
        return [plant(v, text, name) for v in value]
    if not isinstance(value, str) or (name not in CONTENT and name not in ("body", "string")):
        return value
    if value[:1] in "{[":
        try:
            inner = plant(json.loads(value), text)
        except ValueError:
            return f"{value} {text}"
        return json.dumps(inner | {"note": text} if isinstance(inner, dict) else inner)
    # In one format these are names of tools and kinds of events, which stay.
    if name in ("action", "observation") and value.isidentifier():
        return value
    return f"{value} {text}" if name in CONTENT else value


def _steps() -> list[Any]:
    def message(role: str, content: str) -> dict[str, Any]:
        return {"role": role, "content": content}

    begun = [message("user", "go"), message("assistant", "well"), message("user", "on")]
    return [
        {
            "v": 1,
            "type": "session",
            "session": "s",
            "title": "a title",
            "attributes": {"content": "x"},
        },
        *(
            {
                "v": 1,
                "session": "s",
                "step": n,
                "id": f"k{n}",
                "at": f"2026-06-01T09:00:0{n}Z",
                "model": "claude-sonnet-4-6",
                "request": {"messages": begun[: 1 + 2 * n]},
                "usage": {"input_tokens": 5, "output_tokens": 1},
                "labels": {"text": "arm"},
                "error": "failed",
            }
            for n in range(2)
        ),
    ]


def _claude_code() -> list[Any]:
    t = Transcript()
    t.user("please")
    t.answer("a", 0, 9_000)
    t.result("call-a", "found")
    t.answer("b", 9_000, 200)
    t.row("custom-title", customTitle="named")
    return t.rows


def _inspect() -> Any:
    asked = [test_inspect_eval.USER, test_inspect_eval.CALLED, test_inspect_eval.RESULT]
    events = [
        test_inspect_eval.model(asked[:n], f"said {n}", test_inspect_eval.COUNTS) for n in (1, 3)
    ]
    return test_inspect_eval.header(samples=[test_inspect_eval.sample(events)])


def _langfuse() -> Any:
    messages = [{"role": "user", "content": "hello"}]
    answer = {"role": "assistant", "content": "hi"}
    rows = [
        test_langfuse.row(n, input=messages, output=answer, level="ERROR", statusMessage="bad")
        for n in (1, 2)
    ]
    return {"data": rows, "meta": {}}


def _vcr() -> Any:
    return {"interactions": [test_vcr.chat_call(), test_vcr.message_call()], "version": 1}


LINES: dict[str, Callable[[], list[Any]]] = {
    **JOURNALS,
    "anthropic-log": lambda: anthropic_records(3),
    "claude-code": _claude_code,
    "openhands": lambda: [test_openhands.run()],
    "openai-log": lambda: [test_openai_log.record(n) for n in range(3)],
    "steps": _steps,
}
WHOLE: dict[str, Callable[[], Any]] = {
    **DOCUMENTS,
    "atif": test_atif.run,
    "inspect": _inspect,
    "langfuse": _langfuse,
    "langsmith": test_langsmith.batch,
    "mini-swe-agent": test_mini_swe_agent.run,
    "swe-agent": test_swe_agent.run,
    "tau-bench": lambda: [test_tau_bench.run(1, 0)],
    "vcr": _vcr,
}
NAMES = tuple(sorted({*LINES, *WHOLE}))


def record(name: str) -> Any:
    """What a recording of a source holds: its rows, or its document."""
    return LINES[name]() if name in LINES else WHOLE[name]()


def write(folder: Path, name: str, value: Any, *more: str) -> Path:
    """A recording as a file; `more` are further lines of a journal."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{'yaml' if name == 'vcr' else 'json' if name in WHOLE else 'jsonl'}"
    if name == "vcr":
        text = yaml.safe_dump(value, allow_unicode=True)
    elif name in WHOLE:
        text = json.dumps(value)
    else:
        text = "".join(line + "\n" for line in (*map(json.dumps, value), *more))
    path.write_text(text, encoding="utf-8")
    return path
