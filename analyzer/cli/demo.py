"""`demo` and `dashboard`: the product on its sample traces, and its pages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import click

from analyzer.cli.base import emit, emit_table, refresh, settings_of, stderr, tell, workspace
from analyzer.errors import InputError
from analyzer.intake import ingest
from analyzer.views.frames import sessions_table
from analyzer.views.replay import comparison_table
from analyzer.views.text import diagnosis_text

DEMO_SESSION = "blowup-177"
DEMO_POLICIES = ("recorded", "raw", "sliding-stubs:keep=12", "watermarks")


def sample_traces() -> Path:
    """The folder of sample traces: beside the package in a checkout."""
    folder = Path(__file__).resolve().parents[2] / "sample_traces"
    if not folder.is_dir():
        raise InputError(
            f"expected the sample traces at {folder}; run the demo from a checkout of the project"
        )
    return folder


@click.command("demo")
@click.option("--no-dashboard", is_flag=True, help="Do not serve the dashboard.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--port", type=int, help="Port to serve on.  [default: the first free one from 8501]")
@click.pass_context
def demo_command(ctx: click.Context, no_dashboard: bool, host: str, port: int | None) -> None:
    """Load the sample traces, say where the money went, compare policies, serve the dashboard."""
    settings = settings_of(ctx)
    if ctx.find_root().get_parameter_source("db") is click.core.ParameterSource.DEFAULT:
        # The samples must not mix with a user's own sessions.
        settings.db = Path(tempfile.gettempdir()) / f"analyzer-demo-{os.getuid()}" / "demo.duckdb"
        settings.db.parent.mkdir(mode=0o700, exist_ok=True)
    tell(f"loading the sample traces into {settings.db}")
    ingest([sample_traces()], settings.db, project="demo", waiting=tell)
    refresh(settings)
    with workspace(ctx) as space:
        emit_table(sessions_table(space.sessions()), "text")
        emit("")
        key = space.keys([DEMO_SESSION])[0]
        emit(diagnosis_text(space.diagnose(key), limit=1))
        emit("")
        emit_table(comparison_table(space.compare([key], DEMO_POLICIES)), "text")
    if not no_dashboard:
        serve(settings.db, host, port)


@click.command("dashboard")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--port", type=int, help="Port to serve on.  [default: the first free one from 8501]")
@click.pass_context
def dashboard_command(ctx: click.Context, host: str, port: int | None) -> None:
    """Serve the dashboard on the store. It reads only; ingest may go on meanwhile."""
    settings = settings_of(ctx)
    if settings.db.exists():
        refresh(settings)
    serve(settings.db, host, port)


def serve(db: Path, host: str, port: int | None) -> None:
    """Run the dashboard until it is stopped."""
    if find_spec("streamlit") is None:
        raise InputError("the dashboard needs the extra: install `analyzer[dashboard]`")
    app = find_spec("apps")
    if app is None or not app.submodule_search_locations:
        raise InputError("the dashboard's pages (package `apps`) are not installed")
    script = Path(next(iter(app.submodule_search_locations))) / "app.py"
    stderr().print("the dashboard prints its address below; Ctrl-C stops it", style="bold")
    command = [sys.executable, "-m", "streamlit", "run", str(script)]
    options = {
        "server.address": host,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
    }
    if port is not None:
        options["server.port"] = str(port)
    command += [f"--{name}={value}" for name, value in options.items()]
    # Our own interpreter, our own script, and options that are numbers or an address.
    own = {**os.environ, "ANALYZER_DB": str(db)}
    child = subprocess.Popen(command, env=own)  # noqa: S603 - see above
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        code = child.wait()
    except KeyboardInterrupt:
        code = child.wait()
    if code not in (0, -signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT):
        raise InputError(f"the dashboard ended with code {code}")
