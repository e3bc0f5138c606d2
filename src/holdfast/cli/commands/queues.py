"""`holdfast queues`: list, pause and resume queues."""

from datetime import datetime
from typing import Annotated, NamedTuple

import typer

from holdfast.app import Holdfast
from holdfast.cli.options.app_loader import AppOption, UrlOption, resolve
from holdfast.cli.options.known_queue import ensure_known_queue
from holdfast.cli.session import ActorOption, run_with_store
from holdfast.cli.views.output import EMPTY, JsonOption, show_json
from holdfast.cli.views.table import Column, Fit, moment, show_rows, show_table
from holdfast.engine.operations.queue_service import QueueStatus

app = typer.Typer(no_args_is_help=True, help="List, pause and resume queues.")

COLUMNS = (
    Column("queue", Fit.CUT),
    Column("queued"),
    Column("processing"),
    Column("paused_by", Fit.CUT, omit_if=(EMPTY,)),
    Column("paused_at", omit_if=(EMPTY,)),
    Column("reason", Fit.FOLDED, omit_if=(EMPTY,)),
    Column("held", omit_if=("0",)),
)
OUTCOME = (Column("queue"), Column("outcome", Fit.FOLDED))

QueueArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]


class _PauseResult(NamedTuple):
    """The result of pausing or resuming a queue."""

    queue: str
    changed: bool
    detail: str


@app.command("list")
def list_queues(
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List queues with the number of their jobs, and who paused them."""
    found, now = run_with_store(resolve(application, url), _read_queues)
    if as_json:
        show_json([queue._asdict() for queue in found])
    else:
        show_rows(
            COLUMNS,
            [(*queue[:4], moment(queue.paused_at, now), queue.reason, queue.held) for queue in found],
            if_empty="no queues: no job has been submitted yet",
        )


@app.command("pause")
def pause(
    queue: QueueArgument,
    *,
    actor: ActorOption,
    reason: Annotated[
        str, typer.Option("--reason", metavar="WHY", help="The reason; `holdfast queues list` shows it.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Pause the queue even if it is not known yet.")
    ] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause a queue: workers start no more of its jobs, and running jobs continue."""

    async def operation(hold: Holdfast) -> _PauseResult:
        if not force:
            await ensure_known_queue(hold, queue)
        if await hold.queues.pause(queue, actor=actor, reason=reason):
            return _PauseResult(queue, changed=True, detail="paused")
        return _PauseResult(queue, changed=False, detail="was paused before")

    _print_result(run_with_store(resolve(application, url), operation), as_json=as_json)


@app.command("resume")
def resume(
    queue: QueueArgument,
    *,
    actor: ActorOption,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume a paused queue."""

    async def operation(hold: Holdfast) -> _PauseResult:
        await ensure_known_queue(hold, queue)
        if await hold.queues.resume(queue, actor=actor):
            return _PauseResult(queue, changed=True, detail="resumed")
        return _PauseResult(queue, changed=False, detail="was not paused")

    _print_result(run_with_store(resolve(application, url), operation), as_json=as_json)


async def _read_queues(hold: Holdfast) -> tuple[list[QueueStatus], datetime]:
    """Read the queues, and the time of the database."""
    return await hold.queues.list(), await hold.database.now()


def _print_result(result: _PauseResult, *, as_json: bool) -> None:
    if as_json:
        show_json(result._asdict())
    else:
        show_table(OUTCOME, [(result.queue, result.detail)])
