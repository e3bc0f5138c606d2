"""The world of one simulation: a database, the processes that use it, and their supervisors."""

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

from holdfast.app import Holdfast
from holdfast.core.durations import Duration, duration
from holdfast.core.errors import ConfigError
from holdfast.core.jobs.schedules import Schedule
from holdfast.engine.result_waiter import ResultWaiter
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.worker import Worker
from holdfast.ports import Hint, HintKind
from holdfast.stores.subscriptions import Subscriptions
from holdfast.testing.captured_messages import CapturedMessages
from holdfast.testing.database import SharedStore, TemporaryFileExecutor
from holdfast.testing.delegation import Twin
from holdfast.testing.memory_archive import MemoryArchive, isolated_letter_options
from holdfast.testing.processes import PROCESS, Process, ProcessLoop
from holdfast.testing.seeded_system import AwaitedThreads, SeededIds, SeededRandom, VirtualClock

WAKING_HINTS = (HintKind.READY, HintKind.TAKEN, HintKind.CANCEL)
"""Hints after which something may be due at a time that maintenance does not know yet."""

EXPIRY_MARGIN = timedelta(milliseconds=1)
"""How long after its expiry a lease has certainly expired."""


class SimulatedWorld:
    """The state that the processes of one simulation share. Each process has its own twin of *original*."""

    def __init__(self, original: Holdfast, folder: str, *, seed: int, start: datetime) -> None:
        self.original = original
        self.loop = ProcessLoop()
        self.clock = VirtualClock(self.loop, epoch=start)
        self.subscriptions = Subscriptions()
        self.supervisors: list[SimulatedSupervisor] = []
        self.broken: asyncio.Future[None] = self.loop.create_future()
        self._file = TemporaryFileExecutor()
        self._archive = MemoryArchive()
        self._path = str(Path(folder) / "jobs.db")
        self._chance = random.Random(seed)
        self._jobs, self._workers = count(1), count(1)
        self.captured = CapturedMessages(original.runtime.registry)
        self._twins: dict[Process | None, Twin] = {None: _TestTwin(self)}

    def twin_here(self) -> Twin:
        """Return the twin of the process that the running code belongs to."""
        if asyncio._get_running_loop() is not self.loop:
            raise ConfigError(
                "this Holdfast is in a simulation, whose time passes on the test's own event loop: "
                "call it there, not from a thread or from another loop"
            )
        return self._twins[PROCESS.get()]

    def twin_of(self, process: Process) -> Twin:
        """Create the twin of a new process."""
        return self._twins.setdefault(process, _ProcessTwin(self))

    def runtime(self) -> Runtime:
        """Create the runtime of one process; classifier, logger and metrics are the user's."""
        return replace(
            self.original.runtime,
            store=SharedStore(
                self._path,
                clock=self.clock,
                file=self._file,
                subscriptions=self.subscriptions,
                auto_replayed=self._auto_replayed,
                announced=self._announced,
                schedules=self._schedules,
            ),
            letters=isolated_letter_options(self.original.runtime.letters, self._archive),
            open_broker=None,
            clock=self.clock,
            random=SeededRandom(self._chance),
            ids=SeededIds(partial(next, self._jobs), worker=f"simulated:{next(self._workers)}:w"),
            executor=AwaitedThreads(self.loop),
            watchdog=None,
        )

    def _auto_replayed(self) -> list[str]:
        """Return the names of the jobs whose dead letters are replayed automatically."""
        specs = [spec for spec in self.original.runtime.registry if spec.auto_replay is not None]
        return [name for spec in specs for name in (spec.name, *spec.aliases)]

    def _announced(self) -> list[str]:
        """Return the names of the jobs whose announcements are rendered."""
        registry = self.original.runtime.registry
        return registry.names if any(spec.announce for spec in registry) else []

    def _schedules(self) -> list[Schedule]:
        return [recurring.schedule for recurring in self.original.runtime.registry.recurring]

    def supervise(
        self, *, lease: Duration | None = None, poll: Duration | None = None, **options: Any
    ) -> "SimulatedSupervisor":
        """Start a worker, and keep it running. It polls rarely: no hint is lost in a simulation."""
        ttl = self.original.settings.worker_options.lease if lease is None else duration(lease)
        options |= {"lease": ttl, "poll": ttl / 3 if poll is None else poll}
        self.supervisors.append(SimulatedSupervisor(self, options))
        return self.supervisors[-1]

    def wake_maintenance(self, *, after: timedelta = timedelta(0)) -> None:
        """Let the maintenance of every worker run, also of resting ones."""
        for supervisor in self.supervisors:
            self.loop.call_later(after.total_seconds(), supervisor.wake_maintenance, context=Context())

    def close(self) -> None:
        """Close the loop, the file and the threads."""
        if self.broken.done():
            self.broken.exception()  # marks it as retrieved: the test is over
        self.loop.close()
        self._file.close_connections()
        for twin in self._twins.values():
            twin.runtime.executor.close()


class SimulatedSupervisor:
    """Keeps one worker running: if its process dies, another one replaces it."""

    def __init__(self, world: SimulatedWorld, options: dict[str, Any]) -> None:
        self._world = world
        self._options = options
        self._stopping = asyncio.Event()
        self._start()

    def _start(self) -> None:
        self.process = self._world.loop.new_process(self.kill)
        self._worker: asyncio.Future[Worker] = self._world.loop.create_future()
        self._main = self.process.start(self._run_worker(self.process, self._worker))
        self._main.add_done_callback(self._ended, context=Context())

    async def worker(self) -> Worker:
        """Return the worker when it has started. Raises the error that prevents its start."""
        return await asyncio.shield(self._worker)

    def kill(self) -> None:
        """Kill the process, and start another. Its jobs are reclaimed when their leases have expired."""
        self.process.stop()
        self._start()
        self._world.wake_maintenance(after=self._options["lease"] + EXPIRY_MARGIN)

    def wake_maintenance(self) -> None:
        """Let the worker look for due and lost jobs."""
        if self._worker.done():
            self.process.wake()
            self._worker.result()._maintenance.wake()

    async def stop(self) -> None:
        """Stop the worker as SIGTERM would, and wait for its end."""
        self._world.supervisors.remove(self)
        self._stopping.set()
        self.process.resume()
        self.process.wake()
        await asyncio.wait([self._main])

    async def _run_worker(self, process: Process, started: "asyncio.Future[Worker]") -> None:
        twin = self._world.twin_of(process)
        async with twin, twin.worker(**self._options) as worker:
            started.set_result(worker)
            unsubscribe = self._world.subscriptions.subscribe(self._on_hint, WAKING_HINTS)
            try:
                await self._stopping.wait()
            finally:
                unsubscribe()

    def _on_hint(self, _: Hint) -> None:
        self.wake_maintenance()

    def _ended(self, main: "asyncio.Task[None]") -> None:
        error = None if main.cancelled() else main.exception()
        waiting = self._world.broken if self._worker.done() else self._worker
        if error is not None and not waiting.done():
            waiting.set_exception(error)


class _ProcessTwin(Twin):
    """The twin of one process."""

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world.original, world.runtime(), world.captured)

    def _new_waiter(self) -> ResultWaiter:
        return _HintedWaiter(self.runtime.store, self.runtime.random, poll=self.settings.worker_options.poll)


class _HintedWaiter(ResultWaiter):
    """Waits for hints without polling: no hint is lost in a simulation."""

    async def _rest(self) -> None:
        await self._poll_due.wait()


class _TestTwin(_ProcessTwin):
    """The twin of the test itself: each worker that the test starts gets its own process."""

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
            await supervisor.stop()
