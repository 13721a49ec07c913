"""Writes docs/cli.md from the commands' own `--help`; with --check it only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from analyzer.cli import cli as program

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 98
HEADER = """# Command line

Written by `make docs` from the commands' own `--help`; a test compares the two. Results go to
stdout, everything else to stderr. Exit codes: 0 done, 1 error, 2 wrong usage, 3 a gate failed.
"""


def commands(group: click.Command, name: str) -> Iterator[tuple[str, click.Command, click.Context]]:
    """(full name, command, context) of a command and of everything below it."""
    settings: dict[str, Any] = {**program.context_settings, "max_content_width": WIDTH}
    context = click.Context(group, info_name=name, terminal_width=WIDTH, **settings)
    yield name, group, context
    if isinstance(group, click.Group):
        for child in group.list_commands(context):
            command = group.get_command(context, child)
            if command is not None and not command.hidden:
                yield from commands(command, f"{name} {child}")


def render() -> str:
    """The whole document."""
    chapters = [HEADER]
    for name, command, context in commands(program, "analyzer"):
        chapters.append(f"## `{name}`\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(chapters)


def run(arguments: list[str]) -> int:
    """Write the document, or say that it is out of date (exit code 1)."""
    text = render()
    if "--check" not in arguments:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write("docs/cli.md differs from the commands' help: run 'make docs'\n")
    return 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
