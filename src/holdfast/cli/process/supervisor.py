"""Several worker processes under one parent, which starts them, forwards signals, and replaces those that die.

The parent runs no jobs and has no connection to the database. A child is the same command, in a
fresh interpreter; it receives signals through its standard input, and ends when that is closed: even after
`kill -9` of the parent no child is left.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.process.supervisor_health import ProcessesHealth
from holdfast.cli.process.systemd import Systemd
from holdfast.cli.process.worker_process import Address, health_endpoint, run_to_exit_code
from holdfast.ports import Logger

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""Seconds after which a process counts as healthy: when it ends, the restart pause is reset."""


def supervise(count: int, logger: Logger, *, health: Address | None) -> int:
    """Run *count* processes until a signal stops them, and return the exit code."""
    with TemporaryDirectory(prefix="holdfast-") as folder, asyncio.Runner() as runner:
        sockets = {str(number): Path(folder, f"{number}.sock") for number in range(1, count + 1)}
        return run_to_exit_code(runner, _supervise(sockets, logger, health))


async def _supervise(sockets: Mapping[str, Path], logger: Logger, health: Address | None) -> int:
    together = ProcessesHealth(sockets)
    async with (
        health_endpoint(health, together.routes, logger),
        Systemd().notifying(live=together.live, ready=together.ready),
    ):
        return await ProcessSupervisor(sockets, logger, command=[sys.executable, *sys.orig_argv[1:]]).run()


def pause_before(tries: int) -> float:
    """Return the seconds to wait before a process is replaced for the *tries*-th time in a row.

    >>> [pause_before(tries) for tries in (1, 2, 3, 4, 10)]
    [0.5, 1.0, 2.0, 4.0, 30.0]
    """
    return min(FIRST_PAUSE * 2.0 ** (tries - 1), LONGEST_PAUSE)


class ProcessSupervisor:
    """Keeps one process of *command* running for each of *sockets*, on which it serves its health."""

    def __init__(
        self,
        sockets: Mapping[str, Path],
        logger: Logger,
        *,
        command: Sequence[str],
        pause: Callable[[int], float] = pause_before,
    ) -> None:
        self._sockets = sockets
        self._logger = logger
        self._command = command
        self._pause = pause
        self._running: dict[str, Process] = {}
        self._signals: list[signal.Signals] = []
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Keep the processes running until a signal stops them; return the highest exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.forward_signal, number)
        codes = await asyncio.gather(*[self._keep(name) for name in self._sockets])
        return max(codes)

    def forward_signal(self, number: signal.Signals) -> None:
        """Forward a signal; the third kills the processes and exits at once."""
        self._signals.append(number)
        self._stopping.set()
        if len(self._signals) > 2:
            for process in self._running.values():
                process.kill()
            os._exit(128 + number)
        self._logger.info("processes stopping", signal=number.name, processes=len(self._running))
        for process in self._running.values():
            _forward(process, number)

    async def _keep(self, name: str) -> int:
        """Run and replace a process until the supervisor stops; return its exit code."""
        loop, tries = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            code = await self._run(name)
            if self._stopping.is_set():
                return code
            if code == ExitCode.MISUSED:
                self.forward_signal(
                    signal.SIGTERM
                )  # wrong options, settings or schema apply to all processes
                return code
            tries = 1 if loop.time() - began > STEADY else tries + 1
            if await self._stops_within(self._pause(tries)):
                return ExitCode.DONE

    async def _run(self, name: str) -> int:
        """Run one process to its end, and return its exit code."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, "--seat", str(self._sockets[name]), stdin=asyncio.subprocess.PIPE
            )
        except OSError as error:  # the machine has no resources for it now; the other processes continue
            self._logger.warning("process not started", process=name, message=error.strerror or str(error))
            return ExitCode.UNAVAILABLE
        self._running[name] = process
        self._logger.info("process started", process=name, pid=process.pid)
        for number in self._signals:  # signals received while it started
            _forward(process, number)
        code = await process.wait()
        del self._running[name]
        return self._exit_code(name, process.pid, code)

    def _exit_code(self, name: str, pid: int, code: int) -> int:
        if not self._stopping.is_set():
            self._logger.warning("process ended", process=name, pid=pid, code=code)
        elif -code in self._signals:
            return ExitCode.DONE  # the signal arrived before its handler was installed: it ran no job
        return code if code >= 0 else 128 - code

    async def _stops_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


def _forward(process: Process, number: signal.Signals) -> None:
    if process.stdin is not None and process.returncode is None:
        process.stdin.write(bytes([number]))
