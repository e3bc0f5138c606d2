"""The processes of a chaos run: a database, a service, workers and a submitter, each with its own route to the database."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast_simulator import Moment, Reset, Rule, Script, Slow, Status
from tests.acceptance.harness.clocks import WrongClock
from tests.acceptance.harness.databases import open_database
from tests.acceptance.harness.disks import SmallDisk
from tests.acceptance.harness.fault_injector import LEASE
from tests.acceptance.harness.prerequisites import PrerequisiteMissingError
from tests.acceptance.harness.processes import Service, Submitter, WorkerHost, WorkerPool
from tests.acceptance.harness.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.harness.databases import Database, StoreName
    from tests.acceptance.harness.fault_plan import FaultKind
    from tests.acceptance.harness.proxy import Route

OFF_BY = (None, 600, -600, None)
"""The clocks of the workers, in seconds; `None` is a clock that is right. There are as many workers."""

TICK_SLOTS = 1
ORDERS_A_SECOND = 20
BACKLOG = 4_000
"""Ticks that wait: more than all workers do in the seconds for which a broken network may stop the submitter.

A run of seconds has fewer, since all of them have to end before it is over.
"""

MEGABYTES = 100
MEGABYTES_A_MINUTE = 100
"""How large a disk has to be so that jobs alone do not fill it: twice their measured size."""


@dataclass(frozen=True)
class Testbed:
    """All processes of a run. Faults that cannot be injected on this machine are in *left_out*, with the reason."""

    database: Database
    service: Service
    pool: WorkerPool
    submitter: Submitter
    routes: list[Route]
    left_out: dict[FaultKind, str]


def flaky_service(seed: int) -> Script:
    """Half of the calls are slow; a few fail, before the effect or after it."""
    return Script.of(
        Rule(Status(503), probability=0.05),
        Rule(Reset(at=Moment.AFTER_EFFECT), probability=0.05),
        Rule(Slow(timedelta(seconds=0.4)), probability=0.5),
        seed=seed,
    )


@contextmanager
def start_testbed(store: StoreName, folder: Path, *, seconds: float, seed: int) -> Iterator[Testbed]:
    """Start all processes, and wait until the workers claim."""
    with ExitStack() as stack:
        machine = _Machine(folder, stack)
        disk = machine.disk(seconds) if store == "sqlite" else None
        database = stack.enter_context(open_database(store, folder, disk=disk))
        hosts = machine.hosts(database)
        service = stack.enter_context(Service(folder, flaky_service(seed)))
        options = ("--lease", str(LEASE), "--ticks", str(TICK_SLOTS))
        pool = WorkerPool(database.url, folder, service.url, options=options, hosts=tuple(hosts[:-1]))
        stack.enter_context(pool)
        pool.wait_until_at_work()
        backlog = min(BACKLOG, round(100 * seconds))
        submitter = Submitter(
            hosts[-1].url, folder, rate=ORDERS_A_SECOND, backlog=backlog, look_at=database.url
        )
        stack.enter_context(submitter)
        routes = [host.route for host in hosts if host.route is not None]
        yield Testbed(database, service, pool, submitter, routes, machine.left_out)


@dataclass
class _Machine:
    """Finds out which faults can be injected here."""

    folder: Path
    stack: ExitStack
    left_out: dict[FaultKind, str] = field(default_factory=dict)

    def disk(self, seconds: float) -> SmallDisk | None:
        """Make a disk that can be filled."""
        try:
            size = round(MEGABYTES + MEGABYTES_A_MINUTE * seconds / 60)
            return self.stack.enter_context(SmallDisk(size))
        except PrerequisiteMissingError as missing:
            self.left_out["disk_full"] = str(missing)
            return None

    def hosts(self, database: Database) -> list[WorkerHost]:
        """Give each worker its host, and the submitter the last one.

        Processes that share a SQLite file are on one machine, with one clock and no network: these faults do not apply.
        """
        if database.server is None:
            return [WorkerHost(database.url)] * (len(OFF_BY) + 1)
        proxy = self.stack.enter_context(Proxy(*database.address))
        routes = [proxy.route() for _ in range(len(OFF_BY) + 1)]
        clocks = [*map(self._clock, OFF_BY), None]
        return [
            WorkerHost(database.through(route), route, clock)
            for route, clock in zip(routes, clocks, strict=True)
        ]

    def _clock(self, seconds: int | None) -> WrongClock | None:
        if seconds is None:
            return None
        try:
            return WrongClock(self.folder / f"clock{seconds:+d}", seconds=seconds)
        except PrerequisiteMissingError as missing:
            self.left_out["clock"] = str(missing)
            return None
