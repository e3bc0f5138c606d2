"""An operator retries a failed job: as a new generation, from the stage that failed."""

from datetime import timedelta

import pytest

from holdfast import Status
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.transitions import Finish
from holdfast.errors import JobNotFound, StateRefused
from holdfast.ports import Store
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, a_claim, a_completed_job, a_failed_job, claimed, submitted


async def test_a_failed_job_comes_back_with_fresh_attempts_and_goes_on_counting_tokens(
    store: Store, clock: DatabaseClock
) -> None:
    failed = await a_failed_job(store, a_job(owner="ada", args='{"n":1}', priority=4))
    ended = await store.get(failed.id)
    await clock.advance(timedelta(hours=1))

    job = await store.retry(failed.id, owner="ada")

    assert job == await store.get(failed.id)
    assert (job.status, job.attempt, job.losses, job.generation) == (Status.QUEUED, 0, 0, 2)
    assert job.lease_token > ended.lease_token
    assert (job.failure, job.stage, job.result, job.finished_at) == (None, None, None, None)
    assert (job.args, job.priority, job.owner, job.created_at) == ('{"n":1}', 4, "ada", ended.created_at)
    assert job.queued_at >= ended.created_at + timedelta(hours=1)
    again = await claimed(store)
    assert (again.id, again.attempt, again.generation) == (failed.id, 1, 2)


async def test_finished_stages_are_kept_and_failed_ones_forgotten(store: Store) -> None:
    claim = await a_claim(store)
    await store.settle(
        "worker",
        [
            a_stage(claim, "fetch", result='"page"'),
            a_stage(claim, "llm", status=StageStatus.FAILED, attempt=3),
            a_stage(claim, "notify", status=StageStatus.STARTED, attempt=2),
            Finish(claim.id, claim.token, Status.FAILED, failure=a_failure(), stage="llm"),
        ],
    )

    await store.retry(claim.id)

    rows = await store.stages([claim.id])
    assert [(row.key.name, row.result) for row in rows] == [("fetch", '"page"')]
    assert (await claimed(store)).stages > 0


async def test_only_a_failed_job_comes_back(store: Store) -> None:
    completed, running = await a_completed_job(store), await a_claim(store)
    queued, cancelled = await submitted(store, a_job(), a_job())
    await store.cancel(cancelled)

    for job_id in (completed.id, running.id, queued, cancelled):
        before = await store.get(job_id)
        with pytest.raises(StateRefused, match="only a failed job"):
            await store.retry(job_id)
        assert await store.get(job_id) == before


async def test_a_job_comes_back_once_for_two_clicks(store: Store) -> None:
    failed = await a_failed_job(store)
    await store.retry(failed.id)

    with pytest.raises(StateRefused):
        await store.retry(failed.id)

    assert len(await store.claim("worker", "default", limit=9, lease=LEASE)) == 1


async def test_a_foreign_job_is_not_there(store: Store) -> None:
    failed = await a_failed_job(store, a_job(owner="ada"))

    for owner in ("bob", ""):
        with pytest.raises(JobNotFound):
            await store.retry(failed.id, owner=owner)

    assert (await store.get(failed.id)).status is Status.FAILED


async def test_a_job_that_failed_without_a_word_comes_back_too(store: Store) -> None:
    claim = await a_claim(store)
    await store.settle("worker", [Finish(claim.id, claim.token, Status.FAILED)])

    job = await store.retry(claim.id)

    assert (job.status, job.generation) == (Status.QUEUED, 2)


async def test_a_request_to_cancel_does_not_follow_into_the_next_generation(store: Store) -> None:
    claim = await a_claim(store)
    await store.cancel(claim.id)
    await store.settle("worker", [Finish(claim.id, claim.token, Status.FAILED, failure=a_failure())])
    await store.retry(claim.id)

    assert not (await claimed(store)).cancel_requested


async def test_only_the_generation_that_was_seen_to_fail_is_retried(store: Store) -> None:
    failed = await a_failed_job(store)
    await store.retry(failed.id, generation=1)
    again = await claimed(store)
    end = Finish(again.id, again.token, Status.FAILED, failure=a_failure())
    await store.settle("worker", [end])

    with pytest.raises(StateRefused, match="generation 2 and not in 1"):
        await store.retry(failed.id, generation=1)

    assert (await store.get(failed.id)).status is Status.FAILED
    assert (await store.retry(failed.id, generation=2)).generation == 3
