"""The clock of a simulated machine, which is the database's, and which is set while processes work."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.testing.seeded_system import VirtualClock

if TYPE_CHECKING:
    import asyncio
    from datetime import datetime


class Turn(NamedTuple):
    """When the clock was set, in seconds that really passed, and how far; back, if it is negative."""

    at: float
    by: float


class MachineClock(VirtualClock):
    """Gives the time by which leases and waits are judged. Its jumps do not change measured durations."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._turns: list[Turn] = []
        self._wrong = timedelta(0)

    def now(self) -> datetime:
        """Return the time, as wrong as the clock was set."""
        return super().now() + self._wrong

    def turn(self, seconds: float) -> None:
        """Set the clock forward, or back."""
        self._turns.append(Turn(self.monotonic(), seconds))
        self._wrong = timedelta(seconds=sum(turn.by for turn in self._turns))

    @property
    def turned_at(self) -> float:
        """When it was set last."""
        return self._turns[-1].at if self._turns else float("-inf")

    @property
    def set_back(self) -> float:
        """The seconds by which it was set back, in all."""
        return -sum(turn.by for turn in self._turns if turn.by < 0)

    def turned(self, since: float, until: float) -> float:
        """The seconds by which it was set between two moments: back, if they are less than none."""
        return sum(turn.by for turn in self._turns if since <= turn.at <= until)

    def skipped(self, since: float, until: float) -> float:
        """The seconds that it left out between two moments: a wait by it is that much shorter."""
        return sum(turn.by for turn in self._turns if turn.by > 0 and since <= turn.at <= until)
