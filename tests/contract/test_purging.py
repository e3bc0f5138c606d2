"""Jobs, plans, keys and tickets that ended long ago are deleted in time, and nothing that is still needed."""

import pytest

from holdfast import Status
from holdfast.core.dead_letters.letter import discard
from holdfast.core.errors import PlanStale
from holdfast.core.jobs.transitions import complete
from holdfast.errors import JobNotFound
from holdfast.ports import Store
from tests.builders import a_job, a_stage
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import a_claim, a_completed_job, claimed, submitted
from tests.contract.stored_letters import (
    DAY,
    a_letter,
    a_plan,
    a_replay,
    archived,
    changed,
    completed,
    ended,
    failed,
    moved,
    planned,
    replayed,
)


async def test_jobs_that_ended_long_ago_are_purged_with_all_that_belongs_to_them(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(key="k1"))
    await store.signal(claim.id, "go", '"now"')
    await store.settle("worker", [a_stage(claim, "fetch"), complete(claim, '"done"')])
    [cancelled] = await submitted(store, a_job())
    await store.cancel(cancelled)
    await clock.advance(31 * DAY)
    recent = await a_completed_job(store)
    [queued] = await submitted(store, a_job())

    assert await store.retention.purge_finished(older_than=30 * DAY, limit=9) == 2

    with pytest.raises(JobNotFound):
        await store.get(cancelled)
    assert (await store.get(claim.id)).purged_at is not None
    assert await store.stages([claim.id]) == []
    assert await store.signals([claim.id]) == []
    for job_id in (recent.id, queued):
        assert (await store.get(job_id)).id == job_id
    assert await store.retention.purge_finished(older_than=30 * DAY, limit=9) == 0


async def test_no_more_are_purged_at_once_than_asked_for(store: Store, clock: DatabaseClock) -> None:
    for _ in range(5):
        await a_completed_job(store)
    await clock.advance(31 * DAY)

    purged = [await store.retention.purge_finished(older_than=30 * DAY, limit=2) for _ in range(4)]

    assert purged == [2, 2, 1, 0]


@pytest.mark.parametrize(
    "job_id",
    [
        "00000000-0000-7000-8000-000000000001",
        "7c9e6679-7425-40de-944b-e07fc1f90ae7",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    ],
)
async def test_jobs_are_purged_whose_id_does_not_contain_their_time(
    store: Store, clock: DatabaseClock, job_id: str
) -> None:
    await a_completed_job(store, a_job()._replace(id=job_id))
    await clock.advance(31 * DAY)

    assert await store.retention.purge_finished(older_than=30 * DAY, limit=9) == 1


@pytest.mark.clause("DLQ-3")
async def test_no_job_is_purged_that_has_a_letter(store: Store, clock: DatabaseClock) -> None:
    dead, verified = [await a_letter(store) for _ in range(2)]
    await completed(store, await a_replay(store, verified))
    await ended(store)
    await clock.advance(365 * DAY)

    assert await store.retention.purge_finished(older_than=30 * DAY, limit=9) == 0

    assert (await store.get(dead)).status is Status.FAILED
    await archived(store, verified)
    assert await store.retention.purge_finished(older_than=30 * DAY, limit=9) == 1


@pytest.mark.clause("DLQ-3")
async def test_no_failed_job_is_purged_even_if_it_failed_before_there_were_letters(
    store: Store, database: Database, clock: DatabaseClock
) -> None:
    job_id = await a_letter(store)
    await changed(database, "DELETE FROM :dead_letters")
    await clock.advance(365 * DAY)

    assert await store.retention.purge_finished(older_than=30 * DAY, limit=9) == 0

    assert (await store.get(job_id)).status is Status.FAILED


async def test_plans_are_purged_that_have_ended_long_ago_and_have_no_letters(
    store: Store, clock: DatabaseClock
) -> None:
    gone, kept, running = [await a_letter(store) for _ in range(3)]
    plans = [a_plan(1, "gone"), a_plan(1, "kept"), a_plan(1, "running")]
    for job_id, plan in zip((gone, kept, running), plans, strict=True):
        await planned(store, job_id, plan=plan)
    await moved(store, running, discard("no longer needed", actor="ada"))
    await replayed(store, plans[2])
    await archived(store, gone)
    assert await store.retention.purge_plans(older_than=30 * DAY, limit=9) == 0
    await clock.advance(31 * DAY)

    assert await store.retention.purge_plans(older_than=30 * DAY, limit=0) == 0
    assert await store.retention.purge_plans(older_than=30 * DAY, limit=9) == 1

    with pytest.raises(PlanStale):
        await store.replay_plans.get("gone")
    for plan in plans[1:]:
        assert (await store.replay_plans.get(plan.token)).token == plan.token


async def test_no_job_is_purged_that_another_waits_for(store: Store, clock: DatabaseClock) -> None:
    parent = await a_claim(store)
    child = await a_claim(store)
    await store.await_jobs(parent.id, parent.token, [child.id])
    await store.settle("worker", [complete(child, '"done"')])
    await clock.advance(31 * DAY)

    assert await store.retention.purge_finished(older_than=30 * DAY, limit=9) == 0

    assert await store.wake(limit=9) == 1
    assert await store.retention.purge_finished(older_than=30 * DAY, limit=9) == 1


async def test_keys_are_purged_when_they_are_old_and_their_jobs_are_gone(
    store: Store, clock: DatabaseClock
) -> None:
    await a_completed_job(store, a_job(key="k1"))
    await a_completed_job(store, a_job(subject="essay-1", version=1))
    [queued] = await submitted(store, a_job(key="k2"))
    await submitted(store, a_job(key="k3", queue="other"))
    letter = (await failed(store, await claimed(store, queue="other"))).id
    await clock.advance(100 * DAY)
    assert await store.retention.purge_keys(older_than=90 * DAY, limit=9) == 0

    await store.retention.purge_finished(older_than=30 * DAY, limit=9)
    assert await store.retention.purge_keys(older_than=200 * DAY, limit=9) == 0
    assert await store.retention.purge_keys(older_than=90 * DAY, limit=1) == 1
    assert await store.retention.purge_keys(older_than=90 * DAY, limit=9) == 1

    again = await store.submit([a_job(key="k1"), a_job(key="k2"), a_job(key="k3")])
    assert [answer.existing for answer in again] == [False, True, True]  # type: ignore[union-attr]
    assert [answer.id for answer in again[1:]] == [queued, letter]  # type: ignore[union-attr]


async def test_tickets_are_purged_that_were_notified_long_ago_and_have_no_letter(
    store: Store, clock: DatabaseClock
) -> None:
    kept = await a_letter(store)
    for kind in ("notified", "pending"):
        await store.tickets.raise_alarm(kind, {})
    tickets = await store.tickets.take(limit=9, lease=DAY)
    [mine] = [ticket.id for ticket in tickets if ticket.job_id == kept]
    [notified, pending] = [ticket.id for ticket in tickets if ticket.job_id is None]
    await store.tickets.mark_notified([mine, notified])
    assert await store.retention.purge_tickets(older_than=30 * DAY, limit=9) == 0
    await clock.advance(31 * DAY)

    assert await store.retention.purge_tickets(older_than=30 * DAY, limit=0) == 0
    assert await store.retention.purge_tickets(older_than=30 * DAY, limit=9) == 1

    assert [ticket.id for ticket in await store.tickets.take(limit=9, lease=DAY)] == [pending]
    await archived(store, kept)
    assert await store.retention.purge_tickets(older_than=30 * DAY, limit=9) == 0, "it went with its letter"
