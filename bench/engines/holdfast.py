"""Holdfast through its public API, with its defaults; only the slots change."""

from __future__ import annotations

import sqlite3
import time
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import asyncpg
import structlog  # noqa: F401 - loaded with the first log line otherwise, while the clock runs

import holdfast.engine.worker.worker  # noqa: F401 - loaded with the first worker otherwise
from holdfast import Holdfast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.case import Case, Tally
    from holdfast.types import Provider

QUEUED = "SELECT count(*) FROM {}jobs WHERE status = 'queued'"
ROOMY = 5_000
"""A limit that is never reached: what is measured is what it costs to keep count."""

FINISHED = "SELECT count(*) FROM {}finished WHERE status = 'completed'"


class Bench:
    working_since: float | None = None

    def __init__(self, case: Case, tally: Tally | None) -> None:
        self._case = case
        self._hold = Holdfast(case.url)
        self._register(tally)

    def _register(self, tally: Tally | None) -> None:
        @self._hold.job("noop")
        async def noop(number: int) -> int:
            tally.note(number)
            return number

        @self._hold.stage()
        async def add(number: int) -> int:
            tally.note_stage()
            return number + 1

        @self._hold.job("staged")
        async def staged(number: int) -> int:
            result = await add(await add(await add(number)))
            tally.note(number)
            return result

        self._jobs = {"noop": noop, "staged": staged}
        self._register_call("call", tally)
        self._register_call("call-breaker", tally, provider=self._hold.provider("well"))
        self._register_call("call-limit", tally, provider=self._hold.provider("wide", concurrency=ROOMY))

    def _register_call(self, kind: str, tally: Tally | None, *, provider: Provider | None = None) -> None:
        """A job of one stage, which represents a call of *provider*."""

        @self._hold.stage(f"{kind}-stage", provider=provider)
        async def call(number: int) -> int:
            tally.note_stage()
            return number + 1

        @self._hold.job(kind)
        async def job(number: int) -> int:
            result = await call(number)
            tally.note(number)
            return result

        self._jobs[kind] = job

    async def install(self) -> None:
        await self._hold.apply_schema()
        await self._hold.close()

    async def connect(self) -> None:
        # Checks the schema, and so opens the connections.
        await self._hold.apply_schema()
        if self._case.store == "postgres":
            self._monitor = await asyncpg.connect(self._case.url)

    async def close(self) -> None:
        await self._hold.close()
        if self._case.store == "postgres":
            await self._monitor.close()

    async def submit(self, number: int) -> None:
        await self._jobs["noop"].submit(number)

    async def submit_many(self, kind: str, numbers: Sequence[int]) -> None:
        length = self._case.size or len(numbers)
        for start in range(0, len(numbers), length):
            await self._jobs[kind].submit_many([(n,) for n in numbers[start : start + length]])

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        # The clock starts before the worker does: Holdfast is the one engine that pays for its start.
        self.working_since = time.perf_counter()
        options = {"slots": self._case.size} if self._case.size else {}
        async with self._hold.worker(**options):
            yield

    async def queued(self) -> int:
        return await self._count(QUEUED)

    async def finished(self) -> int:
        return await self._count(FINISHED)

    async def _count(self, query: str) -> int:
        if self._case.store == "sqlite":
            with closing(sqlite3.connect(self._case.url.removeprefix("sqlite:///"))) as connection:
                return connection.execute(query.format("holdfast_")).fetchone()[0]
        return await self._monitor.fetchval(query.format("holdfast."))
