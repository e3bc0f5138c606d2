"""The lease keeper: it extends a worker's leases, and stops attempts that lost theirs, are cancelled or overdue.

Extending comes first: requests to cancel are read by a task of their own, which may be slow. The monotonic clock
decides when to extend, since the event loop may be late by any amount. The worker's clock decides when to ask about a
deadline, and the store's clock whether it has passed.
"""

import asyncio
from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.core.jobs.traces import ids
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.options import WorkerOptions
from holdfast.engine.store_availability import StoreAvailability
from holdfast.ports import Clock, Logger, Store

SOON = 0.001
"""Shortest rest in seconds, when an extension is due already."""


class LeaseKeeper:
    """Extends every lease of the worker in one statement, each third of the lease.

    Attempts that have ended and are not settled yet are included: after an outage of the store their jobs would be
    reclaimed before the end is written, and run again.
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
        logger: Logger,
    ) -> None:
        self._worker = worker
        self._store = store
        self._held = held
        self._unsettled = unsettled
        self._options = options
        self._clock = clock
        self._logger = logger
        self._woken = asyncio.Event()
        self._third = options.lease.total_seconds() / 3
        self._locked: frozenset[str] = frozenset()
        """Running jobs whose lease was skipped the last time: another session has locked them."""
        self._reported: frozenset[str] = frozenset()
        self.extended_at = clock.monotonic()
        """When the last confirmed extension was sent, on the monotonic clock; another thread may read it."""

    async def run(self, availability: StoreAvailability) -> None:
        """Extend when a third of the lease has passed or a deadline is due; while the store is down, at every poll."""
        poll = min(self._third, self._options.poll.total_seconds())
        pause = poll
        while True:
            await self._rest(pause)
            pause = poll
            try:
                if self._due_in() <= 0 or self._locked or self._any_deadline_due():
                    await self.run_once()
                availability.answered("lease keeper")
                pause = min(poll, max(self._due_in(), SOON))
            except StoreUnavailable as error:
                availability.failed("lease keeper", error)

    def _any_deadline_due(self) -> bool:
        return any(attempt.deadline_due() for attempt in self._held.values())

    def _due_in(self) -> float:
        """Return the seconds until a third of the lease has passed."""
        return self.extended_at + self._third - self._clock.monotonic()

    async def watch_cancellations(self, availability: StoreAvailability) -> None:
        """Read requests to cancel at every poll, each time for at most a third of the lease."""
        while True:
            await asyncio.sleep(self._options.poll.total_seconds())
            try:
                async with asyncio.timeout(self._third):
                    await self._read_cancel_requests()
                availability.answered("cancellations")
            except StoreUnavailable as error:
                availability.failed("cancellations", error)
            except TimeoutError:
                message = f"no answer within {self._third:g} s"
                self._logger.warning("cancellations not read", worker=self._worker, message=message)

    async def run_once(self) -> None:
        """Extend all leases now; stop attempts that lost theirs, are to be cancelled, or are past their deadline."""
        tokens = {attempt.claim.id: attempt.claim.token for attempt in self._held.values()}
        leases = sorted({*tokens.items(), *self._unsettled})
        sent_at = self._clock.monotonic()
        if not leases:
            self.extended_at, self._locked = sent_at, frozenset()
            return
        extension = await self._store.extend(leases, lease=self._options.lease)
        self.extended_at = sent_at
        self._note_locked(extension.locked.intersection(tokens))
        # What has ended and is not settled has no attempt any more: the settler learns that its lease is lost.
        for job_id in extension.lost.intersection(tokens):
            self._stop(job_id, Interruption.LOST, token=tokens[job_id])
        for job_id in extension.cancel_requested:
            self._stop(job_id, Interruption.CANCEL)
        for job_id in extension.timed_out.intersection(tokens):
            attempt = self._still_held(job_id, tokens[job_id])
            if attempt is not None:
                attempt.deadline_passed()

    def _note_locked(self, locked: frozenset[str]) -> None:
        """Remember the locked leases for the next run. A second collision in a row is logged, the first is not."""
        for job_id in sorted(locked & self._locked - self._reported):
            if job_id in self._held:
                self._logger.warning("lease locked", **self._fields(self._held[job_id]))
        self._reported = locked & (self._reported | self._locked)
        self._locked = locked

    def wake(self) -> None:
        """Ask the store now: by the worker's clock, a deadline has passed."""
        self._woken.set()

    async def _rest(self, pause: float) -> None:
        """Wait for *pause* seconds, or until `wake`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()
        self._woken.clear()

    async def _read_cancel_requests(self) -> None:
        if self._held:
            for job_id in await self._store.cancel_requests(self._worker):
                self.cancel(job_id)

    def cancel(self, job_id: str) -> None:
        """Stop the attempt at the job if this worker runs it."""
        self._stop(job_id, Interruption.CANCEL)

    def _still_held(self, job_id: str, token: int | None) -> Attempt | None:
        """Return the attempt at a job, unless it ended or has a new lease since the store was asked."""
        attempt = self._held.get(job_id)
        return attempt if attempt is not None and token in (None, attempt.claim.token) else None

    def _stop(self, job_id: str, why: Interruption, *, token: int | None = None) -> None:
        attempt = self._still_held(job_id, token)
        if attempt is None:
            return
        if why is Interruption.LOST:
            self._logger.warning("lease lost", **self._fields(attempt))
        attempt.interrupt(why)

    def _fields(self, attempt: Attempt) -> dict[str, Any]:
        claim = attempt.claim
        named = {"job_id": claim.id, "name": claim.name, "queue": claim.queue}
        return {**named, "worker": self._worker, **ids(attempt.trace)}
