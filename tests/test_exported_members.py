"""The facade is what docs/vocabulary.md says it is, and importing it does nothing else."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import analyzer

CHECKOUT = Path(__file__).resolve().parent.parent


def vocabulary() -> dict[str, str]:
    """Name -> meaning, from the rows of docs/vocabulary.md that stand for something exported."""
    text = (CHECKOUT / "docs" / "vocabulary.md").read_text(encoding="utf-8")
    exported = text.split("## Names of the package", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", exported, flags=re.MULTILINE))


def test_all_is_complete_sorted_and_without_doubles() -> None:
    assert set(analyzer.__all__) == set(dir(analyzer))
    assert all(getattr(analyzer, name) is not None for name in analyzer.__all__)
    assert list(analyzer.__all__) == sorted(set(analyzer.__all__))


def test_every_word_of_the_vocabulary_is_exported() -> None:
    words = vocabulary()
    assert len(words) >= 15, "the table of names in docs/vocabulary.md was not found"
    assert not words.keys() - set(analyzer.__all__)


def test_every_exported_name_says_what_it_is() -> None:
    silent = [
        name
        for name in analyzer.__all__
        if (inspect.isclass(value := getattr(analyzer, name)) or inspect.isroutine(value))
        and not (inspect.getdoc(value) or "").strip()
    ]
    assert not silent


def test_every_exported_class_and_function_is_our_own() -> None:
    foreign = [
        name
        for name in analyzer.__all__
        if (inspect.isclass(value := getattr(analyzer, name)) or inspect.isroutine(value))
        and not value.__module__.startswith("analyzer.")
    ]
    assert not foreign


def test_importing_prints_nothing_writes_nothing_and_starts_no_dashboard(tmp_path: Path) -> None:
    script = (
        "import sys, analyzer\n"
        "heavy = {'streamlit', 'plotly', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**home, "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
