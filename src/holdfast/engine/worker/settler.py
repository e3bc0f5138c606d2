"""The settler: it writes the transitions of attempts in batches."""

import asyncio
from collections.abc import Callable, Sequence, Set

from holdfast.aio.batcher import Batcher
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import Finish, StageWrite, release_before_deadline
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.attempt_outcome import AttemptOutcome, Lease
from holdfast.engine.worker.attempt_reporter import AttemptReporter
from holdfast.ports.store import Settled

BATCH = 2_000

OnSettled = Callable[[AttemptOutcome, Settled], None]
"""Called with the end of each attempt, and how the store settled it."""

_UNSETTLED = (Settled.LOCKED, Settled.EARLY)
"""It is written later, or another transition in its place."""


class Settler:
    """Writes transitions, each fenced by its lease token, and has what was written reported."""

    def __init__(
        self,
        worker: str,
        runtime: Runtime,
        *,
        written: Callable[[], None] = lambda: None,
        requeued: Callable[[], None] = lambda: None,
        settled: OnSettled | None = None,
    ) -> None:
        self._worker = worker
        self._store = runtime.store
        self._store_retry = runtime.store_retry
        self._reporter = AttemptReporter(worker, runtime)
        self._written = written
        self._requeued = requeued
        self._settled = settled
        # Changes to jobs that another session has locked wait here, and do not delay the others.
        self._locked: Batcher[AttemptOutcome, Settled] = Batcher(
            self._write_all, limit=BATCH, name="holdfast settler of locked jobs", retry_on=Settled.LOCKED
        )
        self._batcher: Batcher[AttemptOutcome, Settled] = Batcher(
            self._write,
            limit=BATCH,
            name="holdfast settler",
            retry_on=Settled.LOCKED,
            retried_by=self._locked,
        )
        self._locked_leases: set[Lease] = set()
        self.pending: set[Lease] = set()
        """The leases whose end is being written."""
        self._given_up: set[Lease] = set()
        """The leases whose end is not known to be written and is not retried: they are left to expire."""

    @property
    def leases(self) -> Set[Lease]:
        """The leases whose end is not known to be written."""
        return self.pending | self._given_up

    @property
    def unsettled(self) -> int:
        """How many attempts have ended without their end being written yet."""
        return len(self.pending) + len(self._given_up)

    def post(self, outcome: AttemptOutcome) -> None:
        """Queue the end of an attempt for writing."""
        self.pending.add(outcome.change[:2])
        self._batcher.post(outcome)

    def report(self, outcome: AttemptOutcome, settled: Settled) -> None:
        """Report an end that was written before, in a transaction of the job's function."""
        self._written()
        self._reporter.report([outcome], [settled])
        if self._settled is not None:
            self._settled(outcome, settled)

    async def store_stage(self, change: StageWrite, claim: Claim, *, trace: str | None = None) -> Settled:
        """Write the state of a stage, and return how the store settled it."""
        return await self._batcher.ask(AttemptOutcome.of(claim, change)._replace(trace=trace))

    async def drain(self) -> None:
        """Wait until everything has been written."""
        await self._batcher.drain()
        await self._locked.drain()

    def give_up(self) -> None:
        """Stop retrying what is left: those leases expire, and the jobs run again."""
        self._batcher.give_up()
        self._locked.give_up()

    async def _write(self, batch: list[AttemptOutcome]) -> Sequence[Settled]:
        """Write *batch*, except what would overtake an earlier change to a job that is locked."""
        if not self._locked_leases:
            return await self._write_all(batch)
        behind = [outcome.lease in self._locked_leases for outcome in batch]
        free = [outcome for outcome, waits in zip(batch, behind, strict=True) if not waits]
        written = iter(await self._write_all(free) if free else ())
        return [Settled.LOCKED if waits else next(written) for waits in behind]

    async def _write_all(self, batch: list[AttemptOutcome]) -> Sequence[Settled]:
        try:
            applied = await self._applied(batch)
        except asyncio.CancelledError:
            given_up = self.pending.intersection(outcome.lease for outcome in batch)
            self.pending -= given_up
            self._given_up |= given_up
            raise
        answered = batch
        if self._locked_leases or Settled.LOCKED in applied:
            answered = self._without_locked(batch, applied)
        self.pending.difference_update(
            [outcome.change[:2] for outcome in answered if not isinstance(outcome.change, StageWrite)]
        )
        self._written()
        if Settled.EARLY in applied:
            self._release_early(batch, applied)
        if self._reporter.report(batch, applied):
            self._requeued()
        if self._settled is not None:
            for outcome, written in zip(batch, applied, strict=True):
                if written not in _UNSETTLED and not isinstance(outcome.change, StageWrite):
                    self._settled(outcome, written)
        return applied

    def _release_early(self, batch: list[AttemptOutcome], applied: Sequence[Settled]) -> None:
        """Release the jobs that were ended for a deadline which has not come by the store's clock."""
        for outcome, written in zip(batch, applied, strict=True):
            if written is Settled.EARLY and isinstance(outcome.change, Finish):
                self.post(outcome._replace(change=release_before_deadline(outcome.change)))

    def _without_locked(
        self, batch: list[AttemptOutcome], applied: Sequence[Settled]
    ) -> list[AttemptOutcome]:
        """Record the jobs that another session has locked, and return the others of *batch*."""
        answered = []
        for outcome, written in zip(batch, applied, strict=True):
            if written is not Settled.LOCKED:
                self._locked_leases.discard(outcome.lease)
                answered.append(outcome)
            elif outcome.lease not in self._locked_leases:
                self._locked_leases.add(outcome.lease)
                self._reporter.locked(outcome)
        return answered

    async def _applied(self, batch: list[AttemptOutcome]) -> Sequence[Settled]:
        """Write *batch*; a transition that the store rejects does not hold back the others."""
        changes = [outcome.change for outcome in batch]
        try:
            # Each write is fenced, so one that is sent again after a lost answer changes nothing twice.
            return await self._store_retry.call(lambda _: self._store.settle(self._worker, changes))
        except Exception as error:  # noqa: BLE001 - the edge of the settling loop, which must go on
            if len(batch) == 1:
                self._reporter.unwritten(batch[0], error)
                return [Settled.FENCED]
        return [written for outcome in batch for written in await self._applied([outcome])]
