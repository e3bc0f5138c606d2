"""The command line: run workers, look at jobs, keep the database in order."""

from importlib.metadata import version
from typing import Annotated

import typer

from holdfast.cli import doctor, jobs, schema, worker
from holdfast.cli.exits import run_command

app = typer.Typer(
    name="holdfast",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("worker")(worker.run)
app.command("doctor")(doctor.run)
app.add_typer(jobs.app, name="jobs")
app.add_typer(schema.app, name="schema")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


@app.callback()
def _holdfast(
    shown: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """Run workers, look at jobs, and keep their database in order."""


def main() -> None:
    """Run the command that the process was started with, and leave with its exit code."""
    run_command(app)
