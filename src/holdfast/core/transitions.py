"""Every change that a worker may write for a job it holds, and the decisions that choose one.

A transition says what to write, with lengths of time instead of instants; the store adds its
own clock, writes all of it or nothing, and only if the lease token still matches.
"""

from datetime import timedelta
from typing import NamedTuple

from holdfast.core.backoff import RetryPolicy
from holdfast.core.failures import Failure
from holdfast.core.jobs import Claim, EventKind
from holdfast.core.stages import StageKey, StageStatus
from holdfast.core.states import Status


class Finish(NamedTuple):
    """The job ends: completed with a result, failed with a failure, or cancelled."""

    id: str
    token: int
    status: Status
    result: str | None = None
    failure: Failure | None = None
    stage: str | None = None


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


class StageWrite(NamedTuple):
    """What became of one stage. A stored result sets the job's attempt count back to this claim."""

    id: str
    token: int
    key: StageKey
    status: StageStatus
    attempt: int
    fingerprint: str
    result: str | None = None
    failure: Failure | None = None


Transition = Finish | Requeue | StageWrite


def complete(claim: Claim, result: str) -> Finish:
    """End the job with its result."""
    return Finish(claim.id, claim.token, Status.COMPLETED, result=result)


def cancel(claim: Claim) -> Finish:
    """End the job because somebody asked for it."""
    return Finish(claim.id, claim.token, Status.CANCELLED)


def fail(
    claim: Claim,
    failure: Failure,
    policy: RetryPolicy,
    *,
    roll: float,
    attempt: int,
    stage: str | None = None,
) -> Transition:
    """Decide what a failed attempt leads to: another attempt, or the end."""
    if exhausted(failure, policy, attempt=attempt):
        return Finish(claim.id, claim.token, Status.FAILED, failure=failure, stage=stage)

    delay = policy.delay(attempt, failure, roll=roll)
    return Requeue(claim.id, claim.token, EventKind.RETRY, delay=delay, failure=failure, stage=stage)


def exhausted(failure: Failure, policy: RetryPolicy, *, attempt: int) -> bool:
    """Say whether *failure*, met in attempt number *attempt*, is the last word."""
    if not failure.retryable or attempt >= policy.attempts:
        return True
    return failure.retries is not None and attempt > failure.retries


def release(claim: Claim, reason: str, *, delay: timedelta | None = None) -> Requeue:
    """Give the job back as if it had not been claimed: the attempt was not its own fault."""
    return Requeue(claim.id, claim.token, EventKind.QUEUED, delay=delay, gives_back=True, reason=reason)
