"""The real pages in headless Chromium: from the list to the message that changed, and no markup."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.conftest import APP, HOSTILE

pytestmark = pytest.mark.browser

CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_S = 40
STEP_MS = 20_000


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with a fresh profile."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine (CHROMIUM names another place)")
    profile = tmp_path_factory.mktemp("profile")
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(profile),
            executable_path=CHROMIUM,
            args=OPTIONS,
            viewport={"width": 1280, "height": 900},
        )
        context.set_default_timeout(STEP_MS)
        yield context
        context.close()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def serve(store: Path, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start the dashboard on a store, and wait until it answers."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(APP), "--server.headless=true"]
    command += [
        f"--server.port={port}",
        "--server.address=127.0.0.1",
        "--server.fileWatcherType=none",
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANALYZER_")}
    environment |= {"ANALYZER_DB": str(store), "PYTHONPATH": str(APP.parents[1])}
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    base = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{base}/_stcore/health", timeout=2):
                return server, base
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    server.kill()
    pytest.fail(f"the dashboard did not start:\n{log.read_text(errors='replace')}")


def running(store: Path, log: Path) -> Iterator[str]:
    """The address of a dashboard that is stopped afterwards."""
    server, base = serve(store, log)
    yield base
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def address(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard on the ordinary store."""
    yield from running(store, tmp_path_factory.mktemp("server") / "log.txt")


@pytest.fixture(scope="module")
def hostile_address(hostile_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard on the hostile store."""
    yield from running(hostile_store, tmp_path_factory.mktemp("server") / "log.txt")


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A tab that notes scripts that ran, requests to elsewhere and errors of the page."""
    tab = browser.new_page()
    tab.wrong = []
    tab.on(
        "dialog", lambda dialog: (tab.wrong.append(f"dialog {dialog.message}"), dialog.dismiss())
    )
    tab.on("pageerror", lambda error: tab.wrong.append(f"error {error}"))
    tab.on(
        "request",
        lambda request: (
            None
            if urllib.parse.urlsplit(request.url).hostname in ("127.0.0.1", None)
            else tab.wrong.append(f"request to {request.url}")
        ),
    )
    yield tab
    tab.close()


def settled(tab: Any) -> None:
    """Wait until the page's script has run."""
    tab.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    assert tab.locator('[data-testid="stException"]').count() == 0


def click_row(tab: Any, number: int, row: int, column: int = 120) -> None:
    """Click a row of a table; tables are drawn, so by its place (rows are 35 px high)."""
    table = tab.locator('[data-testid="stDataFrame"]').nth(number)
    table.scroll_into_view_if_needed()
    grid = table.locator(".dvn-scroller").first
    grid.wait_for()
    grid.click(position={"x": column, "y": 35 * (row + 1) + 17})


def test_a_finding_is_followed_from_the_list_to_the_message_that_changed(
    tab: Any, address: str
) -> None:
    tab.goto(address)
    tab.get_by_text("sessions, those that lost most first").wait_for()
    settled(tab)
    click_row(tab, 0, row=0)
    tab.get_by_text("24 steps cost").wait_for()
    settled(tab)
    assert "session=churning" in tab.url
    assert tab.locator(".js-plotly-plot").count() == 2
    tab.get_by_role("link", name="Open the message that changed").first.click()
    tab.get_by_text("change to what step").wait_for()
    settled(tab)
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(tab.url).query)
    assert query["session"] == ["churning"]
    assert {"step", "message", "lane"} <= query.keys()
    assert tab.get_by_text("[Old tool result content cleared]").count() >= 2
    link = tab.url
    tab.get_by_role("button", name="Next break").click()
    tab.wait_for_url(lambda url: f"step={int(query['step'][0]) + 1}" in url)
    tab.goto(link)
    tab.get_by_text(f"Step {query['step'][0]}: the cache broke").wait_for()
    assert not tab.wrong


def test_a_row_of_the_step_table_opens_that_step_and_the_way_back_works(
    tab: Any, address: str
) -> None:
    tab.goto(f"{address}/session?session=churning")
    tab.get_by_text("Click a row to open the step.").wait_for()
    settled(tab)
    click_row(tab, tab.locator('[data-testid="stDataFrame"]').count() - 1, row=3)
    tab.get_by_text("Step 3: ").wait_for()
    tab.get_by_role("link", name="The whole session").click()
    tab.get_by_text("24 steps cost").wait_for()
    settled(tab)
    assert not tab.wrong


def test_a_mark_of_the_step_chart_opens_that_step(tab: Any, address: str) -> None:
    tab.goto(f"{address}/session?session=churning")
    tab.get_by_text("Click a row to open the step.").wait_for()
    settled(tab)
    marks = tab.locator(".js-plotly-plot").first.locator(".scatterlayer .points path")
    marks.first.scroll_into_view_if_needed()
    box = marks.first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    tab.locator(".js-plotly-plot").first.locator(".hoverlayer .hovertext").first.wait_for()
    tab.mouse.down()
    tab.mouse.up()
    tab.get_by_text("the cache broke (sliding-stubs)").wait_for()
    assert "step=" in tab.url
    assert not tab.wrong


@pytest.mark.parametrize("screen", ["", "session", "step", "policies", "health"])
def test_hostile_names_and_texts_never_become_markup(
    tab: Any, hostile_address: str, screen: str
) -> None:
    query = {"session": HOSTILE, "user": HOSTILE, "lane": HOSTILE[:40], "step": "6", "message": "4"}
    link = f"{hostile_address}/{screen}"
    tab.goto(link if screen in ("", "health") else f"{link}?{urllib.parse.urlencode(query)}")
    tab.locator("h1").first.wait_for()
    settled(tab)
    if screen in ("session", "step", "policies"):
        tab.get_by_text(HOSTILE, exact=True).first.wait_for()
    tab.wait_for_timeout(300)
    found = tab.evaluate(
        """() => {
          const main = document.querySelector('[data-testid="stMain"]');
          return {
            scripts: main.querySelectorAll('script').length,
            images: main.querySelectorAll('img, [onerror]').length,
            links: [...main.querySelectorAll('a')].map(a => a.href)
              .filter(href => !href.startsWith(location.origin + '/')),
            maths: main.querySelectorAll('.katex').length,
          };
        }"""
    )
    assert found == {"scripts": 0, "images": 0, "links": [], "maths": 0}
    assert not tab.wrong
