"""The clock of a simulated machine, which is the database's, and which somebody sets while everybody works."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.testing.world import VirtualClock

if TYPE_CHECKING:
    import asyncio
    from datetime import datetime


class Turn(NamedTuple):
    """When the clock was set, in seconds that really passed, and how far; back, if it is negative."""

    at: float
    by: float


class MachineClock(VirtualClock):
    """Tells the time by which leases and waits are judged. What measures lengths is not touched by its jumps."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._turns: list[Turn] = []
        self._wrong = timedelta(0)

    def now(self) -> datetime:
        """Tell the time, as wrong as somebody set it."""
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
        """The seconds that it left out between two moments: whoever waits by it waits that much less."""
        return sum(turn.by for turn in self._turns if turn.by > 0 and since <= turn.at <= until)
