"""`holdfast schema`: create, upgrade and check the tables."""

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.cli.exit_codes import ExitCode, print_status
from holdfast.cli.options.app_loader import AppOption, UrlOption, resolve
from holdfast.cli.options.durations import format_duration, parse_duration
from holdfast.cli.views.output import JsonOption, show_json
from holdfast.ports import SchemaState
from holdfast.ports.schema import APPLY_LIMIT, LockWait
from holdfast.stores.schema_version import ensure_fit

app = typer.Typer(no_args_is_help=True, help="Create, upgrade and check the tables.")


WaitOption = Annotated[
    timedelta | None,
    typer.Option(
        "--wait",
        parser=parse_duration,
        metavar="LENGTH",
        help="How long to retry while another session holds a lock on the tables; the default is 10m.",
    ),
]


@app.command("apply")
def apply(
    application: AppOption = None,
    url: UrlOption = None,
    wait: WaitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create or upgrade the tables to the schema of this version."""
    before, now = asyncio.run(_apply(resolve(application, url), APPLY_LIMIT if wait is None else wait))
    if as_json:
        show_json({"before": before.found, **_fields(now)})
    elif before.found == now.found:
        typer.echo(f"schema version {now.found}: nothing to apply")
    else:
        typer.echo(f"schema version {now.found} applied; before it was {before.found or 'missing'}")


@app.command("status")
def status(application: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show the schema version of the database; exit with 1 if an upgrade is needed."""
    state = asyncio.run(_state(resolve(application, url)))
    if as_json:
        show_json(_fields(state))
    elif state.current:
        typer.echo(f"schema version {state.found}: nothing to apply")
    else:
        typer.echo(
            f"schema version {state.found or 'missing'}, this code needs {state.expected}; run `holdfast schema apply`"
        )
    if not state.current:
        raise typer.Exit(ExitCode.REFUSED)
    ensure_fit(state)


async def _apply(hold: Holdfast, limit: timedelta) -> tuple[SchemaState, SchemaState]:
    try:
        before = await hold.apply_schema(wait=limit, blocked=_print_lock_wait)
        now = await hold.database.schema_state()
    finally:
        await hold.close()
    ensure_fit(now)
    return before, now


def _print_lock_wait(wait: LockWait) -> None:
    print_status(
        f"waited {format_duration(wait.waited)} for {wait}; nothing has been changed yet, and workers continue"
    )


async def _state(hold: Holdfast) -> SchemaState:
    try:
        return await hold.database.schema_state()
    finally:
        await hold.close()


def _fields(state: SchemaState) -> dict[str, object]:
    return {**state._asdict(), "current": state.current}
