"""A ready job of a fleet's queue is dispatched once at a time, and claimed by the worker that its dispatch reaches."""

from datetime import timedelta

import pytest

from holdfast import Status
from holdfast.core.jobs.transitions import complete
from holdfast.ports import Store
from tests.builders import a_job
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import LEASE, LONG, submitted

RESEND = timedelta(seconds=30)
MOMENT = timedelta(seconds=1)


async def taken(store: Store, *, limit: int = 10, queue: str = "default") -> list[str]:
    """Return the jobs that are to be dispatched now."""
    batch = await store.dispatches.take(queue, limit=limit, resend=RESEND)
    return [dispatch.job_id for dispatch in batch.dispatches]


async def test_ready_jobs_are_dispatched_by_priority_and_then_oldest_first_and_once(store: Store) -> None:
    low, first, second = await submitted(store, a_job(priority=-1), a_job(), a_job())
    [high] = await submitted(store, a_job(priority=9))

    assert set(await taken(store)) == {high, first, second, low}
    assert await taken(store) == []


async def test_at_most_so_many_dispatches_are_outstanding(store: Store) -> None:
    ids = await submitted(store, *[a_job(priority=-n) for n in range(5)])

    batch = await store.dispatches.take("default", limit=2, resend=RESEND)
    full = await store.dispatches.take("default", limit=2, resend=RESEND)

    assert {dispatch.job_id for dispatch in batch.dispatches} == set(ids[:2])
    assert (batch.outstanding, full.dispatches, full.outstanding) == (2, [], 2)
    await store.dispatches.claim("worker", ids[:1], lease=LEASE)
    assert await taken(store, limit=2) == [ids[2]]


async def test_jobs_that_are_not_ready_or_of_a_paused_queue_are_not_dispatched(store: Store) -> None:
    await submitted(store, a_job(delay=LONG), a_job(queue="other"))
    [paused] = await submitted(store, a_job())
    await store.queues.pause("default", actor="ann", reason="")

    assert await taken(store) == []
    await store.queues.resume("default")
    assert await taken(store) == [paused]


async def test_a_lost_dispatch_is_sent_again_each_time_after_twice_as_long(
    store: Store, clock: DatabaseClock
) -> None:
    [job] = await submitted(store, a_job())
    assert await taken(store) == [job]

    for wait in (RESEND, 2 * RESEND, 4 * RESEND, 8 * RESEND, 8 * RESEND):
        await clock.advance(wait - MOMENT)
        assert await taken(store) == []
        await clock.advance(2 * MOMENT)
        assert await taken(store) == [job]


async def test_a_dispatch_that_could_not_be_sent_is_taken_again(store: Store) -> None:
    [job] = await submitted(store, a_job())
    await taken(store)

    await store.dispatches.withdraw([job])

    assert await taken(store) == [job]


async def test_two_dispatchers_do_not_dispatch_the_same_job(database: Database, store: Store) -> None:
    ids = await submitted(store, *[a_job() for _ in range(4)])
    other = database.new_store()
    await other.open()

    try:
        first, second = await taken(store, limit=2), await taken(other, limit=4)
    finally:
        await other.close()

    assert sorted(first + second) == sorted(ids)


@pytest.mark.clause("JOB-3")
async def test_a_dispatch_claims_its_own_job_once(store: Store) -> None:
    first, second = await submitted(store, a_job(priority=9), a_job())
    await taken(store)

    [claim] = await store.dispatches.claim("worker", [second], lease=LEASE)

    assert (claim.id, claim.attempt, claim.token % 2) == (second, 1, 1)
    assert await store.dispatches.claim("other", [second], lease=LEASE) == []
    await store.settle("worker", [complete(claim, "1")])
    assert await store.dispatches.claim("other", [second], lease=LEASE) == []
    assert (await store.get(first)).status is Status.QUEUED


async def test_a_dispatch_that_arrives_for_a_job_that_cannot_be_taken_does_nothing(store: Store) -> None:
    parked, paused, cancelled = await submitted(
        store, a_job(delay=LONG), a_job(queue="paused"), a_job(queue="other")
    )
    await store.queues.pause("paused", actor="ann", reason="")
    await store.cancel(cancelled)
    absent = "00000000-0000-7000-8000-000000000000"

    assert await store.dispatches.claim("worker", [parked, paused, cancelled, absent], lease=LEASE) == []


async def test_a_dispatch_that_arrived_for_a_paused_queue_is_sent_again_once_it_is_resumed(
    store: Store,
) -> None:
    [job] = await submitted(store, a_job())
    await taken(store)
    await store.queues.pause("default", actor="ann", reason="")
    assert await store.dispatches.claim("worker", [job], lease=LEASE) == []

    await store.queues.resume("default")

    assert await taken(store) == [job]


@pytest.mark.clause("JOB-10")
async def test_the_lease_of_a_dead_process_can_be_made_to_expire_and_no_other(store: Store) -> None:
    [job] = await submitted(store, a_job())
    [claim] = await store.dispatches.claim("dead", [job], lease=LEASE)

    assert not await store.dispatches.expire_lease(job, "another")
    assert await store.reclaim(limit=10) == []
    assert await store.dispatches.expire_lease(job, "dead")
    assert await store.reclaim(limit=10) == [job]

    [again] = await store.dispatches.claim("alive", [job], lease=LEASE)
    assert again.token > claim.token
    assert again.suspected
