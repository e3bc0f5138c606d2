"""Calls that are enqueued for a later time: they become jobs now, since Redis must not be their only record.

arq reads only calls whose time has come. Without this, a deferred call would be lost with Redis.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from arq.connections import ArqRedis
from arq.utils import timestamp_ms

from holdfast.arq.protocol import job_key, retry_key
from holdfast.core.messages.inbox import Received, ReceivedAs
from holdfast.engine.runtime import Runtime

INTERVAL = 1.0
"""Seconds between two looks for deferred calls."""

MARGIN_MS = 2_000
"""Calls that are due within this time are left to arq, which takes them at once."""

MOST = 500
"""Calls that are read at a time."""

LATEST_SCORE = 32_503_680_000_000
"""The year 3000."""

Store = Callable[[str, bytes, int, int], Awaitable[Received]]
"""Stores a call, given its id, its body, when it is due and how long it is kept, in milliseconds."""


class DeferredCalls:
    """Looks for deferred calls of a queue until it is stopped, and deletes those that are stored."""

    def __init__(self, runtime: Runtime, redis: ArqRedis, queue: str, store: Store) -> None:
        self._runtime = runtime
        self._redis = redis
        self._queue = queue
        self._store = store
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look for deferred calls, until `stop`."""
        self._task = asyncio.create_task(self._run(), name=f"holdfast deferred calls of {self._queue}")

    async def stop(self) -> None:
        """End the loop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def run_once(self) -> int:
        """Store the deferred calls that are there; return how many were read."""
        found: list[tuple[bytes, float]] = await self._redis.zrangebyscore(
            self._queue, timestamp_ms() + MARGIN_MS, LATEST_SCORE, start=0, num=MOST, withscores=True
        )
        await asyncio.gather(*(self._take(arq_id, int(score)) for arq_id, score in found))
        return len(found)

    async def _take(self, arq_id: bytes, score: int) -> None:
        name = arq_id.decode(errors="replace")
        pipeline: Any = self._redis.pipeline(transaction=False)
        pipeline.get(job_key(name))
        pipeline.pttl(job_key(name))
        body, lifetime = await pipeline.execute()
        if body is not None:  # one whose key has expired is removed by arq, at its time
            received = await self._store(name, body, score, lifetime)
            if received.outcome is ReceivedAs.POSTPONED:
                return
            await self._redis.zrem(self._queue, arq_id)
            await self._redis.delete(job_key(name), retry_key(name))

    async def _run(self) -> None:
        while True:
            full = False
            try:
                full = await self.run_once() == MOST
            except Exception as error:  # noqa: BLE001 - the edge of a loop; the next round tries again
                self._runtime.logger.warning(
                    "deferred calls not stored", queue=self._queue, message=self._runtime.describe(error)
                )
            await asyncio.sleep(0 if full else INTERVAL)
