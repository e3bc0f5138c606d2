"""A submission is stored when its submitter gets an answer, and waits until its time."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast, Job, JobFilter, Status
from holdfast.core.jobs.job import Receipt
from holdfast.errors import ConfigError
from holdfast.ports import Hint, HintKind, Store
from tests.builders import a_job
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import LEASE, LONG, a_claim, a_completed_job, a_failed_job, claimed, submitted

HOUR = timedelta(hours=1)


@pytest.mark.clause("JOB-1")
async def test_a_job_is_stored_for_all_processes_when_submit_returns(
    store: Store, other_store: Store
) -> None:
    await store.submit([a_job(args='{"name":"Ada"}', priority=3, owner="ada", queue="mail")])

    [seen] = await other_store.claim("elsewhere", "mail", limit=1, lease=LEASE)
    assert (seen.name, seen.owner, seen.args) == ("greet", "ada", '{"name":"Ada"}')


@pytest.mark.clause("JOB-1")
async def test_a_job_outlives_the_store_it_was_submitted_through(database: Database) -> None:
    first = database.new_store()
    await first.open()
    [job_id] = await submitted(first, a_job())
    await first.close()

    second = database.new_store()
    await second.open()

    assert (await second.get(job_id)).status is Status.QUEUED
    await second.close()


async def test_a_new_job_has_no_past(store: Store, clock: DatabaseClock) -> None:
    before = await clock.now()
    [job_id] = await submitted(
        store, a_job(name="review", queue="slow", owner="ada", priority=-3, args='{"n":1}')
    )

    job = await store.get(job_id)
    assert before < job.created_at <= await clock.now()
    assert job == Job(
        id=job_id,
        name="review",
        queue="slow",
        owner="ada",
        status=Status.QUEUED,
        priority=-3,
        attempt=0,
        generation=1,
        lease_token=0,
        losses=0,
        created_at=job.created_at,
        queued_at=job.created_at,
        updated_at=job.created_at,
        args='{"n":1}',
    )


async def test_a_batch_is_answered_in_its_order(store: Store) -> None:
    batch = [a_job(), a_job(key="one"), a_job(), a_job(key="one"), a_job(key="two"), a_job()]

    answers = await store.submit(batch)

    expected = [Receipt(job.id) for job in batch]
    expected[3] = Receipt(batch[1].id, existing=True)
    assert answers == expected


async def test_no_submissions_are_no_jobs(store: Store) -> None:
    assert await store.submit([]) == []
    assert await store.queues.counts() == {}


async def test_a_submission_that_is_sent_again_makes_no_second_job(store: Store) -> None:
    batch = [a_job(), a_job(key="k"), a_job(subject="s", version=1), a_job(key="l", subject="t", version=1)]
    await store.submit(batch[:3])

    answers = await store.submit(batch, again=True)

    assert answers == [Receipt(job.id) for job in batch]
    assert await store.queues.counts() == {("default", Status.QUEUED): 4}


async def test_a_submission_sent_again_is_known_when_its_job_has_ended(store: Store) -> None:
    first = a_job()
    await a_completed_job(store, first)

    assert await store.submit([first], again=True) == [Receipt(first.id)]
    assert (await store.get(first.id)).status is Status.COMPLETED


async def test_a_version_sent_again_is_known_when_a_later_one_has_come_between(store: Store) -> None:
    first = a_job(subject="s", version=1)
    await submitted(store, first, a_job(subject="s", version=2, rerun=True))

    assert await store.submit([first], again=True) == [Receipt(first.id)]


async def test_a_delayed_job_is_ready_when_its_time_has_come(store: Store, clock: DatabaseClock) -> None:
    [job_id] = await submitted(store, a_job(delay=HOUR))
    parked = await store.get(job_id)

    early = await store.promote(limit=10)
    taken_early = await store.claim("worker", "default", limit=1, lease=LEASE)
    await clock.advance(HOUR)
    late = await store.promote(limit=10)

    assert parked.retry_after == parked.created_at + HOUR
    assert (early.promoted, taken_early) == (0, [])
    assert early.next_due is not None
    assert timedelta(minutes=59) < early.next_due <= HOUR
    assert late == (1, None)
    assert (await claimed(store)).id == job_id


async def test_a_job_for_an_instant_waits_for_it(store: Store, clock: DatabaseClock) -> None:
    at = await clock.now() + HOUR
    [job_id] = await submitted(store, a_job(run_at=at))

    assert (await store.get(job_id)).retry_after == at
    await clock.advance(HOUR)
    assert (await store.promote(limit=10)).promoted == 1


async def test_an_instant_in_the_past_is_now(store: Store, clock: DatabaseClock) -> None:
    [job_id] = await submitted(store, a_job(run_at=await clock.now() - HOUR))

    assert (await claimed(store)).id == job_id


async def test_parked_jobs_become_ready_in_batches_the_longest_due_first(
    store: Store, clock: DatabaseClock
) -> None:
    ids = await submitted(store, *[a_job(delay=timedelta(minutes=n)) for n in (3, 1, 2)])
    await clock.advance(LONG)

    first = await store.promote(limit=2)

    ready = {claim.id for claim in await store.claim("worker", "default", limit=10, lease=LEASE)}
    assert (first.promoted, ready) == (2, {ids[1], ids[2]})
    assert await store.promote(limit=2) == (1, None)


async def test_nothing_is_lost_from_the_counts(store: Store) -> None:
    await a_completed_job(store)
    await a_failed_job(store)
    retried = await a_failed_job(store)
    await a_claim(store)
    await store.retry(retried.id)
    cancelled, *_ = await submitted(store, a_job(), a_job(delay=HOUR), a_job(queue="slow"))
    await store.cancel(cancelled)

    counts = await store.queues.counts()

    assert counts == {
        ("default", Status.COMPLETED): 1,
        ("default", Status.FAILED): 1,
        ("default", Status.CANCELLED): 1,
        ("default", Status.PROCESSING): 1,
        ("default", Status.QUEUED): 2,
        ("slow", Status.QUEUED): 1,
    }
    assert sum(counts.values()) == len(await store.find(JobFilter()))


@pytest.mark.parametrize("priority", [-32_769, 32_768])
async def test_a_priority_beyond_the_scale_is_refused_by_every_store(hold: Holdfast, priority: int) -> None:
    with pytest.raises(ConfigError, match="priority"):
        hold.job("urgent", priority=priority)(lambda: None)


async def test_a_hint_goes_out_with_a_submission(store: Store) -> None:
    received: asyncio.Queue[Hint] = asyncio.Queue()
    unsubscribe = store.listen(received.put_nowait)

    async with asyncio.timeout(20):
        while True:  # a listener that is only just connecting misses the first ones
            await store.submit([a_job(queue="mail")])
            if Hint(HintKind.READY, "mail") == await received.get():
                break
    unsubscribe()


@pytest.mark.parametrize("count", [2, 600, 4_500])
async def test_a_bulk_submission_keeps_every_job_its_order_and_its_time(
    store: Store, clock: DatabaseClock, count: int
) -> None:
    at = await clock.now() + 2 * HOUR
    later = [a_job(args='{"n":1}', delay=HOUR), a_job(run_at=at, subject="s", version=None, owner="ada")]
    plain = [a_job(args=f'{{"n":{n}}}') for n in range(count)]

    await store.submit([*plain, *(job._replace(subject=None) for job in later)])

    seen = await store.claim("worker", "default", limit=count + 10, lease=LONG)
    assert [claim.id for claim in seen] == [job.id for job in plain]
    parked, scheduled = [await store.get(job.id) for job in later]
    assert parked.retry_after == parked.created_at + HOUR
    assert scheduled.retry_after == at
