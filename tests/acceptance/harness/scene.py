"""Where chaos takes place: a database, a service, workers and a submitter, each with a way of its own to the database."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast_simulator import Moment, Reset, Rule, Script, Slow, Status
from tests.acceptance.harness.clocks import WrongClock
from tests.acceptance.harness.databases import open_database
from tests.acceptance.harness.disks import SmallDisk
from tests.acceptance.harness.driver import LEASE
from tests.acceptance.harness.missing import PartMissingError
from tests.acceptance.harness.processes import Crew, Place, Service, Submitter
from tests.acceptance.harness.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.harness.databases import Database, StoreName
    from tests.acceptance.harness.plans import Kind
    from tests.acceptance.harness.proxy import Route

OFF_BY = (None, 600, -600, None)
"""The clocks of the workers, in seconds; `None` is a clock that is right. There are as many workers."""

TICK_SLOTS = 1
ORDERS_A_SECOND = 20
BACKLOG = 4_000
"""Ticks that wait: more than all workers do in the seconds for which a broken network may stop the submitter.

A run of seconds makes do with fewer, since all of them have to end before it is over.
"""

MEGABYTES = 100
MEGABYTES_A_MINUTE = 100
"""How large a disk has to be that is never full by itself: twice what the jobs were seen to take."""


@dataclass(frozen=True)
class Scene:
    """Everybody who takes part. What cannot be done to them on this machine is in *left_out*, with the reason."""

    database: Database
    service: Service
    crew: Crew
    submitter: Submitter
    routes: list[Route]
    left_out: dict[Kind, str]


def flaky_service(seed: int) -> Script:
    """Half of the calls take their time; a few fail, before the effect or after it."""
    return Script.of(
        Rule(Status(503), probability=0.05),
        Rule(Reset(at=Moment.AFTER_EFFECT), probability=0.05),
        Rule(Slow(timedelta(seconds=0.4)), probability=0.5),
        seed=seed,
    )


@contextmanager
def set_up(store: StoreName, folder: Path, *, seconds: float, seed: int) -> Iterator[Scene]:
    """Start everybody, and wait until the workers work."""
    with ExitStack() as stack:
        machine = _Machine(folder, stack)
        disk = machine.disk(seconds) if store == "sqlite" else None
        database = stack.enter_context(open_database(store, folder, disk=disk))
        places = machine.places(database)
        service = stack.enter_context(Service(folder, flaky_service(seed)))
        options = ("--lease", str(LEASE), "--ticks", str(TICK_SLOTS))
        crew = Crew(database.url, folder, service.url, options=options, places=tuple(places[:-1]))
        stack.enter_context(crew)
        crew.wait_until_at_work()
        backlog = min(BACKLOG, round(100 * seconds))
        submitter = Submitter(
            places[-1].url, folder, rate=ORDERS_A_SECOND, backlog=backlog, look_at=database.url
        )
        stack.enter_context(submitter)
        routes = [place.route for place in places if place.route is not None]
        yield Scene(database, service, crew, submitter, routes, machine.left_out)


@dataclass
class _Machine:
    """Finds out what can be broken here."""

    folder: Path
    stack: ExitStack
    left_out: dict[Kind, str] = field(default_factory=dict)

    def disk(self, seconds: float) -> SmallDisk | None:
        """Make a disk that can be filled."""
        try:
            size = round(MEGABYTES + MEGABYTES_A_MINUTE * seconds / 60)
            return self.stack.enter_context(SmallDisk(size))
        except PartMissingError as missing:
            self.left_out["disk_full"] = str(missing)
            return None

    def places(self, database: Database) -> list[Place]:
        """Give each worker its place, and the submitter the last one.

        Whoever shares a SQLite file is on one machine, with one clock and no network: nothing to break there.
        """
        if database.server is None:
            return [Place(database.url)] * (len(OFF_BY) + 1)
        proxy = self.stack.enter_context(Proxy(*database.address))
        routes = [proxy.route() for _ in range(len(OFF_BY) + 1)]
        clocks = [*map(self._clock, OFF_BY), None]
        return [
            Place(database.through(route), route, clock) for route, clock in zip(routes, clocks, strict=True)
        ]

    def _clock(self, seconds: int | None) -> WrongClock | None:
        if seconds is None:
            return None
        try:
            return WrongClock(self.folder / f"clock{seconds:+d}", seconds=seconds)
        except PartMissingError as missing:
            self.left_out["clock"] = str(missing)
            return None
