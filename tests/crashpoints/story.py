"""A story: one process, the victim, works or makes a request; at most one fault is injected into it; the world recovers.

All other processes are healthy. While the victim lives and is awake it has to manage alone, so that one
which only seems to work is noticed. Once it has ended, died or fallen asleep, a fresh worker comes.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import JobFailed
from holdfast.engine.messages.relays.partition_leases import LEASE as RELAY_LEASE
from holdfast.engine.options import WorkerOptions
from holdfast.errors import StoreUnavailable
from holdfast.stores.sqlite.times import micros
from tests import invariants
from tests.crashpoints.planned_fault import NoFaults, OneFault, Subject, Victim
from tests.simulation.auditor import Commit
from tests.simulation.message_jobs import Messaging
from tests.simulation.people import Memory
from tests.simulation.processes import Fault, Injected
from tests.simulation.simulated_fleet import FleetShape, serving
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from holdfast import Holdfast, JobHandle
    from holdfast.engine.worker.worker import Worker
    from tests.crashpoints.planned_fault import PlannedFault
    from tests.simulation.auditor import Row
    from tests.simulation.jobs import Jobs
    from tests.simulation.letter_jobs import Lettering
    from tests.simulation.processes import Process
    from tests.simulation.provided_jobs import Providing
    from tests.simulation.simulated_broker import SimulatedBroker
    from tests.simulation.simulated_fleet import SimulatedFleet

LEASE = 3.3
"""A third of it is a little more than a poll: a worker looks for cancellations between two extensions."""

ASLEEP = 1.7 * LEASE
"""Seconds that a paused process sleeps: its leases expire, and another worker takes its jobs."""

ASLEEP_AS_A_RELAY = 1.2 * RELAY_LEASE.total_seconds()
"""The same where messages are exchanged: its partitions are leased by another relay, too."""

RESEND = 2.0
"""Seconds after which a dispatch that has not arrived is sent again."""

TIMEOUT = 120.0
"""Virtual seconds within which a condition that is waited for must hold."""

STEP = 0.1

MAY_END_WITH: dict[Fault | None, tuple[type[Exception], ...]] = {
    Fault.ERROR: (StoreUnavailable, Injected),
    # Cancelling a task of the engine breaks its worker; cancelling the code of a job makes it fail.
    Fault.CANCEL: (StoreUnavailable, RuntimeError, JobFailed),
}


class App(NamedTuple):
    """The `Holdfast` of a process, and its jobs."""

    hold: Holdfast
    jobs: Jobs


class _Other(NamedTuple):
    process: Process
    main: asyncio.Task[Any]
    stop: asyncio.Event


class Story:
    """The world of one scenario, and the steps that scenarios are made of."""

    def __init__(self, folder: Path, planned: PlannedFault | None, *, seed: int) -> None:
        self.world = World(seed, folder)
        self.world.strikes_within = True
        self.memory = Memory()
        self.injector = OneFault(planned, seconds=ASLEEP)
        self.victim = Victim("victim:0:p", self.world.loop, self.injector, self.world.note)
        self.books: invariants.World
        self.queues = ["default"]
        self.timeout = TIMEOUT
        self._people = self._application(self.world.process("people", NoFaults()))
        self._others: list[_Other] = []
        self._main: asyncio.Task[None]
        self._guard: asyncio.Task[None]
        self._stop = asyncio.Event()
        self._worker: Worker | None = None
        self._cancelled = False
        self._lettered = self._messaged = False

    @property
    def calm(self) -> bool:
        """Whether no fault is injected: then the claims of a scenario are exact."""
        return self.injector.planned is None

    def injects(self, *faults: Fault) -> bool:
        """Whether one of these is injected into the victim."""
        return self.injector.planned is not None and self.injector.planned.fault in faults

    def loses_an_answer_of(self, *points: str) -> bool:
        """Whether the only fault is that a call to one of these fails, before or after it did its work."""
        return (
            self.injects(Fault.ERROR)
            and self.injector.planned is not None
            and self.injector.planned.spot.point in points
        )

    async def begin(self) -> None:
        """Make the schema; from now on every commit is audited."""
        await self._people.hold.open()
        if not self.world.auditor.at_work:
            self.world.knows_its_key()
        self.world.auditor.at_work = True

    def has_providers(
        self, providing: Providing, scripts: Mapping[str, Sequence[str | None]] | None = None
    ) -> None:
        """Have all processes declare providers; each follows its script of failures, and is well after that."""
        self.world.has_providers(providing, random.Random(1))
        for name, outage in self.world.outages.items():
            outage.follows(*(scripts or {}).get(name, ()))
        self._people = self._application(self.world.process("people", NoFaults()))

    def has_letters(self, lettering: Lettering, *, services: bool = False) -> None:
        """Have dead letters looked after; with *services*, the story is about the victim's services for them."""
        self.world.has_letters(lettering, random.Random(1))
        self._lettered = True
        if services:
            self.victim.subject = Subject.LETTERS
        self._people = self._application(self.world.process("people", NoFaults()))

    def has_messages(self, *script: str | None, services: bool = True) -> None:
        """Have all processes declare a broker and messages; it follows its script of failures, and is well after that.

        With *services*, the story is about the victim's relay, announcer and consumer.
        """
        if services:
            self.victim.subject = Subject.MESSAGES
        self.injector.seconds = ASLEEP_AS_A_RELAY
        self.world.has_messages(Messaging(), random.Random(1))
        self.broker.follows(*script)
        self.broker.queue.calm = self._messaged = True
        self._people = self._application(self.world.process("people", NoFaults()))

    def has_fleet(self, *script: str | None, slots: int = 2, dispatches: bool = False) -> None:
        """Have a fleet run the jobs of one queue; its broker follows its script of failures, and is well after that.

        With *dispatches*, the story is about the victim's dispatcher.
        """
        if dispatches:
            self.victim.subject = Subject.FLEETS
        self.world.has_fleet(FleetShape(slots=slots, resend=RESEND), random.Random(1))
        self.fleet.follows(*script)
        self._people = self._application(self.world.process("people", NoFaults()))

    @property
    def fleet(self) -> SimulatedFleet:
        """The fleet, with the broker of its dispatches."""
        assert self.world.fleet is not None
        return self.world.fleet

    @property
    def broker(self) -> SimulatedBroker:
        """The broker that all processes publish to."""
        broker = self.world.auditor.message_oracle.broker
        assert broker is not None
        return broker

    def look(self) -> None:
        """Have a commit audited that was none of the engine's."""
        self.world.auditor.look(Commit("people", micros(self.world.clock.now())))

    async def play_out(self) -> None:
        """Wait until every job has ended, let all processes stop, and read the books."""
        await self.begin()
        await self.until("everything has ended", self._everything_ended)
        self._guard.cancel()
        self._stop.set()
        await self.until("the victim has stopped", self._victim_is_gone)
        await self.until("everything has ended", self._everything_ended)
        await self._others_stop()
        self._check_how_the_victim_ended()
        self.books = await invariants.read_world(self.world.url)

    # What healthy people do and see.

    @property
    def hold(self) -> Holdfast:
        """The `Holdfast` of healthy people."""
        return self._people.hold

    async def submit(self, job: str, *args: Any, **options: Any) -> str:
        """Submit a job, and give its id."""
        await self.begin()
        jobs = self._people.jobs
        [place] = [part for part in (jobs, jobs.timed, jobs.provided, jobs.messages) if hasattr(part, job)]
        handle = await getattr(place, job).options(**options).submit(*args)
        self.acknowledged(handle)
        return str(handle.id)

    def acknowledged(self, *handles: JobHandle[Any]) -> None:
        """Remember that the store has acknowledged these jobs to a caller."""
        self.memory.acknowledged.update({handle.id: handle.name for handle in handles})

    async def runs(self, job_id: str, *, by: Process | None = None) -> None:
        """Wait until a worker runs the job."""

        def held() -> bool:
            row = self.seen(job_id)
            return row.status == "processing" and (by is None or row.worker == by.name)

        await self.until(f"{by or 'a worker'} runs {job_id}", held)

    async def ends(self, job_id: str) -> None:
        """Wait until the job has ended."""
        await self.until(f"{job_id} has ended", lambda: self.seen(job_id).ended)

    def seen(self, job_id: str) -> Row:
        """The job's row as it is now."""
        return self.world.auditor.jobs[job_id]

    async def until(self, what: str, came_about: Callable[[], bool], *, step: float = STEP) -> None:
        """Look every *step* seconds whether something came about, for a bounded time."""
        limit = self.world.loop.time() + self.timeout
        while not came_about():
            assert self.world.loop.time() < limit, f"waited {self.timeout:g} s in vain: {what}"
            await asyncio.sleep(step)

    def _everything_ended(self) -> bool:
        if self._lettered and any(self.world.auditor.dead_letter_oracle.unsettled()):
            return False
        if self._messaged and any(self.world.auditor.message_oracle.unsettled()):
            return False
        return not self.victim.asleep and all(row.ended for row in self.world.auditor.jobs.values())

    # Other workers.

    def other_worker(self) -> Process:
        """Start a healthy worker beside the victim."""
        process, stop = self.world.process("worker", NoFaults()), asyncio.Event()
        self._others.append(_Other(process, process.start(self._work(process, stop)), stop))
        return process

    def other_fleet(self) -> Process:
        """Start a healthy process of the fleet beside the victim."""
        process, stop = self.world.process("fleet", NoFaults()), asyncio.Event()
        self._others.append(_Other(process, process.start(self._run_dispatched(process, stop)), stop))
        return process

    async def _others_stop(self) -> None:
        for process, main, stop in self._others:
            if process.alive:
                stop.set()
                await self.until(f"{process} has stopped", main.done)
                main.result()
                assert not process.tasks(), f"{process} left behind {process.tasks()}"

    async def _take_over(self) -> None:
        """Keep one healthy worker while the victim cannot work: there are jobs that take theirs down."""
        while True:
            if self.victim.asleep or self._victim_is_gone():
                if not self._has("worker"):
                    self.other_worker()
                if self.world.fleet is not None and not self._has("fleet"):
                    self.other_fleet()
            await asyncio.sleep(STEP)

    def _has(self, role: str) -> bool:
        """Whether there is a healthy process of this kind."""
        return any(
            process.alive and not process.asleep and process.name.startswith(role)
            for process, _, _ in self._others
        )

    # The victim.

    async def client(self, act: Callable[[App], Awaitable[None]], *, new_file: bool = False) -> None:
        """Let the victim be a client that does *act*, and wait until it is done or dead."""
        if not new_file:
            await self.begin()
        self._start(self._ask(act))
        await self.until("the client is done", self._victim_is_gone)

    async def worker(self, *, slots: int = 2, grace: float = 30.0) -> None:
        """Let the victim be a worker, until it is stopped."""
        await self.begin()
        self._start(self._work(self.victim, self._stop, slots=slots, grace=grace))

    async def runs_dispatched(self, *, grace: float = 30.0) -> None:
        """Let the victim be a process of the fleet, until it is stopped."""
        await self.begin()
        self._start(self._run_dispatched(self.victim, self._stop, grace=grace))

    async def works(self) -> None:
        """Wait until the victim is a worker and awake, or gone."""

        def at_work() -> bool:
            return self._worker is not None and not self.victim.asleep

        await self.until("the victim works", lambda: at_work() or self._victim_is_gone())

    def stop(self) -> None:
        """Stop the victim; the second time, without its grace time."""
        if self._stop.is_set() and self._worker is not None:
            self._worker.stop()
        self._stop.set()

    def cancel(self) -> None:
        """Cancel the victim's main task."""
        self._cancelled = True
        self._main.cancel()

    def cancel_everything(self) -> None:
        """Cancel every task of the victim at once, as programs do that end at once."""
        self._cancelled = True
        for task in self.victim.running():
            task.cancel()

    def own_connection(self) -> sqlite3.Connection:
        """Let the victim open the file without the store."""
        connection = sqlite3.connect(self.world.path, isolation_level=None)
        self.victim.owns_file(connection)
        return connection

    @property
    def ended_well(self) -> bool:
        """Whether the victim came to the end of its program."""
        return self.victim.alive and not self._main.cancelled() and self._main.exception() is None

    def _start(self, program: Coroutine[Any, Any, None]) -> None:
        self._main = self.victim.start(self._run(program))
        self._guard = asyncio.create_task(self._take_over())

    async def _run(self, program: Coroutine[Any, Any, None]) -> None:
        """Run as `asyncio.run` does: what is left when the program has ended is cancelled and waited for."""
        try:
            await program
            assert not self._rest(), f"the victim ended well, and left behind {self.victim.tasks()}"
        finally:
            rest = self._rest()
            for task in rest:
                task.cancel()
            if rest:
                await asyncio.wait(rest)

    def _rest(self) -> list[asyncio.Task[Any]]:
        return [task for task in self.victim.running() if task is not self._main]

    async def _ask(self, act: Callable[[App], Awaitable[None]]) -> None:
        app = self._application(self.victim)
        async with app.hold:
            await act(app)

    async def _work(
        self, process: Process, stop: asyncio.Event, *, slots: int = 2, grace: float = 30.0
    ) -> None:
        hold, _ = self._application(process)
        async with hold, hold.worker(slots=slots, lease=LEASE, grace=grace, queues=self.queues) as worker:
            process.begins_work(lambda: worker.stopping or stop.is_set())
            if process is self.victim:
                self._worker = worker
            await stop.wait()

    async def _run_dispatched(self, process: Process, stop: asyncio.Event, *, grace: float = 30.0) -> None:
        hold, _ = self._application(process)
        options = WorkerOptions(slots=self.fleet.shape.slots, lease=LEASE, grace=grace)
        async with hold, serving(self.fleet, hold, process, options, is_dead=self.world.is_dead):
            process.begins_work(stop.is_set)
            await stop.wait()

    def _application(self, process: Process) -> App:
        return App(*self.world.application(process, skew=timedelta(0), loses_hint=lambda: False))

    def _victim_is_gone(self) -> bool:
        return not self.victim.alive or self._main.done()

    def _check_how_the_victim_ended(self) -> None:
        """It may end with the injected error, and with no other."""
        if not self.victim.alive:
            return
        if self._main.cancelled():
            cancelled = self._cancelled or self.injects(Fault.CANCEL)
            assert cancelled, "the victim was cancelled, though no cancellation was injected"
            return
        error = self._main.exception()
        fault = None if self.injector.planned is None else self.injector.planned.fault
        assert error is None or isinstance(error, MAY_END_WITH.get(fault, ())), f"the victim broke: {error!r}"
