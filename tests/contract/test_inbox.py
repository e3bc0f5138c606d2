"""The inbox of a store: a message makes one job, however often it is received."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.errors import ConfigError, VersionRefused
from holdfast.core.jobs.job import Submission
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import complete
from holdfast.core.messages.announcements import AnnouncementKind, RenderedAnnouncement, bits_of
from holdfast.core.messages.dead_message import CONSUME, DeadMessage
from holdfast.core.messages.inbox import InboxAnswer, InboxItem, InboxOutcome
from holdfast.ports import Store
from holdfast.stores.postgres.store import PostgresStore
from tests.builders import a_failure, a_job
from tests.contract.conftest import Database, DatabaseClock

LEASE = timedelta(minutes=1)
NEW, REPEATED = InboxOutcome.NEW, InboxOutcome.REPEATED


def a_message(message_id: str = "m-1", says: str = "grade it", *, name: str = "grade") -> InboxItem:
    job = a_job(name=name, key=message_id, args=f'{{"text":"{says}"}}')
    return InboxItem(message_id, f"print of {says}", job._replace(fingerprint=f"print of {says}"))


def a_refused(message_id: str = "refused:1", job_id: str | None = None) -> InboxItem:
    dead = DeadMessage(job_id or a_job().id, CONSUME, '{"body":"{"}', a_failure())
    return InboxItem(message_id, message_id, dead)


async def jobs_of(store: Store) -> list[str]:
    return [claim.id for claim in await store.claim("w", "default", limit=100, lease=LEASE)]


@pytest.mark.clause("OUT-5")
@pytest.mark.clause("IDM-4")
async def test_a_message_that_is_received_a_hundred_times_makes_one_job(store: Store) -> None:
    answers: list[InboxAnswer] = []
    for _ in range(5):
        answers += await store.inbox.receive("grading", [a_message() for _ in range(20)])

    assert [answer.outcome for answer in answers] == [NEW] + [REPEATED] * 99
    assert {answer.job_id for answer in answers} == {answers[0].job_id}
    assert {answer.status for answer in answers[1:]} == {Status.QUEUED}
    assert await jobs_of(store) == [answers[0].job_id]


@pytest.mark.clause("OUT-5")
async def test_concurrent_receptions_of_one_message_make_one_job(store: Store, other_store: Store) -> None:
    received = await asyncio.gather(
        *(each.inbox.receive("grading", [a_message()]) for each in (store, other_store) for _ in range(10))
    )

    outcomes = [answer.outcome for [answer] in received]
    assert sorted(outcomes) == [NEW] + [REPEATED] * 19
    assert len(await jobs_of(store)) == 1


@pytest.mark.clause("OUT-5")
async def test_a_repeated_message_is_answered_with_the_state_of_its_job(store: Store) -> None:
    await store.inbox.receive("grading", [a_message("done"), a_message("open")])
    for claim in await store.claim("w", "default", limit=2, lease=LEASE):
        if "done" in (await store.keys_of([claim.id])).values():
            await store.settle("w", [complete(claim, "1")])

    done, still_open = await store.inbox.receive("grading", [a_message("done"), a_message("open")])

    assert (done.outcome, done.status) == (REPEATED, Status.COMPLETED)
    assert (still_open.outcome, still_open.status) == (REPEATED, Status.PROCESSING)


async def test_the_same_id_with_another_payload_is_a_conflict_and_the_original_stands(store: Store) -> None:
    [first] = await store.inbox.receive("grading", [a_message(says="one thing")])

    [other] = await store.inbox.receive("grading", [a_message(says="another")])

    assert (other.outcome, other.job_id) == (InboxOutcome.CONFLICT, first.job_id)
    assert await jobs_of(store) == [first.job_id]


async def test_two_payloads_under_one_id_in_one_batch_are_a_conflict_too(store: Store) -> None:
    first, other = await store.inbox.receive("grading", [a_message(says="one"), a_message(says="two")])

    assert first.outcome is NEW
    assert (other.outcome, other.job_id) == (InboxOutcome.CONFLICT, first.job_id)


async def test_after_the_purge_of_the_inbox_the_key_of_the_job_still_makes_it_once(
    store: Store, clock: DatabaseClock
) -> None:
    [first] = await store.inbox.receive("grading", [a_message()])
    await clock.advance(timedelta(days=15))

    assert await store.inbox.purge(older_than=timedelta(days=14), limit=10) == 1

    again, other = await store.inbox.receive("grading", [a_message(), a_message("m-2")])
    assert (again.outcome, again.job_id) == (REPEATED, first.job_id)
    assert other.outcome is NEW
    assert len(await jobs_of(store)) == 2


async def test_after_the_purge_another_payload_is_still_a_conflict(
    store: Store, clock: DatabaseClock
) -> None:
    [first] = await store.inbox.receive("grading", [a_message()])
    await clock.advance(timedelta(days=15))
    await store.inbox.purge(older_than=timedelta(days=14), limit=10)

    [other] = await store.inbox.receive("grading", [a_message(says="another")])

    assert (other.outcome, other.job_id) == (InboxOutcome.CONFLICT, first.job_id)
    [original] = await store.inbox.receive("grading", [a_message()])
    assert (original.outcome, original.job_id) == (REPEATED, first.job_id)


async def test_a_purge_keeps_what_is_young_and_deletes_no_more_than_its_limit(
    store: Store, clock: DatabaseClock
) -> None:
    await store.inbox.receive("grading", [a_message(f"m-{n}") for n in range(3)])
    await clock.advance(timedelta(days=15))
    await store.inbox.receive("grading", [a_message("young")])

    purged = [await store.inbox.purge(older_than=timedelta(days=14), limit=2) for _ in range(3)]

    assert purged == [2, 1, 0]


async def test_two_consumers_receive_the_same_message_each_for_its_own_job(store: Store) -> None:
    [one] = await store.inbox.receive("grading", [a_message()])
    [two] = await store.inbox.receive("audit", [a_message(name="audit")])

    assert (one.outcome, two.outcome) == (NEW, NEW)
    assert one.job_id != two.job_id


async def test_a_batch_whose_answer_was_lost_is_new_when_it_is_sent_again(store: Store) -> None:
    batch = [a_message("m-1"), a_refused(), a_message("m-2")]
    await store.inbox.receive("grading", batch)

    answers = await store.inbox.receive("grading", batch)

    assert [answer.outcome for answer in answers] == [NEW] * 3
    assert len(await jobs_of(store)) == 2


async def test_a_refused_message_becomes_a_dead_letter_with_the_others_of_its_batch(store: Store) -> None:
    refused = a_refused()

    answers = await store.inbox.receive("grading", [refused, a_message()])

    assert [answer.outcome for answer in answers] == [NEW, NEW]
    letter = await store.dead_letters.get(answers[0].job_id or "")
    assert letter.name == CONSUME
    assert len(await jobs_of(store)) == 1


async def test_a_refused_message_that_is_delivered_again_makes_no_second_letter(store: Store) -> None:
    await store.inbox.receive("grading", [a_refused()])

    [again] = await store.inbox.receive("grading", [a_refused()])

    assert again.outcome is REPEATED
    assert await store.dead_letters.counts() == {(CONSUME, "new"): 1}


async def test_a_message_without_work_is_recorded_once(store: Store) -> None:
    [first] = await store.inbox.receive("audit", [InboxItem("m-1", "print")])
    [again] = await store.inbox.receive("audit", [InboxItem("m-1", "print")])

    assert (first, again) == (InboxAnswer(NEW), InboxAnswer(REPEATED))


async def test_a_job_that_the_store_refuses_leaves_no_row_and_the_others_are_received(store: Store) -> None:
    versioned = a_message("m-1")
    assert isinstance(versioned.work, Submission)
    await store.submit([a_job(name="grade", subject="s", version=2)])
    too_old = versioned._replace(work=versioned.work._replace(subject="s", version=1))

    refused, other = await store.inbox.receive("grading", [too_old, a_message("m-2")])

    assert refused.outcome is InboxOutcome.FAILED
    assert isinstance(refused.error, VersionRefused)
    assert other.outcome is NEW
    [now] = await store.inbox.receive("grading", [a_message("m-1")])
    assert now.outcome is NEW


# What a consumer's function writes in the transaction.


async def make_table(store: Store) -> None:
    await run(store, "CREATE TABLE own_rows (message_id text)")


async def run(store: Store, sql: str) -> list[Any]:
    """Run a statement of the application, on a connection of the store."""
    if isinstance(store, PostgresStore):
        return list(await store._connections.fetch(sql))
    return list(await store._writer.write(lambda connection, _: connection.execute(sql).fetchall()))  # type: ignore[attr-defined]  # SQLite's


async def add_row(connection: Any, message_id: str) -> None:
    written = connection.execute(f"INSERT INTO own_rows (message_id) VALUES ('{message_id}')")
    if hasattr(written, "__await__"):
        await written


async def own_rows(store: Store) -> list[str]:
    return [row[0] for row in await run(store, "SELECT message_id FROM own_rows ORDER BY message_id")]


async def write_own_row(item: InboxItem, connection: Any) -> Submission | None:
    await add_row(connection, item.message_id)
    work = a_message(item.message_id).work
    assert isinstance(work, Submission)
    return work


def unmade(message_id: str) -> InboxItem:
    return a_message(message_id)._replace(work=None)


async def test_rows_of_the_consumer_are_committed_with_the_job(store: Store) -> None:
    await make_table(store)

    answers = await store.inbox.receive_with("grading", [unmade("m-1"), unmade("m-2")], write_own_row)

    assert [answer.outcome for answer in answers] == [NEW, NEW]
    assert await own_rows(store) == ["m-1", "m-2"]
    assert sorted(await jobs_of(store)) == sorted(answer.job_id or "" for answer in answers)


async def test_a_function_that_raises_takes_its_own_rows_back_and_no_others(store: Store) -> None:
    await make_table(store)

    async def fail_for_one(item: InboxItem, connection: Any) -> Submission | None:
        work = await write_own_row(item, connection)
        if item.message_id == "m-2":
            raise LookupError("no such submission")
        return work

    batch = [unmade("m-1"), unmade("m-2"), unmade("m-3")]
    answers = await store.inbox.receive_with("grading", batch, fail_for_one)

    assert [answer.outcome for answer in answers] == [NEW, InboxOutcome.FAILED, NEW]
    assert isinstance(answers[1].error, LookupError)
    assert await own_rows(store) == ["m-1", "m-3"]
    [later] = await store.inbox.receive_with("grading", [unmade("m-2")], write_own_row)
    assert later.outcome is NEW


async def test_a_function_is_not_called_for_a_repeated_message(store: Store) -> None:
    await make_table(store)
    [first] = await store.inbox.receive_with("grading", [unmade("m-1")], write_own_row)

    [again] = await store.inbox.receive_with("grading", [unmade("m-1")], write_own_row)

    assert (again.outcome, again.job_id) == (REPEATED, first.job_id)
    assert await own_rows(store) == ["m-1"]


async def test_rows_of_the_consumer_are_rolled_back_if_an_earlier_job_has_the_key(
    store: Store, clock: DatabaseClock
) -> None:
    await make_table(store)
    [first] = await store.inbox.receive_with("grading", [unmade("m-1")], write_own_row)
    await clock.advance(timedelta(days=15))
    await store.inbox.purge(older_than=timedelta(days=14), limit=10)

    [again] = await store.inbox.receive_with("grading", [unmade("m-1")], write_own_row)

    assert (again.outcome, again.job_id) == (REPEATED, first.job_id)
    assert await own_rows(store) == ["m-1"]


async def test_a_statement_that_fails_in_the_function_is_the_failure_of_its_message_alone(
    store: Store,
) -> None:
    await make_table(store)

    async def fail_in_sql(item: InboxItem, connection: Any) -> Submission | None:
        if item.message_id == "m-1":
            return await write_own_row(item._replace(message_id="it's broken"), connection)
        return await write_own_row(item, connection)

    answers = await store.inbox.receive_with("grading", [unmade("m-1"), unmade("m-2")], fail_in_sql)

    assert [answer.outcome for answer in answers] == [InboxOutcome.FAILED, NEW]
    assert await own_rows(store) == ["m-2"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_function_cannot_end_the_transaction_that_it_shares(database: Database, store: Store) -> None:
    await make_table(store)

    async def commit_too_early(item: InboxItem, connection: Any) -> Submission | None:
        work = await write_own_row(item, connection)
        connection.commit()
        return work

    [answer] = await store.inbox.receive_with("grading", [unmade("m-1")], commit_too_early)

    assert isinstance(answer.error, ConfigError)
    assert await own_rows(store) == []


# The answer to a message whose job has ended is announced again.


async def announced(store: Store) -> list[tuple[str, str, int]]:
    """Take the announcements that are due, as a worker does, and publish them."""
    taken = await store.announcements.take(["grade"], limit=9, lease=LEASE)
    await store.announcements.publish([RenderedAnnouncement(each, ()) for each in taken])
    return [(each.job_id, each.kind, each.again) for each in taken]


@pytest.mark.clause("OUT-5")
async def test_a_repeated_message_of_an_ended_job_requests_its_announcement_again(store: Store) -> None:
    loud = a_message("loud")
    assert isinstance(loud.work, Submission)
    announcing = loud._replace(work=loud.work._replace(announces=bits_of([AnnouncementKind.COMPLETED])))
    await store.inbox.receive("grading", [a_message("quiet"), announcing])
    await store.inbox.receive("grading", [a_message("quiet"), a_message("loud")])
    in_progress = await announced(store)
    for claim in await store.claim("w", "default", limit=2, lease=LEASE):
        await store.settle("w", [complete(claim, "1")])
    ended = await announced(store)

    await store.inbox.receive("grading", [a_message("loud"), a_message("loud"), a_message("quiet")])
    repeated = await announced(store)
    await store.inbox.receive("grading", [a_message("loud", says="another")])
    contradicted = await announced(store)

    assert in_progress == contradicted == []
    assert ended == [(loud.job_id, "completed", 0)]
    assert repeated == [(loud.job_id, "completed", 1)]
