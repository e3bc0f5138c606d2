"""The sweeper: it wakes parked jobs when their time has come or others have ended, ends those whose deadline has passed, and reclaims
those of dead workers."""

import asyncio
from contextlib import suppress

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.availability import StoreAvailability
from holdfast.engine.naming import name_and_queue
from holdfast.engine.options import WorkerOptions
from holdfast.ports import Clock, Dice, Journal, Metrics, Store

BATCH = 1_000

FORGET_KEYS_EVERY = 10.0
"""Seconds between two looks for keys of providers that are not in use any more."""


class Sweeper:
    """Makes due jobs ready. Every worker has one; the store keeps them out of each other's way."""

    def __init__(
        self,
        store: Store,
        options: WorkerOptions,
        news: asyncio.Event,
        *,
        clock: Clock,
        dice: Dice,
        journal: Journal,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._options = options
        self._news = news
        self._clock = clock
        self._dice = dice
        self._journal = journal
        self._metrics = metrics
        self._sooner = asyncio.Event()
        self._forget_keys_at = 0.0
        self._third = options.lease.total_seconds() / 3
        self._unavailable_since: float | None = None
        """When the first sweep of an outage began; `None` once the store has answered again."""
        self._reclaim_from = float("-inf")
        self.paused: frozenset[str] | None = None
        """The queues that nobody shall claim from, as of the last sweep; `None` before the first."""

    async def run(self, availability: StoreAvailability) -> None:
        """Sweep when the next job is due, and at every poll."""
        while True:
            try:
                pause = await self.run_once()
                availability.answered("sweeper")
            except StoreUnavailable as error:
                availability.failed("sweeper", error)
                pause = self._options.poll.total_seconds()
            await self._rest(pause)

    async def run_once(self) -> float:
        """Sweep once; return the seconds until it is worth sweeping again."""
        self._sooner.clear()
        began = self._clock.monotonic()
        try:
            return await self._sweep()
        except StoreUnavailable:
            if self._unavailable_since is None:
                self._unavailable_since = began
            raise

    async def _sweep(self) -> float:
        await self._hear_pauses()  # first: a worker that begins claims nothing until it has heard of them
        promotion = await self._store.promote(limit=BATCH)
        expired = await self._expire()
        told = await self._store.wake(limit=BATCH)
        reclaimed = await self._reclaim()
        forgotten = await self._forget_keys()
        if promotion.promoted or reclaimed:
            self._news.set()
        if BATCH in (promotion.promoted, expired, told, reclaimed, forgotten):
            return 0  # there may be more
        pause = self._options.poll.total_seconds() * (0.5 + self._dice.roll())
        return pause if promotion.next_due is None else min(pause, promotion.next_due.total_seconds())

    async def _expire(self) -> int:
        expired = await self._store.expire(limit=BATCH)
        if expired:
            self._metrics.count("jobs_timed_out", len(expired))
            named = await name_and_queue(self._store, expired[0])
            self._journal.warning("timed out", jobs=len(expired), job_id=expired[0], **named)
        return len(expired)

    async def _forget_keys(self) -> int:
        """Delete what was given out of the limits of keys and means nothing any more, now and then."""
        now = asyncio.get_running_loop().time()
        if now < self._forget_keys_at:
            return 0
        forgotten = await self._store.forget_provider_keys(limit=BATCH)
        if forgotten < BATCH:
            self._forget_keys_at = now + FORGET_KEYS_EVERY
        return forgotten

    async def _reclaim(self) -> int:
        if self._holds_reclaiming_back():
            return 0
        reclaimed = await self._store.reclaim(limit=BATCH)
        if reclaimed:
            self._metrics.count("jobs_reclaimed", len(reclaimed))
            named = await name_and_queue(self._store, reclaimed[0])
            self._journal.warning("reclaimed", jobs=len(reclaimed), job_id=reclaimed[0], **named)
        return len(reclaimed)

    def _holds_reclaiming_back(self) -> bool:
        """Whether living workers may not have had the time yet to extend their leases after an outage of the store.

        While the store is away leases run out although their workers live. So for a third of a lease after its return
        theirs are extended, and what has ended meanwhile is written; then what is left belongs to dead workers. After an
        outage shorter than a third of a lease there is no need to wait, since a living worker's lease has more left.
        """
        now = self._clock.monotonic()
        since, self._unavailable_since = self._unavailable_since, None
        if since is not None and now - since >= self._third:
            self._reclaim_from = now + self._third
        return now < self._reclaim_from

    async def _hear_pauses(self) -> None:
        paused = frozenset(pause.queue for pause in await self._store.paused_queues())
        if self.paused is None or self.paused - paused:
            self._news.set()
        self.paused = paused

    def hurry(self) -> None:
        """Look again soon: a job was parked that may be due before the next sweep."""
        self._sooner.set()

    async def _rest(self, pause: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._sooner.wait()
