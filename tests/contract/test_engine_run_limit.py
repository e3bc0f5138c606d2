"""Retries end, whatever the stages of a job store in between."""

from datetime import timedelta
from itertools import count

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, Retryable, Status
from holdfast.core.jobs.transitions import fail
from holdfast.errors import ConfigError
from holdfast.ports import Store
from tests.builders import a_failure, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, TIMEOUT, a_claim, claimed

PAST_LEASE = LEASE + timedelta(seconds=1)


@pytest.mark.clause("JOB-10")
async def test_a_job_that_stores_another_stage_in_each_run_fails_at_its_run_limit(hold: Holdfast) -> None:
    numbers = count(1)
    runs = 0

    @hold.stage("store")
    async def store_one(number: int) -> int:
        return number

    @hold.job("restless", attempts=3, max_failed_runs=7)
    async def restless() -> None:
        nonlocal runs
        runs += 1
        number = next(numbers)
        await store_one.options(key=str(number))(number)
        raise Retryable("not yet", error_class=ErrorClass.OVERLOADED)

    async with hold.worker(poll=0.05):
        job = await restless.submit()
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=TIMEOUT)

    assert runs == 7
    assert failed.value.failure.error_class is ErrorClass.OVERLOADED
    assert "7 runs of the job failed or lost their worker" in failed.value.failure.message
    assert failed.value.failure.message.endswith("not yet")
    [letter] = await hold.dead_letters.list()
    assert letter.job_id == job.id


@pytest.mark.clause("JOB-10")
async def test_a_stage_that_fails_under_another_key_in_each_run_ends_with_its_job(hold: Holdfast) -> None:
    numbers = count(1)

    @hold.stage("store")
    async def store_one(number: int) -> int:
        return number

    @hold.stage("fetch")
    async def fetch() -> None:
        raise Retryable("down")

    @hold.job("restless", attempts=3, max_failed_runs=5)
    async def restless() -> None:
        number = next(numbers)
        await store_one.options(key=str(number))(number)
        await fetch.options(key=str(number))()

    async with hold.worker(poll=0.05):
        job = await restless.submit()
        with pytest.raises(JobFailed, match="5 runs of the job"):
            await job.result(timeout=TIMEOUT)

    assert (next(numbers), (await job.read()).stage) == (6, "fetch[5]")


@pytest.mark.clause("JOB-10")
async def test_runs_that_are_lost_count_as_those_that_fail_do(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    begun = 0

    @hold.job("unlucky", attempts=3, max_failed_runs=4)
    async def unlucky() -> None:
        nonlocal begun
        begun += 1

    job = await unlucky.submit()
    for _ in range(4):
        claim = await claimed(store)
        await store.settle("worker", [a_stage(claim, call=f"#{claim.token}")])
        await clock.advance(PAST_LEASE)
        await store.reclaim(limit=1)
    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed, match="4 runs of the job") as failed:
            await job.result(timeout=TIMEOUT)

    assert (begun, failed.value.failure.error_class) == (0, ErrorClass.WORKER_LOST)


@pytest.mark.clause("JOB-10")
async def test_no_stage_sets_failed_runs_back_and_a_replay_does(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    first = await a_claim(store)
    retry = fail(first, a_failure(), hold._policy, roll=0, attempt=1)
    await store.settle("worker", [a_stage(first), retry])
    await clock.advance(PAST_LEASE)
    await store.promote(limit=1)
    second = await claimed(store)
    end = fail(second, a_failure(ErrorClass.BUG), hold._policy, roll=0, attempt=1)
    await store.settle("worker", [end])
    assert (await store.get(first.id)).status is Status.FAILED

    await store.retry(first.id)

    assert (first.failed_runs, second.failed_runs, (await claimed(store)).failed_runs) == (0, 1, 0)


def test_a_job_may_fail_a_hundred_times_for_each_of_its_attempts() -> None:
    hold = Holdfast("sqlite:///nowhere.db")

    @hold.job("plain", attempts=3)
    async def plain() -> None: ...

    assert plain.spec.run_limit == 300
    with pytest.raises(ConfigError, match="max_failed_runs=0"):
        hold.job("never", max_failed_runs=0)(lambda: None)
