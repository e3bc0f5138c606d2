"""Every change that a worker may write for a job it holds, and the decisions that choose one.

A transition says what to write, with durations instead of instants; the store adds its
own clock, writes all of it or nothing, and only if the lease token still matches.
"""

from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.durations import LONGEST
from holdfast.core.failures.backoff import RetryPolicy
from holdfast.core.failures.failure import Failure, deadline_passed, worker_lost
from holdfast.core.jobs.crashes import lost_too_often, out_of_runs
from holdfast.core.jobs.job import Claim, EventKind
from holdfast.core.jobs.stages import StageKey, StageStatus
from holdfast.core.jobs.states import Status
from holdfast.core.providers.holder import Holder

FOR_EVER = LONGEST
"""Longer than any wait: how long a job is parked whose wait has no end of its own."""


class Finish(NamedTuple):
    """The job ends: completed with a result, failed with a failure, or cancelled."""

    id: str
    token: int
    status: Status
    result: str | None = None
    failure: Failure | None = None
    stage: str | None = None
    if_overdue: bool = False
    """Set if nothing but its deadline ends the job: the store ends it only if the deadline has passed."""


class Requeue(NamedTuple):
    """The job goes back to its queue: after a failure, or untouched, with its attempt given back."""

    id: str
    token: int
    event: EventKind
    delay: timedelta | None = None
    gives_back: bool = False
    failure: Failure | None = None
    stage: str | None = None
    reason: str | None = None
    seen: int | None = None
    """Set if the job waits: how many signals it has seen. One more wakes it."""
    awaits: bool = False
    """Whether it waits for other jobs: when none is pending, it is woken."""
    held_by: Holder | None = None
    """The holder of the job, if there is one: the job is not claimed until the holder releases it."""

    @property
    def keeps_losses(self) -> bool:
        """Whether losses in a row still count: the job is given back, and did not reach a wait."""
        return self.gives_back and self.seen is None


class StageWrite(NamedTuple):
    """The new state of one stage. A stored result sets the job's attempt count back to this claim."""

    id: str
    token: int
    key: StageKey
    status: StageStatus
    attempt: int
    fingerprint: str
    result: str | None = None
    failure: Failure | None = None
    provider: str | None = None
    """Which provider computed it, if one did."""
    brief_fingerprint: str = ""
    """That of the arguments that are not at their default."""


Transition = Finish | Requeue | StageWrite


class AttemptEnd(StrEnum):
    """The outcome of an attempt, as named in logs, metrics and spans."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LATE = "late"
    """It had a result, and its job had timed out: only the store knows."""
    RETRY = "retry"
    PARKED = "parked"
    HELD = "held"
    """Its provider, or a limit, let no call through."""
    RELEASED = "released"


_REQUEUED = {
    EventKind.RETRY: AttemptEnd.RETRY,
    EventKind.PARKED: AttemptEnd.PARKED,
    EventKind.HELD: AttemptEnd.PARKED,  # for a worker that knows the job's name
    EventKind.QUEUED: AttemptEnd.RELEASED,
}


def end_of(change: Finish | Requeue) -> AttemptEnd:
    """Return the outcome of an attempt, as far as its worker knows."""
    if isinstance(change, Requeue):
        by_provider = change.held_by is not None and change.held_by.provider is not None
        return AttemptEnd.HELD if by_provider else _REQUEUED[change.event]
    return AttemptEnd.TIMED_OUT if change.if_overdue else AttemptEnd(change.status.value)


def has_result(change: Transition) -> bool:
    """Whether a job ends with a result."""
    return isinstance(change, Finish) and change.status is Status.COMPLETED


def complete(claim: Claim, result: str) -> Finish:
    """End the job with its result."""
    return Finish(claim.id, claim.token, Status.COMPLETED, result)


def cancel(claim: Claim) -> Finish:
    """End the job because it was cancelled."""
    return Finish(claim.id, claim.token, Status.CANCELLED)


def time_out(claim: Claim) -> Finish:
    """End the job because its deadline has passed, if the store agrees that it has."""
    return Finish(claim.id, claim.token, Status.FAILED, failure=deadline_passed(claim.name), if_overdue=True)


def fail(
    claim: Claim,
    failure: Failure,
    policy: RetryPolicy,
    *,
    roll: float,
    attempt: int,
    stage: str | None = None,
) -> Finish | Requeue:
    """Decide what follows *failure* in attempt number *attempt*, at a stage or at the job: another attempt, or the end."""
    if exhausted(failure, policy, attempt=attempt):
        return end_failed(claim, failure, stage)

    delay = policy.delay(attempt, failure, roll=roll)
    return Requeue(claim.id, claim.token, EventKind.RETRY, delay=delay, failure=failure, stage=stage)


def exhausted(failure: Failure, policy: RetryPolicy, *, attempt: int) -> bool:
    """Return whether *failure*, met in attempt number *attempt*, ends the job."""
    if not failure.retryable or attempt >= policy.attempts:
        return True
    return failure.retries is not None and attempt > failure.retries


def end_failed(claim: Claim, failure: Failure, stage: str | None = None) -> Finish:
    """End the job as failed."""
    return Finish(claim.id, claim.token, Status.FAILED, failure=failure, stage=stage)


def end_before_run(claim: Claim, *, crash_budget: int, run_limit: int) -> Finish | None:
    """End a job that has lost its worker or failed too often to be run once more; `None` if it is to be run."""
    if lost_too_often(claim, crash_budget):
        return end_failed(claim, worker_lost())
    if claim.failed_runs >= run_limit:
        return end_failed(claim, out_of_runs(worker_lost(), run_limit))
    return None


def limit_runs(claim: Claim, change: Finish | Requeue, limit: int) -> Finish | Requeue:
    """Return how a run ends: with *change*, unless that is a retry and *limit* runs have failed or lost their worker."""
    if isinstance(change, Finish) or change.failure is None or claim.failed_runs + 1 < limit:
        return change
    return end_failed(claim, out_of_runs(change.failure, limit), change.stage)


def prevailing(earlier: Requeue | None, later: Requeue) -> Requeue:
    """Return which of two changes requeues a job whose stages and waits run concurrently.

    A retry prevails over a hold, and of two retries the one with the longer delay; else the earlier change.
    """
    if earlier is None:
        return later
    if later.failure is None:
        return earlier
    longer = (later.delay or timedelta(0)) > (earlier.delay or timedelta(0))
    return later if longer or earlier.held_by is not None else earlier


def park(claim: Claim, reason: str, *, delay: timedelta, seen: int, awaits: bool) -> Requeue:
    """Let the job wait without a worker, for *delay* at most; its attempt is given back."""
    return Requeue(
        claim.id,
        claim.token,
        EventKind.PARKED,
        delay=delay,
        gives_back=True,
        reason=reason,
        seen=seen,
        awaits=awaits,
    )


def hold(claim: Claim, reason: str, *, held_by: Holder) -> Requeue:
    """Keep the job from being claimed until *held_by* releases it; its attempt is given back."""
    return Requeue(
        claim.id,
        claim.token,
        EventKind.HELD,
        delay=FOR_EVER,
        gives_back=True,
        reason=reason,
        held_by=held_by,
    )


def release(claim: Claim, reason: str, *, delay: timedelta | None = None) -> Requeue:
    """Give the job back as if it had not been claimed: the attempt does not count."""
    return Requeue(
        claim.id,
        claim.token,
        EventKind.QUEUED,
        delay=delay,
        gives_back=True,
        reason=reason,
    )


def release_before_deadline(end: Finish) -> Requeue:
    """Give a job back that was stopped for a deadline which has not come: the attempt does not count."""
    return Requeue(
        end.id,
        end.token,
        EventKind.QUEUED,
        gives_back=True,
        reason="its deadline has not come",
    )


def park_unrunnable(claim: Claim, reason: str, *, delay: timedelta) -> Requeue:
    """Give the job back as if it had not been claimed, and keep it from being claimed again for *delay*."""
    return Requeue(
        claim.id,
        claim.token,
        EventKind.PARKED,
        delay=delay,
        gives_back=True,
        reason=reason,
    )
