"""Text that looks like a coding agent's work, from a seed and to an exact length.

Standard library only. Lengths are in characters; every text is ASCII.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

NOUNS = (
    "order invoice customer shipment ledger account session token cursor batch window queue worker "
    "cache entry record schema field index page filter report quota policy event handler retry "
    "timeout bucket digest header payload region tenant webhook snapshot checkpoint"
).split()
VERBS = (
    "load parse merge split render resolve validate refresh collect apply rebuild encode decode "
    "schedule flush compare normalise dispatch prune lookup reserve settle reconcile rotate"
).split()
TYPES = "str int bytes float bool Path Decimal datetime".split()
DIRS = "billing ledger orders api workers storage auth reports sync schema".split()


def path(rng: Random) -> str:
    """A source file of the imagined project."""
    return f"src/{rng.choice(DIRS)}/{rng.choice(NOUNS)}_{rng.choice(NOUNS)}.py"


def _name(rng: Random) -> str:
    return f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"


def _function(rng: Random) -> list[str]:
    name, a, b = _name(rng), rng.choice(NOUNS), rng.choice(NOUNS)
    lines = [
        f"def {name}({a}: {rng.choice(TYPES)}, {b}: {rng.choice(TYPES)} | None = None) -> "
        f"{rng.choice(TYPES)}:",
        f'    """{rng.choice(VERBS).title()} the {a} of one {b}; keeps the {rng.choice(NOUNS)} as it is."""',
    ]
    for _ in range(rng.randint(2, 7)):
        x, y = rng.choice(NOUNS), rng.choice(NOUNS)
        lines += rng.choice(
            (
                [f"    {x} = {_name(rng)}({a}, limit={rng.randint(2, 4000)})"],
                [
                    f"    if {b} is None or {x}.{y} > {rng.randint(1, 900)}:",
                    f"        return {_name(rng)}({x})",
                ],
                [
                    f"    for {x} in {a}.{y}s:",
                    f"        self.{rng.choice(NOUNS)}[{x}.id] = {_name(rng)}({x}, {b})",
                ],
                [f'    logger.debug("{_name(rng)}: %s of %s", {x}, {rng.randint(10, 99999)})'],
            )
        )
    return [*lines, f"    return {rng.choice(NOUNS)}", "", ""]


def code(rng: Random, length: int) -> str:
    """A piece of Python source."""
    lines = [f"from {rng.choice(DIRS)}.{rng.choice(NOUNS)} import {_name(rng)}, {_name(rng)}", ""]
    return _cut(lines, length, lambda: _function(rng))


def file_listing(rng: Random, length: int) -> str:
    """A file as a reading tool shows it, with line numbers."""
    numbered: list[str] = []
    number = rng.randint(1, 400)
    for line in code(rng, length).split("\n"):
        numbered.append(f"{number:5}  {line}")
        number += 1
    return "\n".join(numbered)[:length].ljust(length, "#")


def grep(rng: Random, length: int) -> str:
    """Matches of a search over the project."""
    word = rng.choice(NOUNS)
    return _cut(
        [],
        length,
        lambda: [f"{path(rng)}:{rng.randint(3, 980)}:    {word} = {_name(rng)}({rng.choice(NOUNS)})"],
    )


def test_log(rng: Random, length: int) -> str:
    """Output of a test run with a failure or two."""

    def more() -> list[str]:
        where = f"tests/{rng.choice(DIRS)}/test_{rng.choice(NOUNS)}.py"
        if rng.random() < 0.2:
            return [
                f"FAILED {where}::test_{_name(rng)} - AssertionError: expected "
                f"{rng.randint(100, 99999)}, got {rng.randint(100, 99999)}",
                f"    {where}:{rng.randint(10, 400)}: in test_{_name(rng)}",
            ]
        return [f"{where}::test_{_name(rng)} PASSED [{rng.randint(1, 99):3}%] {rng.random():.3f}s"]

    return _cut(["$ python -m pytest -q"], length, more)


def directory(rng: Random, length: int) -> str:
    """A directory listing."""
    return _cut(
        [], length, lambda: [f"-rw-r--r--  {rng.randint(300, 60000):6}  {path(rng).split('/')[-1]}"]
    )


def prose(rng: Random, length: int) -> str:
    """What the agent says between two calls."""

    def more() -> list[str]:
        a, b, c = (rng.choice(NOUNS) for _ in range(3))
        return [
            rng.choice(
                (
                    f"The {a} is built in {path(rng)} and handed to the {b} before its {c} is known.",
                    f"So `{_name(rng)}` runs twice for each {a}, and the second run sees a stale {b}.",
                    f"I will look at how `{_name(rng)}` treats a {a} without a {b}, then change it.",
                    f"The failing test expects {rng.randint(2, 900)} {a}s; the {b} gives one {c} more.",
                    f"That matches line {rng.randint(10, 700)} of {path(rng)}, which skips the {c}.",
                    f"Next: move the check into `{_name(rng)}` so that every {a} passes through it.",
                )
            )
        ]

    return _cut([], length, more, " ")


def _cut(start: list[str], length: int, more: Callable[[], list[str]], glue: str = "\n") -> str:
    lines = list(start)
    size = sum(len(line) + len(glue) for line in lines)
    while size <= length:
        fresh = more()
        lines += fresh
        size += sum(len(line) + len(glue) for line in fresh)
    return glue.join(lines)[:length]
