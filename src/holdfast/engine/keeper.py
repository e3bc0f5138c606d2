"""The keeper of a worker's leases: it extends them, and hears who wants a job cancelled."""

import asyncio
from collections.abc import Mapping

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.attempt import Attempt, Interruption
from holdfast.engine.options import WorkerOptions
from holdfast.ports import Journal, Store


class Keeper:
    """Extends every lease of the worker in one statement, each third of its time."""

    def __init__(
        self,
        worker: str,
        store: Store,
        held: Mapping[str, Attempt],
        options: WorkerOptions,
        *,
        journal: Journal,
    ) -> None:
        self._worker = worker
        self._store = store
        self._held = held
        self._options = options
        self._journal = journal

    async def run(self) -> None:
        """Look for cancellations at every poll, and extend when a third of the lease is over."""
        third = self._options.lease.total_seconds() / 3
        tick = min(third, self._options.poll.total_seconds())
        waited = 0.0
        while True:
            await asyncio.sleep(tick)
            waited += tick
            try:
                if waited >= third:
                    await self.run_once()
                    waited = 0.0
                else:
                    await self._hear_cancellations()
            except StoreUnavailable as error:
                self._journal.warning("leases not extended", worker=self._worker, message=str(error))

    async def run_once(self) -> None:
        """Extend all leases now; stop the attempts that lost theirs, or that somebody wants stopped."""
        held = [(attempt.claim.id, attempt.claim.token) for attempt in self._held.values()]
        if not held:
            return
        extension = await self._store.extend(held, lease=self._options.lease)
        tokens = dict(held)
        for job_id in extension.lost:
            self._stop(job_id, Interruption.LOST, token=tokens[job_id])
        for job_id in extension.cancel_requested:
            self._stop(job_id, Interruption.CANCEL)

    async def _hear_cancellations(self) -> None:
        if self._held:
            for job_id in await self._store.cancel_requests(self._worker):
                self.cancel(job_id)

    def cancel(self, job_id: str) -> None:
        """Stop the job if this worker runs it."""
        self._stop(job_id, Interruption.CANCEL)

    def _stop(self, job_id: str, why: Interruption, *, token: int | None = None) -> None:
        attempt = self._held.get(job_id)
        # The job may have ended and come back under a new lease while the store was answering.
        if attempt is None or token not in (None, attempt.claim.token):
            return
        if why is Interruption.LOST:
            self._journal.warning("lease lost", job_id=job_id, worker=self._worker)
        attempt.interrupt(why)
