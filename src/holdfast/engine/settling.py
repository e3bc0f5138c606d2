"""What became of attempts, written in batches behind the worker's back."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, assert_never

from holdfast.core.failures import begun_attempts
from holdfast.core.jobs import Claim
from holdfast.core.providers import provider_of
from holdfast.core.states import Status
from holdfast.core.traces import ids
from holdfast.core.transitions import (
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
from holdfast.engine.gathering import Gatherer
from holdfast.engine.patience import Patience
from holdfast.ports import Journal, Metrics, Store
from holdfast.ports.store import Settled

BATCH = 2_000


class Outcome(NamedTuple):
    """A transition, and what a log line says beside it."""

    change: Transition
    attempt: int
    seconds: float
    trace: str | None = None
    name: str = ""
    queue: str = ""

    @property
    def lease(self) -> tuple[str, int]:
        """The lease under which it is written: the job and its token."""
        return (self.change.id, self.change.token)

    @classmethod
    def of(cls, claim: Claim, change: Transition) -> "Outcome":
        """Make one for a job whose function was not called."""
        return cls(change, claim.attempt, 0.0, name=claim.name, queue=claim.queue)

    def fields(self) -> dict[str, object]:
        """Give what every log line about the job has."""
        named = {"name": self.name, "queue": self.queue} if self.name else {}
        return {"job_id": self.change.id, **named, **ids(self.trace)}


class Settler:
    """Writes transitions, each fenced by its lease token, and tells what happened."""

    def __init__(
        self,
        store: Store,
        worker: str,
        patience: Patience,
        *,
        written: Callable[[], None],
        parked: Callable[[], None],
        describe: Callable[[BaseException], str],
        journal: Journal,
        metrics: Metrics,
        development: bool = False,
    ) -> None:
        self._store = store
        self._worker = worker
        self._patience = patience
        self._journal = journal
        self._metrics = metrics
        self._gatherer: Gatherer[Outcome, Settled] = Gatherer(
            self._write, limit=BATCH, name="holdfast settler", retried_by=self._retried_by
        )
        # Changes to jobs that another session has locked wait here, so that the others do not wait with them.
        self._locked: Gatherer[Outcome, Settled] = Gatherer(
            self._write_all,
            limit=BATCH,
            name="holdfast settler of locked jobs",
            retried_by=self._retried_by,
        )
        self._locked_leases: set[tuple[str, int]] = set()
        self._written = written
        self._parked = parked
        self._describe = describe
        self._development = development
        self.unsettled = 0
        self.leases: set[tuple[str, int]] = set()
        """The leases, by job and token, whose end is not known to be written."""
        self.pending: set[tuple[str, int]] = set()
        """Those of them whose end is still being written: what was given up is left to run out."""

    def post(self, outcome: Outcome) -> None:
        """Have the end of an attempt written."""
        lease = outcome.lease
        self.unsettled += 1
        self.leases.add(lease)
        self.pending.add(lease)
        self._gatherer.post(outcome)

    async def store_stage(self, change: StageWrite, claim: Claim, *, trace: str | None = None) -> Settled:
        """Write what became of a stage."""
        return await self._gatherer.ask(Outcome.of(claim, change)._replace(trace=trace))

    async def drain(self) -> None:
        """Wait until everything has been written."""
        await self._gatherer.drain()
        await self._locked.drain()

    def give_up(self) -> None:
        """Try no more to write what is left: those leases run out, and the jobs are run again."""
        self._gatherer.give_up()
        self._locked.give_up()

    def _retried_by(self, written: Settled) -> Gatherer[Outcome, Settled] | None:
        return self._locked if written is Settled.LOCKED else None

    async def _write(self, batch: list[Outcome]) -> Sequence[Settled]:
        """Write *batch*, except what would overtake an earlier change to a job that is locked."""
        if not self._locked_leases:
            return await self._write_all(batch)
        behind = [outcome.lease in self._locked_leases for outcome in batch]
        free = [outcome for outcome, waits in zip(batch, behind, strict=True) if not waits]
        written = iter(await self._write_all(free) if free else ())
        return [Settled.LOCKED if waits else next(written) for waits in behind]

    async def _write_all(self, batch: list[Outcome]) -> Sequence[Settled]:
        try:
            applied = await self._applied(batch)
        except asyncio.CancelledError:
            self.pending.difference_update(outcome.lease for outcome in batch)
            raise
        answered = batch
        if self._locked_leases or Settled.LOCKED in applied:
            answered = self._without_locked(batch, applied)
        ends = [outcome.lease for outcome in answered if not isinstance(outcome.change, StageWrite)]
        self.unsettled -= len(ends)
        self.leases.difference_update(ends)
        self.pending.difference_update(ends)
        self._written()
        self._tell(batch, applied)
        return applied

    def _without_locked(self, batch: list[Outcome], applied: Sequence[Settled]) -> list[Outcome]:
        """Keep track of the jobs that another session has locked, and leave them out of *batch*."""
        answered = []
        for outcome, written in zip(batch, applied, strict=True):
            if written is not Settled.LOCKED:
                self._locked_leases.discard(outcome.lease)
                answered.append(outcome)
            elif outcome.lease not in self._locked_leases:
                self._locked_leases.add(outcome.lease)
                self._journal.warning("job locked", **outcome.fields(), worker=self._worker)
        return answered

    async def _applied(self, batch: list[Outcome]) -> Sequence[Settled]:
        """Write *batch*; one that the store cannot take does not hold back its neighbours."""
        changes = [outcome.change for outcome in batch]
        try:
            # Each write is fenced, so one that is sent again after a lost answer changes nothing twice.
            return await self._patience.insist(lambda _: self._store.settle(self._worker, changes))
        except Exception as error:  # noqa: BLE001 - the edge of the settling loop, which must go on
            if len(batch) == 1:
                self._journal.error("cannot be written", **batch[0].fields(), message=self._describe(error))
                return [Settled.FENCED]
        return [written for outcome in batch for written in await self._applied([outcome])]

    def _tell(self, batch: list[Outcome], applied: Sequence[Settled]) -> None:
        tally, verbose = _Tally(), self._journal.verbose or self._development
        for outcome, written in zip(batch, applied, strict=True):
            change = outcome.change
            if written is Settled.WRITTEN and has_result(change) and not verbose:
                tally.completed.append(outcome.seconds)  # nearly every job: nothing else is told of it
            elif written is Settled.LOCKED:
                continue
            elif written is Settled.FENCED:
                tally.counts["fenced"] += 1
                self._journal.warning("fenced", **outcome.fields(), worker=self._worker)
            elif isinstance(change, StageWrite):
                if verbose and written is Settled.WRITTEN:
                    self._journal.debug(
                        "stage", **outcome.fields(), stage=str(change.key), status=change.status
                    )
            elif written is Settled.EARLY and isinstance(change, Finish):
                self.post(outcome._replace(change=too_early(change)))
            else:
                self._tell_end(change, outcome, written, tally)
        tally.report(self._metrics)
        if tally.put_back:
            self._parked()

    def _tell_end(
        self, change: Finish | Requeue, outcome: Outcome, written: Settled, tally: "_Tally"
    ) -> None:
        """Count and log what an attempt led to."""
        end = _end(change, written)
        tally.ended(end, change, outcome.seconds)
        if written is Settled.TIMED_OUT:  # else the sweep ended the job, has counted it and told of it
            tally.counts["jobs_timed_out"] += 1
            self._log(AttemptEnd.TIMED_OUT, change, outcome)
        verbose = self._journal.verbose or self._development
        if end is not AttemptEnd.TIMED_OUT and (verbose or end not in _ROUTINE):
            self._log(end, change, outcome)

    def _log(self, end: AttemptEnd, change: Finish | Requeue, outcome: Outcome) -> None:
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
                self._journal.warning("failed", **fields, **reason)
            case AttemptEnd.CANCELLED:
                self._journal.info("cancelled", **fields)
            case AttemptEnd.TIMED_OUT:
                self._journal.warning("timed out", jobs=1, **fields)
            case AttemptEnd.LATE:
                self._journal.warning("late", worker=self._worker, **fields)
            case AttemptEnd.RETRY:
                self._journal.info("retry", **fields, **reason)
            case AttemptEnd.PARKED:
                self._journal.debug("parked", **fields, **reason)
            case AttemptEnd.HELD:
                self._journal.info("held", **fields, **reason)
            case AttemptEnd.RELEASED:
                self._journal.info("released", **fields, **reason)
            case _:
                assert_never(end)

    def _log_completed(self, fields: Mapping[str, object]) -> None:
        if self._development:
            self._journal.info("completed", **fields)
        else:
            self._journal.debug("completed", **fields)


class _Tally:
    """The figures of one batch: put together first, so that the sink is called a few times and not once per job."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.completed: list[float] = []
        self.put_back = False
        self._labelled: Counter[tuple[str, str, str]] = Counter()
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)

    def ended(self, end: AttemptEnd, change: Finish | Requeue, seconds: float) -> None:
        self._seconds[end.value].append(seconds)
        # Who is held is never due: there is no need to look.
        self.put_back = self.put_back or (isinstance(change, Requeue) and change.held_by is None)
        if end is AttemptEnd.TIMED_OUT:
            return  # whoever ends a job by its deadline counts it, and that may be a sweep
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
    """Name what came of an attempt: the store has the last word on deadlines."""
    if written is Settled.WRITTEN:
        return end_of(change)
    return AttemptEnd.LATE if has_result(change) else AttemptEnd.TIMED_OUT


def _status(end: AttemptEnd, change: Finish | Requeue) -> Status:
    """Tell which state the job is in now."""
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
