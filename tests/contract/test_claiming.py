"""A claim takes ready jobs in order, each by one worker, and gives them a lease."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from holdfast import Status
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.jobs.transitions import fail
from holdfast.ports import Store
from tests.builders import a_failure, a_job
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import LEASE, LONG, a_claim, a_completed_job, a_failed_job, claimed, submitted


async def in_turn(store: Store, count: int) -> list[str]:
    """Claim one job after the other."""
    return [(await claimed(store)).id for _ in range(count)]


@pytest.mark.clause("JOB-2")
async def test_jobs_are_claimed_by_priority_and_then_oldest_first(store: Store) -> None:
    [old] = await submitted(store, a_job())
    low, first, second = await submitted(store, a_job(priority=-1), a_job(priority=5), a_job(priority=5))
    [young, high] = await submitted(store, a_job(), a_job(priority=32_767))

    assert await in_turn(store, 6) == [high, first, second, old, young, low]


@pytest.mark.clause("JOB-2")
async def test_a_batch_takes_the_first_in_line_and_no_more_than_asked(store: Store) -> None:
    ids = await submitted(store, *[a_job(priority=n) for n in range(5)])

    batch = await store.claim("worker", "default", limit=3, lease=LEASE)
    rest = await store.claim("worker", "default", limit=9, lease=LEASE)

    assert {claim.id for claim in batch} == set(ids[2:])
    assert {claim.id for claim in rest} == set(ids[:2])
    assert await store.claim("worker", "default", limit=9, lease=LEASE) == []


@pytest.mark.clause("JOB-2")
async def test_only_ready_jobs_of_the_queue_are_claimed(store: Store) -> None:
    await a_completed_job(store)
    await a_failed_job(store)
    await a_claim(store)
    cancelled, ready, *_ = await submitted(
        store, a_job(), a_job(), a_job(queue="other", priority=9), a_job(delay=LONG, priority=9)
    )
    await store.cancel(cancelled)

    claims = await store.claim("worker", "default", limit=10, lease=LEASE)

    assert [claim.id for claim in claims] == [ready]


@pytest.mark.clause("JOB-2")
async def test_a_parked_job_is_claimed_when_its_time_has_come_and_no_earlier(
    store: Store, clock: DatabaseClock
) -> None:
    [parked] = await submitted(store, a_job(delay=LONG))

    await clock.advance(LONG - timedelta(seconds=30))
    too_early = (await store.promote(limit=10)).promoted
    await clock.advance(timedelta(seconds=30))
    in_time = (await store.promote(limit=10)).promoted

    assert (too_early, in_time) == (0, 1)
    assert (await claimed(store)).id == parked


@pytest.mark.clause("JOB-2")
async def test_a_claim_writes_down_who_holds_the_job_and_for_how_long(
    store: Store, clock: DatabaseClock
) -> None:
    [job_id] = await submitted(store, a_job(owner="ada", args='{"n":1}'))
    before = await clock.now()

    [claim] = await store.claim("worker-7", "default", limit=1, lease=LEASE)

    job = await store.get(job_id)
    assert (claim.id, claim.name, claim.queue, claim.owner, claim.args) == (
        job_id,
        "greet",
        "default",
        "ada",
        '{"n":1}',
    )
    assert (claim.attempt, claim.generation, claim.losses, claim.stages) == (1, 1, 0, 0)
    assert not claim.cancel_requested
    assert claim.token == job.lease_token > 0
    assert (job.status, job.leased_by, job.attempt) == (Status.PROCESSING, "worker-7", 1)
    assert job.started_at is not None
    assert before < job.started_at <= await clock.now()
    assert job.started_at == job.last_attempt_at == job.updated_at
    assert job.lease_expires_at == job.started_at + LEASE


@pytest.mark.clause("JOB-2")
async def test_the_start_is_written_down_once(store: Store, clock: DatabaseClock) -> None:
    first = await a_claim(store)
    began = (await store.get(first.id)).started_at
    policy = RetryPolicy(3, Backoff.none())
    await store.settle("worker", [fail(first, a_failure(), policy, roll=0, attempt=1)])
    await clock.advance(LONG)
    await store.promote(limit=1)

    second = await claimed(store)

    job = await store.get(first.id)
    assert (second.attempt, second.token > first.token) == (2, True)
    assert job.started_at == began
    assert began is not None
    assert job.last_attempt_at is not None
    assert job.last_attempt_at >= began + LONG


@pytest.mark.clause("JOB-3")
async def test_many_claimers_at_once_never_get_the_same_job(database: Database, store: Store) -> None:
    ids = await submitted(store, *[a_job() for _ in range(400)])
    stores = [database.new_store() for _ in range(3)]
    for each in stores:
        await each.open()

    async def claim_all(each: Store, worker: str) -> list[str]:
        taken: list[str] = []
        while claims := await each.claim(worker, "default", limit=7, lease=LEASE):
            taken += [claim.id for claim in claims]
        return taken

    hands = await asyncio.gather(
        *[claim_all(each, f"{place}-{n}") for place, each in enumerate(stores) for n in range(4)]
    )

    assert Counter(job_id for hand in hands for job_id in hand) == Counter(ids)
    for each in stores:
        await each.close()


@pytest.mark.clause("JOB-3")
async def test_a_held_job_is_not_claimed_again_before_its_lease_is_over(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store)
    await clock.advance(LEASE - timedelta(seconds=30))

    assert await other_store.reclaim(limit=10) == []
    assert await other_store.claim("thief", "default", limit=1, lease=LEASE) == []
    assert (await store.get(claim.id)).leased_by == "worker"
