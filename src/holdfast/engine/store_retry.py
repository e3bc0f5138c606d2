"""Retries calls while the store is unavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from holdfast.core.errors import StoreReadOnly, StoreUnavailable
from holdfast.ports import Clock, Random

T = TypeVar("T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


class StoreRetry:
    """Retries while the store is unavailable, with growing pauses and jitter."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random

    def pause(self, tries: int) -> float:
        """Return the seconds to wait after *tries* failed tries."""
        longest: float = min(FIRST_PAUSE * 2.0 ** min(tries, 10), LONGEST_PAUSE)
        return longest * (0.5 + self._random.random())

    async def call(self, operation: Callable[[int], Awaitable[T]], *, within: timedelta | None = None) -> T:
        """Call *operation* with the number of earlier tries, until the store answers; return its result.

        After *within* the last `StoreUnavailable` is raised: the outcome is then unknown.
        """
        began, tries = self._clock.monotonic(), 0
        while True:
            try:
                return await operation(tries)
            except StoreUnavailable as error:
                if within is not None and isinstance(error, StoreReadOnly):
                    raise  # a caller waits, and the store may stay read-only for long: nothing was written
                pause = self.pause(tries)
                waited = self._clock.monotonic() - began
                if within is not None and waited + pause > within.total_seconds():
                    raise
            tries += 1
            await asyncio.sleep(pause)
