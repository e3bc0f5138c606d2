"""Which dispatches a worker has in hand, as arq's keys in Redis say.

arq marks a call that a worker runs with a key, and gives that key a time to live that is longer than the call may take.
The key of a killed worker would keep its dispatches out of reach for that long, and at the head of the queue, where the
others are looked for. So the marks of dispatches are short, are extended while the job runs, and name the process.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from arq.connections import ArqRedis
from arq.utils import timestamp_ms
from redis.exceptions import RedisError

from holdfast.arq.protocol import RUN, in_progress_key, job_key, load_json, retry_key
from holdfast.engine.runtime import Runtime

INTERVAL = 2.0
"""Seconds between two extensions."""

BATCH_AFTER = 0.02
"""Seconds in which dispatches that begin are marked together. One that has ended by then needs no mark."""

LIFETIME_MS = 30_000
"""How long a mark lives that is not extended."""

ARQS_OWN = b"1"
"""What arq itself writes, before the dispatch has its owner; for functions of the team it stays."""

SCANNED = 1_000
"""Calls at the head of the queue that are examined for marks of dead workers."""


class InProgress:
    """Marks the dispatches that run here as *worker*'s, and frees those of workers that have died on this machine."""

    def __init__(
        self, runtime: Runtime, redis: ArqRedis, queue: str, *, worker: str, is_dead: Callable[[str], bool]
    ) -> None:
        self._runtime = runtime
        self._redis = redis
        self._queue = queue
        self._worker = worker
        self._is_dead = is_dead
        self._running: set[str] = set()
        self._unmarked: set[str] = set()
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Extend marks, and free dispatches, until `stop`."""
        self._task = asyncio.create_task(self._run(), name="holdfast dispatches in progress")

    async def stop(self) -> None:
        """End the loop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def begin(self, arq_id: str) -> None:
        """Note that a dispatch runs here; it is marked soon, while the job is claimed already."""
        self._running.add(arq_id)
        self._unmarked.add(arq_id)
        self._begun.set()

    def end(self, arq_id: str) -> None:
        """Note that a dispatch does not run any more; arq removes its mark."""
        self._running.discard(arq_id)
        self._unmarked.discard(arq_id)

    async def withdraw(self, arq_id: str) -> None:
        """Remove a dispatch from the queue that was interrupted: its job is released, and dispatched again."""
        self.end(arq_id)
        try:
            await self._redis.zrem(self._queue, arq_id)
        except (RedisError, OSError) as error:
            self._report(error)  # it stays, arrives once more, and does nothing then

    async def run_once(self) -> None:
        """Extend the marks of what runs here, and free the dispatches of dead workers."""
        await self._mark(self._running)
        await self._free_dead()

    async def _run(self) -> None:
        now, due = self._runtime.clock.monotonic, 0.0
        while True:
            try:
                if now() < due:
                    await self._mark(self._unmarked)
                else:
                    due = now() + INTERVAL
                    await self.run_once()
            except Exception as error:  # noqa: BLE001 - the edge of a loop; the next round tries again
                self._report(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(due - now()):
                    await self._begun.wait()
                    await asyncio.sleep(BATCH_AFTER)

    async def _mark(self, running: set[str]) -> None:
        arq_ids = sorted(running)
        self._begun.clear()
        self._unmarked.clear()
        if not arq_ids:
            return
        async with self._redis.pipeline(transaction=False) as pipeline:
            for arq_id in arq_ids:
                # Only what exists: after FLUSHALL, or at its end, a dispatch must not get a mark that arq never removes.
                pipeline.set(in_progress_key(arq_id), self._worker, px=LIFETIME_MS, xx=True)
            await pipeline.execute()

    async def _free_dead(self) -> None:
        """Let arq deliver the dispatches of dead workers again, as if for the first time."""
        queued: list[tuple[bytes, float]] = await self._redis.zrange(
            self._queue, 0, SCANNED - 1, withscores=True
        )
        if not queued:
            return
        names = [arq_id.decode(errors="replace") for arq_id, _ in queued]
        owners = await self._redis.mget([in_progress_key(name) for name in names])
        latest = timestamp_ms() - LIFETIME_MS
        dead = []
        for (_, score), name, owner in zip(queued, names, owners, strict=True):
            if owner is None:
                continue
            unowned = owner == ARQS_OWN and score < latest and await self._is_dispatch(name)
            if unowned or self._is_dead(owner.decode(errors="replace")):
                dead.append(name)
        if dead:
            await self._redis.delete(*map(in_progress_key, dead), *map(retry_key, dead))
            self._runtime.logger.warning(
                "dispatches freed from dead process", queue=self._queue, dispatches=len(dead)
            )

    async def _is_dispatch(self, arq_id: str) -> bool:
        """Whether a call is a dispatch: such a one has an owner within a moment, unless its worker was killed."""
        body = await self._redis.get(job_key(arq_id))
        try:
            return body is None or load_json(body).get("f") == RUN
        except ValueError:
            return False

    def _report(self, error: Exception) -> None:
        self._runtime.logger.warning(
            "dispatches not marked", queue=self._queue, message=self._runtime.describe(error)
        )
