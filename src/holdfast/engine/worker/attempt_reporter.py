"""The attempt reporter: it logs and counts what attempts led to, once the store has written it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import assert_never

from holdfast.core.failures.failure import begun_attempts
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import (
    AttemptEnd,
    Finish,
    Requeue,
    StageWrite,
    end_of,
    has_result,
)
from holdfast.engine.runtime import Runtime
from holdfast.engine.worker.attempt_outcome import AttemptOutcome
from holdfast.ports import Metrics
from holdfast.ports.store import Settled


class AttemptReporter:
    """Reports written batches: log lines, and metrics summed over the batch."""

    def __init__(self, worker: str, runtime: Runtime) -> None:
        self._worker = worker
        self._logger = runtime.logger
        self._metrics = runtime.metrics
        self._describe = runtime.describe
        self._development = runtime.development

    def locked(self, outcome: AttemptOutcome) -> None:
        """Report a job that another session has locked: its transition is written later."""
        self._logger.warning("job locked", **outcome.fields(), worker=self._worker)

    def unwritten(self, outcome: AttemptOutcome, error: Exception) -> None:
        """Report a transition that the store rejects."""
        self._logger.error("transition not written", **outcome.fields(), message=self._describe(error))

    def report(self, batch: Sequence[AttemptOutcome], applied: Sequence[Settled]) -> bool:
        """Report how the store settled *batch*; return whether a job was requeued that may be due soon."""
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
            elif written is Settled.LOCKED or (written is Settled.EARLY and isinstance(change, Finish)):
                continue  # it is written later, or another transition in its place
            elif written is Settled.FENCED:
                tally.counts["fenced"] += 1
                self._logger.warning("write fenced", **outcome.fields(), worker=self._worker)
            elif isinstance(change, StageWrite):
                if verbose and written is Settled.WRITTEN:
                    self._logger.debug(
                        "stage stored", **outcome.fields(), stage=str(change.key), status=change.status
                    )
            else:
                self._report_end(change, outcome, written, tally)
        tally.report(self._metrics)
        return tally.requeued

    def _report_end(
        self, change: Finish | Requeue, outcome: AttemptOutcome, written: Settled, tally: "_Tally"
    ) -> None:
        """Count and log what an attempt led to."""
        if written is Settled.WRITTEN:
            end = end_of(change)
        else:  # the store decides on deadlines
            end = AttemptEnd.LATE if has_result(change) else AttemptEnd.TIMED_OUT
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
        self.requeued = False
        self._labelled: Counter[tuple[str, str, str]] = Counter()
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)

    def ended(self, end: AttemptEnd, change: Finish | Requeue, seconds: float) -> None:
        self._seconds[end.value].append(seconds)
        # A held job is never due: there is no need to look.
        self.requeued = self.requeued or (isinstance(change, Requeue) and change.held_by is None)
        if end is AttemptEnd.TIMED_OUT:
            return  # counted by the service that ends the job by its deadline, which may be maintenance
        if isinstance(change, Requeue) and change.held_by and change.held_by.provider:
            self._labelled[_COUNTERS[end], "provider", change.held_by.provider] += 1
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
            fields["provider"] = change.held_by.provider
        elif change.delay is not None:
            fields["delay_ms"] = round(change.delay.total_seconds() * 1000)
    return {name: value for name, value in fields.items() if value is not None}
