"""Several worker processes under one parent, which starts them, passes orders on, and replaces those that die.

The parent runs no jobs and has no connection to the database. A child is the same command once more, in a
fresh interpreter; it gets its orders through its standard input, and ends when that does: also by `kill -9`
no parent leaves children behind.
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

from holdfast.cli.exits import ExitCode
from holdfast.cli.processes_health import ProcessesHealth
from holdfast.cli.serving import Address, answering, outcome
from holdfast.cli.systemd import Systemd
from holdfast.ports import Journal

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""Seconds after which a process that ends was a sound one: its successor starts without a growing pause."""


def supervise(count: int, journal: Journal, *, health: Address | None) -> int:
    """Keep *count* processes at work until told to stop, and give the code to leave with."""
    with TemporaryDirectory(prefix="holdfast-") as folder, asyncio.Runner() as runner:
        sockets = {str(number): Path(folder, f"{number}.sock") for number in range(1, count + 1)}
        return outcome(runner, _supervise(sockets, journal, health))


async def _supervise(sockets: Mapping[str, Path], journal: Journal, health: Address | None) -> int:
    together = ProcessesHealth(sockets)
    async with (
        answering(health, together.routes, journal),
        Systemd().informed(live=together.live, ready=together.ready),
    ):
        return await Supervisor(sockets, journal, command=[sys.executable, *sys.orig_argv[1:]]).run()


def pause_before(tries: int) -> float:
    """Give the seconds to wait before a process is replaced for the *tries*-th time in a row.

    >>> [pause_before(tries) for tries in (1, 2, 3, 4, 10)]
    [0.5, 1.0, 2.0, 4.0, 30.0]
    """
    return min(FIRST_PAUSE * 2.0 ** (tries - 1), LONGEST_PAUSE)


class Supervisor:
    """Keeps one process of *command* for each of *sockets*, where the process answers."""

    def __init__(
        self,
        sockets: Mapping[str, Path],
        journal: Journal,
        *,
        command: Sequence[str],
        pause: Callable[[int], float] = pause_before,
    ) -> None:
        self._sockets = sockets
        self._journal = journal
        self._command = command
        self._pause = pause
        self._running: dict[str, Process] = {}
        self._orders: list[signal.Signals] = []
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Keep them until told to stop; the worst exit code is that of all."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.order, number)
        codes = await asyncio.gather(*[self._keep(name) for name in self._sockets])
        return max(codes)

    def order(self, number: signal.Signals) -> None:
        """Pass an order on; the third ends everything where it stands."""
        self._orders.append(number)
        self._stopping.set()
        if len(self._orders) > 2:
            for process in self._running.values():
                process.kill()
            os._exit(128 + number)
        self._journal.info("processes stopping", signal=number.name, processes=len(self._running))
        for process in self._running.values():
            _tell(process, number)

    async def _keep(self, name: str) -> int:
        """Run one process after the other, until one ends as it was told to."""
        loop, tries = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            code = await self._run(name)
            if self._stopping.is_set():
                return code
            if code == ExitCode.MISUSED:
                self.order(signal.SIGTERM)  # what it said about words, settings or schema is true for all
                return code
            tries = 1 if loop.time() - began > STEADY else tries + 1
            if await self._stops_within(self._pause(tries)):
                return ExitCode.DONE

    async def _run(self, name: str) -> int:
        """Run one process to its end, and give the code to leave with if it is the last."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, "--seat", str(self._sockets[name]), stdin=asyncio.subprocess.PIPE
            )
        except OSError as error:  # the machine has no room for it now; its neighbours work on
            self._journal.warning("process not started", process=name, message=error.strerror or str(error))
            return ExitCode.UNAVAILABLE
        self._running[name] = process
        self._journal.info("process started", process=name, pid=process.pid)
        for number in self._orders:  # they came while it started
            _tell(process, number)
        code = await process.wait()
        del self._running[name]
        return self._ended(name, process.pid, code)

    def _ended(self, name: str, pid: int, code: int) -> int:
        if not self._stopping.is_set():
            self._journal.warning("process ended", process=name, pid=pid, code=code)
        elif -code in self._orders:
            return ExitCode.DONE  # the signal reached it before it could listen: it had nothing in hand
        return code if code >= 0 else 128 - code

    async def _stops_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


def _tell(process: Process, number: signal.Signals) -> None:
    if process.stdin is not None and process.returncode is None:
        process.stdin.write(bytes([number]))
