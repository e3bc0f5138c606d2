"""What has ended leaves in time, letters into an archive first; what comes back is as it was."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import ErrorClass, Status
from holdfast.core.dead_letters.letter import Cause, LetterFilter, LetterState, close, discard, triage
from holdfast.core.errors import LetterNotFound, PlanStale
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.transitions import Finish, complete, fail
from holdfast.errors import JobNotFound
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.stores.letter_rows import EVENT, JOB, KEY, LETTER, RESULTS, SIGNAL, STAGE, STEP, VERSION
from tests.builders import a_failure, a_job, a_stage
from tests.contract.burials import (
    REPAIR,
    a_failure_at,
    a_letter,
    a_plan,
    a_replay,
    changed,
    completed,
    ended,
    failed,
    moved,
    planned,
    replayed,
    seen,
    state_of,
)
from tests.contract.conftest import Database, DatabaseClock, SqliteFile
from tests.contract.steps import a_claim, a_completed_job, claimed, submitted

DAY = timedelta(days=1)
POLICY = RetryPolicy(3, Backoff.none())


async def to_archive(
    store: Store, *, older_than: timedelta | None = None, beyond: int | None = None, limit: int = 99
) -> list[str]:
    found = await store.retention.letters_to_archive(older_than=older_than, beyond=beyond, limit=limit)
    assert found == await seen(store, *[job_id for job_id, _ in found])
    return [job_id for job_id, _ in found]


async def letters_a_day_apart(store: Store, clock: DatabaseClock, count: int) -> list[str]:
    """Let jobs fail, one each day; the last one now."""
    ids = []
    for _ in range(count):
        await clock.advance(DAY)
        ids.append(await a_letter(store))
    return ids


async def archived(store: Store, *job_ids: str) -> list[dict[str, Any]]:
    """Take letters out of the store, and give their records as an archive keeps them."""
    looked = await seen(store, *job_ids)
    records = await store.retention.letter_records(job_ids)
    assert sorted(await store.retention.forget_letters(looked)) == sorted(job_ids)
    kept: list[dict[str, Any]] = json.loads(json.dumps(records))
    return kept


async def a_rich_letter(store: Store, clock: DatabaseClock) -> str:
    """Let a job fail that has all there is: stages, signals, a history, and other arguments by now."""
    claim = await a_claim(store, a_job(name="review", owner="ada", args='{"n":1}', key="k1", deadline=DAY))
    await store.signal(claim.id, "go", '"now"', actor="bob")
    await store.settle(
        "worker",
        [
            a_stage(claim, "fetch", result='"pagé"')._replace(brief_fingerprint="brief"),
            a_stage(claim, "count"),  # stored second, at the same moment: its number says so
            a_stage(claim, "llm", status=StageStatus.STARTED),
            fail(claim, a_failure(), POLICY, roll=0, attempt=1, stage="llm"),
        ],
    )
    await clock.advance(timedelta(minutes=1))
    await store.promote(limit=9)
    again = await claimed(store)
    stages = [a_stage(again, "llm", status=StageStatus.FAILED, attempt=2)]
    await failed(store, again, a_failure_at("shop:review"), *stages, stage="llm")
    await moved(store, claim.id, *REPAIR, args='{"n":2}')
    return claim.id


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


async def whole(store: Store, job_id: str) -> list[object]:
    """Read all that a store tells of a letter and its job, but for ages and the letter's version, which grow."""
    stages = [row._replace(age=0.0) for row in await store.stages([job_id])]
    return [
        replace(await store.dead_letters.get(job_id), version=0),
        await store.dead_letters.steps(job_id),
        await store.dead_letters.original_args(job_id),
        await store.get(job_id),
        await store.events(job_id),
        stages,
        await store.signals([job_id]),
    ]


@pytest.mark.clause("DLQ-3")
async def test_letters_are_archived_that_are_old_the_oldest_first(store: Store, clock: DatabaseClock) -> None:
    ids = await letters_a_day_apart(store, clock, 4)

    assert await to_archive(store, older_than=1.5 * DAY) == ids[:2]
    assert await to_archive(store, older_than=1.5 * DAY, limit=1) == ids[:1]
    assert await to_archive(store, older_than=30 * DAY) == []
    assert await to_archive(store) == []


@pytest.mark.clause("DLQ-3")
async def test_letters_are_archived_that_are_beyond_the_newest_so_many(
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


@pytest.mark.clause("DLQ-3")
async def test_what_was_archived_comes_back_as_it_was(store: Store, clock: DatabaseClock) -> None:
    job_id = await a_rich_letter(store, clock)
    before = await whole(store, job_id)
    [record] = await archived(store, job_id)
    with pytest.raises(LetterNotFound):
        await store.dead_letters.get(job_id)
    assert (await store.get(job_id)).purged_at is not None
    assert await store.stages([job_id]) == []
    assert await store.signals([job_id]) == []
    await clock.advance(30 * DAY)

    assert await store.retention.restore_letters([record]) == [job_id]

    assert await whole(store, job_id) == before


async def test_an_archive_of_an_earlier_version_comes_back_without_what_it_did_not_know(
    store: Store, clock: DatabaseClock
) -> None:
    job_id = await a_rich_letter(store, clock)
    before = await store.stages([job_id])
    [record] = await archived(store, job_id)
    for stage in record["private"]["stages"]:
        del stage["brief_fingerprint"], stage["number"]

    assert await store.retention.restore_letters([record]) == [job_id]

    without = [row._replace(brief_fingerprint="", age=0.0) for row in before]
    assert [row._replace(age=0.0) for row in await store.stages([job_id])] == without


async def test_a_record_has_every_column_of_its_tables(store: Store, database: Database) -> None:
    """A column that is added later, and forgotten here, would be lost on the way through the archive."""
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
async def test_what_one_store_has_archived_comes_back_in_another(
    store: Store, clock: DatabaseClock, tmp_path: Path
) -> None:
    job_id = await a_rich_letter(store, clock)
    before = await whole(store, job_id)
    other = SqliteFile(str(tmp_path / "other.db")).new_store()
    await other.open()
    try:
        assert await other.retention.restore_letters(await archived(store, job_id)) == [job_id]
        assert await whole(other, job_id) == before

        assert await store.retention.restore_letters(await archived(other, job_id)) == [job_id]
        assert await whole(store, job_id) == before
    finally:
        await other.close()


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
async def test_a_late_result_is_archived_too(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store, a_job(deadline=DAY))
    await clock.advance(2 * DAY)
    assert await store.settle("worker", [complete(claim, '"tardy"')]) == [Settled.TIMED_OUT]
    before = await whole(store, claim.id)

    records = await archived(store, claim.id)
    assert "tardy" not in json.dumps({**records[0], "private": None})
    await store.retention.restore_letters(records)

    assert await whole(store, claim.id) == before
    assert (await store.accept_late(claim.id, meta="{}")).result == '"tardy"'


@pytest.mark.clause("DLQ-3")
async def test_a_late_result_that_comes_after_the_archiving_keeps_its_letter_from_being_deleted(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store, a_job(deadline=DAY))
    await clock.advance(2 * DAY)
    assert await store.expire(limit=1) == [claim.id]
    archived_as = await seen(store, claim.id)

    assert await store.settle("worker", [complete(claim, '"tardy"')]) == [Settled.LATE]

    assert await store.retention.forget_letters(archived_as) == []
    assert (await store.accept_late(claim.id, meta="{}")).result == '"tardy"'


@pytest.mark.clause("DLQ-3")
async def test_restoring_again_changes_nothing(store: Store) -> None:
    job_id = await a_letter(store)
    records = await store.retention.letter_records([job_id])
    before = await whole(store, job_id)
    assert await store.retention.restore_letters(records) == []
    assert await whole(store, job_id) == before

    await archived(store, job_id)
    assert await store.retention.restore_letters([*records, *records]) == [job_id]
    assert await store.retention.restore_letters(records) == []
    assert await whole(store, job_id) == before


@pytest.mark.clause("DLQ-3")
async def test_whoever_has_seen_a_letter_before_it_was_archived_cannot_delete_it_when_it_is_back(
    store: Store, other_store: Store
) -> None:
    job_id = await a_letter(store)
    looked = await other_store.retention.letters_to_archive(older_than=timedelta(0), beyond=None, limit=9)
    await other_store.retention.letter_records([job_id])
    assert looked == [(job_id, 1)]

    await store.retention.restore_letters(await archived(store, job_id))

    assert await other_store.retention.forget_letters(looked) == []
    assert (await store.get(job_id)).status is Status.FAILED
    assert await seen(store, job_id) == [(job_id, 2)]


async def test_a_job_that_lives_is_not_overwritten(store: Store) -> None:
    job_id = await a_letter(store)
    records = await store.retention.letter_records([job_id])
    await store.retry(job_id)
    assert await store.retention.forget_letters(await seen(store, job_id)) == [job_id]
    before = await store.get(job_id)

    assert await store.retention.restore_letters(records) == []

    assert await store.get(job_id) == before
    with pytest.raises(LetterNotFound):
        await store.dead_letters.get(job_id)


@pytest.mark.clause("DLQ-3")
async def test_a_worker_that_held_a_job_before_it_was_archived_can_write_nothing(store: Store) -> None:
    claim = await a_claim(store)
    await failed(store, claim)
    await store.retention.restore_letters(await archived(store, claim.id))

    again = await a_replay(store, claim.id)

    assert again.token > claim.token
    assert again.generation == 2
    end = Finish(claim.id, claim.token, Status.FAILED, failure=a_failure())
    assert await store.settle("worker", [end]) == [Settled.FENCED]


async def test_what_was_restored_raises_no_ticket_and_is_kept_as_long_as_a_new_letter(
    store: Store, clock: DatabaseClock
) -> None:
    job_id = await a_letter(store)
    await store.tickets.mark_notified([f"{job_id}:1"])
    await clock.advance(30 * DAY)

    await store.retention.restore_letters(await archived(store, job_id))

    assert await store.tickets.take(limit=9, lease=DAY) == []
    assert await to_archive(store, older_than=7 * DAY) == []
    await clock.advance(8 * DAY)
    assert await to_archive(store, older_than=7 * DAY) == [job_id]


async def test_a_restored_job_that_fails_again_raises_a_ticket(store: Store) -> None:
    job_id = await a_letter(store)
    await store.tickets.mark_notified([f"{job_id}:1"])
    await store.retention.restore_letters(await archived(store, job_id))

    await failed(store, await a_replay(store, job_id))

    [ticket] = await store.tickets.take(limit=9, lease=DAY)
    assert ticket.id == f"{job_id}:2"


async def test_a_letter_that_was_validated_has_to_be_validated_again(store: Store) -> None:
    job_id = await a_letter(store)
    plan = await planned(store, job_id)

    await store.retention.restore_letters(await archived(store, job_id))

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.plan, letter.cause) == (LetterState.REMEDIATED, None, Cause.DATA)
    assert await replayed(store, plan) == []


@pytest.mark.clause("DLQ-3")
async def test_a_letter_whose_job_has_completed_leaves_alone(store: Store) -> None:
    job_id = await a_letter(store)
    await completed(store, await a_replay(store, job_id))
    await moved(store, job_id, close("all is well", actor="ada"))
    await ended(store)
    letter, steps = await store.dead_letters.get(job_id), await store.dead_letters.steps(job_id)

    [record] = await archived(store, job_id)

    assert "job" not in record
    assert (await store.get(job_id)).status is Status.COMPLETED
    assert await store.retention.restore_letters([record]) == [job_id]
    restored = await store.dead_letters.get(job_id)
    assert (restored.state, restored.notes, restored.version) == (
        letter.state,
        letter.notes,
        letter.version + 1,
    )
    assert await store.dead_letters.steps(job_id) == steps


async def test_of_letters_that_are_not_there_is_no_record(store: Store) -> None:
    job_id = await a_letter(store)

    records = await store.retention.letter_records([a_job().id, job_id])

    assert [record["letter"]["job_id"] for record in records] == [job_id]


@pytest.mark.clause("DLQ-3")
async def test_a_letter_that_has_changed_since_it_was_seen_is_not_forgotten(store: Store) -> None:
    changed, same = [await a_letter(store) for _ in range(2)]
    looked = await seen(store, changed, same)
    await moved(store, changed, triage(Cause.DATA, actor="ada"))

    assert await store.retention.forget_letters(looked) == [same]

    assert (await store.get(changed)).status is Status.FAILED
    assert await state_of(store, changed) is LetterState.TRIAGED


@pytest.mark.clause("DLQ-3")
async def test_a_letter_that_is_replayed_is_not_forgotten(store: Store) -> None:
    job_id = await a_letter(store)
    await a_replay(store, job_id)

    assert await store.retention.forget_letters(await seen(store, job_id)) == []

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
    assert await other_store.retention.forget_letters(looked) == []
    assert await replayed(store, plan) == [job_id]


async def test_a_letter_whose_job_another_waits_for_is_not_forgotten(store: Store) -> None:
    parent = await a_claim(store)
    child = await a_claim(store)
    await store.await_jobs(parent.id, parent.token, [child.id])
    await failed(store, child)

    assert await store.retention.forget_letters(await seen(store, child.id)) == []

    assert await store.wake(limit=9) == 1
    assert await store.retention.forget_letters(await seen(store, child.id)) == [child.id]


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_nobody_was_told_of_outlives_its_letter_and_has_all_there_is_to_tell(
    store: Store,
) -> None:
    failure = a_failure_at("shop:pay", ErrorClass.NOT_FOUND, "no such card")
    paged = replace(failure, context={**failure.context, "level": "page"})
    job_id = await a_letter(store, a_job(name="pay"), failure=paged)
    told = await a_letter(store)
    await store.tickets.mark_notified([f"{told}:1"])

    await archived(store, job_id, told)

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
async def test_a_ticket_that_outlived_its_letter_is_there_when_that_comes_back(store: Store) -> None:
    job_id = await a_letter(store)

    await store.retention.restore_letters(await archived(store, job_id))

    [ticket] = await store.tickets.take(limit=9, lease=DAY)
    assert ticket.id == f"{job_id}:1"


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


BY = pytest.mark.parametrize(
    "what",
    [
        {"key": "k1"},
        {"subject": "essay-1", "version": 3},
        {"key": "k1", "subject": "essay-1", "version": 3},
    ],
    ids=["key", "version", "both"],
)


@pytest.mark.clause("DLQ-3")
@BY
async def test_nothing_runs_twice_for_the_key_of_a_job_that_was_restored(
    store: Store, clock: DatabaseClock, tmp_path: Path, what: dict[str, Any]
) -> None:
    job_id = await a_letter(store, a_job(**what))
    records = await archived(store, job_id)
    await clock.advance(100 * DAY)
    assert await store.retention.purge_keys(older_than=90 * DAY, limit=9) > 0
    other = SqliteFile(str(tmp_path / "other.db")).new_store()
    await other.open()
    try:
        for place in (store, other):
            assert await place.retention.restore_letters(records) == [job_id]

            [answer] = await place.submit([a_job(**what)])

            assert (answer.id, answer.existing) == (job_id, True)  # type: ignore[union-attr]
            assert await place.retention.purge_keys(older_than=timedelta(0), limit=9) == 0
            [again] = await archived(place, job_id)
            assert again["private"] == records[0]["private"]
    finally:
        await other.close()


@pytest.mark.clause("DLQ-3")
@BY
async def test_a_job_whose_key_another_has_by_now_is_restored_without_it_and_its_history_says_so(
    store: Store, clock: DatabaseClock, what: dict[str, Any]
) -> None:
    job_id = await a_letter(store, a_job(**what))
    records = await archived(store, job_id)
    await clock.advance(100 * DAY)
    await store.retention.purge_keys(older_than=90 * DAY, limit=9)
    [other] = await submitted(store, a_job(**what))

    assert await store.retention.restore_letters(records) == [job_id]

    [answer] = await store.submit([a_job(**what)])
    assert (answer.id, answer.existing) == (other, True)  # type: ignore[union-attr]
    [warning] = [event for event in await store.events(job_id) if event.kind == "warning"]
    assert warning.meta == {"reason": "restored without its key, which is another job's by now"}
    [again] = await archived(store, job_id)
    assert (again["private"]["keys"], again["private"]["versions"]) == ([], [])


async def test_a_key_that_was_not_purged_is_still_that_of_the_job_that_comes_back(store: Store) -> None:
    job_id = await a_letter(store, a_job(key="k1", subject="essay-1", version=3))

    assert await store.retention.restore_letters(await archived(store, job_id)) == [job_id]

    assert "warning" not in [event.kind for event in await store.events(job_id)]


async def test_what_was_archived_before_keys_went_along_comes_back(store: Store) -> None:
    job_id = await a_letter(store, a_job(key="k1"))
    [record] = await archived(store, job_id)
    for part in ("keys", "versions"):
        del record["private"][part]

    assert await store.retention.restore_letters([record]) == [job_id]


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
async def test_jobs_are_purged_whose_id_does_not_tell_their_time(
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
    await moved(store, running, discard("nobody wants it", actor="ada"))
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


async def test_tickets_are_purged_that_were_told_long_ago_and_have_no_letter(
    store: Store, clock: DatabaseClock
) -> None:
    kept = await a_letter(store)
    for kind in ("told", "untold"):
        await store.tickets.raise_alarm(kind, {})
    tickets = await store.tickets.take(limit=9, lease=DAY)
    [mine] = [ticket.id for ticket in tickets if ticket.job_id == kept]
    [told, untold] = [ticket.id for ticket in tickets if ticket.job_id is None]
    await store.tickets.mark_notified([mine, told])
    assert await store.retention.purge_tickets(older_than=30 * DAY, limit=9) == 0
    await clock.advance(31 * DAY)

    assert await store.retention.purge_tickets(older_than=30 * DAY, limit=0) == 0
    assert await store.retention.purge_tickets(older_than=30 * DAY, limit=9) == 1

    assert [ticket.id for ticket in await store.tickets.take(limit=9, lease=DAY)] == [untold]
    await archived(store, kept)
    assert await store.retention.purge_tickets(older_than=30 * DAY, limit=9) == 0, "it went with its letter"
