"""The work that an attempt has in flight: running stages, submissions, and reads from the store."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

TURNS = 10
"""Iterations of the event loop that a branch of a job may need between two operations, through tasks and groups."""


class InFlight:
    """Counts work in flight: a job is parked only when there is none."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        return self._count == 0

    @contextmanager
    def track(self) -> Iterator[None]:
        """Count the block as work in flight."""
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in flight, and no branch of the job has started anything after that."""
        turns = 0
        while turns < TURNS:
            turns = turns + 1 if self.idle else 0
            await (asyncio.sleep(0) if self.idle else self._idle.wait())
