"""A simulated world: one database, processes that work on it, a service that they call, and what was seen."""

from __future__ import annotations

import asyncio
import hashlib
import linecache
import random
import sqlite3
from collections import Counter
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast import ErrorClass, Holdfast
from holdfast.core.failures.classifier import Classifier
from holdfast.core.redaction import Redactor
from holdfast.engine.options import LetterOptions
from holdfast.engine.runtime import Runtime
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.times import micros
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.testing.seeded_system import InlineExecutor, SeededIds, SeededRandom, VirtualClock
from holdfast.testing.virtual_loop import VirtualLoop
from tests.simulation.auditor import Auditor, Commit
from tests.simulation.clocks import MachineClock
from tests.simulation.jobs import BUDGET, QUICK, SIDE, Jobs, Outside, declare, read
from tests.simulation.letter_jobs import NEVER, Lettering, TicketRecipient
from tests.simulation.outages import Outages, ended_by
from tests.simulation.ports import GuardedExecutor, GuardedStore, as_store
from tests.simulation.processes import Crashed, Process, admits, new_task
from tests.simulation.provided_jobs import NAMES, TIMEOUT
from tests.simulation.provider_oracle import Ended
from tests.simulation.service import Service
from tests.simulation.service_failures import Expected
from tests.simulation.simulated_archive import ArchiveClient, Base64Encrypter, SimulatedArchive
from tests.simulation.simulated_broker import BrokerClient, SimulatedBroker
from tests.simulation.simulated_fleet import FleetClient, SimulatedFleet
from tests.simulation.witness import Seen, Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta
    from pathlib import Path

    import httpx

    from holdfast.core.dead_letters.ticket import Ticket
    from holdfast.core.messages.broker_message import IncomingMessage
    from holdfast.engine.registry import BrokerSpec
    from tests.simulation.message_jobs import Messaging
    from tests.simulation.processes import Injector
    from tests.simulation.provided_jobs import Providing
    from tests.simulation.service import Reply
    from tests.simulation.simulated_broker import Arrival
    from tests.simulation.simulated_fleet import FleetShape

INSTANT = 1e-5
"""Seconds within which two things happened at the same moment."""

CUT_OFF = Expected(ErrorClass.CONNECTION_LOST, passes=True)
"""How the engine has to treat a call whose connection was lost."""


LIVELOCK = 5_000
"""Commits at one moment after which a world counts as one that never ends."""


class World:
    """Everything that one seed brings about."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.loop = VirtualLoop(random.Random(self.chance.random()), admits=admits)
        self.loop.set_task_factory(new_task)  # type: ignore[arg-type]  # typeshed wants it generic over more
        self.path = str(folder / "jobs.db")
        self.clock = MachineClock(self.loop)
        self.injected: Counter[str] = Counter()
        self.service = Service(random.Random(self.chance.random()), self.injected, time=self.loop.time)
        self.trace: list[str] = []
        self._commits, self._commits_at = 0, -1.0
        self.violations: list[str] = []
        self.auditor = Auditor(self.path, self.violate, time=self.loop.time)
        self.auditor.is_dead = self.is_dead
        self.auditor.untroubled = self.auditor.provider_oracle.untroubled = self._untroubled
        self.auditor.timing_oracle.attentive = self._some_worker_runs
        self.auditor.timing_oracle.knows = self._works
        self.seen = Seen()
        self.store_is_away = False
        """Whether every call to the store fails, whichever process makes it."""
        self.strikes_within = False
        """Whether calls on a caller's own connection are struck: only where other processes do not wait for its lock."""
        self.recurs = False
        """Whether one of the jobs recurs."""
        self.outages: dict[str, Outages] = {}
        """The services behind the providers of this world; it may have none."""
        self.lettering: Lettering | None = None
        """How dead letters are looked after; `None` if they are not."""
        self.messaging: Messaging | None = None
        """How messages are exchanged; `None` if they are not."""
        self.fleet: SimulatedFleet | None = None
        """The fleet that runs the jobs of one queue; `None` if workers run them."""
        self._callback_failures: Counter[str] = Counter()
        self.on_violation: Callable[[], None] = lambda: None
        self._serial = count(1)
        self._numbers = count(1)
        self._processes: dict[str, Process] = {}
        self._over = False

    @property
    def url(self) -> str:
        """The database's address."""
        return f"sqlite:///{self.path}"

    def has_providers(self, providing: Providing, chance: random.Random) -> None:
        """Have all processes that begin from now on declare providers."""
        self.auditor.provider_oracle.providing = providing
        for name in NAMES:
            self.outages[name] = Outages(random.Random(chance.random()), self.injected, time=self.loop.time)

    def has_letters(self, lettering: Lettering, chance: random.Random) -> None:
        """Have all processes that begin from now on look after dead letters."""
        self.lettering, dead_letter_oracle = lettering, self.auditor.dead_letter_oracle
        dead_letter_oracle.per_group = lettering.tickets_per == "group"
        dead_letter_oracle.recipient = TicketRecipient(
            random.Random(chance.random()), self.injected, failing=lettering.hook_failing
        )
        if lettering.archives:
            dead_letter_oracle.simulated_archive = SimulatedArchive(
                random.Random(chance.random()), self.injected, self.violate, failing=lettering.failing
            )

    def has_messages(self, messaging: Messaging, chance: random.Random) -> None:
        """Have all processes that begin from now on declare a broker, and messages."""
        self.messaging, message_oracle = messaging, self.auditor.message_oracle
        message_oracle.broker = SimulatedBroker(
            random.Random(chance.random()),
            self.injected,
            self.loop,
            failing=messaging.failing,
            refusing=messaging.refusing,
        )
        message_oracle.broker.on_arrival = self._arrived
        message_oracle.broker.queue.on_acknowledgement = self._acknowledged

    def has_fleet(self, shape: FleetShape, chance: random.Random) -> None:
        """Have a fleet run the jobs of one queue, in all processes that begin from now on."""
        self.fleet = SimulatedFleet(shape, random.Random(chance.random()), self.injected, self.loop)
        self.auditor.fleet_oracle.shape = shape
        self.auditor.fleet_oracle.clock_was_set_back = lambda: bool(self.clock.set_back)

    def is_dead(self, worker: str) -> bool:
        """Whether the process of a worker has ended: all of them run on one machine."""
        process = self._processes.get(worker)
        return process is not None and not process.alive

    def knows_its_key(self) -> None:
        """Have the database tag secrets with the same key each time; its own key is random."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("UPDATE holdfast_meta SET redaction_key = ?", ["5a" * 32])

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        if self._over:
            return
        line = text.replace(self.path, "jobs.db")  # its folder has another name each time
        self.trace.append(f"{self.loop.time():.6f} {line}")

    def violate(self, text: str) -> None:
        """Report what may not happen."""
        if self._over:
            return
        self.note(f"VIOLATION {text}")
        self.violations.append(text)
        self.on_violation()

    def hash(self) -> str:
        """A digest of all that happened: two runs with the same are the same run."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    def process(self, role: str, injector: Injector) -> Process:
        """Make a process that has not begun yet."""
        return Process(f"{role}:{next(self._numbers)}:p", self.loop, injector, self.note)

    def application(
        self, process: Process, *, skew: timedelta, loses_hint: Callable[[], bool]
    ) -> tuple[Holdfast, Jobs]:
        """Give *process* its own Holdfast on the common database, with jobs declared."""
        self._processes[process.name] = process
        assemble = partial(self._assemble, process, skew, loses_hint)
        hold = Holdfast(self.url, attempts=BUDGET, backoff=QUICK, assemble=assemble)
        if self.fleet is not None:
            hold.queue(SIDE, transport=FleetClient(self.fleet, process))
        if self.lettering is not None:
            hold.on_ticket(partial(self._receive_ticket, process))
        witness = Witness(self.auditor, self.seen, self.clock, self.violate)
        post = partial(self._post, process, witness)
        die = partial(self._die, process)
        sign = process.name.split(":")[1]
        call = partial(self._call, process, witness)
        providing = self.auditor.provider_oracle.providing
        outside = Outside(
            post,
            die,
            witness,
            sign,
            self.recurs,
            call,
            providing,
            self.lettering,
            self.messaging,
            self._callback_failures,
            partial(self._own_transaction, process),
        )
        return hold, declare(hold, outside)

    async def _post(self, process: Process, witness: Witness, key: str) -> httpx.Response:
        async def operation() -> Reply:
            witness.observe_call(key)
            return await self.service.post(key)

        try:
            reply = await process.call("service.post", operation, error=ConnectionResetError)
        except ConnectionResetError:
            witness.observe_failure(CUT_OFF)
            raise
        if reply.failing is not None:
            witness.observe_failure(reply.failing.expected)
        return reply.given()

    async def _receive_ticket(self, process: Process, ticket: Ticket) -> None:
        recipient = self.auditor.dead_letter_oracle.recipient
        assert recipient is not None
        await process.call("hook", partial(recipient.receive, ticket), error=ConnectionResetError)

    async def _call(self, process: Process, witness: Witness, provider: str, key: str | None = None) -> None:
        """Call the service behind a provider, and fail as its client does."""
        provider_oracle, began, ended = self.auditor.provider_oracle, self.loop.time(), Ended.NOTHING
        call = provider_oracle.begins(provider, witness.calls(process.name), key)
        try:
            failing = await process.call(
                "service.post", self.outages[provider].answer, error=ConnectionResetError
            )
            ended = ended_by(failing)
            if failing is not None:
                read(failing.given())
        except ConnectionResetError:
            ended = Ended.BAD
            raise
        except asyncio.CancelledError:
            ended = Ended.BAD if self.loop.time() - began >= TIMEOUT - INSTANT else Ended.STOPPED
            raise
        finally:
            if process.alive:
                witness.saw_call_end(ended)
                provider_oracle.ends(call, ended)

    def turn_clock(self, seconds: float) -> None:
        """Set the machine's clock forward, or back: from now on all leases and waits are judged by that."""
        which = "set forward" if seconds > 0 else "set back"
        self.note(f"the clock is {which} by {abs(seconds):g} s")
        self.injected[f"clock: {which}"] += 1
        self.clock.turn(seconds)

    def _die(self, process: Process) -> NoReturn:
        self.note(f"{process.name} is taken down by its own job")
        self.injected["taken down"] += 1
        process.crash()
        raise Crashed

    def _untroubled(self, worker: str, since: float) -> bool:
        """Whether a worker has met no fault since some moment: it was not stopped, and its clock was not set."""
        process = self._processes.get(worker)
        if process is None or not process.alive or process.asleep or process.interrupted:
            return False
        return max(process.troubled_at, self.clock.turned_at) < since - INSTANT

    def _works(self, worker: str, since: int) -> bool:
        """Whether a process has run a worker without trouble since a moment of the database's clock."""
        ago = (micros(self.clock.now()) - since) / 1e6
        moment = self.loop.time() - ago - INSTANT
        process = self._processes.get(worker)
        return process is not None and self.clock.turned_at < moment and process.works_since(moment)

    def _some_worker_runs(self, since: int) -> bool:
        """Whether a worker has run without trouble since a moment; a fleet's process makes nothing ready, and no ticks."""
        return any(self._works(name, since) for name in self._processes if name.startswith("worker"))

    def _assemble(
        self, process: Process, skew: timedelta, loses_hint: Callable[[], bool], settings: Any, **given: Any
    ) -> Runtime:
        def executor(point: str, **more: Any) -> GuardedExecutor:
            return GuardedExecutor(InlineExecutor(), process, point=point, **more)

        store = SqliteStore(
            self.path,
            clock=self.clock,
            writing=executor("sqlite.write", committed=self.committed),
            reading=executor("sqlite.read"),
        )
        redactor = Redactor()
        return Runtime(
            store=as_store(
                GuardedStore(
                    store,
                    process,
                    loses=loses_hint,
                    die=partial(self._die, process),
                    away=lambda: self.store_is_away,
                    strikes_within=self.strikes_within,
                )
            ),
            registry=given["registry"],
            classifier=Classifier(*given["rules"], redact=redactor, read_source=linecache.getlines),
            redactor=redactor,
            letters=self._letters(process, given["hooks"]),
            clock=VirtualClock(self.loop, skew=skew),
            random=SeededRandom(random.Random(self.chance.random())),
            ids=SeededIds(partial(next, self._serial), worker=process.name),
            executor=executor("handler"),
            logger=TracingLogger(process, self.note),
            metrics=MetricRegistry(),
            open_broker=partial(self._open_broker, process),
        )

    def _open_broker(self, process: Process, _: BrokerSpec) -> BrokerClient:
        broker = self.auditor.message_oracle.broker
        assert broker is not None
        return BrokerClient(broker, process)

    def _arrived(self, arrival: Arrival) -> None:
        self.note(f"the broker has {arrival.type} {arrival.serial} as {arrival.id}")
        self.auditor.message_oracle.arrives(arrival)

    @contextmanager
    def _own_transaction(self, process: Process) -> Iterator[sqlite3.Connection]:
        """Open the file without the store, in a transaction; it locks the file until its end."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            process.owns_file(connection)
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        self.committed(process)

    def _acknowledged(self, message: IncomingMessage) -> None:
        self.note(f"the broker deletes {message.id}")
        self.auditor.message_oracle.acknowledges(message)

    def _letters(self, process: Process, hooks: list[Any]) -> LetterOptions:
        if self.lettering is None:
            return LetterOptions(poll_interval=NEVER)
        simulated_archive = self.auditor.dead_letter_oracle.simulated_archive
        return LetterOptions(
            code_version="1",
            retention=self.lettering.retention,
            tickets_per=self.lettering.tickets_per,
            hooks=hooks,
            archive=None if simulated_archive is None else ArchiveClient(simulated_archive, process),
            encrypter_of=lambda _: Base64Encrypter(),
            poll_interval=self.lettering.poll_interval,
        )

    def committed(self, process: Process) -> None:
        """Have a commit audited."""
        self._end_a_livelock(process)
        commit = Commit(process.name, micros(self.clock.now()))
        for row in self.auditor.look(commit):
            self.note(
                f"{process.name} committed {row.name} {row.id[-4:]}: {row.status} attempt={row.attempt} "
                f"token={row.token} generation={row.generation} worker={row.worker}"
            )

    def _end_a_livelock(self, process: Process) -> None:
        """Stop a world in which writes follow each other without end, and no time passes."""
        now = self.loop.time()
        self._commits, self._commits_at = (self._commits + 1 if now == self._commits_at else 1), now
        if self._commits > LIVELOCK:
            self.violate(f"{process.name} goes on to write, and no time passes")
            self.loop.stop()

    def close(self) -> None:
        """Let go of everything; what still waits is dropped, as at the end of a machine."""
        self._over = True
        for process in self._processes.values():
            process.crash()
        for task in asyncio.all_tasks(self.loop):
            _unwind(task.get_coro())
        self.auditor.close()
        with suppress(RuntimeError):
            self.loop.close()


def _unwind(coroutine: Any) -> None:
    """Close what was left half-way, from the outside in, however often it waits for something while it ends.

    Left to the garbage collector the inner of two coroutines may be closed first, and lose the outer one
    while it runs: CPython 3.11 does not survive that.
    """
    for _ in range(100):
        with suppress(BaseException):  # whatever it raises, no caller is left
            coroutine.close()
            return


class TracingLogger:
    """Writes what a process logs into the trace."""

    verbose = True

    def __init__(self, process: Process, note: Callable[[str], None]) -> None:
        self._process = process
        self._note = note

    def debug(self, event: str, **fields: Any) -> None:
        """Note a line of any level."""
        rendered = " ".join(f"{name}={value}" for name, value in fields.items())
        self._note(f"{self._process} says {event!r} {rendered}".rstrip())

    info = warning = error = debug
