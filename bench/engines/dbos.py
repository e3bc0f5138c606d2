"""DBOS with a queue of its own: a frequent poll, a limit per worker, async or threaded workflows."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import sqlalchemy
from dbos import DBOS, DBOSClient, run_dbos_database_migrations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.case import Case, Tally

QUEUE = "bench"
APPLICATION = "bench"
POLL_SECONDS = 0.02


class Bench:
    working_since = None

    def __init__(self, case: Case, tally: Tally | None) -> None:
        self._case = case
        self._tally = tally
        self._engine = sqlalchemy.create_engine(case.url.replace("postgresql:", "postgresql+psycopg:", 1))

    async def install(self) -> None:
        await asyncio.to_thread(run_dbos_database_migrations, self._case.url)

    async def connect(self) -> None:
        self._monitor = await asyncpg.connect(self._case.url)
        self._client = DBOSClient(system_database_engine=self._engine, application_name=APPLICATION)
        await self._client.register_queue_async(QUEUE, **self._queue_options())

    def _queue_options(self) -> dict[str, float]:
        if self._case.size is None:
            return {}
        return {"worker_concurrency": self._case.size, "polling_interval_sec": POLL_SECONDS}

    async def close(self) -> None:
        self._client.destroy()
        self._engine.dispose()
        await self._monitor.close()

    async def submit(self, number: int) -> None:
        await self._client.enqueue_async(self._options("noop"), number)

    async def submit_many(self, kind: str, numbers: Sequence[int]) -> None:
        await asyncio.to_thread(self._submit_in_one_transaction, kind, numbers)

    def _submit_in_one_transaction(self, kind: str, numbers: Sequence[int]) -> None:
        with self._engine.begin() as connection:
            for number in numbers:
                self._client.enqueue_in_transaction(connection, self._options(kind), number)

    def _options(self, kind: str) -> dict[str, str]:
        return {"workflow_name": kind, "queue_name": QUEUE}

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        config = {"name": APPLICATION, "system_database_url": self._case.url, "application_version": "1"}
        DBOS(config=config)
        if self._case.variant == "threads":
            _register_threaded(self._tally)
        else:
            _register_async(self._tally)
        DBOS.launch()
        try:
            yield
        finally:
            await asyncio.to_thread(DBOS.destroy)

    async def queued(self) -> int:
        return await self._monitor.fetchval(
            "SELECT count(*) FROM dbos.workflow_status WHERE status = 'ENQUEUED'"
        )

    async def finished(self) -> int:
        return await self._monitor.fetchval(
            "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"
        )


def _register_async(tally: Tally) -> None:
    @DBOS.workflow(name="noop")
    async def noop(number: int) -> int:
        tally.note(number)
        return number

    @DBOS.step(name="add")
    async def add(number: int) -> int:
        tally.note_stage()
        return number + 1

    @DBOS.workflow(name="staged")
    async def staged(number: int) -> int:
        result = await add(await add(await add(number)))
        tally.note(number)
        return result


def _register_threaded(tally: Tally) -> None:
    @DBOS.workflow(name="noop")
    def noop(number: int) -> int:
        tally.note(number)
        return number

    @DBOS.step(name="add")
    def add(number: int) -> int:
        tally.note_stage()
        return number + 1

    @DBOS.workflow(name="staged")
    def staged(number: int) -> int:
        result = add(add(add(number)))
        tally.note(number)
        return result
