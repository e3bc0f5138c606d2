"""Mistakes in the worker: how it claims jobs, extends leases, releases jobs and stops."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import StoreUnavailable
from holdfast.core.jobs.transitions import Requeue, release
from holdfast.engine.claiming.claimer import Claimer
from holdfast.engine.claiming.launcher import Launcher
from holdfast.engine.claiming.lost_claims import LostClaims
from holdfast.engine.claiming.quarantine import Quarantine
from holdfast.engine.execution import attempt
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.leases.lease_keeper import LeaseKeeper
from holdfast.engine.registry import JobSpec
from holdfast.engine.worker import job_runner
from holdfast.engine.worker.job_runner import JobRunner
from holdfast.engine.worker.maintenance import Maintenance
from holdfast.engine.worker.settler import Settler
from tests.planted.planting import Bug, Swap

if TYPE_CHECKING:
    from holdfast.core.jobs.job import Claim


_START = Launcher.start


async def _extend_nothing(self: Any) -> None:
    self.extended_at = self._clock.monotonic()


def _until_the_first_error(run_once: Any) -> Any:
    async def run(self: Any) -> float:
        try:
            pause: float = await run_once(self)
        except StoreUnavailable:
            await asyncio.Event().wait()
        return pause

    return run


def _all_that_lost_a_worker(self: Any, claim: Claim) -> bool:
    return claim.suspected and self._registry.get(claim.name) is not None


async def _start_quarantined_later(self: Any, claims: list[Claim], asked_at: float) -> None:
    async def later() -> int:
        return 0

    self.start_quarantined = later
    try:
        await _START(self, claims, asked_at)
    finally:
        del self.start_quarantined


async def _sleep_for_an_hour(self: Any) -> None:
    await _sleep(self, 3600)


async def _sleep_until_the_poll(self: Any) -> None:
    await _sleep(self, self._options.poll.total_seconds())


async def _sleep(claimer: Any, seconds: float) -> None:
    """Ignore everything for a while but a request to stop, without which no test would ever end."""
    for _ in range(1_000):
        if not claimer._stop.made:
            await asyncio.sleep(seconds / 1_000)


async def _wait_for_a_hint(self: Any) -> None:
    await self._signal._woken.wait()


async def _lease_until_an_instant_of_the_worker(self: Any, queue: str, room: int) -> list[Claim]:
    ends_at = self._runtime.clock.now() + self._options.lease
    lease = ends_at - datetime.fromisoformat((await self._store.facts())["now"])
    claims: list[Claim] = await self._store.claim(self._worker, queue, limit=room, lease=lease)
    return claims


def _release_spent(claim: Claim, reason: str, **how: Any) -> Requeue:
    return release(claim, reason, **how)._replace(gives_back=False)


class _ShutdownIsALostLease:
    SHUTDOWN = Interruption.LOST
    CANCEL = Interruption.CANCEL
    LOST = Interruption.LOST
    REPLACED = Interruption.REPLACED


async def _give_nothing_back(self: Any, unstarted: Any = frozenset()) -> None:
    self._until = float("-inf")


async def _begin_what_was_read(self: Any) -> int:
    await self._state_reader.read([waiting.attempt.claim for waiting in self._quarantine._waiting])
    started: int = await _START_QUARANTINED(self)
    return started


_START_QUARANTINED = Launcher.start_quarantined


def _holds_nothing_back(self: Any) -> bool:
    return False


async def _wait_for_nothing(self: Any, *_: Any, **__: Any) -> None:
    return


BUGS = (
    Bug(
        "no-extension",
        "Ninety seconds are enough for every job.",
        ("JOB-5",),
        (Swap(LeaseKeeper, "extend", _extend_nothing),),
    ),
    Bug(
        "workers-clock-decides",
        "A lease ends at an instant, and the worker knows what time it is.",
        ("JOB-4",),
        (Swap(Claimer, "_claim", _lease_until_an_instant_of_the_worker),),
    ),
    Bug(
        "keeper-gives-up",
        "If the store is away, there is nothing to extend.",
        ("JOB-5",),
        (Swap(LeaseKeeper, "run_once", _until_the_first_error(LeaseKeeper.run_once)),),
    ),
    Bug(
        "lost-claims-run-out",
        "A claim that failed has claimed nothing; and if it has, the lease will run out.",
        ("JOB-10",),
        (Swap(LostClaims, "release", _give_nothing_back),),
        simulated=False,
    ),
    Bug(
        "sweeper-gives-up",
        "An error ends the sweep.",
        ("JOB-4",),
        (Swap(Maintenance, "run_once", _until_the_first_error(Maintenance.run_once)),),
    ),
    Bug(
        "reclaim-at-once-after-an-outage",
        "The store is back, and these leases are over.",
        ("JOB-5",),
        (Swap(Maintenance, "_holds_reclaiming_back", _holds_nothing_back),),
        simulated=False,
    ),
    Bug(
        "worker-sleeps-for-an-hour",
        "When there is nothing to claim, be kind to the database.",
        ("JOB-8",),
        (Swap(Claimer, "_rest", _sleep_for_an_hour),),
    ),
    Bug(
        "worker-trusts-hints",
        "Every submission sends a hint, so polling is a waste.",
        ("JOB-8",),
        (Swap(Claimer, "_rest", _wait_for_a_hint),),
    ),
    Bug(
        "worker-ignores-hints",
        "It polls every second anyway.",
        ("JOB-8",),
        (Swap(Claimer, "_rest", _sleep_until_the_poll),),
        simulated=False,
    ),
    Bug(
        "shutdown-spends-the-attempt",
        "It was tried, so it counts.",
        ("JOB-7",),
        (Swap(attempt, "release", _release_spent),),
    ),
    Bug(
        "shutdown-drops-what-is-in-hand",
        "The leases expire without our help.",
        ("JOB-7",),
        (Swap(job_runner, "Interruption", _ShutdownIsALostLease),),
    ),
    Bug(
        "shutdown-waits-for-nothing",
        "Request the stop, and go.",
        ("JOB-7",),
        (Swap(JobRunner, "_finish", _wait_for_nothing), Swap(Settler, "drain", _wait_for_nothing)),
    ),
    Bug(
        "suspects-in-company",
        "A lost worker is bad luck.",
        ("JOB-10",),
        (Swap(Quarantine, "takes", lambda self, claim: False),),
    ),
    Bug(
        "cancelled-suspect-put-back",
        "A job that lost its worker waits for its turn, also if it is to be cancelled.",
        ("JOB-10",),
        (Swap(Quarantine, "takes", _all_that_lost_a_worker),),
    ),
    Bug(
        "suspects-wait-for-the-poll",
        "The next poll starts them.",
        ("JOB-10",),
        (Swap(Launcher, "start", _start_quarantined_later),),
    ),
    Bug(
        "suspects-read-before-they-begin",
        "What a job needs is read when it is claimed; then it waits for its turn.",
        ("JOB-10",),
        (Swap(Launcher, "start_quarantined", _begin_what_was_read),),
    ),
    Bug(
        "crashes-for-ever",
        "A crash is not the job's fault, so it costs the job nothing.",
        ("JOB-10",),
        (Swap(JobSpec, "crash_budget", property(lambda self: 1_000_000)),),
    ),
)
