"""The command line: run workers, inspect and repair jobs, manage the database."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.cli.commands import (
    dead_letters,
    dev,
    doctor,
    init,
    jobs,
    providers,
    queues,
    schedules,
    schema,
    worker,
)
from holdfast.cli.commands.fleets import celery, dispatch, fleet
from holdfast.cli.commands.messages import outbox, relay, schemas, topology
from holdfast.cli.exit_codes import run_command
from holdfast.cli.options.app_loader import DEFAULT_APPLICATION

app = typer.Typer(
    name="holdfast",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("worker")(worker.run)
app.command("relay")(relay.run)
app.command("dispatch")(dispatch.run)
app.command("dev")(dev.run)
app.command("init")(init.run)
app.command("doctor")(doctor.run)
app.add_typer(jobs.app, name="jobs")
app.add_typer(dead_letters.app, name="dead")
app.add_typer(providers.app, name="providers")
app.add_typer(queues.app, name="queues")
app.add_typer(schedules.app, name="schedules")
app.add_typer(fleet.app, name="fleet")
app.add_typer(celery.app, name="celery")
app.add_typer(outbox.app, name="outbox")
app.command("schemas")(schemas.run)
app.add_typer(schema.app, name="schema")
app.add_typer(topology.app, name="topology")


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


@app.callback()
def _holdfast(
    shown: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Run workers, inspect and repair jobs, and manage their database."""


def main(
    args: Sequence[str] | None = None,
    *,
    prog_name: str | None = None,
    default: Callable[[], Holdfast] = Holdfast,
) -> None:
    """Run the command that *args* name, by default the arguments of the process, and exit with its code.

    *prog_name* is the name in usage messages. *default* makes the Holdfast of a command without --app and --url.
    """
    DEFAULT_APPLICATION.set(default)
    run_command(app, args, prog_name=prog_name)
