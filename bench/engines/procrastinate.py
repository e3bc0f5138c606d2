"""Procrastinate with its asynchronous connector: async tasks side by side, a pool that lets them work."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import asyncpg
from procrastinate import App, PsycopgConnector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.case import Case, Tally

DEFAULT_LIST = 1_000
MOST_CONNECTIONS = 20


class Bench:
    working_since = None

    def __init__(self, case: Case, tally: Tally | None) -> None:
        self._case = case
        self._app = App(connector=PsycopgConnector(conninfo=case.url, **self._pool_size()))
        self._noop = self._registered(tally)

    def _pool_size(self) -> dict[str, int]:
        if self._case.size is None:
            return {}
        connections = min(self._case.size, MOST_CONNECTIONS)
        return {"min_size": connections, "max_size": connections}

    def _registered(self, tally: Tally | None):
        @self._app.task(name="noop")
        async def noop(number: int) -> None:
            tally.note(number)

        return noop

    async def install(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def connect(self) -> None:
        self._monitor = await asyncpg.connect(self._case.url)
        await self._app.open_async()

    async def close(self) -> None:
        await self._app.close_async()
        await self._monitor.close()

    async def submit(self, number: int) -> None:
        await self._noop.defer_async(number=number)

    async def submit_many(self, kind: str, numbers: Sequence[int]) -> None:
        length = self._case.size or DEFAULT_LIST
        for start in range(0, len(numbers), length):
            await self._noop.batch_defer_async(*[{"number": n} for n in numbers[start : start + length]])

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        options = {"concurrency": self._case.size} if self._case.size else {}
        running = asyncio.create_task(
            self._app.run_worker_async(install_signal_handlers=False, **options), name="procrastinate"
        )
        try:
            yield
        finally:
            running.cancel()  # as documented: it finishes the jobs in flight
            with suppress(asyncio.CancelledError):
                await running

    async def queued(self) -> int:
        return await self._count("todo")

    async def finished(self) -> int:
        return await self._count("succeeded")

    async def _count(self, status: str) -> int:
        return await self._monitor.fetchval(
            "SELECT count(*) FROM procrastinate_jobs WHERE status = $1::procrastinate_job_status", status
        )
