"""One process that runs a worker or a relay, from its first connection to its last."""

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
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from holdfast.app import Holdfast
from holdfast.cli.exit_codes import ExitCode, TemporarilyUnavailable, report_error
from holdfast.cli.process.relay_health import RelayHealth
from holdfast.cli.process.runner_health import Runner, RunnerHealth, live
from holdfast.cli.process.systemd import Systemd
from holdfast.cli.process.worker_health import WorkerHealth
from holdfast.core.errors import ConfigError, HoldfastError, StoreUnavailable
from holdfast.engine.messages.relays.relay_runner import RelayRunner
from holdfast.engine.options import WorkerOptions
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.worker import Worker
from holdfast.ports import Logger
from holdfast.telemetry.health_server import HealthServer, Route

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

THREAD_GRACE = 3.0
"""Seconds to wait at exit for threads that handlers have abandoned."""

STDIN = 0


class Address(NamedTuple):
    """The address of the health port."""

    host: str
    port: int


def serve(
    hold: Holdfast,
    options: WorkerOptions,
    logger: Logger,
    *,
    health: Address | Path | None,
    development: bool = False,
) -> int:
    """Run a worker until a signal stops it, and return the exit code.

    With a path for *health* the process is one of several: its parent reads its health there, and sends signals
    through standard input. In *development* every completed job is logged, and failures with their stack.
    """
    runtime = replace(hold.runtime, logger=logger, development=development)
    return _run_process(_serve_worker(hold, runtime, options, health))


def serve_relay(hold: Holdfast, logger: Logger, *, grace: timedelta, health: Address | Path | None) -> int:
    """Run a relay until a signal stops it, and return the exit code; *health* as with a worker."""
    return _run_process(_serve_relay(hold, replace(hold.runtime, logger=logger), grace, health))


def _run_process(serving: Coroutine[None, None, int | None]) -> int:
    with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
        code = run_to_exit_code(runner, serving)
        _exit_within(THREAD_GRACE, code)
    return code


def run_to_exit_code(runner: asyncio.Runner, serving: Coroutine[None, None, int | None]) -> int:
    """Run *serving*; an expected error is one line on stderr, and an exit code."""
    try:
        code = runner.run(serving)
    except HoldfastError as error:
        return report_error(error)
    return code or ExitCode.DONE


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve_worker(
    hold: Holdfast, runtime: Runtime, options: WorkerOptions, health: Address | Path | None
) -> None:
    worker = Worker(runtime.ids.worker_id(), runtime, options)
    if not any(runtime.registry):
        runtime.logger.warning(
            "no jobs declared", worker=worker.name, message="import the modules that declare jobs"
        )
    await _serve(hold, worker, WorkerHealth(runtime, worker), runtime.logger, health)
    if worker.unsettled:
        raise StoreUnavailable(
            f"the outcomes of {worker.unsettled} attempts could not be stored; "
            "those jobs run again when their leases have expired"
        )


async def _serve_relay(
    hold: Holdfast, runtime: Runtime, grace: timedelta, health: Address | Path | None
) -> None:
    relay = RelayRunner(runtime.ids.worker_id(), runtime, grace=grace)
    await _serve(hold, relay, RelayHealth(runtime, relay), runtime.logger, health)


async def _serve(
    hold: Holdfast, runner: Runner, its_health: RunnerHealth, logger: Logger, health: Address | Path | None
) -> None:
    """Run until a signal stops it. The database is closed last, after everything is written or released."""
    stop_requests = StopRequests(runner, logger)
    stop_requests.listen_to_signals()
    if isinstance(health, Path):
        stop_requests.listen_to_parent()
    # With several processes, the parent notifies systemd.
    supervisor = Systemd({}) if isinstance(health, Path) else Systemd()
    async with (
        health_endpoint(health, its_health.routes, logger),
        supervisor.notifying(live=live, ready=its_health.ready),
    ):
        try:
            await hold.open()
            # A read-only store is an error at the start: this write changes nothing, and later writes wait.
            await hold.database.ensure_writable()
            await runner.run()
        finally:
            await hold.close()


@asynccontextmanager
async def health_endpoint(
    health: Address | Path | None, routes: Callable[[], Mapping[str, Route]], logger: Logger
) -> AsyncIterator[None]:
    """Serve *health* while the block runs. Raises `ConfigError`, or `TemporarilyUnavailable` if the port is in use."""
    if health is None:
        yield
        return
    server = HealthServer(routes(), logger=logger)
    try:
        if isinstance(health, Path):
            await server.open_at(health)
        else:
            port = await server.open(*health)
            logger.info("health port opened", host=health.host, port=port)
    except OSError as error:
        where = health if isinstance(health, Path) else f"{health.host}:{health.port}"
        message = f"cannot listen on {where} for health checks: {error.strerror or error}"
        # A process that has the port, such as an earlier worker, may end soon; a wrong address stays wrong.
        raise (TemporarilyUnavailable if error.errno == errno.EADDRINUSE else ConfigError)(message) from error
    try:
        yield
    finally:
        await server.close()


class StopRequests:
    """The first request drains what runs, the second ends its grace time, the third exits: leases then expire.

    The same request may arrive from two sources: a terminal, or systemd, signals every process of a group, and the
    parent forwards the signals that it receives. So the source with the most requests counts.
    """

    def __init__(self, runner: Runner, logger: Logger) -> None:
        self._runner = runner
        self._logger = logger
        self._received: Counter[str] = Counter()
        self._level = 0

    def listen_to_signals(self) -> None:
        """Receive requests from SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.receive, "signal", number)

    def listen_to_parent(self) -> None:
        """Receive requests from standard input: each byte is a signal number; its end is the end of the parent."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            data = os.read(STDIN, 16)
            if not data:
                loop.remove_reader(STDIN)
            for number in data or [signal.SIGTERM]:
                self.receive("parent", signal.Signals(number))

        loop.add_reader(STDIN, read)

    def receive(self, source: str, number: signal.Signals) -> None:
        """Act on a request, unless it has arrived from another source before."""
        self._received[source] += 1
        if self._received[source] <= self._level:
            return
        self._level = self._received[source]
        if self._level > 2:
            os._exit(128 + number)
        runner = self._runner
        if not runner.stopped:
            fields = {runner.kind: runner.name, "signal": number.name, "running": runner.running}
            if runner.kind == "relay":
                self._logger.info("relay stopping", **fields)
            else:
                self._logger.info("worker stopping", **fields)
        runner.stop()


def _exit_within(seconds: float, code: int) -> None:
    """Limit the wait for abandoned threads: the loop and the interpreter would wait for their end."""

    def leave() -> None:
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
