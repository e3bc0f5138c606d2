"""Huey on SQLite: write-ahead log, every commit synced, threads as workers, results kept.

A task leaves its table when it is taken, before it runs; what counts as finished is what left a result.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from huey import SqliteHuey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.case import Case, Tally


class Bench:
    working_since = None

    def __init__(self, case: Case, tally: Tally | None) -> None:
        self._case = case
        self._huey = SqliteHuey("bench", filename=case.url.removeprefix("sqlite:///"), fsync=True)
        self._noop = self._registered(tally)

    def _registered(self, tally: Tally | None) -> Any:
        @self._huey.task(name="noop")
        def noop(number: int) -> int:
            tally.note(number)
            return number

        return noop

    async def install(self) -> None:
        """The tables are made with the object."""

    async def connect(self) -> None:
        """Each thread opens a connection when it needs one."""

    async def close(self) -> None:
        self._huey.storage.close()

    async def submit(self, number: int) -> None:
        self._noop(number)

    async def submit_many(self, kind: str, numbers: Sequence[int]) -> None:
        for number in numbers:  # it has no bulk enqueue
            self._noop(number)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        options = {"workers": self._case.size} if self._case.size else {}
        consumer = self._huey.create_consumer(worker_type="thread", **options)
        consumer.start()
        try:
            yield
        finally:
            await asyncio.to_thread(consumer.stop, graceful=True)

    async def queued(self) -> int:
        return self._huey.pending_count()

    async def finished(self) -> int:
        return self._huey.result_count()
