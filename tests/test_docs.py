"""The documents are true: every command is described, every link leads somewhere."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from analyzer.edits import apply
from analyzer.model import LaneSteps, Part, Problem
from analyzer.policies import parse_spec
from analyzer.policies.base import Turn
from analyzer.sources.base import Context, read_head
from analyzer.sources.blocks import make_part
from analyzer.tokens import weight

CHECKOUT = Path(__file__).resolve().parent.parent
COMMANDS = """
    demo ingest validate sessions steps show diff diagnose backtest replay simulate policies
    sources prices dashboard
"""
DOCUMENTS = sorted(
    [*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")],
    key=lambda path: path.relative_to(CHECKOUT),
)


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """The script that writes docs/cli.md."""
    path = CHECKOUT / "scripts" / "cli_reference.py"
    spec = importlib.util.spec_from_file_location("cli_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_option_has_help(reference: ModuleType) -> None:
    silent = []
    for name, command, _ in reference.commands(reference.program, "analyzer"):
        if not (command.help or "").strip():
            silent.append(name)
        silent += [
            f"{name} {option.opts[-1]}"
            for option in command.params
            if option.param_type_name == "option" and not getattr(option, "help", None)
        ]
    assert silent == []


def test_the_reference_of_the_command_line_is_what_the_commands_say(reference: ModuleType) -> None:
    written = (CHECKOUT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == reference.render(), "run 'make docs'"


@pytest.mark.parametrize("command", COMMANDS.split())
def test_a_command_that_others_rely_on_is_described(command: str) -> None:
    written = (CHECKOUT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"## `analyzer {command}`" in written


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_every_command_in_a_document_exists(document: Path, reference: ModuleType) -> None:
    known = {name for name, _, _ in reference.commands(reference.program, "analyzer")}
    text = document.read_text(encoding="utf-8")
    used = re.findall(r"^(?:\$ )?(?:\.venv/bin/)?analyzer ([a-z]+)", text, flags=re.MULTILINE)
    assert [word for word in used if f"analyzer {word}" not in known] == []


def example(document: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the Python block of a document defines, run as it stands."""
    text = (CHECKOUT / "docs" / document).read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    module = ModuleType("documented_example")
    # A dataclass looks its own module up.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block, document, "exec"), vars(module))
    return vars(module)


def test_the_documented_source_reads_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = example("add-a-source.md", monkeypatch)["ProxyLogSource"]()
    path = tmp_path / "proxy.jsonl"
    first = '{"role": "user", "content": "hello"}'
    second = '{"role": "assistant", "content": "hi"}, {"role": "user", "content": "again"}'
    path.write_text(
        '{"conversation": "c", "t": 1767225600, "model": "m", "in": 900, "cached": 0, "out": 5,'
        f' "messages": [{first}]}}\n'
        '{"conversation": "c", "in": "many", "cached": 0, "messages": []}\n'
        '{"conversation": "c", "t": 1767225660, "model": "m", "in": 950, "cached": 900, "out": 7,'
        f' "messages": [{first}, {second}]}}\n',
        encoding="utf-8",
    )
    assert source.detect(read_head(path))
    one, bad, two = source.read(path, Context())
    assert isinstance(bad, Problem)
    assert (bad.line, bad.pointer) == (2, "$.in")
    assert isinstance(one, LaneSteps)
    assert isinstance(two, LaneSteps)
    assert two.steps[0].prompt is not None
    assert two.steps[0].usage is not None
    assert [part.body for part in one.steps[0].new_parts] == ["hello"]
    assert [part.body for part in two.steps[0].new_parts] == ["hi", "again"]
    assert two.steps[0].prompt.ranges == ((0, 3),)
    assert (two.steps[0].usage.input, two.steps[0].usage.prompt) == (50, 950)


class PlainScale:
    """Every size is its estimate."""

    ratio = 1.0

    def envelope(self, part: Part) -> int:
        return part.envelope

    def text(self, text: str) -> int:
        return len(text) // 4


def full_window(prompt: list[Part]) -> Turn:
    """A turn whose prompt has just filled nine tenths of the window."""
    tokens = [weight(part) for part in prompt]
    return Turn(
        step=3,
        at=0.0,
        gap=60.0,
        human=False,
        prompt=prompt,
        tokens=tokens,
        edited=[""] * len(prompt),
        window=sum(tokens) * 10 // 9,
        used=sum(tokens),
        used_before=0,
        scale=PlainScale(),
        recorded=prompt,
        peek=lambda: 0,
    )


def conversation() -> list[Part]:
    """A question and two results, the newer one short."""
    return [
        make_part("messages", "user", "text", "a long question " * 20, starts_message=True),
        make_part("messages", "user", "tool_result", "0123456789" * 50, call_id="a"),
        make_part("messages", "user", "tool_result", "short", call_id="b"),
    ]


def test_the_documented_class_cuts_only_when_the_window_fills(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = example("add-a-policy.md", monkeypatch)["HeadOnly"](chars=10)
    prompt = conversation()
    turn = full_window(prompt)
    after = apply(prompt, policy.edits(turn))
    assert [part.body for part in after] == [prompt[0].body, "0123456789", "short"]
    assert [part.call_id for part in after] == [None, "a", "b"]
    assert list(policy.edits(replace(turn, window=1_000_000))) == []


def test_the_documented_recipe_clears_once_what_is_not_protected(tmp_path: Path) -> None:
    text = (CHECKOUT / "docs" / "add-a-policy.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```toml\n(title.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    path = tmp_path / "mine.toml"
    path.write_text(recipe, encoding="utf-8")
    policy = parse_spec(f"{path}:protect_tokens=5")
    prompt = conversation()
    turn = full_window(prompt)
    after = apply(prompt, policy.edits(turn))
    assert [part.placeholder for part in after] == [False, True, False]
    assert [part.call_id for part in after] == [None, "a", "b"]
    # The mark was crossed a request ago: nothing more happens.
    assert list(policy.edits(replace(turn, used_before=turn.used))) == []
    assert list(parse_spec(f"{path}:at=1.0").edits(turn)) == []
