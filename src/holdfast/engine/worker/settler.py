"""The settler: it writes the transitions of attempts in batches, logs and counts them."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple, assert_never

from holdfast.aio.batcher import Batcher
from holdfast.core.failures.failure import begun_attempts
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.traces import ids
from holdfast.core.jobs.transitions import (
    AttemptEnd,
    Finish,
    Requeue,
    StageWrite,
    Transition,
    end_of,
    has_result,
    held_by_provider,
    too_early,
)
from holdfast.core.providers.provider import provider_of
from holdfast.engine.store_retry import StoreRetry
from holdfast.ports import Logger, Metrics, Store
from holdfast.ports.store import Settled

BATCH = 2_000

Lease = tuple[str, int]
"""A job's id and the token under which this worker holds it."""


class AttemptOutcome(NamedTuple):
    """A transition, and the fields of its log line."""

    change: Transition
    attempt: int
    seconds: float
    trace: str | None = None
    name: str = ""
    queue: str = ""

    @property
    def lease(self) -> Lease:
        """The lease under which it is written: job id and token, the first two fields of every transition."""
        return self.change[:2]

    @classmethod
    def of(cls, claim: Claim, change: Transition) -> "AttemptOutcome":
        """Make one for a job whose function was not called."""
        return cls(change, claim.attempt, 0.0, None, claim.name, claim.queue)

    def fields(self) -> dict[str, object]:
        """Return the fields that every log line about the job has."""
        named = {"name": self.name, "queue": self.queue} if self.name else {}
        return {"job_id": self.change.id, **named, **ids(self.trace)}


class Settler:
    """Writes transitions, each fenced by its lease token, and reports what was written."""

    def __init__(
        self,
        store: Store,
        worker: str,
        store_retry: StoreRetry,
        *,
        written: Callable[[], None],
        parked: Callable[[], None],
        describe: Callable[[BaseException], str],
        logger: Logger,
        metrics: Metrics,
        development: bool = False,
    ) -> None:
        self._store = store
        self._worker = worker
        self._store_retry = store_retry
        self._logger = logger
        self._metrics = metrics
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
        self._written = written
        self._parked = parked
        self._describe = describe
        self._development = development
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

    async def store_stage(self, change: StageWrite, claim: Claim, *, trace: str | None = None) -> Settled:
        """Write the state of a stage, and return what the store made of it."""
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
        self._report(batch, applied)
        return applied

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
                self._logger.warning("job locked", **outcome.fields(), worker=self._worker)
        return answered

    async def _applied(self, batch: list[AttemptOutcome]) -> Sequence[Settled]:
        """Write *batch*; a transition that the store rejects does not hold back the others."""
        changes = [outcome.change for outcome in batch]
        try:
            # Each write is fenced, so one that is sent again after a lost answer changes nothing twice.
            return await self._store_retry.call(lambda _: self._store.settle(self._worker, changes))
        except Exception as error:  # noqa: BLE001 - the edge of the settling loop, which must go on
            if len(batch) == 1:
                self._logger.error(
                    "transition not written", **batch[0].fields(), message=self._describe(error)
                )
                return [Settled.FENCED]
        return [written for outcome in batch for written in await self._applied([outcome])]

    def _report(self, batch: list[AttemptOutcome], applied: Sequence[Settled]) -> None:
        tally, verbose = _Tally(), self._logger.verbose or self._development
        for outcome, written in zip(batch, applied, strict=True):
            change = outcome.change
            if (
                written is Settled.WRITTEN
                and not verbose
                and isinstance(change, Finish)
                and change.status is Status.COMPLETED
            ):
                tally.completed.append(outcome.seconds)  # nearly every job: it is counted, and not logged
            elif written is Settled.LOCKED:
                continue
            elif written is Settled.FENCED:
                tally.counts["fenced"] += 1
                self._logger.warning("write fenced", **outcome.fields(), worker=self._worker)
            elif isinstance(change, StageWrite):
                if verbose and written is Settled.WRITTEN:
                    self._logger.debug(
                        "stage stored", **outcome.fields(), stage=str(change.key), status=change.status
                    )
            elif written is Settled.EARLY and isinstance(change, Finish):
                self.post(outcome._replace(change=too_early(change)))
            else:
                self._report_end(change, outcome, written, tally)
        tally.report(self._metrics)
        if tally.put_back:
            self._parked()

    def _report_end(
        self, change: Finish | Requeue, outcome: AttemptOutcome, written: Settled, tally: "_Tally"
    ) -> None:
        """Count and log what an attempt led to."""
        end = _end(change, written)
        tally.ended(end, change, outcome.seconds)
        if written is Settled.TIMED_OUT:  # else maintenance ended the job, and has counted and logged it
            tally.counts["jobs_timed_out"] += 1
            self._log(AttemptEnd.TIMED_OUT, change, outcome)
        verbose = self._logger.verbose or self._development
        if end is not AttemptEnd.TIMED_OUT and (verbose or end not in _ROUTINE):
            self._log(end, change, outcome)

    def _log(self, end: AttemptEnd, change: Finish | Requeue, outcome: AttemptOutcome) -> None:
        fields = {
            **outcome.fields(),
            "status": _status(end, change).value,
            "attempt": begun_attempts(outcome.attempt, change.failure),
            "duration_ms": round(outcome.seconds * 1000),
        }
        reason = _reason(change, with_stack=self._development)
        match end:
            case AttemptEnd.COMPLETED:
                self._log_completed(fields)
            case AttemptEnd.FAILED:
                self._logger.warning("job failed", **fields, **reason)
            case AttemptEnd.CANCELLED:
                self._logger.info("job cancelled", **fields)
            case AttemptEnd.TIMED_OUT:
                self._logger.warning("job timed out", jobs=1, **fields)
            case AttemptEnd.LATE:
                self._logger.warning("late result stored", worker=self._worker, **fields)
            case AttemptEnd.RETRY:
                self._logger.info("job retry scheduled", **fields, **reason)
            case AttemptEnd.PARKED:
                self._logger.debug("job parked", **fields, **reason)
            case AttemptEnd.HELD:
                self._logger.info("job held", **fields, **reason)
            case AttemptEnd.RELEASED:
                self._logger.info("job released", **fields, **reason)
            case _:
                assert_never(end)

    def _log_completed(self, fields: Mapping[str, object]) -> None:
        if self._development:
            self._logger.info("job completed", **fields)
        else:
            self._logger.debug("job completed", **fields)


class _Tally:
    """The metrics of one batch, summed first: the sink is called a few times and not once per job."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.completed: list[float] = []
        self.put_back = False
        self._labelled: Counter[tuple[str, str, str]] = Counter()
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)

    def ended(self, end: AttemptEnd, change: Finish | Requeue, seconds: float) -> None:
        self._seconds[end.value].append(seconds)
        # A held job is never due: there is no need to look.
        self.put_back = self.put_back or (isinstance(change, Requeue) and change.held_by is None)
        if end is AttemptEnd.TIMED_OUT:
            return  # counted by the service that ends the job by its deadline, which may be maintenance
        if isinstance(change, Requeue) and change.held_by and held_by_provider(change):
            self._labelled[_COUNTERS[end], "provider", provider_of(change.held_by)] += 1
        elif change.failure is None:
            self.counts[_COUNTERS[end]] += 1
        else:
            self._labelled[_COUNTERS[end], "code", change.failure.code] += 1

    def report(self, metrics: Metrics) -> None:
        if self.completed:
            self.counts["jobs_completed"] += len(self.completed)
            self._seconds["completed"] += self.completed
        for name, amount in self.counts.items():
            if amount:
                metrics.count(name, amount)
        for (name, label, value), amount in self._labelled.items():
            metrics.count(name, amount, **{label: value})
        for outcome, seconds in self._seconds.items():
            metrics.observe("attempt_seconds", seconds, outcome=outcome)


_COUNTERS = {
    AttemptEnd.COMPLETED: "jobs_completed",
    AttemptEnd.FAILED: "jobs_failed",
    AttemptEnd.CANCELLED: "jobs_cancelled",
    AttemptEnd.LATE: "results_late",
    AttemptEnd.RETRY: "retries_scheduled",
    AttemptEnd.PARKED: "jobs_parked",
    AttemptEnd.HELD: "jobs_held",
    AttemptEnd.RELEASED: "jobs_released",
}

_ROUTINE = (AttemptEnd.COMPLETED, AttemptEnd.PARKED)


def _end(change: Finish | Requeue, written: Settled) -> AttemptEnd:
    """Return how an attempt ended: the store decides on deadlines."""
    if written is Settled.WRITTEN:
        return end_of(change)
    return AttemptEnd.LATE if has_result(change) else AttemptEnd.TIMED_OUT


def _status(end: AttemptEnd, change: Finish | Requeue) -> Status:
    """Return the state that the job is in now."""
    if end in (AttemptEnd.TIMED_OUT, AttemptEnd.LATE):
        return Status.FAILED
    return change.status if isinstance(change, Finish) else Status.QUEUED


def _reason(change: Finish | Requeue, *, with_stack: bool) -> dict[str, object]:
    fields: dict[str, object] = {}
    if change.failure is not None:
        fields |= {
            "error_class": change.failure.error_class.value,
            "error_code": change.failure.code.value,
            "gateway_status": change.failure.upstream_status,
            "message": change.failure.message,
        }
        if with_stack:  # it was redacted when the failure was classified
            fields["stack"] = change.failure.stack or None
    if change.stage is not None:
        fields["stage"] = change.stage
    if isinstance(change, Requeue):
        fields["reason"] = change.reason
        if change.held_by is not None:
            fields["provider"] = provider_of(change.held_by) or None
        elif change.delay is not None:
            fields["delay_ms"] = round(change.delay.total_seconds() * 1000)
    return {name: value for name, value in fields.items() if value is not None}
