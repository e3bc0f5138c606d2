"""Letters that are old or too many leave for an archive, and the store forgets only what was archived as it is."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from holdfast import ErrorClass, Status
from holdfast.core.dead_letters.letter import Cause, LetterFilter, LetterState, triage
from holdfast.core.jobs.transitions import complete
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.stores.letter_rows import EVENT, JOB, KEY, LETTER, RESULTS, SIGNAL, STAGE, STEP, VERSION
from tests.builders import a_job
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import a_claim, claimed
from tests.contract.stored_letters import (
    DAY,
    a_failure_at,
    a_letter,
    a_plan,
    a_replay,
    a_rich_letter,
    archived,
    completed,
    failed,
    moved,
    planned,
    replayed,
    seen,
    state_of,
    to_archive,
)


async def letters_a_day_apart(store: Store, clock: DatabaseClock, count: int) -> list[str]:
    """Let jobs fail, one each day; the last one now."""
    ids = []
    for _ in range(count):
        await clock.advance(DAY)
        ids.append(await a_letter(store))
    return ids


async def columns_of(url: str, table: str) -> set[str]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return {row[1] for row in connection.execute(f"PRAGMA table_info(holdfast_{table})")}
    server = await asyncpg.connect(url)
    try:
        rows = await server.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'holdfast' AND table_name = $1",
            table,
        )
        return {row[0] for row in rows}
    finally:
        await server.close()


@pytest.mark.clause("DLQ-3")
async def test_letters_are_archived_that_are_old_the_oldest_first(store: Store, clock: DatabaseClock) -> None:
    ids = await letters_a_day_apart(store, clock, 4)

    assert await to_archive(store, older_than=1.5 * DAY) == ids[:2]
    assert await to_archive(store, older_than=1.5 * DAY, limit=1) == ids[:1]
    assert await to_archive(store, older_than=30 * DAY) == []
    assert await to_archive(store) == []


@pytest.mark.clause("DLQ-3")
async def test_letters_are_archived_that_are_beyond_the_number_that_is_kept(
    store: Store, clock: DatabaseClock
) -> None:
    ids = await letters_a_day_apart(store, clock, 4)

    assert await to_archive(store, beyond=3) == ids[:1]
    assert await to_archive(store, beyond=1) == ids[:3]
    assert await to_archive(store, beyond=4) == []
    assert await to_archive(store, beyond=3, older_than=1.5 * DAY) == ids[:2]

    await archived(store, *await to_archive(store, beyond=2))
    assert [letter.job_id for letter in await store.dead_letters.find(LetterFilter())] == [ids[3], ids[2]]
    assert await to_archive(store, beyond=2) == []


@pytest.mark.clause("DLQ-3")
async def test_no_letter_is_archived_while_it_is_replayed_or_its_plan_runs(
    store: Store, clock: DatabaseClock
) -> None:
    ids = await letters_a_day_apart(store, clock, 3)
    under_way, next_in_line, idle = ids
    running = await planned(store, under_way, next_in_line)
    await planned(store, idle, plan=a_plan(1, "plan-2"))
    assert await replayed(store, running, take=1) == [under_way]
    await clock.advance(30 * DAY)

    assert await to_archive(store, older_than=DAY) == [idle]
    assert await to_archive(store, beyond=1) == []

    row = await store.replay_plans.get(running.token)
    await store.replay_plans.advance(row, running)
    assert await to_archive(store, older_than=DAY) == [next_in_line, idle]
    await completed(store, await claimed(store))
    assert await to_archive(store, older_than=DAY) == ids


async def test_no_letter_is_archived_whose_job_another_waits_for(store: Store, clock: DatabaseClock) -> None:
    parent = await a_claim(store)
    child = await a_claim(store)
    await store.await_jobs(parent.id, parent.token, [child.id])
    await failed(store, child)
    await clock.advance(30 * DAY)
    assert await to_archive(store, older_than=DAY) == []

    assert await store.wake(limit=9) == 1

    assert await to_archive(store, older_than=DAY) == [child.id]


async def test_a_failure_makes_a_letter_young_again_and_a_step_does_not(
    store: Store, clock: DatabaseClock
) -> None:
    job_id = await a_letter(store)
    await clock.advance(10 * DAY)
    await moved(store, job_id, triage(Cause.DATA, actor="ada"))
    assert await to_archive(store, older_than=7 * DAY) == [job_id]

    await store.retry(job_id)
    await failed(store, await claimed(store))

    assert await to_archive(store, older_than=7 * DAY) == []


async def test_a_record_has_every_column_of_its_tables(store: Store, database: Database) -> None:
    """A column that is added later, and forgotten here, would be lost by archiving and restoring."""
    records = {
        "dead_letters": {*LETTER, "kept_since"},
        "letter_steps": {*STEP, "job_id", "seq"},
        "finished": {*JOB, *RESULTS},
        "stages": {*STAGE, "job_id"},
        "job_events": {*EVENT, "job_id", "seq"},
        "signals": {*SIGNAL, "job_id"},
        "job_keys": {*KEY, "job_id"},
        "job_versions": {*VERSION, "job_id"},
    }

    assert {table: await columns_of(database.url, table) for table in records} == records


@pytest.mark.clause("DLQ-3")
async def test_what_belongs_to_users_is_in_the_private_part_of_a_record(
    store: Store, clock: DatabaseClock
) -> None:
    job_id = await a_rich_letter(store, clock)

    [record] = await store.retention.letter_records([job_id])

    private = record.pop("private")
    assert (private["args"], private["original_args"]) == ('{"n":2}', '{"n":1}')
    assert [row["result"] for row in private["stages"]] == ['"page"', '"pagé"', None]
    assert [row["data"] for row in private["signals"]] == ['"now"']
    assert [(row["owner"], row["name"], row["key"]) for row in private["keys"]] == [("ada", "review", "k1")]
    assert private["versions"] == []
    assert sorted(record) == ["events", "job", "letter", "steps"]
    assert "pag" not in json.dumps(record)
    assert record["letter"]["escalated"] is False
    assert record["letter"]["corrected"] is True
    assert record["letter"]["last_failure_at"].endswith("+00:00")


@pytest.mark.clause("DLQ-3")
async def test_a_late_result_that_comes_after_the_archiving_keeps_its_letter_from_being_deleted(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(deadline=DAY))
    await clock.advance(2 * DAY)
    assert await store.expire(limit=1) == [claim.id]
    archived_as = await seen(store, claim.id)

    assert await store.settle("worker", [complete(claim, '"tardy"')]) == [Settled.LATE]

    assert await store.retention.delete_letters(archived_as) == []
    assert (await store.accept_late(claim.id, meta="{}")).result == '"tardy"'


async def test_of_letters_that_are_not_there_is_no_record(store: Store) -> None:
    job_id = await a_letter(store)

    records = await store.retention.letter_records([a_job().id, job_id])

    assert [record["letter"]["job_id"] for record in records] == [job_id]


@pytest.mark.clause("DLQ-3")
async def test_a_letter_that_has_changed_since_it_was_seen_is_not_forgotten(store: Store) -> None:
    changed, same = [await a_letter(store) for _ in range(2)]
    looked = await seen(store, changed, same)
    await moved(store, changed, triage(Cause.DATA, actor="ada"))

    assert await store.retention.delete_letters(looked) == [same]

    assert (await store.get(changed)).status is Status.FAILED
    assert await state_of(store, changed) is LetterState.TRIAGED


@pytest.mark.clause("DLQ-3")
async def test_a_letter_that_is_replayed_is_not_forgotten(store: Store) -> None:
    job_id = await a_letter(store)
    await a_replay(store, job_id)

    assert await store.retention.delete_letters(await seen(store, job_id)) == []

    assert await state_of(store, job_id) is LetterState.REPLAYING


@pytest.mark.clause("DLQ-3")
async def test_a_letter_whose_plan_has_begun_since_it_was_seen_is_not_forgotten(
    store: Store, other_store: Store
) -> None:
    job_id = await a_letter(store)
    plan = await planned(store, job_id)
    looked = await other_store.retention.letters_to_archive(older_than=timedelta(0), beyond=None, limit=9)
    assert looked == await seen(store, job_id)

    assert await replayed(store, plan, take=0) == []

    assert await seen(store, job_id) == looked  # nothing but the plan has changed
    assert await other_store.retention.delete_letters(looked) == []
    assert await replayed(store, plan) == [job_id]


async def test_a_letter_whose_job_another_waits_for_is_not_forgotten(store: Store) -> None:
    parent = await a_claim(store)
    child = await a_claim(store)
    await store.await_jobs(parent.id, parent.token, [child.id])
    await failed(store, child)

    assert await store.retention.delete_letters(await seen(store, child.id)) == []

    assert await store.wake(limit=9) == 1
    assert await store.retention.delete_letters(await seen(store, child.id)) == [child.id]


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_was_never_notified_outlives_its_letter_and_has_all_its_facts(
    store: Store,
) -> None:
    failure = a_failure_at("shop:pay", ErrorClass.NOT_FOUND, "no such card")
    paged = replace(failure, context={**failure.context, "level": "page"})
    job_id = await a_letter(store, a_job(name="pay"), failure=paged)
    notified = await a_letter(store)
    await store.tickets.mark_notified([f"{notified}:1"])

    await archived(store, job_id, notified)

    [ticket] = await store.tickets.take(limit=9, lease=DAY)
    assert (ticket.id, ticket.job_id) == (f"{job_id}:1", job_id)
    facts = {
        "title": "job pay failed: no such card",
        "level": "page",
        "name": "pay",
        "error_class": "NOT_FOUND",
        "first_reason": "NOT_FOUND",
    }
    assert {name: ticket.facts[name] for name in facts} == facts


@pytest.mark.clause("DLQ-4")
async def test_a_job_that_outlived_its_letter_raises_a_ticket_when_it_fails_again(store: Store) -> None:
    job_id = await a_letter(store)
    await store.retry(job_id)
    await archived(store, job_id)
    [ticket] = await store.tickets.take(limit=9, lease=DAY)
    await store.tickets.mark_logged([ticket.id])
    await store.tickets.mark_notified([ticket.id])

    await failed(store, await claimed(store))

    [again] = await store.tickets.take(limit=9, lease=DAY)
    assert (again.job_id, dict(again.facts), again.logged) == (job_id, {}, False)


async def test_nothing_is_left_of_a_letter_that_was_forgotten(store: Store, clock: DatabaseClock) -> None:
    job_id = await a_rich_letter(store, clock)
    await store.tickets.mark_notified([f"{job_id}:1"])

    await archived(store, job_id)

    assert await store.dead_letters.steps(job_id) == []
    assert await store.dead_letters.original_args(job_id) is None
    assert await store.tickets.take(limit=9, lease=DAY) == []
    assert await store.queues.counts() == {}
    assert await store.retention.purge_finished(older_than=timedelta(0), limit=9) == 0


async def test_the_key_of_a_job_that_was_archived_is_still_taken(store: Store) -> None:
    job_id = await a_letter(store, a_job(key="k1"))
    await archived(store, job_id)

    [answer] = await store.submit([a_job(key="k1")])

    assert (answer.id, answer.existing) == (job_id, True)  # type: ignore[union-attr]
