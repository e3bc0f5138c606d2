"""Throughput, and the time until jobs of lost workers are claimed again and all jobs have ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from tests.acceptance.harness.app import TICKS
from tests.acceptance.harness.polling import throttled, until

if TYPE_CHECKING:
    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.fault_injector import FaultInjector
    from tests.acceptance.harness.processes import WorkerPool


class TickCount(NamedTuple):
    """How many ticks had completed at an instant."""

    at: float
    completed: int

    @classmethod
    def now(cls, database: Database) -> TickCount:
        """Count the completed ticks in the database. The instant is by the clock of this process."""
        completed = database.completed(TICKS)
        return cls(time.monotonic(), completed)

    def rate_since(self, earlier: TickCount) -> float:
        """Ticks completed in a second, on average."""
        return round((self.completed - earlier.completed) / (self.at - earlier.at), 1)


class Recovery(NamedTuple):
    """How many jobs had lost their worker when the faults ended, and how long until the last of them was claimed again or had ended."""

    orphans: int
    seconds: float


def recover(injector: FaultInjector, *, within: float) -> Recovery:
    """Inject two more faults, then measure the recovery.

    One worker is killed and one is paused, so that there is always something to recover. No fault follows. Every job
    that is then leased to a worker that is dead or paused is an orphan, until another worker has claimed it or it
    has ended. The paused worker is resumed after that.
    """
    injector.inject_when_possible("zombie")
    injector.inject_when_possible("kill")
    ended_at = time.monotonic()
    orphans = injector.orphans()
    number = len(orphans)
    adopted = throttled(lambda: _all_adopted(injector, orphans))
    until(adopted, within=within, what=f"{number} orphans to be claimed again")
    return Recovery(number, time.monotonic() - ended_at)


def _all_adopted(injector: FaultInjector, orphans: dict[str, str]) -> bool:
    """Replace dead workers, and remove the orphans that were claimed again or have ended."""
    injector.pool.replace_dead()
    live = injector.database.live()
    for job_id, former in list(orphans.items()):
        if job_id not in live or live[job_id] not in (None, former):
            del orphans[job_id]
    return not orphans


def drain(database: Database, pool: WorkerPool, *, within: float) -> float:
    """Wait until no job is live, without further faults; return how many seconds that took."""

    def nothing_is_live() -> bool:
        pool.replace_dead()
        return not database.live()

    began = time.monotonic()
    until(throttled(nothing_is_live), within=within, what="the last job to end")
    return time.monotonic() - began
