"""What a worker writes when an attempt has ended, and which ending it chooses."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.failures.failure import ErrorClass, Failure, deadline_passed, worker_lost
from holdfast.core.jobs.crashes import out_of_runs
from holdfast.core.jobs.job import Claim, EventKind
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import (
    AttemptEnd,
    Finish,
    Requeue,
    cancel,
    complete,
    end_before_run,
    end_failed,
    end_of,
    exhausted,
    fail,
    has_result,
    hold,
    limit_runs,
    park,
    park_unrunnable,
    prevailing,
    release,
    release_before_deadline,
    time_out,
)
from holdfast.core.providers.holder import Holder
from tests.builders import a_failure

CLAIM = Claim(
    id="j1",
    name="greet",
    queue="default",
    owner="",
    args="{}",
    attempt=2,
    generation=1,
    token=7,
    losses=0,
    stages=0,
    cancel_requested=False,
    trace=None,
)
THREE = RetryPolicy(3, Backoff.exponential())
FINAL = a_failure(ErrorClass.AUTH_DENIED)
HOUR = timedelta(hours=1)


def limited(retries: int) -> Failure:
    """A failure that allows fewer retries than the policy does."""
    return replace(a_failure(), retries=retries)


def test_a_result_completes_the_job_under_the_token_of_its_claim() -> None:
    assert complete(CLAIM, "42") == Finish("j1", 7, Status.COMPLETED, result="42")


def test_a_cancelled_job_ends_with_neither_result_nor_failure() -> None:
    assert cancel(CLAIM) == Finish("j1", 7, Status.CANCELLED)


def test_a_failed_attempt_goes_back_to_the_queue_with_its_failure_and_its_wait() -> None:
    transition = fail(CLAIM, a_failure(), THREE, roll=0.5, attempt=2, stage="fetch")

    assert transition == Requeue(
        "j1", 7, EventKind.RETRY, delay=timedelta(seconds=4), failure=a_failure(), stage="fetch"
    )


def test_a_retry_spends_its_attempt() -> None:
    transition = fail(CLAIM, a_failure(), THREE, roll=0.5, attempt=2)

    assert isinstance(transition, Requeue)
    assert not transition.gives_back


def test_chance_decides_about_the_wait_of_a_retry() -> None:
    soonest, latest = (fail(CLAIM, a_failure(), THREE, roll=roll, attempt=1) for roll in (0, 1))

    assert isinstance(soonest, Requeue)
    assert isinstance(latest, Requeue)
    assert (soonest.delay, latest.delay) == (timedelta(seconds=1.6), timedelta(seconds=2.4))


def test_the_last_attempt_ends_the_job_and_names_its_stage() -> None:
    transition = fail(CLAIM, a_failure(), THREE, roll=0.5, attempt=3, stage="fetch")

    assert transition == Finish("j1", 7, Status.FAILED, failure=a_failure(), stage="fetch")


@pytest.mark.clause("FAIL-4")
def test_a_failure_that_is_not_retried_ends_the_job_whatever_is_left_of_the_budget() -> None:
    transition = fail(CLAIM, FINAL, THREE, roll=0.5, attempt=1)

    assert transition == Finish("j1", 7, Status.FAILED, failure=FINAL)


@pytest.mark.parametrize(
    ("failure", "attempt", "last"),
    [
        (a_failure(), 1, False),
        (a_failure(), 2, False),
        (a_failure(), 3, True),
        (a_failure(), 4, True),
        (FINAL, 1, True),
        (limited(0), 1, True),
        (limited(1), 1, False),
        (limited(1), 2, True),
        (limited(9), 3, True),
    ],
)
def test_the_smaller_of_both_budgets_decides_which_attempt_is_the_last(
    failure: Failure, attempt: int, last: bool
) -> None:
    assert exhausted(failure, THREE, attempt=attempt) is last


@pytest.mark.parametrize("claim", [CLAIM, CLAIM._replace(failed_runs=4), CLAIM._replace(losses=1)])
def test_a_job_within_its_budgets_is_run(claim: Claim) -> None:
    assert end_before_run(claim, crash_budget=3, run_limit=5) is None


def test_a_job_that_has_lost_its_workers_too_often_ends_before_it_is_run() -> None:
    claim = CLAIM._replace(losses=1, attempt=4)

    assert end_before_run(claim, crash_budget=3, run_limit=5) == end_failed(claim, worker_lost())


def test_a_job_that_has_failed_in_as_many_runs_as_it_may_ends_before_it_is_run() -> None:
    claim = CLAIM._replace(failed_runs=5)

    end = end_before_run(claim, crash_budget=3, run_limit=5)

    assert end == end_failed(claim, out_of_runs(worker_lost(), 5))


def test_the_last_run_that_may_fail_ends_the_job_instead_of_retrying_it() -> None:
    claim, failure = CLAIM._replace(failed_runs=4), a_failure()
    retry = fail(claim, failure, THREE, roll=0.5, attempt=1, stage="fetch")

    assert limit_runs(claim, retry, 5) == end_failed(claim, out_of_runs(failure, 5), "fetch")


@pytest.mark.parametrize(
    ("change", "failed_runs"),
    [
        (fail(CLAIM, a_failure(), THREE, roll=0.5, attempt=1), 3),
        (release(CLAIM, "worker shut down"), 4),
        (complete(CLAIM, "42"), 4),
    ],
)
def test_the_limit_of_runs_ends_retries_only(change: Finish | Requeue, failed_runs: int) -> None:
    assert limit_runs(CLAIM._replace(failed_runs=failed_runs), change, 5) == change


def test_of_concurrent_changes_a_retry_prevails_over_a_hold_and_the_longer_over_the_shorter() -> None:
    held, waits = (
        hold(CLAIM, "open", held_by=Holder("llm")),
        park(CLAIM, "sleeps", delay=HOUR, seen=0, awaits=False),
    )
    soon, later = (fail(CLAIM, a_failure(), THREE, roll=0.5, attempt=attempt) for attempt in (1, 2))
    assert isinstance(soon, Requeue)
    assert isinstance(later, Requeue)

    assert prevailing(None, held) == held
    assert prevailing(held, soon) == soon
    assert prevailing(soon, held) == soon
    assert prevailing(soon, later) == later
    assert prevailing(later, soon) == later
    assert prevailing(held, waits) == held
    assert prevailing(waits, held) == waits


def test_a_released_job_gets_its_attempt_back_and_says_why() -> None:
    assert release(CLAIM, "shutting down") == Requeue(
        "j1", 7, EventKind.QUEUED, gives_back=True, reason="shutting down"
    )


def test_a_released_job_may_be_left_alone_for_a_while() -> None:
    assert release(CLAIM, "unknown name", delay=timedelta(seconds=5)).delay == timedelta(seconds=5)


def test_a_parked_job_waits_without_a_worker_and_gets_its_attempt_back() -> None:
    transition = park(CLAIM, "sleeps", delay=timedelta(hours=1), seen=2, awaits=True)

    assert transition == Requeue(
        "j1",
        7,
        EventKind.PARKED,
        delay=timedelta(hours=1),
        gives_back=True,
        reason="sleeps",
        seen=2,
        awaits=True,
    )


def test_a_held_job_gets_its_attempt_back_and_waits_for_its_holder() -> None:
    assert hold(CLAIM, "its breaker is open", held_by=Holder("llm")) == Requeue(
        "j1",
        7,
        EventKind.HELD,
        delay=timedelta(days=36_500),
        gives_back=True,
        reason="its breaker is open",
        held_by=Holder("llm"),
    )


def test_a_job_that_is_put_aside_gets_its_attempt_back_and_waits_for_nothing_but_time() -> None:
    assert park_unrunnable(CLAIM, "unknown", delay=timedelta(seconds=30)) == Requeue(
        "j1",
        7,
        EventKind.PARKED,
        delay=timedelta(seconds=30),
        gives_back=True,
        reason="unknown",
    )


def test_a_job_that_is_given_back_keeps_its_losses_and_one_that_waits_does_not() -> None:
    assert release(CLAIM, "shutting down").keeps_losses
    assert not park(CLAIM, "sleeping", delay=timedelta(seconds=30), seen=0, awaits=False).keeps_losses


def test_a_job_that_times_out_fails_only_if_its_deadline_has_passed() -> None:
    assert time_out(CLAIM) == Finish(
        "j1", 7, Status.FAILED, failure=deadline_passed(CLAIM.name), if_overdue=True
    )


def test_a_job_that_was_timed_out_too_early_gets_its_attempt_back_and_may_run_at_once() -> None:
    assert release_before_deadline(time_out(CLAIM)) == Requeue(
        "j1", 7, EventKind.QUEUED, gives_back=True, reason="its deadline has not come"
    )


@pytest.mark.parametrize(
    ("change", "end"),
    [
        (complete(CLAIM, "1"), AttemptEnd.COMPLETED),
        (Finish("j1", 7, Status.FAILED, failure=FINAL), AttemptEnd.FAILED),
        (Finish("j1", 7, Status.FAILED, failure=deadline_passed()), AttemptEnd.FAILED),  # another job's
        (cancel(CLAIM), AttemptEnd.CANCELLED),
        (time_out(CLAIM), AttemptEnd.TIMED_OUT),
        (Requeue("j1", 7, EventKind.RETRY), AttemptEnd.RETRY),
        (park_unrunnable(CLAIM, "unknown", delay=timedelta(seconds=30)), AttemptEnd.PARKED),
        (hold(CLAIM, "its breaker is open", held_by=Holder("llm")), AttemptEnd.HELD),
        (release(CLAIM, "worker shut down"), AttemptEnd.RELEASED),
    ],
)
def test_what_came_of_an_attempt_has_one_word(change: Finish | Requeue, end: AttemptEnd) -> None:
    assert end_of(change) is end
    assert has_result(change) is (end is AttemptEnd.COMPLETED)
