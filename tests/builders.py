"""Values for tests. A test names only what it is about; the rest is ordinary."""

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.core.failures.failure import ErrorClass, Failure
from holdfast.core.jobs.job import Claim, Submission
from holdfast.core.jobs.stages import StageKey, StageStatus
from holdfast.core.jobs.transitions import StageWrite
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
