"""A job that may have taken its workers down waits without cost, and runs alone."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, JobHandle, Status
from holdfast.core.transitions import release
from holdfast.ports import Store
from tests.builders import a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, PATIENCE, a_claim, claimed, submitted

PAST_LEASE = LEASE + timedelta(seconds=1)


@pytest.mark.clause("JOB-10")
async def test_a_leased_job_can_wait_without_spending_its_attempt(store: Store, clock: DatabaseClock) -> None:
    waiting = await a_claim(store)

    assert await store.recount([(waiting.id, waiting.token, waiting.attempt - 1)]) == [True]

    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=1)
    again = await claimed(store)
    assert (again.attempt, again.losses) == (1, 1)


@pytest.mark.clause("JOB-6")
async def test_only_the_holder_of_the_lease_counts_attempts(store: Store, clock: DatabaseClock) -> None:
    stale = await a_claim(store)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=1)

    queued = await store.recount([(stale.id, stale.token + 1, 7)])
    holder = await claimed(store)
    counts = [(stale.id, stale.token, 7), (holder.id, holder.token, 2)]

    assert (queued, await store.recount(counts)) == ([False], [False, True])
    assert (await store.get(holder.id)).attempt == 2


@pytest.mark.clause("JOB-10")
async def test_a_job_that_was_not_begun_keeps_its_row_of_losses(store: Store, clock: DatabaseClock) -> None:
    await a_claim(store)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=1)
    waiting = await claimed(store)
    await store.recount([(waiting.id, waiting.token, 1)])

    await store.settle("worker", [release(waiting, "worker shut down")._replace(gives_back=False)])

    again = await claimed(store)
    assert (again.attempt, again.losses) == (2, 1)


@pytest.mark.clause("JOB-10")
async def test_a_suspect_runs_with_nobody_beside_it(hold: Holdfast, store: Store) -> None:
    running: set[int] = set()
    beside: dict[int, set[int]] = {}

    @hold.job("look around")
    async def look_around(number: int) -> None:
        running.add(number)
        beside[number] = set(running)
        for _ in range(50):  # long enough for the worker to claim more, if it did
            await asyncio.sleep(0.001)
            beside[number] |= running
        running.discard(number)

    suspects = await look_around.submit_many((number,) for number in range(3))
    for _ in range(2):
        await lose_their_leases(store, len(suspects))
    others = await look_around.submit_many((number,) for number in range(3, 9))
    async with hold.worker(poll=0.05, slots=10):
        await all_ended([*suspects, *others])

    assert [beside[number] for number in range(3)] == [{0}, {1}, {2}]
    assert [job.attempt for job in [await one.read() for one in suspects]] == [3, 3, 3]


@pytest.mark.clause("JOB-10")
async def test_a_job_that_lost_a_worker_in_each_of_its_attempts_fails_and_is_not_begun_again(
    hold: Holdfast, store: Store
) -> None:
    begun: list[int] = []

    @hold.job("deadly", attempts=3)
    async def deadly(number: int) -> None:
        begun.append(number)

    job = await deadly.submit(1)
    for _ in range(3):
        await lose_their_leases(store, 1)
    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=PATIENCE)

    assert failed.value.failure.error_class is ErrorClass.WORKER_LOST
    assert begun == []


@pytest.mark.clause("JOB-10")
async def test_a_shutdown_costs_waiting_suspects_nothing(hold: Holdfast, store: Store) -> None:
    begun = asyncio.Event()

    @hold.job("linger")
    async def linger(number: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    suspects = await linger.submit_many((number,) for number in range(3))
    for _ in range(2):
        await lose_their_leases(store, len(suspects))
    async with hold.worker(poll=0.05, slots=10, grace=0):
        async with asyncio.timeout(PATIENCE):
            await begun.wait()

    jobs = [await one.read() for one in suspects]
    assert [(job.status, job.attempt) for job in jobs] == [(Status.QUEUED, 2)] * 3
    assert [job.losses for job in jobs[1:]] == [2, 2]


async def test_there_may_be_nothing_to_count(store: Store) -> None:
    await submitted(store, a_job())

    assert await store.recount([]) == []


async def lose_their_leases(store: Store, count: int) -> None:
    """Claim as a worker does that is dead a moment later."""
    claims = await store.claim("dead", "default", limit=count, lease=timedelta(microseconds=1))
    assert len(claims) == count
    lost: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while len(lost) < count:
            lost += await store.reclaim(limit=count)


async def all_ended(jobs: list[JobHandle[None]]) -> None:
    for job in jobs:
        await job.result(timeout=PATIENCE)
