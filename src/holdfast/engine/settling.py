"""What became of attempts, written in batches behind the worker's back."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.core.jobs import EventKind
from holdfast.core.states import Status
from holdfast.core.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.engine.gathering import Gatherer
from holdfast.engine.patience import Patience
from holdfast.ports import Journal, Metrics, Store

BATCH = 2_000


class Outcome(NamedTuple):
    """A transition, and what a log line says beside it."""

    change: Transition
    attempt: int
    seconds: float


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
        self._gatherer: Gatherer[Outcome, bool] = Gatherer(self._write, limit=BATCH, name="holdfast settler")
        self._written = written
        self._parked = parked
        self._describe = describe
        self.unsettled = 0

    def post(self, outcome: Outcome) -> None:
        """Have the end of an attempt written."""
        self.unsettled += 1
        self._gatherer.post(outcome)

    async def store_stage(self, change: StageWrite) -> bool:
        """Write what became of a stage; false means that the lease is lost."""
        return await self._gatherer.ask(Outcome(change, change.attempt, 0.0))

    async def drain(self) -> None:
        """Wait until everything has been written."""
        await self._gatherer.drain()

    def give_up(self) -> None:
        """Try no more to write what is left: those leases run out, and the jobs are run again."""
        self._gatherer.give_up()

    async def _write(self, batch: list[Outcome]) -> Sequence[bool]:
        applied = await self._applied([outcome.change for outcome in batch])
        self.unsettled -= sum(not isinstance(outcome.change, StageWrite) for outcome in batch)
        self._written()
        self._tell(batch, applied)
        return applied

    async def _applied(self, changes: list[Transition]) -> Sequence[bool]:
        """Write *changes*; one that the store cannot take does not hold back its neighbours."""
        try:
            # Each write is fenced, so one that is sent again after a lost answer changes nothing twice.
            return await self._patience.insist(lambda _: self._store.settle(self._worker, changes))
        except Exception as error:  # noqa: BLE001 - the edge of the settling loop, which must go on
            if len(changes) == 1:
                self._journal.error("cannot be written", job_id=changes[0].id, message=self._describe(error))
                return [False]
        return [written for change in changes for written in await self._applied([change])]

    def _tell(self, batch: list[Outcome], applied: Sequence[bool]) -> None:
        counts: Counter[str] = Counter()
        verbose = self._journal.verbose
        for outcome, written in zip(batch, applied, strict=True):
            change = outcome.change
            if not written:
                counts["fenced"] += 1
                self._journal.warning("fenced", job_id=change.id, worker=self._worker)
            elif isinstance(change, StageWrite):
                if verbose:
                    self._journal.debug(
                        "stage", job_id=change.id, stage=str(change.key), status=change.status
                    )
            else:
                name = _counter(change)
                counts[name] += 1
                if verbose or name != "jobs_completed":
                    self._log(name, change, outcome)
        for name, amount in counts.items():
            self._metrics.count(name, amount)
        if counts["retries_scheduled"] or counts["jobs_released"]:
            self._parked()

    def _log(self, name: str, change: Finish | Requeue, outcome: Outcome) -> None:
        status = change.status if isinstance(change, Finish) else Status.QUEUED
        fields = {
            "job_id": change.id,
            "status": status.value,
            "attempt": outcome.attempt,
            "duration_ms": round(outcome.seconds * 1000),
        }
        match name:
            case "jobs_completed":
                self._journal.debug("completed", **fields)
            case "jobs_failed":
                self._journal.warning("failed", **fields, **_reason(change))
            case "jobs_cancelled":
                self._journal.info("cancelled", **fields)
            case "retries_scheduled":
                self._journal.info("retry", **fields, **_reason(change))
            case _:
                self._journal.info("released", **fields, **_reason(change))


def _counter(change: Finish | Requeue) -> str:
    """Name the figure that a change counts in."""
    if isinstance(change, Requeue):
        return "retries_scheduled" if change.event is EventKind.RETRY else "jobs_released"
    return f"jobs_{change.status}"


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
        fields["delay_ms"] = None if change.delay is None else round(change.delay.total_seconds() * 1000)
    return {name: value for name, value in fields.items() if value is not None}
