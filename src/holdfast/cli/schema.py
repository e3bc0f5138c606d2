"""`holdfast schema`: the tables that jobs live in."""

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from holdfast.cli.exits import ExitCode, say
from holdfast.cli.lengths import brief, length
from holdfast.cli.output import JsonOption, show_json
from holdfast.cli.target import AppOption, UrlOption, chosen, missing_file
from holdfast.face import Holdfast
from holdfast.ports import SchemaState, Store
from holdfast.ports.store import APPLY_LIMIT, LockWait
from holdfast.stores.sqlite.schema import WANTED
from holdfast.stores.versions import ensure_fit

app = typer.Typer(no_args_is_help=True, help="Make and check the tables that jobs live in.")


WaitOption = Annotated[
    timedelta | None,
    typer.Option(
        "--wait",
        parser=length,
        metavar="LENGTH",
        help="How long to try again while another session holds a lock on the tables; 10m if not given.",
    ),
]


@app.command("apply")
def apply(
    application: AppOption = None,
    url: UrlOption = None,
    wait: WaitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the database to the schema of this version."""
    limit = APPLY_LIMIT if wait is None else wait
    before, now = asyncio.run(_applied(chosen(application, url).parts.store, limit))
    if as_json:
        show_json({"before": before.found, **_fields(now)})
    elif before.found == now.found:
        typer.echo(f"schema version {now.found}: nothing to apply")
    else:
        typer.echo(f"schema version {now.found} applied; before it was {before.found or 'missing'}")


@app.command("status")
def status(application: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Tell whether something is to be applied."""
    state = asyncio.run(_state(chosen(application, url)))
    if as_json:
        show_json(_fields(state))
    elif state.current:
        typer.echo(f"schema version {state.found}: nothing to apply")
    else:
        typer.echo(
            f"schema version {state.found or 'missing'}, this code needs {state.wanted}; run `holdfast schema apply`"
        )
    if not state.current:
        raise typer.Exit(ExitCode.REFUSED)
    ensure_fit(state)


async def _applied(store: Store, limit: timedelta) -> tuple[SchemaState, SchemaState]:
    try:
        before = await store.apply_schema(limit=limit, blocked=_say_what_blocks)
        now = await store.schema_state()
    finally:
        await store.close()
    ensure_fit(now)
    return before, now


def _say_what_blocks(wait: LockWait) -> None:
    say(f"waiting for {brief(wait.waited)} for {wait}; nothing was changed yet, and workers go on")


async def _state(hold: Holdfast) -> SchemaState:
    if missing_file(hold) is not None:
        return SchemaState(found=0, wanted=WANTED, min_compatible=0)
    try:
        return await hold.parts.store.schema_state()
    finally:
        await hold.parts.store.close()


def _fields(state: SchemaState) -> dict[str, object]:
    return {**state._asdict(), "current": state.current}
