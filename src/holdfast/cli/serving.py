"""One worker process, from its first connection to its last."""

import asyncio
import errno
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from holdfast.cli.exits import ExitCode, NotNow, complain
from holdfast.cli.health import WorkerHealth, live
from holdfast.cli.systemd import Systemd
from holdfast.core.errors import ConfigError, HoldfastError, StoreUnavailable
from holdfast.engine.options import WorkerOptions
from holdfast.engine.parts import Parts
from holdfast.engine.worker import Worker
from holdfast.face import Holdfast
from holdfast.ports import Journal
from holdfast.telemetry.probes import ProbeServer, Route

SlotsOption = Annotated[
    int | None,
    typer.Option(
        "--slots",
        min=1,
        max=100_000,
        help="How many jobs to run at once.",
        show_default="HOLDFAST_WORKER_CONCURRENCY, else 100",
    ),
]

STRAGGLERS = 3.0
"""Seconds that threads get which a handler left behind, once every job is settled."""

STDIN = 0


class Address(NamedTuple):
    """Where a process answers those who look after it."""

    host: str
    port: int


def serve(
    hold: Holdfast,
    options: WorkerOptions,
    journal: Journal,
    *,
    health: Address | Path | None,
    development: bool = False,
) -> int:
    """Work until told to stop, and give the code to leave with.

    With a path for *health* the process is one of several: its parent asks there, and gives its orders
    through standard input. In *development* the log shows every completed job, and failures with their stack.
    """
    parts = replace(hold.parts, journal=journal, development=development)
    with asyncio.Runner(loop_factory=_quickest_loop()) as runner:
        code = outcome(runner, _serve(hold, parts, options, health))
        _leave_within(STRAGGLERS, code)
    return code


def outcome(runner: asyncio.Runner, serving: Coroutine[None, None, int | None]) -> int:
    """Run *serving*; what was foreseen to go wrong is one line, and an exit code."""
    try:
        code = runner.run(serving)
    except HoldfastError as error:
        return complain(error)
    return code or ExitCode.DONE


def _quickest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(hold: Holdfast, parts: Parts, options: WorkerOptions, health: Address | Path | None) -> None:
    """Work until told to stop. The database is left last, after every job is settled or given back."""
    journal = parts.journal
    worker = Worker(parts.ids.worker_id(), parts, options)
    orders = Orders(worker, journal)
    orders.hear_signals()
    if isinstance(health, Path):
        orders.hear_parent()
    looked_after = WorkerHealth(parts, worker)
    # One of several leaves it to its parent to report.
    supervisor = Systemd({}) if isinstance(health, Path) else Systemd()
    async with (
        answering(health, looked_after.routes, journal),
        supervisor.informed(live=live, ready=looked_after.ready),
    ):
        try:
            await hold.open()
            # A store that takes no writes is told at the start: this write changes nothing, and later ones wait.
            await hold.parts.store.promote(limit=0)
            if not any(hold.parts.registry):
                journal.warning(
                    "no job is declared; import the modules that declare them", worker=worker.name
                )
            await worker.run()
        finally:
            await hold.close()
    if worker.unsettled:
        raise StoreUnavailable(
            f"the end of {worker.unsettled} attempts could not be stored; "
            "those jobs run again when their leases are over"
        )


@asynccontextmanager
async def answering(
    health: Address | Path | None, routes: Callable[[], Mapping[str, Route]], journal: Journal
) -> AsyncIterator[None]:
    """Answer at *health* while the block runs. Raises `ConfigError` if that is not possible, `NotNow` if not now."""
    if health is None:
        yield
        return
    server = ProbeServer(routes(), journal=journal)
    try:
        if isinstance(health, Path):
            await server.open_at(health)
        else:
            port = await server.open(*health)
            journal.info("health port open", host=health.host, port=port)
    except OSError as error:
        where = health if isinstance(health, Path) else f"{health.host}:{health.port}"
        told = f"cannot listen on {where} for health checks: {error.strerror or error}"
        # Who has the port may be about to leave, a worker of before for example; an address that is not ours stays so.
        raise (NotNow if error.errno == errno.EADDRINUSE else ConfigError)(told) from error
    try:
        yield
    finally:
        await server.close()


class Orders:
    """Finish on the first order, let go on the second, and leave at the third: leases then run out.

    The same order may come by two ways: a terminal, or systemd, signals every process of a group, and the
    parent passes on what it heard. So what counts is the way by which most orders came.
    """

    def __init__(self, worker: Worker, journal: Journal) -> None:
        self._worker = worker
        self._journal = journal
        self._heard: Counter[str] = Counter()
        self._level = 0

    def hear_signals(self) -> None:
        """Take orders from SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.hear, "signal", number)

    def hear_parent(self) -> None:
        """Take orders from standard input: each byte is a signal's number, and its end is the parent's."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            told = os.read(STDIN, 16)
            if not told:
                loop.remove_reader(STDIN)
            for number in told or [signal.SIGTERM]:
                self.hear("parent", signal.Signals(number))

        loop.add_reader(STDIN, read)

    def hear(self, way: str, number: signal.Signals) -> None:
        """Obey, unless the same order came before by another way."""
        self._heard[way] += 1
        if self._heard[way] <= self._level:
            return
        self._level = self._heard[way]
        if self._level > 2:
            os._exit(128 + number)
        if not self._worker.stopped:
            self._journal.info(
                "worker stopping", worker=self._worker.name, signal=number.name, running=self._worker.running
            )
        self._worker.stop()


def _leave_within(seconds: float, code: int) -> None:
    """Bound the wait for threads that a handler left behind: loop and interpreter would wait for their end."""

    def leave() -> None:
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
