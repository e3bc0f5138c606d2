"""Values for tests. A test names only what it is about; the rest is ordinary."""

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.core.failures.failure import ErrorClass, Failure
from holdfast.core.jobs.job import Claim, Submission
from holdfast.core.jobs.stages import StageKey, StageStatus
from holdfast.core.jobs.transitions import StageWrite
from holdfast.core.messages.outbox import DueMessage, NewMessage
from holdfast.core.strict_json import fingerprint
from holdfast.wiring.system import SystemIds

_IDS = SystemIds()

STAGE_ARGS = fingerprint("{}")


def a_job(
    *,
    name: str = "greet",
    owner: str = "",
    queue: str = "default",
    args: str = "{}",
    priority: int = 0,
    delay: timedelta | None = None,
    run_at: datetime | None = None,
    key: str | None = None,
    subject: str | None = None,
    version: int | None = None,
    rerun: bool = False,
    strict_keys: bool = False,
    deadline: timedelta | None = None,
    deadline_at: datetime | None = None,
    announces: int = 0,
) -> Submission:
    """Return a submission under an id of its own."""
    return Submission(
        id=_IDS.job_id(),
        name=name,
        queue=queue,
        owner=owner,
        args=args,
        priority=priority,
        delay=delay,
        run_at=run_at,
        key=key,
        subject=subject,
        version=version,
        rerun=rerun,
        strict_keys=strict_keys,
        fingerprint=fingerprint(args) if key is not None or subject is not None else None,
        deadline=deadline,
        deadline_at=deadline_at,
        announces=announces,
    )


def a_failure(
    error_class: ErrorClass = ErrorClass.UPSTREAM_5XX, message: str = "no luck", *, stack: str = ""
) -> Failure:
    """Return what went wrong in some attempt."""
    return replace(Failure.of(error_class, message), stack=stack)


def a_stage(
    claim: Claim,
    name: str = "fetch",
    *,
    call: str = "#1",
    status: StageStatus = StageStatus.DONE,
    attempt: int = 1,
    result: str = '"page"',
) -> StageWrite:
    """Return a write for a stage of a claimed job: done, unless the test is about something else."""
    return StageWrite(
        claim.id,
        claim.token,
        StageKey(name, call),
        status,
        attempt,
        STAGE_ARGS,
        result=result if status is StageStatus.DONE else None,
        failure=a_failure() if status is StageStatus.FAILED else None,
    )


def a_message(
    aggregate: str = "sub_1",
    *,
    message_type: str = "grading.request",
    payload: str = '{"requestId": "r1"}',
    key: str | None = None,
    job_id: str | None = None,
    message_id: str | None = None,
) -> NewMessage:
    """Return a message to store, under an id of its own."""
    return NewMessage(
        id=_IDS.job_id(),
        aggregate_type="Submission",
        aggregate_id=aggregate,
        message_type=message_type,
        payload=payload,
        key=key,
        job_id=job_id,
        message_id=message_id,
    )


def a_due_message(
    *,
    retry_count: int = 0,
    behind: str | None = None,
    exchange: str | None = None,
    routing_key: str | None = None,
    headers: str = "{}",
    message_id: str | None = None,
) -> DueMessage:
    """Return a message as a relay reads it."""
    return DueMessage(
        id="01900000-0000-7000-8000-00000000000a",
        partition=3,
        aggregate_type="Submission",
        aggregate_id="sub_1",
        message_type="grading.request",
        payload='{"requestId": "r1"}',
        message_id=message_id,
        headers=headers,
        exchange=exchange,
        routing_key=routing_key,
        trace=None,
        retry_count=retry_count,
        waited=timedelta(0),
        behind=behind,
    )
