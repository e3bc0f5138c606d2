"""The cancel watcher: it reads requests to cancel, and stops the attempts at those jobs.

It is a service of its own because reading may be slow, and the extension of leases must not wait for it.
"""

import asyncio
from collections.abc import Mapping

from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.options import WorkerOptions
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import Service


class CancelWatcher(Service):
    """Reads requests at every poll, each time for at most a third of the lease. Hints call `cancel` earlier."""

    name = "cancellations"

    def __init__(
        self, worker: str, runtime: Runtime, options: WorkerOptions, held: Mapping[str, Attempt]
    ) -> None:
        poll = options.poll.total_seconds()
        super().__init__(runtime, store_pause=poll, first_after=poll)
        self._worker = worker
        self._poll = poll
        self._held = held
        self._within = options.lease.total_seconds() / 3

    async def run_once(self) -> float:
        """Stop the attempts whose jobs are to be cancelled. Raises `TimeoutError` if the answer takes too long."""
        async with asyncio.timeout(self._within):
            if self._held:
                for job_id in await self._store.cancel_requests(self._worker):
                    self.cancel(job_id)
        return self._poll

    def cancel(self, job_id: str) -> None:
        """Stop the attempt at the job if this worker runs it."""
        attempt = self._held.get(job_id)
        if attempt is not None:
            attempt.interrupt(Interruption.CANCEL)

    def recover(self, error: Exception) -> float:
        """Log that no answer came, and read again at the next poll."""
        if not isinstance(error, TimeoutError):
            raise error
        message = f"no answer within {self._within:g} s"
        self._logger.warning("cancellations not read", worker=self._worker, message=message)
        return self._poll
