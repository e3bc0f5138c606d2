"""The one who strikes: workers, their network, their clocks, their database and its disk."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tests.acceptance.harness.databases import pid_of
from tests.acceptance.harness.pacing import now_and_then, ticks, until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.plans import Blow, Kind
    from tests.acceptance.harness.processes import Crew, Process
    from tests.acceptance.harness.proxy import Route

LEASE = 2.0
SKEWS = (600, -600, 3, -3, 0)
"""Seconds by which a clock may be wrong."""


class Trouble(NamedTuple):
    """Something that lasts: when it has lasted long enough, and how it ends."""

    is_over: Callable[[], bool]
    end: Callable[[], None]


@dataclass
class Driver:
    """Strikes when the plan says so, and meanwhile replaces the dead and ends what has lasted long enough."""

    database: Database
    crew: Crew
    chance: random.Random
    routes: Sequence[Route] = ()

    def __post_init__(self) -> None:
        self._troubles: list[Trouble] = []
        self.struck: Counter[Kind] = Counter()

    def run(self, blows: list[Blow], *, seconds: float) -> None:
        """Carry out the plan, then let everybody go on."""
        waiting = list(blows)
        for now in ticks(seconds):
            self.tend()
            if waiting and waiting[0].at <= now and self.strike(waiting[0].kind):
                del waiting[0]
        for blow in waiting:  # nobody was there to be hit in time
            self.strike_somebody(blow.kind)
        self.let_go()

    def let_go(self) -> None:
        """Wait until nobody is in trouble any more."""
        until(self._all_over, within=30, what="the last trouble to end")

    def tend(self) -> None:
        """Replace the dead, and end what has lasted long enough."""
        self.crew.tend()
        over = [trouble for trouble in self._troubles if trouble.is_over()]
        self._troubles = [trouble for trouble in self._troubles if trouble not in over]
        for trouble in over:
            trouble.end()

    def strike_somebody(self, kind: Kind) -> None:
        """Wait until somebody is there to be hit, and do it."""

        def struck() -> bool:
            self.crew.tend()
            return self.strike(kind)

        until(struck, within=30, what=f"somebody for a {kind}")

    def _all_over(self) -> bool:
        self.tend()
        return not self._troubles

    def strike(self, kind: Kind) -> bool:
        """Do it; false means that nobody was there to be hit, and that it is to be tried again."""
        match kind:
            case "kill":
                done = self._kill()
            case "zombie":
                done = self._pause()
            case "crash" | "power_cut":
                done = self._take_the_server(kind)
            case "delay" | "cut" | "reset" | "half_open":
                done = self._break_the_network(kind)
            case "clock":
                done = self._move_a_clock()
            case "disk_full":
                done = self._fill_the_disk()
        self.struck[kind] += done
        return done

    def _kill(self) -> bool:
        victims = self.crew.at_work()
        if victims:
            self.chance.choice(victims).kill()
        return bool(victims)

    def _pause(self) -> bool:
        """Stop a worker that holds a lease; one that had let go of its last by then is no good.

        It is worst to wake it while another has just begun on one of its jobs, so that is when it wakes.
        """
        victims = self.crew.at_work()
        if not victims or not self._server_is_there:
            return False
        victim = self.chance.choice(victims)
        victim.pause()
        held = {job_id for job_id, pid in self.database.holders().items() if pid == victim.process.pid}
        if not held:
            victim.resume()
            return False
        late, replaced = _after(LEASE + 1), now_and_then(lambda: self._replaced(victim, held))
        self._troubles.append(Trouble(lambda: late() or replaced(), victim.resume))
        return True

    def _replaced(self, sleeper: Process, held: set[str]) -> bool:
        """Whether another worker has one of the sleeper's jobs."""
        if not self._server_is_there:
            return False
        holders = self.database.holders()
        return bool({holders.get(job_id) for job_id in held} - {None, sleeper.process.pid})

    @property
    def _server_is_there(self) -> bool:
        return self.database.server is None or self.database.server.running

    def _take_the_server(self, kind: Kind) -> bool:
        """Stop it without a word to anybody, or take its power; it comes back within a second."""
        server = self.database.server
        assert server is not None
        if not server.running:
            return False
        if kind == "crash":
            server.stop("immediate")
        else:
            server.kill()
        self._troubles.append(Trouble(_after(self.chance.random()), server.start))
        return True

    def _break_the_network(self, kind: Kind) -> bool:
        """Break one route; every fourth time all of them."""
        routes = self.routes if self.chance.random() < 0.25 else [self.chance.choice(self.routes)]
        return sum(self._break_route(route, kind) for route in routes) > 0

    def _break_route(self, route: Route, kind: Kind) -> bool:
        if kind == "reset":
            return route.reset() > 0
        if kind == "half_open":
            return route.half_open() > 0
        if kind == "delay":
            route.slow_down(self.chance.uniform(0.05, 0.3))
        else:
            route.cut()
        self._troubles.append(Trouble(_after(self.chance.uniform(1, 2 * LEASE)), route.mend))
        return True

    def _move_a_clock(self) -> bool:
        clock = self.chance.choice([place.clock for place in self.crew.places if place.clock is not None])
        clock.jump_to(self.chance.choice([skew for skew in SKEWS if skew != clock.seconds]))
        return True

    def _fill_the_disk(self) -> bool:
        """Leave no room until somebody misses it, and for some time after that."""
        disk = self.database.disk
        assert disk is not None
        known = self._told_of_a_full_disk()
        disk.fill()
        missed = now_and_then(lambda: self._told_of_a_full_disk() > known)
        self._troubles.append(Trouble(_long_after(missed, self.chance.uniform(1, 2 * LEASE)), disk.free))
        return True

    def _told_of_a_full_disk(self) -> int:
        return sum(
            "disk is full" in line for member in self.crew.everybody for line in member.said().splitlines()
        )

    def orphans(self) -> dict[str, str]:
        """The jobs whose holder is dead or asleep, with its name."""
        awake = {member.process.pid for member in self.crew.members if member.alive and not member.paused}
        leases = self.database.leases()
        return {job_id: worker for job_id, worker in leases.items() if pid_of(worker) not in awake}


def _after(seconds: float) -> Callable[[], bool]:
    """Give a question that is answered with yes once so many seconds have passed."""
    at = time.monotonic() + seconds
    return lambda: time.monotonic() >= at


def _long_after(happened: Callable[[], bool], seconds: float) -> Callable[[], bool]:
    """Give a question that is answered with yes so many seconds after the other one was."""
    over: Callable[[], bool] | None = None

    def ask() -> bool:
        nonlocal over
        if over is None and happened():
            over = _after(seconds)
        return over is not None and over()

    return ask
