"""Maintenance: it makes due jobs ready, wakes parents whose children have ended, ends jobs whose deadline has passed,
and reclaims those of dead workers."""

import asyncio
from collections.abc import Callable

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.naming import name_and_queue
from holdfast.engine.options import WorkerOptions
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import Service

BATCH = 1_000

DELETE_KEYS_EVERY = 10.0
"""Seconds between two deletions of provider keys that are not in use any more."""


class Maintenance(Service):
    """Makes due jobs ready. Every worker runs one; the store keeps them from doing the same work twice."""

    name = "maintenance"

    def __init__(self, runtime: Runtime, options: WorkerOptions, wake_worker: Callable[[], None]) -> None:
        self._poll = options.poll.total_seconds()
        super().__init__(runtime, store_pause=self._poll)
        self._wake_worker = wake_worker
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._delete_keys_at = 0.0
        self._third = options.lease.total_seconds() / 3
        self._unavailable_since: float | None = None
        """When the first failed run of an outage began; `None` once the store has answered again."""
        self._reclaim_from = float("-inf")
        self.paused: frozenset[str] | None = None
        """The paused queues as of the last run; `None` before the first."""

    async def run_once(self) -> float:
        """Do all that is due, once; return the seconds until the next run is worthwhile."""
        began = self._clock.monotonic()
        try:
            return await self._run_all()
        except StoreUnavailable:
            if self._unavailable_since is None:
                self._unavailable_since = began
            raise

    async def _run_all(self) -> float:
        await self._read_paused_queues()  # first: a worker that starts claims nothing until it knows them
        promotion = await self._store.promote(limit=BATCH)
        expired = await self._expire()
        woken = await self._store.wake(limit=BATCH)
        reclaimed = await self._reclaim()
        deleted = await self._delete_expired_keys()
        if promotion.promoted or reclaimed:
            self._wake_worker()
        if BATCH in (promotion.promoted, expired, woken, reclaimed, deleted):
            return 0  # there may be more
        pause = self._jittered(self._poll)
        return pause if promotion.next_due is None else min(pause, promotion.next_due.total_seconds())

    async def _expire(self) -> int:
        expired = await self._store.expire(limit=BATCH)
        if expired:
            self._metrics.count("jobs_timed_out", len(expired))
            named = await name_and_queue(self._store, expired[0])
            self._logger.warning("job timed out", jobs=len(expired), job_id=expired[0], **named)
        return len(expired)

    async def _delete_expired_keys(self) -> int:
        """Delete the limiter state of provider keys that are not in use any more, every few seconds."""
        now = asyncio.get_running_loop().time()
        if now < self._delete_keys_at:
            return 0
        deleted = await self._store.providers.delete_expired_keys(limit=BATCH)
        if deleted < BATCH:
            self._delete_keys_at = now + DELETE_KEYS_EVERY
        return deleted

    async def _reclaim(self) -> int:
        if self._holds_reclaiming_back():
            return 0
        reclaimed = await self._store.reclaim(limit=BATCH)
        if reclaimed:
            self._metrics.count("jobs_reclaimed", len(reclaimed))
            named = await name_and_queue(self._store, reclaimed[0])
            self._logger.warning("jobs reclaimed", jobs=len(reclaimed), job_id=reclaimed[0], **named)
        return len(reclaimed)

    def _holds_reclaiming_back(self) -> bool:
        """Whether live workers may still be extending their leases after an outage of the store.

        While the store is down leases expire although their workers live. For a third of a lease after its return, live
        workers extend theirs and write what has ended; what is expired then belongs to dead workers. After an outage
        shorter than a third of a lease there is no need to wait: a live worker's lease has more left.
        """
        now = self._clock.monotonic()
        since, self._unavailable_since = self._unavailable_since, None
        if since is not None and now - since >= self._third:
            self._reclaim_from = now + self._third
        return now < self._reclaim_from

    async def _read_paused_queues(self) -> None:
        paused = frozenset(pause.queue for pause in await self._store.queues.paused())
        if self.paused is None or self.paused - paused:
            self._wake_worker()
        self.paused = paused
