"""The command line: run workers, look at jobs, keep the database in order."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from holdfast.cli import dead, dev, doctor, init, jobs, providers, queues, schedules, schema, worker
from holdfast.cli.exits import run_command
from holdfast.cli.target import USUAL
from holdfast.face import Holdfast

app = typer.Typer(
    name="holdfast",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("worker")(worker.run)
app.command("dev")(dev.run)
app.command("init")(init.run)
app.command("doctor")(doctor.run)
app.add_typer(jobs.app, name="jobs")
app.add_typer(dead.app, name="dead")
app.add_typer(providers.app, name="providers")
app.add_typer(queues.app, name="queues")
app.add_typer(schedules.app, name="schedules")
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


def main(
    words: Sequence[str] | None = None,
    *,
    called: str | None = None,
    usual: Callable[[], Holdfast] = Holdfast,
) -> None:
    """Run the command that *words* name, else the process's own arguments, and leave with its exit code.

    *called* is what people type to get here, and *usual* gives what a command works on that is told nothing.
    """
    USUAL.set(usual)
    run_command(app, words, called=called)
