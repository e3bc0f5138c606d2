"""What an attempt has under way at this moment: stages that run, submissions and questions on their way to the store."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

TURNS = 10
"""Turns of the loop that a branch of a job may need between one thing and the next, with tasks and groups around it."""


class Bustle:
    """Counts what is under way: a job is parked only when nothing is."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._count == 0

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count what is done in the block."""
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    async def quiet(self) -> None:
        """Wait until nothing is under way, and nobody who waited for it begins something else."""
        turns = 0
        while turns < TURNS:
            turns = turns + 1 if self.idle else 0
            await (asyncio.sleep(0) if self.idle else self._idle.wait())
