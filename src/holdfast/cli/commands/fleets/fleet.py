"""`holdfast fleet`: operations on the Celery and arq workers that run the jobs of a queue."""

import asyncio
import sys
from datetime import timedelta
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.options.app_loader import AppOption, UrlOption, resolve
from holdfast.cli.options.durations import parse_positive_duration
from holdfast.cli.options.known_queue import ensure_known_queue
from holdfast.cli.session import run_with_store

app = typer.Typer(no_args_is_help=True, help="Operate the Celery and arq workers that run jobs.")

POLL_SECONDS = 0.5


@app.callback()
def _fleet() -> None:
    """Keep `drain` a command of its own, although it is the only one."""


@app.command("drain")
def drain(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")],
    *,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            "--timeout",
            parser=parse_positive_duration,
            metavar="TIME",
            help="Give up after this time, with exit code 1.",
            show_default="wait for ever",
        ),
    ] = None,
    application: AppOption = None,
    url: UrlOption = None,
) -> None:
    """Wait until a queue has no live job, and print how many are left whenever that changes."""
    left = run_with_store(resolve(application, url), lambda hold: _drain(hold, queue, timeout))
    if left:
        typer.echo(f"{left} jobs of {queue!r} are left", err=True)
        raise typer.Exit(ExitCode.REFUSED)


async def _drain(hold: Holdfast, queue: str, timeout: timedelta | None) -> int:
    """Wait until *queue* is empty, at most for *timeout*; return how many jobs are left."""
    await ensure_known_queue(hold, queue)
    shown: int | None = None
    try:
        async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
            while (left := await _count(hold, queue)) != 0:
                if left != shown:
                    typer.echo(f"{queue}\t{left}")
                    sys.stdout.flush()
                shown = left
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return await _count(hold, queue)
    typer.echo(f"{queue}\t0")
    return 0


async def _count(hold: Holdfast, queue: str) -> int:
    return sum(depth.jobs for depth in await hold.queues.depths() if depth.queue == queue)
