"""`holdfast queues`: list, pause and resume queues."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, NamedTuple

import typer

from holdfast.cli.options.app_loader import AppOption, UrlOption, resolve
from holdfast.cli.options.known import ensure_known_queue
from holdfast.cli.session import ActorOption, run_with_store
from holdfast.cli.views.output import EMPTY, JsonOption, show_json
from holdfast.cli.views.table import Column, Fit, moment, show_rows, show_table
from holdfast.face import Holdfast
from holdfast.ports.queues import Pause

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

RECENT = 10_000
"""Empty queues are listed if one of this number of last ended jobs was theirs."""

QueueArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]


class _QueueListing(NamedTuple):
    """A queue as it is listed."""

    queue: str
    queued: int
    processing: int
    paused_by: str | None = None
    paused_at: datetime | None = None
    reason: str | None = None
    held: int = 0
    """How many of those that are queued are held."""


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
            [_row(queue, now) for queue in found],
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
        if await hold.pause_queue(queue, actor=actor, reason=reason):
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
        if await hold.resume_queue(queue, actor=actor):
            return _PauseResult(queue, changed=True, detail="resumed")
        return _PauseResult(queue, changed=False, detail="was not paused")

    _print_result(run_with_store(resolve(application, url), operation), as_json=as_json)


async def _read_queues(hold: Holdfast) -> tuple[list[_QueueListing], datetime]:
    """Read every queue that has a live job, or had one of the last that ended, or is paused; and the store's clock."""
    store = hold.runtime.store
    depths: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for depth in await store.queues.depths():
        depths[depth.queue][depth.state] = depth.jobs
    pauses = {pause.queue: pause for pause in await store.queues.paused()}
    recent = await store.queues.recent(limit=RECENT)
    now = await store.now()
    return [
        _listing(name, depths[name], pauses.get(name)) for name in sorted({*depths, *pauses, *recent})
    ], now


def _row(queue: _QueueListing, now: datetime) -> tuple[object, ...]:
    return (*queue[:4], moment(queue.paused_at, now), queue.reason, queue.held)


def _listing(name: str, jobs: Mapping[str, int], paused: Pause | None) -> _QueueListing:
    processing = jobs.get("processing", 0)
    found = _QueueListing(name, sum(jobs.values()) - processing, processing, held=jobs.get("held", 0))
    if paused is None:
        return found
    return found._replace(paused_by=paused.actor, paused_at=paused.at, reason=paused.reason)


def _print_result(result: _PauseResult, *, as_json: bool) -> None:
    if as_json:
        show_json(result._asdict())
    else:
        show_table(OUTCOME, [(result.queue, result.detail)])
