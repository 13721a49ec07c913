"""One small store for all pages, made of generated traces."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from analyzer.intake import ingest
from analyzer.workspace import analyse
from tests.apps.traces import START, Trace, write, write_without_prompts

APP = Path(__file__).resolve().parents[2] / "apps" / "app.py"
HOSTILE = "<script>alert(1)</script>[x](javascript:alert(2))<img src=x onerror=alert(3)>$a$ :red[b]"

Open = Callable[..., AppTest]


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for stores."""
    return tmp_path_factory.mktemp("stores")


def build(folder: Path, name: str, *traces: Trace, content: str = "full") -> Path:
    """Ingest traces into a store of their own, and judge them."""
    path = folder / f"{name}.duckdb"
    ingest([write(folder / name / f"{name}.jsonl", *traces)], path, content=content)
    analyse(path)
    return path


@pytest.fixture(scope="session")
def store(stores: Path) -> Path:
    """Sessions that churn, that are healthy, that lack usage or prompts, and of two projects."""
    path = build(
        stores,
        "main",
        Trace("churning", steps=24, title="a long task"),
        Trace("healthy", keep=99),
        Trace("two-lanes"),
        Trace("two-lanes", lane="helper", steps=6, start=START + timedelta(minutes=1)),
        Trace("no-usage", usage=False),
        Trace("of-others", project="secret", user="ann"),
        Trace("twin", keep=99, steps=3),
        Trace("twin", keep=99, steps=3, project="secret", user="ann"),
    )
    ingest([write_without_prompts(stores / "page.json")], path, project="demo")
    analyse(path)
    return path


@pytest.fixture(scope="session")
def hostile_store(stores: Path) -> Path:
    """A session whose every name and text tries to become markup."""
    trace = Trace(
        HOSTILE,
        tool=HOSTILE[:60],
        text=HOSTILE + " ",
        lane=HOSTILE[:40],
        title=HOSTILE,
        user=HOSTILE,
    )
    other = Trace(HOSTILE, tool="read", lane="main", user=HOSTILE, steps=4)
    return build(stores, "hostile", trace, other)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a page of the dashboard on a store, with the query of a link."""
    for name in ("ANALYZER_PROJECT", "ANALYZER_USER", "ANALYZER_DB"):
        monkeypatch.delenv(name, raising=False)

    def opened(store: Path, screen: str | None = None, **query: str) -> AppTest:
        monkeypatch.setitem(os.environ, "ANALYZER_DB", str(store))
        app = AppTest.from_file(str(APP), default_timeout=30)
        if screen is not None:
            app.run()
            app.query_params.clear()
            for name, value in query.items():
                app.query_params[name] = value
            app.switch_page(f"screens/{screen}.py")
        return app.run()

    return opened
