"""Every end of a job that announces it leaves an announcement in the same write, also that of a sweep; so does a retry."""

from datetime import timedelta

import pytest

from holdfast import Status
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import cancel, complete, end_failed, fail, release, time_out
from holdfast.core.messages.announcements import (
    AnnouncementKind,
    PendingAnnouncement,
    RenderedAnnouncement,
    bits_of,
)
from holdfast.core.messages.outbox import NewMessage
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.wiring.system import SystemIds
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.outbox_rows import outbox_rows
from tests.contract.steps import LEASE, a_claim, a_failed_job, claimed, submitted
from tests.contract.stored_letters import DAY, archived, to_archive

ALL = bits_of(AnnouncementKind)
MINUTE = timedelta(minutes=1)
POLICY = RetryPolicy(5, Backoff.none())
NAMES = ["greet"]


async def taken(store: Store, *, limit: int = 10) -> list[PendingAnnouncement]:
    return await store.announcements.take(NAMES, limit=limit, lease=MINUTE)


async def kinds(store: Store) -> list[tuple[str, int, int]]:
    """Take all announcements, in order, and publish them without messages; return kind, generation and attempt."""
    found = []
    while batch := await taken(store):
        found += [(row.kind.value, row.generation, row.attempt) for row in batch]
        await store.announcements.publish([RenderedAnnouncement(row, ()) for row in batch])
    return found


async def a_retry(store: Store, claim: Claim) -> Claim:
    """Let an attempt fail, and claim the job again."""
    change = fail(claim, a_failure(), POLICY, roll=0, attempt=1)
    assert await store.settle("worker", [change]) == [Settled.WRITTEN]
    await store.promote(limit=10)
    return await claimed(store)


def a_message(row: PendingAnnouncement, number: int = 0) -> NewMessage:
    return NewMessage(SystemIds().job_id(), "greet", row.job_id, "greeted", "{}", key=row.message_key(number))


async def test_a_completed_job_announces_it(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store, a_job(announces=ALL))

    await store.settle("worker", [complete(claim, '"done"')])

    [row] = await taken(store)
    assert (row.job_id, row.name, row.kind) == (claim.id, "greet", AnnouncementKind.COMPLETED)
    assert (row.generation, row.attempt, row.again, row.tries, row.failure) == (1, 1, 0, 1, None)
    assert row.at == (await store.get(claim.id)).finished_at


@pytest.mark.clause("GRD-5")
async def test_a_failed_job_announces_its_failure(store: Store) -> None:
    claim = await a_claim(store, a_job(announces=ALL))

    await store.settle("worker", [end_failed(claim, a_failure(message="no luck"))])

    [row] = await taken(store)
    assert row.kind is AnnouncementKind.FAILED
    assert row.failure is not None
    assert "no luck" in row.failure


async def test_a_job_that_its_worker_cancels_announces_it(store: Store) -> None:
    claim = await a_claim(store, a_job(announces=ALL))
    await store.cancel(claim.id)

    await store.settle("worker", [cancel(claim)])

    assert await kinds(store) == [("cancelled", 1, 1)]


async def test_a_queued_job_that_is_cancelled_announces_it(store: Store) -> None:
    [job_id] = await submitted(store, a_job(announces=ALL))

    assert await store.cancel(job_id) is Status.CANCELLED

    assert await kinds(store) == [("cancelled", 1, 0)]


@pytest.mark.clause("SLA-2")
async def test_a_sweep_that_knows_no_code_announces_that_jobs_have_timed_out(
    store: Store, clock: DatabaseClock
) -> None:
    running = await a_claim(store, a_job(announces=ALL, deadline=MINUTE))
    [queued] = await submitted(store, a_job(announces=ALL, deadline=MINUTE))
    await clock.advance(2 * MINUTE)

    assert sorted(await store.expire(limit=10)) == sorted([running.id, queued])

    found = {row.job_id: (row.kind.value, row.attempt) for row in await taken(store)}
    assert found == {running.id: ("timed_out", 1), queued: ("timed_out", 0)}


@pytest.mark.clause("SLA-3")
@pytest.mark.parametrize("end", [complete, end_failed, time_out], ids=["result", "failure", "deadline"])
async def test_a_settled_job_past_its_deadline_announces_that_it_has_timed_out(
    store: Store, clock: DatabaseClock, end: object
) -> None:
    claim = await a_claim(store, a_job(announces=ALL, deadline=MINUTE))
    await clock.advance(2 * MINUTE)

    change = {
        complete: lambda: complete(claim, '"late"'),
        end_failed: lambda: end_failed(claim, a_failure()),
        time_out: lambda: time_out(claim),
    }[end]()  # type: ignore[index]
    assert await store.settle("worker", [change]) == [Settled.TIMED_OUT]

    assert await kinds(store) == [("timed_out", 1, 1)]


async def test_a_late_result_that_is_accepted_is_announced_as_completed(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(announces=ALL, deadline=MINUTE))
    await clock.advance(2 * MINUTE)
    await store.settle("worker", [complete(claim, '"late"')])

    await store.accept_late(claim.id, meta="{}")

    assert await kinds(store) == [("timed_out", 1, 1), ("completed", 1, 1)]


@pytest.mark.clause("GRD-5")
async def test_each_retry_is_announced_with_its_failure_even_after_a_stored_stage(store: Store) -> None:
    claim = await a_claim(store, a_job(announces=ALL))
    claim = await a_retry(store, claim)
    assert claim.attempt == 2
    await store.settle("worker", [a_stage(claim)])  # attempts count from one again
    claim = await a_retry(store, claim)

    await store.settle("worker", [complete(claim, '"done"')])

    [first] = await taken(store)
    assert first.failure is not None
    assert "no luck" in first.failure
    await store.announcements.publish([RenderedAnnouncement(first, ())])
    assert (first.kind.value, first.attempt) == ("retrying", 1)
    assert await kinds(store) == [("retrying", 1, 2), ("completed", 1, 3)]


async def test_a_job_that_is_released_or_reclaimed_announces_nothing(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(announces=ALL))
    await store.settle("worker", [release(claim, "worker shut down")])
    await claimed(store)
    await clock.advance(2 * LEASE)
    await store.reclaim(limit=10)

    assert await kinds(store) == []


async def test_a_job_announces_what_it_was_submitted_with_and_nothing_else(store: Store) -> None:
    completes = bits_of([AnnouncementKind.COMPLETED])
    first, second, third = await submitted(
        store, a_job(announces=completes), a_job(announces=ALL - completes), a_job()
    )
    claims = await store.claim("worker", "default", limit=10, lease=LEASE)
    by_id = {claim.id: claim for claim in claims}
    await store.settle("worker", [end_failed(by_id[first], a_failure())])
    await store.settle("worker", [complete(by_id[second], "1"), complete(by_id[third], "2")])

    assert await kinds(store) == []


async def test_a_replayed_job_announces_its_new_generation(store: Store) -> None:
    claim = await a_failed_job(store, a_job(announces=ALL))
    await store.retry(claim.id)

    again = await claimed(store)
    await store.settle("worker", [complete(again, '"done"')])

    assert await kinds(store) == [("failed", 1, 1), ("completed", 2, 1)]


async def test_announcements_of_one_job_are_taken_in_order(store: Store, clock: DatabaseClock) -> None:
    claim = await a_retry(store, await a_claim(store, a_job(announces=ALL)))
    await store.settle("worker", [complete(claim, '"done"')])
    [first] = await taken(store)

    await store.announcements.postpone(first, timedelta(hours=1))
    await clock.advance(30 * MINUTE)

    assert first.kind is AnnouncementKind.RETRYING
    assert await taken(store) == []
    await clock.advance(31 * MINUTE)
    assert await kinds(store) == [("retrying", 1, 1), ("completed", 1, 2)]


async def test_an_announcement_belongs_to_one_worker_until_its_lease_ends(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(announces=ALL))
    await store.settle("worker", [complete(claim, '"done"')])

    [slow] = await taken(store)
    assert await taken(other_store) == []
    await clock.advance(2 * MINUTE)
    [quick] = await taken(other_store)

    assert (slow.tries, quick.tries) == (1, 2)
    assert await store.announcements.publish([RenderedAnnouncement(slow, (a_message(slow),))]) == 0
    assert await other_store.announcements.publish([RenderedAnnouncement(quick, (a_message(quick),))]) == 1


async def test_only_announcements_of_known_jobs_are_taken(store: Store) -> None:
    claim = await a_claim(store, a_job(name="other", announces=ALL))
    await store.settle("worker", [complete(claim, '"done"')])

    assert await taken(store) == []
    assert len(await store.announcements.take(["other"], limit=10, lease=MINUTE)) == 1


@pytest.mark.clause("OUT-1")
async def test_messages_and_the_end_of_their_announcement_are_one_write(
    store: Store, database: Database, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(announces=ALL))
    await store.settle("worker", [complete(claim, '"done"')])
    [crashed] = await taken(store)
    await clock.advance(2 * MINUTE)
    [row] = await taken(store)
    rendered = RenderedAnnouncement(row, (a_message(row), a_message(row, 1)))

    first = await store.announcements.publish([rendered])
    repeated = await store.announcements.publish([rendered])
    late = await store.announcements.publish([RenderedAnnouncement(crashed, (a_message(crashed),))])

    assert (first, repeated, late) == (1, 0, 0)
    stored = await outbox_rows(database)
    assert [message["key"] for message in stored] == [row.message_key(0), row.message_key(1)]
    assert await taken(store) == []


async def test_a_message_whose_key_is_there_is_not_stored_again(store: Store, database: Database) -> None:
    claim = await a_claim(store, a_job(announces=ALL))
    await store.settle("worker", [complete(claim, '"done"')])
    [row] = await taken(store)

    twice = RenderedAnnouncement(row, (a_message(row), a_message(row)))
    await store.announcements.publish([twice])

    assert len(await outbox_rows(database)) == 1


@pytest.mark.clause("OUT-5")
async def test_the_end_of_a_job_is_announced_again_when_asked(store: Store, database: Database) -> None:
    claim = await a_claim(store, a_job(announces=ALL))
    before = await store.announcements.again(claim.id)
    await store.settle("worker", [complete(claim, '"done"')])
    pending = await store.announcements.again(claim.id)
    sent = []

    for _ in range(3):
        batch = await taken(store)
        sent += [(row.kind.value, row.attempt, row.again) for row in batch]
        await store.announcements.publish([RenderedAnnouncement(row, (a_message(row),)) for row in batch])
        assert await store.announcements.again(claim.id)

    assert (before, pending) == (False, True)
    assert sent == [("completed", 1, 0), ("completed", 1, 1), ("completed", 1, 2)]
    assert len(await outbox_rows(database)) == 3


async def test_an_end_that_is_not_announced_is_not_announced_again(store: Store) -> None:
    silent = await a_claim(store, a_job())
    await store.settle("worker", [complete(silent, '"done"')])
    failing = await a_claim(store, a_job(announces=bits_of([AnnouncementKind.COMPLETED])))
    await store.settle("worker", [end_failed(failing, a_failure())])

    assert not await store.announcements.again(silent.id)
    assert not await store.announcements.again(failing.id)
    assert await taken(store) == []


@pytest.mark.clause("DLQ-3")
async def test_a_job_that_is_restored_from_the_archive_announces_its_replay_and_not_its_restore(
    store: Store,
) -> None:
    failed = await a_failed_job(store, a_job(announces=ALL))
    assert await kinds(store) == [("failed", 1, 1)]
    records = await archived(store, failed.id)

    assert await store.retention.restore_letters(records) == [failed.id]
    restored = await kinds(store)
    await store.retry(failed.id)
    await store.settle("worker", [complete(await claimed(store), '"done"')])

    assert restored == []
    assert await kinds(store) == [("completed", 2, 1)]


async def test_a_job_is_neither_archived_nor_deleted_before_its_end_is_announced(
    store: Store, clock: DatabaseClock
) -> None:
    failed = await a_claim(store, a_job(announces=ALL))
    await store.settle("worker", [end_failed(failed, a_failure())])
    await store.settle("worker", [complete(await a_claim(store, a_job(announces=ALL)), "1")])
    await clock.advance(10 * DAY)

    assert await to_archive(store, older_than=DAY) == []
    assert await store.retention.purge_finished(older_than=DAY, limit=10) == 0

    await kinds(store)
    assert await to_archive(store, older_than=DAY) == [failed.id]
    assert await store.retention.purge_finished(older_than=DAY, limit=10) == 1
