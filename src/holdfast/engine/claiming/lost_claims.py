"""Claims whose answer was lost: the store has leased jobs to a worker that does not know of them.

Their leases would expire, and the attempt would be spent: a job with a single attempt would become a dead letter
without having run. So the worker reads what is leased to it, and releases what it does not know.
"""

from collections.abc import Set

from holdfast.core.jobs.job import EventKind
from holdfast.core.jobs.transitions import Requeue
from holdfast.engine.claiming.slots import Slots
from holdfast.engine.options import WorkerOptions
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.attempt_outcome import AttemptOutcome, Lease
from holdfast.engine.worker.settler import Settler

WHY = "the answer to its claim was lost"


class LostClaims:
    """Looks for such jobs after a claim whose outcome is unknown, until its leases have expired.

    One check is not enough: a server that was too slow to answer may commit the claim afterwards.
    """

    def __init__(
        self, worker: str, runtime: Runtime, options: WorkerOptions, *, slots: Slots, settler: Settler
    ) -> None:
        self._worker = worker
        self._store = runtime.store
        self._clock = runtime.clock
        self._logger = runtime.logger
        self._lease = options.lease.total_seconds()
        self._poll = options.poll.total_seconds()
        self._slots = slots
        self._settler = settler
        self._until = self._next_check_at = float("-inf")

    def expect(self) -> None:
        """Note that the outcome of a claim is unknown."""
        self._next_check_at = self._clock.monotonic()
        self._until = self._next_check_at + self._lease

    def expected(self) -> bool:
        """Whether there may be such jobs."""
        return self._clock.monotonic() < self._until

    def due(self) -> bool:
        """Whether the next check for them is due."""
        return self.expected() and self._clock.monotonic() >= self._next_check_at

    async def release(self, unstarted: Set[Lease] = frozenset()) -> None:
        """Release what is leased to this worker and is neither held by it, nor about to start or to be settled.

        *unstarted* are the leases of jobs that are claimed and not held yet. No claim of this worker may be under way
        meanwhile. Raises `StoreUnavailable`: then call it again.
        """
        held = {(attempt.claim.id, attempt.claim.token) for attempt in self._slots.held.values()}
        known = held | self._settler.leases | unstarted
        lost = [job for job in await self._store.leased_to(self._worker) if (job.id, job.token) not in known]
        self._next_check_at = self._clock.monotonic() + self._poll
        if not lost:
            return
        for job in lost:
            back = Requeue(job.id, job.token, EventKind.QUEUED, gives_back=True, reason=WHY)
            self._settler.post(AttemptOutcome(back, job.attempt, 0.0))
        self._logger.warning("lost claims released", worker=self._worker, jobs=len(lost))
