"""PgQueuer as its tuning guide would have it: asyncpg, uvloop, tuned autovacuum, durable tables."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
from pgqueuer import QueueManager
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pgqueuer.models import Job

    from bench.case import Case, Tally

DEFAULT_LIST = 1_000


class TimedQueries(Queries):
    """Notes when the first claim is made: the manager checks its schema before, which is not counted."""

    first_claim_at: float | None = None

    async def dequeue(self, *args: Any, **kwargs: Any) -> list[Job]:
        if self.first_claim_at is None:
            self.first_claim_at = time.perf_counter()
        return await super().dequeue(*args, **kwargs)


class Bench:
    def __init__(self, case: Case, tally: Tally | None) -> None:
        self._case = case
        self._tally = tally

    @property
    def working_since(self) -> float | None:
        return self._queries.first_claim_at

    async def install(self) -> None:
        connection = await asyncpg.connect(self._case.url)
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.close()

    async def connect(self) -> None:
        self._monitor = await asyncpg.connect(self._case.url)
        self._pool = await asyncpg.create_pool(self._case.url, **self._pool_size())
        self._connection = await asyncpg.connect(self._case.url)
        self._driver = (
            AsyncpgPoolDriver(self._pool) if self._case.variant == "pool" else AsyncpgDriver(self._connection)
        )
        self._queries = TimedQueries(self._driver)

    def _pool_size(self) -> dict[str, int]:
        return (
            {"min_size": 20, "max_size": 20}
            if self._case.variant == "pool"
            else {"min_size": 0, "max_size": 1}
        )

    async def close(self) -> None:
        await self._pool.close()
        await self._connection.close()
        await self._monitor.close()

    async def submit(self, number: int) -> None:
        await self._queries.enqueue("noop", b"%d" % number)

    async def submit_many(self, kind: str, numbers: Sequence[int]) -> None:
        length = self._case.size or DEFAULT_LIST
        for start in range(0, len(numbers), length):
            part = numbers[start : start + length]
            await self._queries.enqueue([kind] * len(part), [b"%d" % n for n in part], [0] * len(part))

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        manager = QueueManager(self._queries)
        tally = self._tally

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:
            tally.note(int(job.payload))

        options = {"batch_size": self._case.size} if self._case.size else {}
        running = asyncio.create_task(manager.run(**options), name="pgqueuer")
        try:
            yield
        finally:
            manager.shutdown.set()
            await running

    async def queued(self) -> int:
        return await self._monitor.fetchval("SELECT count(*) FROM pgqueuer")

    async def finished(self) -> int:
        return await self._monitor.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
