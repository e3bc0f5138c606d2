"""The lease keeper: it extends a worker's leases, and stops attempts that lost theirs, are cancelled or overdue.

The monotonic clock decides when to extend, since the event loop may be late by any amount. The worker's clock decides
when to ask about a deadline, and the store's clock whether it has passed.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any

from holdfast.core.jobs.traces import ids
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.execution.interrupts import Interruption
from holdfast.engine.options import WorkerOptions
from holdfast.engine.runtime import Runtime
from holdfast.engine.service import Service

SHORTEST_REST = 0.001
"""Shortest rest in seconds, when an extension is due already."""


class LeaseKeeper(Service):
    """Extends every lease of the worker in one statement, each third of the lease.

    Attempts that have ended and are not settled yet are included: after an outage of the store their jobs would be
    reclaimed before the end is written, and run again. While the store is down, it tries at every poll.
    """

    name = "lease keeper"

    def __init__(
        self,
        worker: str,
        runtime: Runtime,
        options: WorkerOptions,
        held: Mapping[str, Attempt],
        unsettled: Set[tuple[str, int]],
    ) -> None:
        self._third = options.lease.total_seconds() / 3
        self._poll = min(self._third, options.poll.total_seconds())
        super().__init__(runtime, store_pause=self._poll, first_after=self._poll)
        self._worker = worker
        self._held = held
        self._unsettled = unsettled
        self._lease = options.lease
        self._clock = runtime.clock
        self._locked: frozenset[str] = frozenset()
        """Running jobs whose lease was skipped the last time: another session has locked them."""
        self._reported: frozenset[str] = frozenset()
        self.extended_at = runtime.clock.monotonic()
        """When the last confirmed extension was sent, on the monotonic clock; another thread may read it."""

    async def run_once(self) -> float:
        """Extend if a third of the lease has passed, a deadline is due, or a lease was locked."""
        if self._due_in() <= 0 or self._locked or any(each.deadline_due() for each in self._held.values()):
            await self.extend()
        return min(self._poll, max(self._due_in(), SHORTEST_REST))

    def _due_in(self) -> float:
        """Return the seconds until a third of the lease has passed."""
        return self.extended_at + self._third - self._clock.monotonic()

    def may_have_expired(self, since: float) -> bool:
        """Whether leases that were valid at *since* may expire before the next extension.

        The process may have been suspended, or the store slow.
        """
        return self._clock.monotonic() - since > 2 * self._third

    async def extend(self) -> None:
        """Extend all leases now; stop attempts that lost theirs, are to be cancelled, or are past their deadline."""
        tokens = {attempt.claim.id: attempt.claim.token for attempt in self._held.values()}
        leases = sorted({*tokens.items(), *self._unsettled})
        sent_at = self._clock.monotonic()
        if not leases:
            self.extended_at, self._locked = sent_at, frozenset()
            return
        extension = await self._store.extend(leases, lease=self._lease)
        self.extended_at = sent_at
        self._note_locked(extension.locked.intersection(tokens))
        # What has ended and is not settled has no attempt any more: the settler learns that its lease is lost.
        for attempt in self._still_held(extension.lost, tokens):
            self._logger.warning("lease lost", **self._fields(attempt))
            attempt.interrupt(Interruption.LOST)
        for job_id in extension.cancel_requested:
            if job_id in self._held:
                self._held[job_id].interrupt(Interruption.CANCEL)
        for attempt in self._still_held(extension.timed_out, tokens):
            attempt.deadline_passed()

    def _note_locked(self, locked: frozenset[str]) -> None:
        """Remember the locked leases for the next run. A second collision in a row is logged, the first is not."""
        for job_id in sorted(locked & self._locked - self._reported):
            if job_id in self._held:
                self._logger.warning("lease locked", **self._fields(self._held[job_id]))
        self._reported = locked & (self._reported | self._locked)
        self._locked = locked

    def _still_held(self, job_ids: frozenset[str], tokens: Mapping[str, int]) -> Iterator[Attempt]:
        """Yield the attempts at these jobs, except what has ended or has a new lease since the store was asked."""
        for job_id in job_ids.intersection(tokens):
            attempt = self._held.get(job_id)
            if (
                attempt is not None and attempt.claim.token == tokens[job_id] and not attempt.completes
            ):  # one that its function completes has no lease once that is committed
                yield attempt

    def _fields(self, attempt: Attempt) -> dict[str, Any]:
        claim = attempt.claim
        named = {"job_id": claim.id, "name": claim.name, "queue": claim.queue}
        return {**named, "worker": self._worker, **ids(attempt.trace)}
