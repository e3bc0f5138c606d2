"""The keeper of a worker's leases: it extends them, hears who wants a job cancelled, and asks whose time is over.

Extending comes first: cancellations are looked up by a task of their own, which may be slow. When to extend is told by
the steady clock, since the event loop may be late by any amount. The worker's clock tells when to ask about a
deadline, and the store's whether it has passed.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from holdfast.core.errors import StoreUnavailable
from holdfast.core.traces import ids
from holdfast.engine.attempt import Attempt, Interruption
from holdfast.engine.availability import StoreAvailability
from holdfast.engine.options import WorkerOptions
from holdfast.ports import Clock, Journal, Store

SOON = 0.001
"""Seconds to rest at least, when the time to extend has come already."""


class Keeper:
    """Extends every lease of the worker in one statement, each third of its time."""

    def __init__(
        self,
        worker: str,
        store: Store,
        held: Mapping[str, Attempt],
        options: WorkerOptions,
        *,
        clock: Clock,
        journal: Journal,
    ) -> None:
        self._worker = worker
        self._store = store
        self._held = held
        self._options = options
        self._clock = clock
        self._journal = journal
        self._sooner = asyncio.Event()
        self._third = options.lease.total_seconds() / 3
        self.extended_at = clock.monotonic()
        """When the last extension was sent that the store has confirmed; another thread may read it."""

    async def run(self, availability: StoreAvailability) -> None:
        """Extend when a third of the lease is over, or somebody's time; while the store is away, at every poll."""
        poll = min(self._third, self._options.poll.total_seconds())
        pause = poll
        while True:
            await self._rest(pause)
            pause = poll
            try:
                if self._due_in() <= 0 or any(attempt.awaits_its_end() for attempt in self._held.values()):
                    await self.run_once()
                availability.answered("keeper")
                pause = min(poll, max(self._due_in(), SOON))
            except StoreUnavailable as error:
                availability.failed("keeper", error)

    def _due_in(self) -> float:
        """Tell in how many seconds a third of the lease is over."""
        return self.extended_at + self._third - self._clock.monotonic()

    async def watch_cancellations(self, availability: StoreAvailability) -> None:
        """Look at every poll whether a job is to be cancelled, each time for no longer than a third of the lease."""
        while True:
            await asyncio.sleep(self._options.poll.total_seconds())
            try:
                async with asyncio.timeout(self._third):
                    await self._hear_cancellations()
                availability.answered("cancellations")
            except StoreUnavailable as error:
                availability.failed("cancellations", error)
            except TimeoutError:
                message = f"no answer within {self._third:g} s"
                self._journal.warning("cancellations not read", worker=self._worker, message=message)

    async def run_once(self) -> None:
        """Extend all leases now; stop the attempts that lost theirs, or that somebody or their deadline wants stopped."""
        held = [(attempt.claim.id, attempt.claim.token) for attempt in self._held.values()]
        sent_at = self._clock.monotonic()
        if not held:
            self.extended_at = sent_at
            return
        extension = await self._store.extend(held, lease=self._options.lease)
        self.extended_at = sent_at
        tokens = dict(held)
        for job_id in extension.lost:
            self._stop(job_id, Interruption.LOST, token=tokens[job_id])
        for job_id in extension.cancel_requested:
            self._stop(job_id, Interruption.CANCEL)
        for job_id in extension.timed_out:
            attempt = self._still_held(job_id, tokens[job_id])
            if attempt is not None:
                attempt.hear_of_deadline()

    def look_soon(self, _: Attempt) -> None:
        """Ask the store at once: by the worker's clock, a deadline has passed."""
        self._sooner.set()

    async def _rest(self, pause: float) -> None:
        """Wait for the next look, or for a deadline that comes before it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._sooner.wait()
        self._sooner.clear()

    async def _hear_cancellations(self) -> None:
        if self._held:
            for job_id in await self._store.cancel_requests(self._worker):
                self.cancel(job_id)

    def cancel(self, job_id: str) -> None:
        """Stop the job if this worker runs it."""
        self._stop(job_id, Interruption.CANCEL)

    def _still_held(self, job_id: str, token: int | None) -> Attempt | None:
        """Give the attempt at a job; it may have ended and come back under a new lease while the store was answering."""
        attempt = self._held.get(job_id)
        return attempt if attempt is not None and token in (None, attempt.claim.token) else None

    def _stop(self, job_id: str, why: Interruption, *, token: int | None = None) -> None:
        attempt = self._still_held(job_id, token)
        if attempt is None:
            return
        if why is Interruption.LOST:
            self._journal.warning(
                "lease lost",
                job_id=job_id,
                name=attempt.claim.name,
                queue=attempt.claim.queue,
                worker=self._worker,
                **ids(attempt.trace),
            )
        attempt.interrupt(why)
