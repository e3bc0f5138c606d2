"""The world of one simulation: a database, the processes that work on it, and who keeps them running."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.core.jobs.schedules import Schedule
from holdfast.engine.result_waiter import ResultWaiter
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.worker import Worker
from holdfast.face import Holdfast
from holdfast.ports import Hint, HintKind
from holdfast.stores.subscriptions import Subscriptions
from holdfast.testing.archive import FleetingArchive, letters_here
from holdfast.testing.database import FleetingFile, SharedStore
from holdfast.testing.lending import Twin
from holdfast.testing.processes import PROCESS, Process, ProcessLoop
from holdfast.testing.world import AwaitedThreads, SeededDice, SeededIds, VirtualClock

MOVES = (HintKind.READY, HintKind.TAKEN, HintKind.CANCEL)
"""Hints after which something may be due at a time that no sweep knows of yet."""

MOMENT = timedelta(milliseconds=1)
"""How long after its end a lease is certainly over."""


class SimulatedWorld:
    """What the processes of one simulation share. Each of them has a twin of *original* to itself."""

    def __init__(self, original: Holdfast, folder: str, *, seed: int, start: datetime) -> None:
        self.original = original
        self.loop = ProcessLoop()
        self.clock = VirtualClock(self.loop, epoch=start)
        self.subscriptions = Subscriptions()
        self.supervisors: list[SimulatedSupervisor] = []
        self.broken: asyncio.Future[None] = self.loop.create_future()
        self._file = FleetingFile()
        self._archive = FleetingArchive()
        self._path = str(Path(folder) / "jobs.db")
        self._chance = random.Random(seed)
        self._jobs, self._workers = count(1), count(1)
        self._twins: dict[Process | None, Twin] = {None: _TestTwin(self)}

    def twin_here(self) -> Twin:
        """Give the twin of the process that the running code belongs to."""
        if asyncio._get_running_loop() is not self.loop:
            raise ConfigError(
                "this Holdfast is in a simulation, whose time passes on the test's own event loop: "
                "call it there, not from a thread or from another loop"
            )
        return self._twins[PROCESS.get()]

    def twin_of(self, process: Process) -> Twin:
        """Make the twin of a new process."""
        return self._twins.setdefault(process, _ProcessTwin(self))

    def runtime(self) -> Runtime:
        """Make the parts of one process; classifier, journal and metrics stay the user's."""
        return replace(
            self.original.runtime,
            store=SharedStore(
                self._path,
                clock=self.clock,
                file=self._file,
                subscriptions=self.subscriptions,
                replay_themselves=self._replay_themselves,
                schedules=self._schedules,
            ),
            letters=letters_here(self.original.runtime.letters, self._archive),
            clock=self.clock,
            dice=SeededDice(self._chance),
            ids=SeededIds(partial(next, self._jobs), worker=f"simulated:{next(self._workers)}:w"),
            executor=AwaitedThreads(self.loop),
            watchdog=None,
        )

    def _replay_themselves(self) -> list[str]:
        """Name the jobs that may go on without a person."""
        specs = [spec for spec in self.original.runtime.registry if spec.auto_replay is not None]
        return [name for spec in specs for name in (spec.name, *spec.aliases)]

    def _schedules(self) -> list[Schedule]:
        return [recurring.schedule for recurring in self.original.runtime.registry.recurring]

    def supervise(
        self, *, lease: Duration | None = None, poll: Duration | None = None, **wishes: Any
    ) -> "SimulatedSupervisor":
        """Start a worker, and keep it running. It polls seldom: no hint gets lost here."""
        lasts = self.original.settings.worker_options.lease if lease is None else duration(lease)
        wishes |= {"lease": lasts, "poll": lasts / 3 if poll is None else poll}
        self.supervisors.append(SimulatedSupervisor(self, wishes))
        return self.supervisors[-1]

    def sweep(self, *, after: timedelta = timedelta(0)) -> None:
        """Have every worker look for lost jobs, whatever it expects."""
        for supervisor in self.supervisors:
            self.loop.call_later(after.total_seconds(), supervisor.sweep, context=Context())

    def close(self) -> None:
        """Let go of the loop, the file and the threads."""
        if self.broken.done():
            self.broken.exception()  # so that nobody misses that it was told: the test is over
        self.loop.close()
        self._file.shut()
        for twin in self._twins.values():
            twin.runtime.executor.close()


class SimulatedSupervisor:
    """Keeps one worker running: if its process dies, another one takes its place."""

    def __init__(self, world: SimulatedWorld, wishes: dict[str, Any]) -> None:
        self._world = world
        self._wishes = wishes
        self._leaving = asyncio.Event()
        self._start()

    def _start(self) -> None:
        self.process = self._world.loop.new_process(self.kill)
        self._worker: asyncio.Future[Worker] = self._world.loop.create_future()
        self._main = self.process.start(self._work(self.process, self._worker))
        self._main.add_done_callback(self._ended, context=Context())

    async def worker(self) -> Worker:
        """Give the worker, once it is there. Raises what keeps it from starting."""
        return await asyncio.shield(self._worker)

    def kill(self) -> None:
        """End the process where it stands, and start another. Its jobs are free when their leases are over."""
        self.process.stop()
        self._start()
        self._world.sweep(after=self._wishes["lease"] + MOMENT)

    def sweep(self) -> None:
        """Have the worker look for what is due, and for lost jobs."""
        if self._worker.done():
            self.process.wake()
            self._worker.result()._maintenance.wake()

    async def leave(self) -> None:
        """Stop the worker as SIGTERM would, and wait for its end."""
        self._world.supervisors.remove(self)
        self._leaving.set()
        self.process.go_on()
        self.process.wake()
        await asyncio.wait([self._main])

    async def _work(self, process: Process, arrival: "asyncio.Future[Worker]") -> None:
        twin = self._world.twin_of(process)
        async with twin, twin.worker(**self._wishes) as worker:
            arrival.set_result(worker)
            unsubscribe = self._world.subscriptions.subscribe(self._hear, MOVES)
            try:
                await self._leaving.wait()
            finally:
                unsubscribe()

    def _hear(self, _: Hint) -> None:
        self.sweep()

    def _ended(self, main: "asyncio.Task[None]") -> None:
        error = None if main.cancelled() else main.exception()
        waiting = self._world.broken if self._worker.done() else self._worker
        if error is not None and not waiting.done():
            waiting.set_exception(error)


class _ProcessTwin(Twin):
    """A twin as each process has it."""

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world.original, world.runtime())

    def _new_waiter(self) -> ResultWaiter:
        return _HintedWaiter(self.runtime.store, self.runtime.dice, poll=self.settings.worker_options.poll)


class _HintedWaiter(ResultWaiter):
    """Waits for hints alone: here none gets lost."""

    async def _rest(self) -> None:
        await self._look.wait()


class _TestTwin(_ProcessTwin):
    """The twin of the test itself: workers that the test starts get a process of their own."""

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self._world = world

    @asynccontextmanager
    async def worker(
        self,
        *,
        slots: int | None = None,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        lease: Duration | None = None,
        grace: Duration | None = None,
        poll: Duration | None = None,
    ) -> AsyncIterator[Worker]:
        supervisor = self._world.supervise(slots=slots, queues=queues, lease=lease, grace=grace, poll=poll)
        try:
            yield await supervisor.worker()
        finally:
            await supervisor.leave()
