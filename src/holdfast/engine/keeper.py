"""The keeper of a worker's leases: it extends them, hears who wants a job cancelled, and asks whose time is over.

Extending comes first: cancellations are looked up by a task of their own, which may be slow. When to extend is told by
the steady clock, since the event loop may be late by any amount. The worker's clock tells when to ask about a
deadline, and the store's whether it has passed.
"""

import asyncio
from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.core.traces import ids
from holdfast.engine.attempt import Attempt, Interruption
from holdfast.engine.availability import StoreAvailability
from holdfast.engine.options import WorkerOptions
from holdfast.ports import Clock, Journal, Store

SOON = 0.001
"""Seconds to rest at least, when the time to extend has come already."""


class Keeper:
    """Extends every lease of the worker in one statement, each third of its time.

    That is also done for attempts that have ended and are not settled yet: after an outage of the store they would be
    reclaimed before their end is written, and run again.
    """

    def __init__(
        self,
        worker: str,
        store: Store,
        held: Mapping[str, Attempt],
        unsettled: Set[tuple[str, int]],
        options: WorkerOptions,
        *,
        clock: Clock,
        journal: Journal,
    ) -> None:
        self._worker = worker
        self._store = store
        self._held = held
        self._unsettled = unsettled
        self._options = options
        self._clock = clock
        self._journal = journal
        self._sooner = asyncio.Event()
        self._third = options.lease.total_seconds() / 3
        self._locked: frozenset[str] = frozenset()
        """Jobs that run, and whose lease was skipped the last time: another session has locked them."""
        self._reported: frozenset[str] = frozenset()
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
                if self._due_in() <= 0 or self._locked or self._awaits_an_end():
                    await self.run_once()
                availability.answered("keeper")
                pause = min(poll, max(self._due_in(), SOON))
            except StoreUnavailable as error:
                availability.failed("keeper", error)

    def _awaits_an_end(self) -> bool:
        return any(attempt.awaits_its_end() for attempt in self._held.values())

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
        tokens = {attempt.claim.id: attempt.claim.token for attempt in self._held.values()}
        leases = sorted({*tokens.items(), *self._unsettled})
        sent_at = self._clock.monotonic()
        if not leases:
            self.extended_at, self._locked = sent_at, frozenset()
            return
        extension = await self._store.extend(leases, lease=self._options.lease)
        self.extended_at = sent_at
        self._note_locked(extension.locked.intersection(tokens))
        # What has ended and is not settled is in no attempt's hands any more: the settler learns what became of it.
        for job_id in extension.lost.intersection(tokens):
            self._stop(job_id, Interruption.LOST, token=tokens[job_id])
        for job_id in extension.cancel_requested:
            self._stop(job_id, Interruption.CANCEL)
        for job_id in extension.timed_out.intersection(tokens):
            attempt = self._still_held(job_id, tokens[job_id])
            if attempt is not None:
                attempt.hear_of_deadline()

    def _note_locked(self, locked: frozenset[str]) -> None:
        """Remember what is to be tried again soon. One collision with a short write is no news, a second one is."""
        for job_id in sorted(locked & self._locked - self._reported):
            if job_id in self._held:
                self._journal.warning("lease locked", **self._fields(self._held[job_id]))
        self._reported = locked & (self._reported | self._locked)
        self._locked = locked

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
            self._journal.warning("lease lost", **self._fields(attempt))
        attempt.interrupt(why)

    def _fields(self, attempt: Attempt) -> dict[str, Any]:
        claim = attempt.claim
        named = {"job_id": claim.id, "name": claim.name, "queue": claim.queue}
        return {**named, "worker": self._worker, **ids(attempt.trace)}
