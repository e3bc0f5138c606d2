"""Recurring jobs: which of their ticks are due.

A tick is an instant that follows from the schedule alone, so all workers see the same ones. How far a
schedule has come is kept in the store; missed ticks are submitted later, or skipped.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, assert_never

Missed = Literal["latest", "all", "skip"]
"""Which ticks that passed while no worker ran are submitted: the last of them, all, or none."""

GRACE = timedelta(minutes=1)
"""How late a tick may be and still count as on time."""

MOST = 1_000
"""Ticks that are checked in one run; the others follow at once, with the next run."""

Ticks = Callable[[datetime], Iterator[datetime]]
"""Yields the ticks after an instant, in order, without end."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a recurring job is submitted; *description* is for display."""

    name: str
    description: str
    ticks: Ticks
    missed: Missed = "latest"

    def due(self, last: datetime, now: datetime) -> "Due":
        """Return the ticks after *last* that have come by *now*, as far as *missed* submits them."""
        passed: list[datetime] = []
        ticks = self.ticks(last)
        while (upcoming := next(ticks)) <= now and len(passed) < MOST:
            passed.append(upcoming)
        # Where more have passed than are checked, the latest of them is not among these yet.
        latest = passed[-1:] if upcoming > now else []
        return Due(self._chosen(passed, latest, now), passed[-1] if passed else last, upcoming)

    def _chosen(self, passed: list[datetime], latest: list[datetime], now: datetime) -> list[datetime]:
        match self.missed:
            case "all":
                return passed
            case "latest":
                return latest
            case "skip":
                return [tick for tick in latest if now - tick <= GRACE]
            case unknown:
                assert_never(unknown)


@dataclass(frozen=True, slots=True)
class Due:
    """The ticks to submit, how far the schedule has come with them, and when the next one comes."""

    ticks: list[datetime]
    last_tick: datetime
    upcoming: datetime


def every(interval: timedelta) -> Ticks:
    """Tick at whole multiples of *interval*, counted from the beginning of 1970 in UTC.

    >>> ticks = every(timedelta(minutes=5))(datetime(2030, 1, 1, 12, 7, tzinfo=UTC))
    >>> next(ticks).isoformat(), next(ticks).isoformat()
    ('2030-01-01T12:10:00+00:00', '2030-01-01T12:15:00+00:00')
    """
    zero = datetime(1970, 1, 1, tzinfo=UTC)

    def ticks(after: datetime) -> Iterator[datetime]:
        number = (after - zero) // interval
        while True:
            number += 1
            yield zero + number * interval

    return ticks
