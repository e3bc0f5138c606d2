"""When a job that loses its workers is given up, and how many quarantined jobs may run side by side."""

import pytest

from holdfast.core.failures.failure import ErrorClass
from holdfast.core.jobs.crashes import lost_too_often, out_of_runs, quarantine_limit
from holdfast.core.jobs.job import Claim
from tests.builders import a_failure


def a_claim(*, attempt: int, losses: int, excused: bool = False) -> Claim:
    return Claim(
        id="j1",
        name="greet",
        queue="default",
        owner="",
        args="{}",
        attempt=attempt,
        generation=1,
        token=7,
        losses=losses,
        stages=0,
        cancel_requested=False,
        trace=None,
        excused=excused,
    )


@pytest.mark.parametrize(
    ("attempt", "losses", "excused", "budget", "lost"),
    [
        (4, 0, False, 3, False),  # what its failures have spent is judged elsewhere
        (3, 2, False, 3, False),
        (4, 3, False, 3, True),
        (2, 5, False, 3, False),  # stages were stored in between
        (2, 6, False, 3, True),
        (1, 0, True, 3, False),
        (1, 0, True, 1, True),  # it was begun, and must not be twice
        (1, 0, False, 1, False),
    ],
)
def test_a_job_is_given_up_once_it_has_lost_as_many_workers_as_it_may(
    attempt: int, losses: int, excused: bool, budget: int, lost: bool
) -> None:
    assert lost_too_often(a_claim(attempt=attempt, losses=losses, excused=excused), budget) is lost


@pytest.mark.parametrize(
    ("attempt", "losses", "excused", "most"),
    [
        (1, 0, True, 25),
        (2, 1, False, 25),
        (3, 2, False, 6),
        (4, 3, False, 1),
        (5, 1, False, 1),  # its last attempt
        (1, 9, False, 1),  # its last loss
    ],
)
def test_the_more_workers_a_job_has_lost_the_fewer_quarantined_jobs_run_beside_it(
    attempt: int, losses: int, excused: bool, most: int
) -> None:
    claim = a_claim(attempt=attempt, losses=losses, excused=excused)

    assert quarantine_limit(claim, 5, 100) == most


def test_one_quarantined_job_runs_in_the_smallest_worker() -> None:
    assert quarantine_limit(a_claim(attempt=2, losses=1), 5, 1) == 1


def test_a_job_out_of_runs_keeps_the_class_of_its_last_failure_and_says_what_to_do() -> None:
    failure = out_of_runs(a_failure(ErrorClass.OVERLOADED, message="busy " * 200), 300)

    assert failure.error_class is ErrorClass.OVERLOADED
    assert failure.message.startswith("300 runs of the job failed or lost their worker")
    assert "a key= of a stage has to be the same in each run" in failure.message
    assert len(failure.message) == 500
