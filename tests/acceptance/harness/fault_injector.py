"""Injects faults into workers, their network, their clocks, their database and its disk."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tests.acceptance.harness.databases import pid_of
from tests.acceptance.harness.polling import throttled, ticks, until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.fault_plan import FaultKind, PlannedFault
    from tests.acceptance.harness.processes import Process, WorkerPool
    from tests.acceptance.harness.proxy import Route

LEASE = 2.0
SKEWS = (600, -600, 3, -3, 0)
"""Seconds by which a clock may be wrong."""


class ActiveFault(NamedTuple):
    """A fault that lasts: when it is over, and how to end it."""

    is_over: Callable[[], bool]
    end: Callable[[], None]


@dataclass
class FaultInjector:
    """Injects faults by the plan; meanwhile replaces dead workers and ends faults that are over."""

    database: Database
    pool: WorkerPool
    chance: random.Random
    routes: Sequence[Route] = ()

    def __post_init__(self) -> None:
        self._active: list[ActiveFault] = []
        self.injected: Counter[FaultKind] = Counter()

    def run(self, faults: list[PlannedFault], *, seconds: float) -> None:
        """Carry out the plan, then end all faults."""
        waiting = list(faults)
        for now in ticks(seconds):
            self.advance()
            if waiting and waiting[0].at <= now and self.inject(waiting[0].kind):
                del waiting[0]
        for fault in waiting:  # there was no process to inject it into in time
            self.inject_when_possible(fault.kind)
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        """Wait until no fault is active."""
        until(self._all_over, within=30, what="the last fault to end")

    def advance(self) -> None:
        """Replace dead workers, and end faults that are over."""
        self.pool.replace_dead()
        over = [fault for fault in self._active if fault.is_over()]
        self._active = [fault for fault in self._active if fault not in over]
        for fault in over:
            fault.end()

    def inject_when_possible(self, kind: FaultKind) -> None:
        """Wait until there is a process to inject the fault into, and inject it."""

        def done() -> bool:
            self.pool.replace_dead()
            return self.inject(kind)

        until(done, within=30, what=f"a process for a {kind}")

    def _all_over(self) -> bool:
        self.advance()
        return not self._active

    def inject(self, kind: FaultKind) -> bool:
        """Inject a fault; false means that there was no process to inject it into, and that the caller tries again."""
        match kind:
            case "kill":
                done = self._kill()
            case "zombie":
                done = self._pause()
            case "crash" | "power_cut":
                done = self._stop_the_server(kind)
            case "delay" | "cut" | "reset" | "half_open":
                done = self._break_the_network(kind)
            case "clock":
                done = self._move_a_clock()
            case "disk_full":
                done = self._fill_the_disk()
        self.injected[kind] += done
        return done

    def _kill(self) -> bool:
        victims = self.pool.at_work()
        if victims:
            self.chance.choice(victims).kill()
        return bool(victims)

    def _pause(self) -> bool:
        """Pause a worker that holds a lease; one that has released its last lease by then is resumed at once.

        The worst moment to resume it is when another worker has just begun one of its jobs, so it is resumed then.
        """
        victims = self.pool.at_work()
        if not victims or not self._server_is_running:
            return False
        victim = self.chance.choice(victims)
        victim.pause()
        held = {job_id for job_id, pid in self.database.holders().items() if pid == victim.process.pid}
        if not held:
            victim.resume()
            return False
        late, replaced = _after(LEASE + 1), throttled(lambda: self._replaced(victim, held))
        self._active.append(ActiveFault(lambda: late() or replaced(), victim.resume))
        return True

    def _replaced(self, paused: Process, held: set[str]) -> bool:
        """Whether another worker has one of the paused worker's jobs."""
        if not self._server_is_running:
            return False
        holders = self.database.holders()
        return bool({holders.get(job_id) for job_id in held} - {None, paused.process.pid})

    @property
    def _server_is_running(self) -> bool:
        return self.database.server is None or self.database.server.running

    def _stop_the_server(self, kind: FaultKind) -> bool:
        """Stop it in immediate mode, or kill it; it is started again within a second."""
        server = self.database.server
        assert server is not None
        if not server.running:
            return False
        if kind == "crash":
            server.stop("immediate")
        else:
            server.kill()
        self._active.append(ActiveFault(_after(self.chance.random()), server.start))
        return True

    def _break_the_network(self, kind: FaultKind) -> bool:
        """Break one route; every fourth time all of them."""
        routes = self.routes if self.chance.random() < 0.25 else [self.chance.choice(self.routes)]
        return sum(self._break_route(route, kind) for route in routes) > 0

    def _break_route(self, route: Route, kind: FaultKind) -> bool:
        if kind == "reset":
            return route.reset() > 0
        if kind == "half_open":
            return route.half_open() > 0
        if kind == "delay":
            route.slow_down(self.chance.uniform(0.05, 0.3))
        else:
            route.cut()
        self._active.append(ActiveFault(_after(self.chance.uniform(1, 2 * LEASE)), route.restore))
        return True

    def _move_a_clock(self) -> bool:
        clock = self.chance.choice([host.clock for host in self.pool.hosts if host.clock is not None])
        clock.jump_to(self.chance.choice([skew for skew in SKEWS if skew != clock.seconds]))
        return True

    def _fill_the_disk(self) -> bool:
        """Fill the disk until a worker reports it, and for some time after that."""
        disk = self.database.disk
        assert disk is not None
        known = self._reports_of_a_full_disk()
        disk.fill()
        reported = throttled(lambda: self._reports_of_a_full_disk() > known)
        self._active.append(ActiveFault(_long_after(reported, self.chance.uniform(1, 2 * LEASE)), disk.free))
        return True

    def _reports_of_a_full_disk(self) -> int:
        return sum(
            "disk is full" in line
            for member in self.pool.all_members
            for line in member.output().splitlines()
        )

    def orphans(self) -> dict[str, str]:
        """The jobs whose worker is dead or paused, with its name."""
        awake = {member.process.pid for member in self.pool.members if member.alive and not member.paused}
        leases = self.database.leases()
        return {job_id: worker for job_id, worker in leases.items() if pid_of(worker) not in awake}


def _after(seconds: float) -> Callable[[], bool]:
    """Return a condition that is true once *seconds* have passed."""
    at = time.monotonic() + seconds
    return lambda: time.monotonic() >= at


def _long_after(happened: Callable[[], bool], seconds: float) -> Callable[[], bool]:
    """Return a condition that is true *seconds* after *happened* was true."""
    over: Callable[[], bool] | None = None

    def ask() -> bool:
        nonlocal over
        if over is None and happened():
            over = _after(seconds)
        return over is not None and over()

    return ask
