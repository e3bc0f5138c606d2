"""A key outlives its job's history: as long as it is taken, the job's end is there, and says that the rest was purged."""

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast import JobFilter, Status
from holdfast.core.jobs.job import Receipt
from holdfast.core.jobs.transitions import complete
from holdfast.errors import JobNotFound, StateRefused
from holdfast.ports import Store
from tests.builders import a_job, a_stage
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import a_claim, a_completed_job, submitted
from tests.contract.stored_letters import a_letter, changed, seen

DAY = timedelta(days=1)

BY = pytest.mark.parametrize(
    "what",
    [
        {"key": "k1"},
        {"subject": "essay-1", "version": 3},
        {"key": "k1", "subject": "essay-1", "version": 3},
    ],
    ids=["key", "version", "both"],
)


async def purge(store: Store) -> None:
    """Purge as the archiver does by default."""
    await store.retention.purge_finished(older_than=30 * DAY, limit=99)
    await store.retention.purge_keys(older_than=90 * DAY, limit=99)


@pytest.mark.clause("IDM-2")
@BY
async def test_the_result_of_a_job_lives_as_long_as_its_key(
    store: Store, clock: DatabaseClock, what: dict[str, Any]
) -> None:
    done = await a_completed_job(store, a_job(owner="ada", **what), result='"done"')
    await clock.advance(60 * DAY)
    await purge(store)

    [answer] = await store.submit([a_job(owner="ada", **what)])

    assert answer == Receipt(done.id, existing=True)
    job = await store.get(done.id, owner="ada")
    assert (job.status, job.result, job.args) == (Status.COMPLETED, '"done"', "")
    assert job.purged_at is not None
    [end] = await store.ends([done.id])
    assert (end.status, end.result) == (Status.COMPLETED, '"done"')
    assert await store.await_ends([done.id]) == [done.id]
    with pytest.raises(JobNotFound):
        await store.get(done.id, owner="bob")


@pytest.mark.clause("IDM-2")
@BY
async def test_a_key_and_what_is_left_of_its_job_go_together(
    store: Store, clock: DatabaseClock, what: dict[str, Any]
) -> None:
    done = await a_completed_job(store, a_job(**what))
    await clock.advance(60 * DAY)
    await purge(store)
    await clock.advance(31 * DAY)
    await purge(store)

    with pytest.raises(JobNotFound):
        await store.get(done.id)
    new = a_job(**what)
    assert await store.submit([new]) == [Receipt(new.id)]


@pytest.mark.clause("IDM-2")
@BY
async def test_the_time_of_a_key_counts_from_the_end_of_its_job(
    store: Store, clock: DatabaseClock, what: dict[str, Any]
) -> None:
    claim = await a_claim(store, a_job(**what))
    await clock.advance(100 * DAY)
    await purge(store)
    await store.settle("worker", [complete(claim, '"done"')])
    for _ in range(2):
        await clock.advance(40 * DAY)
        await purge(store)

        [answer] = await store.submit([a_job(**what)])

        assert answer == Receipt(claim.id, existing=True)
        assert (await store.get(claim.id)).result == '"done"'

    await clock.advance(11 * DAY)
    await purge(store)
    new = a_job(**what)
    assert await store.submit([new]) == [Receipt(new.id)]


async def test_a_job_without_a_key_leaves_nothing(store: Store, clock: DatabaseClock) -> None:
    done = await a_completed_job(store)
    await clock.advance(31 * DAY)
    await purge(store)

    with pytest.raises(JobNotFound):
        await store.get(done.id)
    assert await store.find(JobFilter()) == []


async def test_what_is_left_is_listed_and_its_history_says_that_it_was_purged(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(name="review", key="k1", owner="ada", queue="default"))
    await store.signal(claim.id, "go", "1")
    await store.settle("worker", [a_stage(claim, "fetch"), complete(claim, '"done"')])
    await clock.advance(31 * DAY)
    await purge(store)
    [young] = await submitted(store, a_job())

    assert [job.id for job in await store.find(JobFilter())] == [young, claim.id]
    for filtered in (
        JobFilter(status=Status.COMPLETED),
        JobFilter(name="review", status=Status.COMPLETED),
        JobFilter(owner="ada", queue="default", before=young),
    ):
        [job] = await store.find(filtered)
        assert (job.id, job.purged_at is not None) == (claim.id, True)
    assert await store.find(JobFilter(status=Status.FAILED)) == []
    assert [event.kind for event in await store.events(claim.id)] == ["queued", "completed", "purged"]
    assert await store.stages([claim.id]) == []
    assert await store.signals([claim.id]) == []


async def test_a_job_sent_again_after_a_lost_answer_is_known_by_what_is_left_of_it(
    store: Store, clock: DatabaseClock
) -> None:
    job = a_job(key="k1")
    await a_completed_job(store, job)
    await clock.advance(31 * DAY)
    await purge(store)

    assert await store.submit([job], again=True) == [Receipt(job.id)]

    assert (await store.get(job.id)).status is Status.COMPLETED


@pytest.mark.clause("DLQ-3")
async def test_a_failed_job_that_was_archived_is_not_retried_but_restored(store: Store) -> None:
    job_id = await a_letter(store, a_job(key="k1"))
    looked = await seen(store, job_id)
    records = json.loads(json.dumps(await store.retention.letter_records([job_id])))
    await store.retention.delete_letters(looked)
    job = await store.get(job_id)
    assert (job.status, job.purged_at is not None) == (Status.FAILED, True)
    assert job.failure is not None

    with pytest.raises(StateRefused, match="restore it from the archive"):
        await store.retry(job_id)

    assert await store.retention.restore_letters(records) == [job_id]
    assert (await store.get(job_id)).purged_at is None
    assert (await store.retry(job_id)).status is Status.QUEUED
    assert [found.id for found in await store.find(JobFilter())] == [job_id]


async def test_the_key_of_what_a_living_job_submitted_stays(store: Store, clock: DatabaseClock) -> None:
    [parent] = await submitted(store, a_job(queue="other"))
    child = await a_completed_job(store, a_job(key=f"{parent}:1"))
    other = await a_completed_job(store, a_job(key="k1"))
    await clock.advance(100 * DAY)
    await purge(store)

    assert (await store.get(child.id)).result == '"done"'
    with pytest.raises(JobNotFound):
        await store.get(other.id)

    await store.cancel(parent)
    await purge(store)
    with pytest.raises(JobNotFound):
        await store.get(child.id)


async def test_keys_that_were_left_without_a_stub_by_an_earlier_version_are_purged_by_their_own_age(
    store: Store, database: Database, clock: DatabaseClock
) -> None:
    for number in range(5):
        await a_completed_job(store, a_job(key=f"k{number}"))
        await a_completed_job(store, a_job(subject=f"s{number}", version=1))
    await clock.advance(100 * DAY)
    await store.retention.purge_finished(older_than=30 * DAY, limit=99)
    await changed(database, "DELETE FROM :job_stubs")

    assert await store.retention.purge_keys(older_than=101 * DAY, limit=99) == 0
    purged = [await store.retention.purge_keys(older_than=90 * DAY, limit=4) for _ in range(4)]

    assert purged == [4, 4, 2, 0]
