"""How to wait for a store that is away."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from holdfast.core.errors import StoreReadOnly, StoreUnavailable
from holdfast.ports import Clock, Dice

T = TypeVar("T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


class Patience:
    """Tries again while a store is away, with growing pauses that differ from worker to worker."""

    def __init__(self, clock: Clock, dice: Dice) -> None:
        self._clock = clock
        self._dice = dice

    def pause(self, tries: int) -> float:
        """Return how many seconds to wait after *tries* failed tries."""
        longest: float = min(FIRST_PAUSE * 2.0 ** min(tries, 10), LONGEST_PAUSE)
        return longest * (0.5 + self._dice.roll())

    async def insist(self, call: Callable[[int], Awaitable[T]], *, within: timedelta | None = None) -> T:
        """Make *call*, which is told how often it was tried, until the store answers.

        After *within* the last `StoreUnavailable` is raised: the outcome is then unknown.
        """
        began, tries = self._clock.monotonic(), 0
        while True:
            try:
                return await call(tries)
            except StoreUnavailable as error:
                if within is not None and isinstance(error, StoreReadOnly):
                    raise  # somebody waits, and it may stay so for long: nothing was written
                pause = self.pause(tries)
                waited = self._clock.monotonic() - began
                if within is not None and waited + pause > within.total_seconds():
                    raise
            tries += 1
            await asyncio.sleep(pause)
