"""One seed: a world is made, faults fall on it, and what must hold is checked.

In `safety` mode faults fall until the end. In `liveness` mode they stop, and everything must come to
its end within a bounded time.
"""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from unittest import mock

from holdfast.engine.messages.relays.relay_runner import RelayRunner
from holdfast.engine.options import WorkerOptions
from holdfast.engine.worker.garbage_collector import GARBAGE_COLLECTOR
from holdfast.errors import StoreUnavailable
from tests import invariants
from tests.simulation import promises
from tests.simulation.faults import SeededFaults
from tests.simulation.files import failing_files
from tests.simulation.jobs import SIDE
from tests.simulation.letter_jobs import Lettering
from tests.simulation.message_jobs import Messaging
from tests.simulation.operators import Operators
from tests.simulation.people import Memory, People
from tests.simulation.processes import Crashed, Injected, Process
from tests.simulation.provided_jobs import Providing
from tests.simulation.publishers import Publishers
from tests.simulation.shapes import settings_read_once, shapes_made_once
from tests.simulation.simulated_fleet import FleetShape, serving
from tests.simulation.timed_jobs import SIGNALS
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Coroutine, Iterator

    from tests.simulation.auditor import Row

Mode = Literal["safety", "liveness"]
MODES: tuple[Mode, ...] = get_args(Mode)

ENDS_WITHIN = 900.0
"""Virtual seconds after the last fault in which everything must have come to its end."""
TICKET_DUE_WITHIN = 3_840.0
"""Longest time for which a ticket is postponed whose hooks failed again and again: 64 leases of 60 s."""

STOPS_WITHIN = 100.0
"""Virtual seconds within which a process that is stopped ends: a pause that began before, and the longest grace."""

CLOCK_JUMPS = (0.5, 5.0, 40.0, 600.0, -0.5, -5.0, -40.0)
"""Seconds by which the clock is set. After one far back, dead workers' jobs are left alone for as long."""


OPERATORS = "people who operate"
PUBLISHERS = "people who publish"

PROVIDED = 0.5
"""Which part of the worlds has providers."""

LETTERED = 0.4
"""In which part of the worlds dead letters are looked after."""

MESSAGED = 0.4
"""In which part of the worlds messages are exchanged."""
SHORTER = 0.7

FLEETS = 0.3
"""In which part of the worlds a fleet runs the jobs of one queue."""


@dataclass
class Outcome:
    """What became of one seed."""

    seed: int
    mode: Mode
    seconds: float
    jobs: int
    injected: Counter[str]
    violations: list[str]
    digest: str
    trace: list[str] = field(repr=False)


class Simulation:
    """The life of one world."""

    def __init__(self, seed: int, folder: Path, *, mode: Mode | None = None) -> None:
        self.seed = seed
        self.world = World(seed, folder)
        chance = self.world.chance
        drawn: Mode = chance.choice(MODES)
        self.mode = mode or drawn
        self._lease = chance.choice((3.0, 8.0, 20.0))
        self._slots = chance.choice((1, 2, 5, 20))
        self._workers = chance.choice((1, 2, 3))
        self._length = chance.uniform(40.0, 120.0)
        self._limit = chance.randrange(4, 30)
        self._skewed = chance.choice((0, 1, 600))
        self._restarts = chance.choice((0.01, 0.05, 0.2))
        self._clock_is_set = chance.choice((0.0, 0.0, 0.03, 0.1))
        self._faults = SeededFaults(random.Random(chance.random()), self.world.injected, lease=self._lease)
        self.world.service.failing = chance.choice((0.0, 0.1, 0.4, 0.7))
        self.world.service.lasting = chance.choice((0.0, 0.02, 0.2))
        self._memory = Memory(
            deadly=chance.random() < 0.3,
            timed=chance.random() < 0.4,
            waits=chance.random() < 0.5,
            pauses=chance.random() < 0.3,
        )
        self.world.recurs = chance.random() < 0.25
        self._draw_providers(random.Random(f"providers {seed}"))
        self._draw_letters(random.Random(f"letters {seed}"))
        self._draw_messages(random.Random(f"messages {seed}"))
        self._draw_fleet(random.Random(f"fleet {seed}"))
        self._processes: list[Process] = []
        self._supervisors: list[asyncio.Task[None]] = []
        self._over = False
        self._stop: dict[Process, asyncio.Event] = {}
        self._spoilt: asyncio.Future[None] | None = None

    def _draw_providers(self, chance: random.Random) -> None:
        """Have providers, or none: then nothing else in this world is other than it would be."""
        self._memory.provided = chance.random() < PROVIDED
        if self._memory.provided:
            self.world.has_providers(Providing.drawn(chance), chance)

    def _draw_letters(self, chance: random.Random) -> None:
        """Have dead letters looked after, or left alone."""
        self._memory.lettered = chance.random() < LETTERED
        if not self._memory.lettered:
            return
        lettering = Lettering.drawn(chance)
        self.world.has_letters(lettering, chance)
        self._memory.archives = lettering.archives
        # A caller that waits for a job in the archive gets `JobNotFound`: other tests show that.
        self._memory.waits = self._memory.waits and not lettering.archives

    def _draw_messages(self, chance: random.Random) -> None:
        """Exchange messages, or none."""
        if chance.random() < MESSAGED:
            self.world.has_messages(Messaging.drawn(chance), chance)
            self._length *= SHORTER  # more happens in the same time

    def _draw_fleet(self, chance: random.Random) -> None:
        """Have a fleet run the jobs of one queue, or workers."""
        if chance.random() < FLEETS:
            self.world.has_fleet(FleetShape.drawn(chance), chance)

    def run(self) -> Outcome:
        """Live through it, then check the books."""
        world = self.world
        loop = world.loop
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda *_: None)  # tasks of dead processes are never awaited
        try:
            loop.run_until_complete(self._live())
            self._check()
        except Exception as error:  # one world that breaks shall not end all the others
            world.violate(f"the simulation itself broke: {error!r} at {_place(error)}")
        finally:
            seconds = loop.time()
            asyncio.set_event_loop(None)
            world.close()
        return Outcome(
            self.seed,
            self.mode,
            seconds,
            len(world.auditor.jobs),
            world.injected,
            world.violations,
            world.hash(),
            world.trace,
        )

    async def _live(self) -> None:
        self._spoilt = self.world.loop.create_future()
        self.world.on_violation = self._spoil
        story = asyncio.create_task(self._story())
        await asyncio.wait([story, self._spoilt], return_when=asyncio.FIRST_COMPLETED)
        if story.done():
            story.result()

    def _spoil(self) -> None:
        if self._spoilt is not None and not self._spoilt.done():
            self._spoilt.set_result(None)

    async def _story(self) -> None:
        await self._prepare()
        roles = ["worker"] * self._workers + ["people"] + [OPERATORS] * self._memory.lettered
        if self.world.messaging is not None:
            roles += [PUBLISHERS] + ["relay"] * self.world.messaging.relays
        if self.world.fleet is not None:
            roles += ["fleet"] * self.world.fleet.shape.processes
        supervisors = self._supervisors = [asyncio.create_task(self._supervise(role)) for role in roles]
        disturbances = [asyncio.create_task(self._end_workers()), asyncio.create_task(self._set_the_clock())]
        await asyncio.wait(
            [*supervisors, *disturbances], timeout=self._length, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (*supervisors, *disturbances):
            if task.done():
                task.result()
        for disturbance in disturbances:
            disturbance.cancel()
        if self.mode == "safety":
            return
        self._calm()
        await self._life_goes_on()
        await self._everything_ends()
        await self._repair()
        await self._everything_ends()
        self._over = True
        await self._all_processes_stop(supervisors)

    async def _prepare(self) -> None:
        """Make the schema, before faults are injected."""
        self._faults.calm = True
        process = self.world.process("founder", self._faults)
        hold, _ = self._application(process)
        async with hold:
            self.world.knows_its_key()
            self.world.auditor.at_work = True
        self._faults.calm = False

    def _application(self, process: Process) -> Any:
        skew = timedelta(seconds=self.world.chance.uniform(-self._skewed, self._skewed))
        return self.world.application(process, skew=skew, loses_hint=self._faults.loses_hint)

    async def _supervise(self, role: str) -> None:
        """Start a process, and another one whenever it has ended."""
        while not self._over:
            process = self.world.process(role, self._faults)
            self._processes.append(process)
            self._stop[process] = asyncio.Event()
            self.world.note(f"{process} begins")
            main = process.start(self._life(role, process))
            while process.alive and not main.done():  # a dead process does not report that it died
                await asyncio.sleep(0.2)
            self._ended(process, main)
            await asyncio.sleep(self.world.chance.uniform(0.1, 5.0))

    def _ended(self, process: Process, main: asyncio.Task[Any]) -> None:
        if not process.alive:
            self.world.note(f"{process} is dead")
            return
        broken = None if main.cancelled() else main.exception()
        self.world.note(f"{process} ended {broken!r}")
        if left := self.world.auditor.left_by(process.name):
            self.world.violate(f"{process} stopped in good order, and left a job leased: {left[0]}")
        process.alive = False
        if not isinstance(broken, StoreUnavailable | Injected | Crashed | None):
            self.world.violate(f"{process} broke: {broken!r}")
        if broken is None and not main.cancelled():
            self._check_leaks(process)

    def _check_leaks(self, process: Process) -> None:
        """A process that stopped in good order leaves no task behind."""
        if left := process.tasks():
            self.world.violate(f"{process} left tasks behind: {left}")

    async def _work(self, process: Process) -> None:
        hold, _ = self._application(process)
        async with (
            hold,
            hold.worker(
                slots=self._slots,
                lease=self._lease,
                grace=self.world.chance.choice((0.0, 2.0, 30.0)),
                queues=["default", SIDE],
            ) as worker,
        ):
            process.begins_work(lambda: worker.stopping or self._stop[process].is_set())
            await self._stop[process].wait()

    def _life(self, role: str, process: Process) -> Coroutine[Any, Any, None]:
        if role == "worker":
            return self._work(process)
        if role == "relay":
            return self._relay(process)
        if role == "fleet":
            return self._run_dispatched(process)
        if role == OPERATORS:
            return self._operators(process).live(self._stop[process])
        if role == PUBLISHERS:
            return self._publishers(process).live(self._stop[process])
        return self._people(process).live(self._stop[process])

    async def _run_dispatched(self, process: Process) -> None:
        """Run jobs as a process of a Celery or arq worker does: a dispatch comes, and its job is run."""
        fleet = self.world.fleet
        assert fleet is not None
        hold, _ = self._application(process)
        grace = self.world.chance.choice((0.0, 2.0, 30.0))
        options = WorkerOptions(slots=fleet.shape.slots, lease=self._lease, grace=grace)
        async with hold, serving(fleet, hold, process, options, is_dead=self.world.is_dead):
            process.begins_work(self._stop[process].is_set)
            await self._stop[process].wait()

    async def _relay(self, process: Process) -> None:
        hold, _ = self._application(process)
        async with hold:
            relay = RelayRunner(
                process.name, hold.runtime, grace=timedelta(seconds=self.world.chance.choice((0.0, 5.0)))
            )
            running = asyncio.create_task(relay.run(), name="a relay")
            stopped = asyncio.create_task(self._stop[process].wait(), name="its end")
            try:
                await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
                relay.stop()
                await running
            finally:
                stopped.cancel()
                running.cancel()

    def _publishers(self, process: Process) -> Publishers:
        hold, _ = self._application(process)
        assert self.world.messaging is not None
        return Publishers(
            hold,
            random.Random(self.world.chance.random()),
            self.world.messaging,
            path=self.world.path,
            now=self.world.clock.now,
            message_oracle=self.world.auditor.message_oracle,
            committed=partial(self.world.committed, process),
        )

    def _operators(self, process: Process) -> Operators:
        hold, _ = self._application(process)
        chance = random.Random(self.world.chance.random())
        return Operators(
            hold, self._memory, chance, self.world.auditor.dead_letter_oracle, self.world.violate
        )

    def _people(self, process: Process) -> People:
        hold, jobs = self._application(process)
        return People(
            hold,
            jobs,
            self._memory,
            random.Random(self.world.chance.random()),
            limit=self._limit,
            lease=self._lease,
            complain=self.world.violate,
        )

    async def _end_workers(self) -> None:
        """Stop workers in good order, by cancelling them, or by killing them."""
        while True:
            await asyncio.sleep(self.world.chance.expovariate(self._restarts))
            running = [
                process
                for process in self._processes
                if process.alive and process.name.startswith(("worker", "fleet"))
            ]
            if running:
                await self._end_a_worker(self.world.chance.choice(running))

    async def _set_the_clock(self) -> None:
        """Set the machine's clock forward and back: a little, by some leases, or by much."""
        if not self._clock_is_set:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self.world.chance.expovariate(self._clock_is_set))
            self.world.turn_clock(self.world.chance.choice(CLOCK_JUMPS))

    async def _end_a_worker(self, process: Process) -> None:
        how = self.world.chance.choice(("stop", "cancel", "kill"))
        self.world.injected[f"shutdown: {how}"] += 1
        self.world.note(f"{process} is ended by {how}")
        match how:
            case "stop":
                self._stop[process].set()
            case "cancel":
                assert process.main is not None
                process.main.cancel()
            case "kill":
                process.crash()

    def _calm(self) -> None:
        self.world.note("the faults stop")
        self._faults.calm = True
        self.world.service.failing = self.world.service.lasting = 0.0
        for outage in self.world.outages.values():
            outage.calm = True
        if self.world.auditor.message_oracle.broker is not None:
            self.world.auditor.message_oracle.broker.calm = True
            self.world.auditor.message_oracle.broker.queue.calm = True
        if self.world.fleet is not None:
            self.world.fleet.calm = True
        dead_letter_oracle = self.world.auditor.dead_letter_oracle
        if dead_letter_oracle.recipient is not None:
            dead_letter_oracle.recipient.failing = 0.0
        if dead_letter_oracle.simulated_archive is not None:
            dead_letter_oracle.simulated_archive.failing = 0.0
        for process in self._processes:
            if process.name.startswith("people"):
                self._stop[process].set()

    async def _life_goes_on(self) -> None:
        """Have one job of each kind submitted: a worker that survived the faults still has to run all of them."""
        process = self.world.process("people", self._faults)
        await process.start(self._people(process).submit_one_of_each())
        if self.world.messaging is not None:
            process = self.world.process("people", self._faults)
            await process.start(self._publishers(process).publish_one_of_each())

    async def _repair(self) -> None:
        """Have all letters repaired and replayed: in calm times each plan comes to its end."""
        if self._memory.lettered:
            process = self.world.process("people", self._faults)
            await process.start(self._operators(process).repair_all())

    async def _everything_ends(self) -> None:
        """Wait until nothing is left to do. People act on meanwhile, so each thing has its own time, from when it was seen."""
        timeout = ENDS_WITHIN + self.world.clock.set_back  # waits and leases are longer by as much
        began, seen = self.world.loop.time(), dict[str, float]()
        while left := self._left():
            now = self.world.loop.time()
            if now - began > 10 * timeout + TICKET_DUE_WITHIN:
                self.world.violate(f"something is always left to do: {left}")
                return
            seen = {key: seen.get(key, now) for key in left}
            for key, since in seen.items():
                if now - since > timeout + TICKET_DUE_WITHIN * key.startswith("ticket"):
                    self.world.violate(f"not ended {timeout:g} s after the last fault: {left[key]}")
                    return
            await self._send_signals(
                [row.id for row in self._live_jobs() if row.name == "listener" and row.signals < SIGNALS]
            )
            await asyncio.sleep(1)

    def _left(self) -> dict[str, Any]:
        """Return what has not ended: jobs, and what the dead letter services and the relays still have to do."""
        left: dict[str, Any] = {f"job {row.id} {row.generation}": row for row in self._live_jobs()}
        if self._memory.lettered:
            left.update(self.world.auditor.dead_letter_oracle.unsettled())
        if self.world.messaging is not None:
            left.update(self.world.auditor.message_oracle.unsettled())
        return left

    def _live_jobs(self) -> list[Row]:
        return [row for row in self.world.auditor.jobs.values() if not row.ended]

    async def _send_signals(self, listeners: list[str]) -> None:
        """Send a signal to the jobs that wait for one: without it they would wait for ever, and rightly so."""
        if listeners:
            process = self.world.process("people", self._faults)
            await process.start(self._people(process).send_signals(listeners))

    async def _all_processes_stop(self, supervisors: list[asyncio.Task[None]]) -> None:
        for stop in self._stop.values():
            stop.set()
        _, left = await asyncio.wait(supervisors, timeout=STOPS_WITHIN)
        if left:
            alive = [process.name for process in self._processes if process.alive]
            self.world.violate(f"still running {STOPS_WITHIN:g} s after they were stopped: {alive}")

    def _check(self) -> None:
        if self.world.violations:
            return
        if self._memory.archives:
            self._bring_everything_back()
        books = self.world.loop.run_until_complete(invariants.read_world(self.world.url))
        if self.world.clock.set_back:
            books = promises.by_number(books)
        world = self.world
        log, skipped, calls = world.service.log, world.clock.skipped, world.auditor.provider_oracle.calls
        for missing in world.auditor.message_oracle.missing(world.auditor.jobs.values()):
            world.violate(missing)
        for broken in promises.broken(books, log, self._memory, world.seen, skipped=skipped, calls=calls):
            world.violate(broken)

    def _bring_everything_back(self) -> None:
        """Have all that was archived restored: what was deleted was nowhere else. The dead letter oracle compares it."""
        for supervisor in self._supervisors:
            supervisor.cancel()
        for process in self._processes:
            process.crash()
        self._faults.calm, dead_letter_oracle = True, self.world.auditor.dead_letter_oracle
        assert dead_letter_oracle.simulated_archive is not None
        dead_letter_oracle.simulated_archive.failing = 0.0
        process = self.world.process("people", self._faults)
        restoring = process.start(self._operators(process).restore_all(sorted(dead_letter_oracle.away)))
        self.world.loop.run_until_complete(restoring)
        if dead_letter_oracle.away:
            self.world.violate(f"deleted, and not restored: {sorted(dead_letter_oracle.away)}")


def _place(error: Exception) -> str:
    """Say where an error was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def simulate(seed: int, *, mode: Mode | None = None) -> Outcome:
    """Live through *seed*, in a folder that is gone afterwards."""
    with (
        fresh_folder() as folder,
        collected_at_the_end(),
        failing_files(),
        shapes_made_once(),
        settings_read_once(),
    ):
        return Simulation(seed, folder, mode=mode).run()


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """A folder for one life, in memory where possible: a simulated crash does not crash the machine."""
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="holdfast-sim-", dir=fast))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def collected_at_the_end() -> Iterator[None]:
    """Collect what dead processes left behind, at the end and not at some moment between, and without a warning."""
    enabled, hook = gc.isenabled(), sys.unraisablehook
    gc.disable()
    gc.freeze()  # what is there already need not be gone through at the end; workers would undo that
    sys.unraisablehook = lambda _: None
    with warnings.catch_warnings(), mock.patch.object(GARBAGE_COLLECTOR, "relaxed", nullcontext):
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            yield
        finally:
            gc.collect()
            gc.unfreeze()
            sys.unraisablehook = hook
            if enabled:
                gc.enable()
