"""A job that is completed in its function's own transaction: committed, rolled back, or too late."""

from datetime import UTC, datetime

import pytest

from holdfast.core.jobs.completion import Completion, LeaseOutcome, lease_outcome
from holdfast.core.jobs.job import Job
from holdfast.core.jobs.states import Status

NOW = datetime(2031, 1, 1, tzinfo=UTC)
TOKEN = 5


def a_job(status: Status, token: int, *, late_at: datetime | None = None) -> Job:
    return Job(
        id="1",
        name="grade",
        queue="default",
        owner="",
        status=status,
        priority=0,
        attempt=1,
        generation=1,
        lease_token=token,
        losses=0,
        created_at=NOW,
        queued_at=NOW,
        updated_at=NOW,
        late_at=late_at,
    )


@pytest.mark.parametrize("token", [TOKEN, TOKEN + 1])
def test_a_result_under_the_lease_was_committed(token: int) -> None:
    assert lease_outcome(a_job(Status.COMPLETED, token), TOKEN) is LeaseOutcome.ENDED
    assert lease_outcome(a_job(Status.FAILED, token, late_at=NOW), TOKEN) is LeaseOutcome.ENDED


def test_a_job_that_is_leased_as_before_was_rolled_back() -> None:
    assert lease_outcome(a_job(Status.PROCESSING, TOKEN), TOKEN) is LeaseOutcome.HELD


@pytest.mark.parametrize(
    "job",
    [
        a_job(Status.PROCESSING, TOKEN + 2),
        a_job(Status.QUEUED, TOKEN + 1),
        a_job(Status.FAILED, TOKEN),
        a_job(Status.COMPLETED, TOKEN + 2),
        a_job(Status.COMPLETED, TOKEN - 1),
    ],
)
def test_what_was_written_under_another_lease_is_not_the_functions_own_result(job: Job) -> None:
    assert lease_outcome(job, TOKEN) is LeaseOutcome.LOST


def test_a_completion_is_on_time_unless_it_says_otherwise() -> None:
    assert not Completion().late
