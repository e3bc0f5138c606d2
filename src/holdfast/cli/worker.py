"""`holdfast worker`: a process that runs jobs until it is told to stop."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from holdfast.cli.exits import ExitCode, complain
from holdfast.cli.lengths import length, positive_length
from holdfast.cli.target import load
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.engine.options import WorkerOptions
from holdfast.engine.worker import Worker
from holdfast.face import Holdfast
from holdfast.ports import Journal
from holdfast.telemetry.logs import StructuredJournal

STRAGGLERS = 3.0
"""Seconds that threads get which a handler left behind, once every job is settled."""


class LogLevel(StrEnum):
    """The least level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """What a log line looks like."""

    JSON = "json"
    TEXT = "text"


def run(
    application: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="The application object, for example app:hold.")
    ],
    *,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, max=100_000, help="How many jobs to run at once.")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="Work on this queue; give it again for more."),
    ] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option("--lease", parser=positive_length, metavar="TIME", help="How long a claim lasts."),
    ] = None,
    grace: Annotated[
        timedelta | None,
        typer.Option(
            "--grace", parser=length, metavar="TIME", help="How long running jobs may go on at the end."
        ),
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option("--log-level", case_sensitive=False, help="Least level that is logged.")
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option("--log-format", case_sensitive=False, help="What a log line looks like."),
    ] = None,
) -> None:
    """Run jobs until told to stop by a signal."""
    hold = load(application)
    usual = hold.settings.worker_options
    options = replace(
        usual,
        slots=slots or usual.slots,
        queues=queue or usual.queues,
        lease=lease or usual.lease,
        grace=usual.grace if grace is None else grace,
    )
    journal = _journal(hold, log_level, log_format)
    with asyncio.Runner(loop_factory=_quickest_loop()) as runner:
        code = _outcome(runner, _serve(hold, options, journal))
        _leave_within(STRAGGLERS, code)
    raise typer.Exit(code)


def _outcome(runner: asyncio.Runner, serving: Coroutine[None, None, None]) -> ExitCode:
    try:
        runner.run(serving)
    except HoldfastError as error:
        return complain(error)
    return ExitCode.DONE


def _journal(hold: Holdfast, level: LogLevel | None, style: LogFormat | None) -> Journal:
    """Keep the application's own journal, unless the command line asks for something else."""
    if level is None and style is None:
        return hold.parts.journal
    return StructuredJournal(
        level=level or hold.settings.log_level, as_json=(style or hold.settings.log_format) == LogFormat.JSON
    )


def _quickest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(hold: Holdfast, options: WorkerOptions, journal: Journal) -> None:
    """Work until told to stop. The database is left last, after every job is settled or given back."""
    worker = Worker(hold.parts.ids.worker_id(), replace(hold.parts, journal=journal), options)
    _stop_on_signals(worker, journal)
    try:
        await hold.open()
        # A store that takes no writes is told at the start: this write changes nothing, and later ones wait.
        await hold.parts.store.promote(limit=0)
        if not any(hold.parts.registry):
            journal.warning("no job is declared; import the modules that declare them", worker=worker.name)
        await worker.run()
    finally:
        await hold.close()
    if worker.unsettled:
        raise StoreUnavailable(
            f"the end of {worker.unsettled} attempts could not be stored; those jobs run again when their leases are over"
        )


def _stop_on_signals(worker: Worker, journal: Journal) -> None:
    """Finish on the first signal, let go on the second, and leave at the third: leases then run out."""
    heard = 0

    def hear(number: signal.Signals) -> None:
        nonlocal heard
        heard += 1
        if heard > 2:
            os._exit(128 + number)
        journal.info("worker stopping", worker=worker.name, signal=number.name, running=worker.running)
        worker.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)


def _leave_within(seconds: float, code: ExitCode) -> None:
    """Bound the wait for threads that a handler left behind: loop and interpreter would wait for their end."""

    def leave() -> None:
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
