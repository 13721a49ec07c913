"""What is in version control: no secrets, no places of one machine, locks that fit."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

CHECKOUT = Path(__file__).resolve().parent.parent
LARGEST_FILE = 5_000_000

# Written in pieces, so that this file does not hold what it looks for.
REGISTRIES = re.compile(
    r"(?:py"
    r"pi|python"
    r"hosted|npm"
    r"js|deb\.deb"
    r"ian|crates|ruby"
    r"gems|anacon"
    r"da)"
    r"\.(?:org|com|io)\b|proxy\.go"
    r"lang\.org|repo\d?\.ma"
    r"ven"
)
MACHINE_PATHS = re.compile(r"(?:^|[^a-zA-Z0-9_.~])/(?:wo" r"rk|fa" r"rm|ro" r"ot)/")
SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE"
    r" KEY-----|sk-ant-[a-z0-9]+-[\w-]{40,}|ghp_[A-Za-z0-9]{36}"
    r"|\bAKIA[A-Z0-9]{16}\b|[sp]k-lf-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-"
)
# Recordings keep the paths and addresses that their agents saw; their README tells their origin.
RECORDINGS = "sample_traces/"


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that is in git or would be added to it."""
    if shutil.which("git") is None or not (CHECKOUT / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of files to check")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    return tuple(p for name in listed if name and (p := CHECKOUT / name).is_file())


def texts(*, recordings: bool) -> list[tuple[str, str]]:
    """(path, text) of the tracked files, with or without the recorded traces."""
    named = [(str(path.relative_to(CHECKOUT)), path) for path in tracked()]
    return [
        (name, path.read_text(encoding="utf-8", errors="replace"))
        for name, path in named
        if recordings or not name.startswith(RECORDINGS)
    ]


def hits(pattern: re.Pattern[str], *, recordings: bool = False) -> list[str]:
    """`path:line` of each match."""
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
        for name, text in texts(recordings=recordings)
        for match in pattern.finditer(text)
    ]


def pins(lock: str) -> dict[str, list[tuple[str, str, int]]]:
    """Package -> (version, marker, number of hashes) of each pin of a lock file."""
    found: dict[str, list[tuple[str, str, int]]] = {}
    joined = (CHECKOUT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in joined.splitlines():
        pin, *hashes = line.split("--hash=")
        requirement = Requirement(pin.strip())
        version = next(iter(requirement.specifier)).version
        row = (version, str(requirement.marker or ""), len(hashes))
        found.setdefault(requirement.name.lower(), []).append(row)
    return found


def declared(*extras: str) -> list[Requirement]:
    """What pyproject.toml asks for: the project's own, some extras, and the build's."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    rows = project["project"]["dependencies"] + project["build-system"]["requires"]
    for extra in extras:
        rows += project["project"]["optional-dependencies"][extra]
    return [Requirement(row) for row in rows]


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert hits(REGISTRIES) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    own = [str(CHECKOUT)] + ([str(Path.home())] if len(Path.home().parts) > 2 else [])
    assert hits(MACHINE_PATHS) == []
    assert hits(re.compile("|".join(map(re.escape, own)))) == []


def test_no_file_holds_a_secret() -> None:
    assert hits(SECRETS, recordings=True) == []


def test_the_checks_above_find_what_they_look_for() -> None:
    assert REGISTRIES.search("--index-url https://" + "py" + "pi.org/simple")
    assert MACHINE_PATHS.search("cd /" + "work/somewhere")
    assert not MACHINE_PATHS.search("docs/" + "work/somewhere")
    assert SECRETS.search("-----BEGIN RSA PRIVATE" + " KEY-----")


def test_no_file_is_too_large_to_review() -> None:
    large = [str(p.relative_to(CHECKOUT)) for p in tracked() if p.stat().st_size > LARGEST_FILE]
    assert large == []


def test_nothing_generated_is_in_version_control() -> None:
    names = [str(path.relative_to(CHECKOUT)) for path in tracked()]
    unwanted = re.compile(
        r"(^|/)(uv\.lock|__pycache__|\.venv|.*\.duckdb|.*\.egg-info|.*\.pyc)(/|$)"
    )
    assert [name for name in names if unwanted.search(name)] == []


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("requirements.lock", ("dashboard",)), ("requirements-dev.lock", ("dashboard", "dev"))],
)
def test_a_lock_satisfies_what_the_project_asks_for(lock: str, extras: tuple[str, ...]) -> None:
    locked = pins(lock)
    for requirement in declared(*extras):
        versions = [version for version, _, _ in locked.get(requirement.name.lower(), [])]
        assert versions, f"{requirement.name} is not in {lock}: run 'make lock'"
        assert all(map(requirement.specifier.contains, versions)), (requirement, versions)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_holds_versions_and_hashes_and_no_address(lock: str) -> None:
    text = (CHECKOUT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index-url|--extra-index-url|--find-links)\b", text, re.M)
    assert [name for name, rows in pins(lock).items() if any(not n for _, _, n in rows)] == []


def test_the_smaller_lock_is_a_part_of_the_larger_one() -> None:
    larger = pins("requirements-dev.lock")
    assert {n: r for n, r in pins("requirements.lock").items() if larger.get(n) != r} == {}


def test_every_verb_of_the_makefile_says_what_it_does() -> None:
    text = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    verbs = {
        "help",
        "demo",
        "test",
        "check",
        "fix",
        "bench",
        "fuzz",
        "recount",
        "docs",
        "lock",
        "clean",
    }
    assert set(re.findall(r"^([a-z]+):.*## \S", text, flags=re.MULTILINE)) == verbs


def test_the_documents_name_only_verbs_that_the_makefile_has() -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    verbs = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    used = {
        verb
        for name, text in texts(recordings=False)
        if name.endswith(".md")
        for verb in re.findall(r"(?:`|^)(?:[A-Z_]+=\S+ )*make ([a-z]+)", text, flags=re.MULTILINE)
    }
    assert {"demo", "test"} <= used
    assert used <= verbs


def test_continuous_integration_runs_what_a_person_runs() -> None:
    assert "make test" in (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_licence_is_the_one_that_the_project_declares() -> None:
    text = (CHECKOUT / "LICENSE").read_text(encoding="utf-8")
    assert 'license = "Apache-2.0"' in (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "9. Accepting Warranty or Additional Liability" in text
