"""What became of attempts, written in batches behind the worker's back."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple, assert_never

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
    ) -> None:
        self._store = store
        self._worker = worker
        self._patience = patience
        self._journal = journal
        self._metrics = metrics
        self._gatherer: Gatherer[Outcome, Settled] = Gatherer(
            self._write, limit=BATCH, name="holdfast settler"
        )
        self._written = written
        self._parked = parked
        self._describe = describe
        self.unsettled = 0
        self.leases: set[tuple[str, int]] = set()
        """The leases, by job and token, whose end is not known to be written."""

    def post(self, outcome: Outcome) -> None:
        """Have the end of an attempt written."""
        self.unsettled += 1
        self.leases.add((outcome.change.id, outcome.change.token))
        self._gatherer.post(outcome)

    async def store_stage(self, change: StageWrite, *, trace: str | None = None) -> Settled:
        """Write what became of a stage."""
        return await self._gatherer.ask(Outcome(change, change.attempt, 0.0, trace))

    async def drain(self) -> None:
        """Wait until everything has been written."""
        await self._gatherer.drain()

    def give_up(self) -> None:
        """Try no more to write what is left: those leases run out, and the jobs are run again."""
        self._gatherer.give_up()

    async def _write(self, batch: list[Outcome]) -> Sequence[Settled]:
        applied = await self._applied([outcome.change for outcome in batch])
        ends = [outcome.change for outcome in batch if not isinstance(outcome.change, StageWrite)]
        self.unsettled -= len(ends)
        self.leases.difference_update((change.id, change.token) for change in ends)
        self._written()
        self._tell(batch, applied)
        return applied

    async def _applied(self, changes: list[Transition]) -> Sequence[Settled]:
        """Write *changes*; one that the store cannot take does not hold back its neighbours."""
        try:
            # Each write is fenced, so one that is sent again after a lost answer changes nothing twice.
            return await self._patience.insist(lambda _: self._store.settle(self._worker, changes))
        except Exception as error:  # noqa: BLE001 - the edge of the settling loop, which must go on
            if len(changes) == 1:
                self._journal.error("cannot be written", job_id=changes[0].id, message=self._describe(error))
                return [Settled.FENCED]
        return [written for change in changes for written in await self._applied([change])]

    def _tell(self, batch: list[Outcome], applied: Sequence[Settled]) -> None:
        tally, verbose = _Tally(), self._journal.verbose
        for outcome, written in zip(batch, applied, strict=True):
            change = outcome.change
            if written is Settled.WRITTEN and has_result(change) and not verbose:
                tally.completed.append(outcome.seconds)  # nearly every job: nothing else is told of it
            elif written is Settled.FENCED:
                tally.counts["fenced"] += 1
                self._journal.warning("fenced", job_id=change.id, worker=self._worker, **ids(outcome.trace))
            elif isinstance(change, StageWrite):
                if verbose and written is Settled.WRITTEN:
                    self._journal.debug(
                        "stage",
                        job_id=change.id,
                        stage=str(change.key),
                        status=change.status,
                        **ids(outcome.trace),
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
        if end is not AttemptEnd.TIMED_OUT and (self._journal.verbose or end not in _ROUTINE):
            self._log(end, change, outcome)

    def _log(self, end: AttemptEnd, change: Finish | Requeue, outcome: Outcome) -> None:
        fields = {
            "job_id": change.id,
            "status": _status(end, change).value,
            "attempt": outcome.attempt,
            "duration_ms": round(outcome.seconds * 1000),
            **ids(outcome.trace),
        }
        match end:
            case AttemptEnd.COMPLETED:
                self._journal.debug("completed", **fields)
            case AttemptEnd.FAILED:
                self._journal.warning("failed", **fields, **_reason(change))
            case AttemptEnd.CANCELLED:
                self._journal.info("cancelled", **fields)
            case AttemptEnd.TIMED_OUT:
                self._journal.warning("timed out", jobs=1, **fields)
            case AttemptEnd.LATE:
                self._journal.warning("late", worker=self._worker, **fields)
            case AttemptEnd.RETRY:
                self._journal.info("retry", **fields, **_reason(change))
            case AttemptEnd.PARKED:
                self._journal.debug("parked", **fields, **_reason(change))
            case AttemptEnd.HELD:
                self._journal.info("held", **fields, **_reason(change))
            case AttemptEnd.RELEASED:
                self._journal.info("released", **fields, **_reason(change))
            case _:
                assert_never(end)


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


def _reason(change: Finish | Requeue) -> dict[str, object]:
    fields: dict[str, object] = {}
    if change.failure is not None:
        fields |= {
            "error_class": change.failure.error_class.value,
            "error_code": change.failure.code.value,
            "gateway_status": change.failure.upstream_status,
            "message": change.failure.message,
        }
    if change.stage is not None:
        fields["stage"] = change.stage
    if isinstance(change, Requeue):
        fields["reason"] = change.reason
        if change.held_by is not None:
            fields["provider"] = provider_of(change.held_by) or None
        elif change.delay is not None:
            fields["delay_ms"] = round(change.delay.total_seconds() * 1000)
    return {name: value for name, value in fields.items() if value is not None}
