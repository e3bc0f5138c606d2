"""A job that its function completes in a transaction of its own, which may be rolled back."""

from enum import StrEnum
from typing import NamedTuple

from holdfast.core.jobs.job import Job
from holdfast.core.jobs.states import Status


class Completion(NamedTuple):
    """What `current().complete(...)` returns.

    With *late*, the job's deadline has passed: it has timed out, and the result is kept as late.
    """

    late: bool = False


class LeaseOutcome(StrEnum):
    """What became of a lease under which the end of a job was written."""

    ENDED = "ended"
    """The transaction was committed."""
    HELD = "held"
    """The transaction was rolled back, or is still open: the job is leased as before."""
    LOST = "lost"
    """The transaction was rolled back, and the lease was lost since."""


def lease_outcome(job: Job, token: int) -> LeaseOutcome:
    """Return what became of the lease with *token* under which the end of *job* was written.

    A deadline that ends a lease raises the token once; the result is then kept as late.
    """
    if job.status is Status.PROCESSING and job.lease_token == token:
        return LeaseOutcome.HELD
    has_result = job.status is Status.COMPLETED or job.late_at is not None
    if has_result and job.lease_token in (token, token + 1):
        return LeaseOutcome.ENDED
    return LeaseOutcome.LOST
