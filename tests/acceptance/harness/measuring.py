"""How much gets done, and how long it takes until nothing is left behind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from tests.acceptance.harness.app import TICKS
from tests.acceptance.harness.pacing import now_and_then, until

if TYPE_CHECKING:
    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.driver import Driver
    from tests.acceptance.harness.processes import Crew


class Mark(NamedTuple):
    """How many ticks had completed at some moment."""

    at: float
    completed: int

    @classmethod
    def now(cls, database: Database) -> Mark:
        """Count what the table of ended jobs holds. No clock but ours has a part in it."""
        completed = database.completed(TICKS)
        return cls(time.monotonic(), completed)

    def rate_since(self, earlier: Mark) -> float:
        """Ticks completed in a second, on average."""
        return round((self.completed - earlier.completed) / (self.at - earlier.at), 1)


class Recovery(NamedTuple):
    """How many jobs had lost their worker when the faults ended, and when the last of them was in good hands."""

    orphans: int
    seconds: float


def recover(driver: Driver, *, within: float) -> Recovery:
    """Take two more workers, then measure from there on.

    One is killed and one is put to sleep, so that there is always something to recover. The faults end at that
    moment. Every job that is then leased to a worker that is dead or asleep is an orphan, until another worker
    has claimed it or it has ended. The sleeper wakes after that.
    """
    driver.strike_somebody("zombie")
    driver.strike_somebody("kill")
    ended_at = time.monotonic()
    orphans = driver.orphans()
    number = len(orphans)
    adopted = now_and_then(lambda: _all_adopted(driver, orphans))
    until(adopted, within=within, what=f"{number} orphans to be claimed again")
    return Recovery(number, time.monotonic() - ended_at)


def _all_adopted(driver: Driver, orphans: dict[str, str]) -> bool:
    """Replace the dead, and strike off the orphans that are in good hands."""
    driver.crew.tend()
    live = driver.database.live()
    for job_id, former in list(orphans.items()):
        if job_id not in live or live[job_id] not in (None, former):
            del orphans[job_id]
    return not orphans


def drain(database: Database, crew: Crew, *, within: float) -> float:
    """Wait until no job is live, with nobody in the way any more; return how long that took."""

    def nothing_is_live() -> bool:
        crew.tend()
        return not database.live()

    began = time.monotonic()
    until(now_and_then(nothing_is_live), within=within, what="the last job to end")
    return time.monotonic() - began
