"""The command `analyzer`: parses arguments, asks the workspace, prints. One file a command group.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 a gate failed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from analyzer.cli.advise import advise_command
from analyzer.cli.base import Settings, default_db, stderr
from analyzer.cli.demo import dashboard_command, demo_command
from analyzer.cli.diagnose import diagnose_command
from analyzer.cli.ingest import ingest_command, sources_command, validate_command
from analyzer.cli.look import diff_command, sessions_command, show_command, steps_command
from analyzer.cli.replay import (
    backtest_command,
    policies_command,
    prices_command,
    replay_command,
    simulate_command,
)
from analyzer.errors import AnalyzerError, GateError, UsageError
from analyzer.store import Scope

__all__ = ["cli", "main"]

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_GATE = 3


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="ANALYZER_DB",
    default=default_db,
    show_default="the user's data folder",
    help="The store.",
)
@click.option("--project", help="See only the sessions of this project.")
@click.option("--user", help="See only the sessions of this user.")
@click.option(
    "--prices",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    envvar="ANALYZER_PRICES",
    help="A price file of your own; it overrides the built-in prices.",
)
@click.version_option(package_name="analyzer", prog_name="analyzer")
@click.pass_context
def cli(
    ctx: click.Context, db: Path, project: str | None, user: str | None, prices: Path | None
) -> None:
    """Why the prompt cache broke, what it cost, and what another policy would have cost.

    No model is called and nothing leaves this machine.
    """
    ctx.obj = Settings(db, Scope(project, user), prices)


for _command in (
    demo_command,
    ingest_command,
    validate_command,
    sessions_command,
    steps_command,
    show_command,
    diff_command,
    diagnose_command,
    backtest_command,
    replay_command,
    advise_command,
    simulate_command,
    policies_command,
    sources_command,
    prices_command,
    dashboard_command,
):
    cli.add_command(_command)


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    try:
        cli.main(args=args, prog_name="analyzer", standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        stderr().print("stopped; what was reported as done is kept")
        sys.exit(EXIT_ERROR)
    except BrokenPipeError:
        # The reader of a pipe went away (`| head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except GateError as error:
        stderr().print(f"gate failed: {error}")
        sys.exit(EXIT_GATE)
    except UsageError as error:
        stderr().print(f"error: {error}")
        sys.exit(EXIT_USAGE)
    except (AnalyzerError, OSError) as error:
        stderr().print(f"error: {error}")
        sys.exit(EXIT_ERROR)
