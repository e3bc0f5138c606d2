"""`holdfast queues`: what is in them, and how to stop them and let them go on."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, NamedTuple

import typer

from holdfast.cli.asking import ActorOption, asked
from holdfast.cli.known import ensure_known_queue
from holdfast.cli.output import NOTHING, JsonOption, show_json
from holdfast.cli.tables import Column, Room, moment, show_rows, show_table
from holdfast.cli.target import AppOption, UrlOption, chosen
from holdfast.face import Holdfast
from holdfast.ports.store import Pause

app = typer.Typer(no_args_is_help=True, help="Look at queues, pause them, let them go on.")

COLUMNS = (
    Column("queue", Room.CUT),
    Column("queued"),
    Column("processing"),
    Column("paused_by", Room.CUT, usual=(NOTHING,)),
    Column("paused_at", usual=(NOTHING,)),
    Column("reason", Room.FOLDED, usual=(NOTHING,)),
    Column("held", usual=("0",)),
)
OUTCOME = (Column("queue"), Column("outcome", Room.FOLDED))

RECENT = 10_000
"""Of so many jobs that ended last, the queues are listed though no job is in them."""

QueueArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]


class _Queue(NamedTuple):
    """A queue as it is listed."""

    queue: str
    queued: int
    processing: int
    paused_by: str | None = None
    paused_at: datetime | None = None
    reason: str | None = None
    held: int = 0
    """How many of those that are queued are held."""


class _Answer(NamedTuple):
    """What became of a queue that was to be paused or resumed."""

    queue: str
    changed: bool
    detail: str


@app.command("list")
def list_queues(
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List queues with their live jobs, and who paused them."""
    found, now = asked(chosen(application, url), _queues)
    if as_json:
        show_json([queue._asdict() for queue in found])
    else:
        show_rows(
            COLUMNS,
            [_row(queue, now) for queue in found],
            nothing="there is no queue: no job was submitted yet",
        )


@app.command("pause")
def pause(
    queue: QueueArgument,
    *,
    actor: ActorOption,
    reason: Annotated[str, typer.Option("--reason", metavar="WHY", help="Why; the list shows it.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Pause it even if nothing is known of such a queue yet.")
    ] = False,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have no worker start jobs of a queue, while what runs goes on."""

    async def ask(hold: Holdfast) -> _Answer:
        if not force:
            await ensure_known_queue(hold, queue)
        if await hold.pause_queue(queue, actor=actor, reason=reason):
            return _Answer(queue, changed=True, detail="paused")
        return _Answer(queue, changed=False, detail="was paused before")

    _tell(asked(chosen(application, url), ask), as_json=as_json)


@app.command("resume")
def resume(
    queue: QueueArgument,
    *,
    actor: ActorOption,
    application: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let workers start jobs of a queue again."""

    async def ask(hold: Holdfast) -> _Answer:
        await ensure_known_queue(hold, queue)
        if await hold.resume_queue(queue, actor=actor):
            return _Answer(queue, changed=True, detail="resumed")
        return _Answer(queue, changed=False, detail="was not paused")

    _tell(asked(chosen(application, url), ask), as_json=as_json)


async def _queues(hold: Holdfast) -> tuple[list[_Queue], datetime]:
    """Read every queue that has a live job, or had one of the last that ended, or is paused; and the store's clock."""
    store = hold.parts.store
    depths: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for depth in await store.depths():
        depths[depth.queue][depth.state] = depth.jobs
    pauses = {pause.queue: pause for pause in await store.paused_queues()}
    recent = await store.recent_queues(limit=RECENT)
    now = await store.now()
    return [_queue(name, depths[name], pauses.get(name)) for name in sorted({*depths, *pauses, *recent})], now


def _row(queue: _Queue, now: datetime) -> tuple[object, ...]:
    return (*queue[:4], moment(queue.paused_at, now), queue.reason, queue.held)


def _queue(name: str, jobs: Mapping[str, int], paused: Pause | None) -> _Queue:
    processing = jobs.get("processing", 0)
    found = _Queue(name, sum(jobs.values()) - processing, processing, held=jobs.get("held", 0))
    if paused is None:
        return found
    return found._replace(paused_by=paused.actor, paused_at=paused.at, reason=paused.reason)


def _tell(answer: _Answer, *, as_json: bool) -> None:
    if as_json:
        show_json(answer._asdict())
    else:
        show_table(OUTCOME, [(answer.queue, answer.detail)])
