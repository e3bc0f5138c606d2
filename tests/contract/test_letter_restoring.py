"""What comes back from an archive is as it was."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Status
from holdfast.core.dead_letters.letter import Cause, LetterState, close
from holdfast.core.errors import LetterNotFound
from holdfast.core.jobs.transitions import Finish, complete
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.builders import a_failure, a_job
from tests.contract.conftest import DatabaseClock, SqliteFile
from tests.contract.steps import a_claim, submitted
from tests.contract.stored_letters import (
    DAY,
    a_letter,
    a_replay,
    a_rich_letter,
    archived,
    completed,
    ended,
    failed,
    moved,
    planned,
    replayed,
    seen,
    to_archive,
    whole,
)


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
async def test_a_process_that_has_seen_a_letter_before_it_was_archived_cannot_delete_it_when_it_is_restored(
    store: Store, other_store: Store
) -> None:
    job_id = await a_letter(store)
    looked = await other_store.retention.letters_to_archive(older_than=timedelta(0), beyond=None, limit=9)
    await other_store.retention.letter_records([job_id])
    assert looked == [(job_id, 1)]

    await store.retention.restore_letters(await archived(store, job_id))

    assert await other_store.retention.delete_letters(looked) == []
    assert (await store.get(job_id)).status is Status.FAILED
    assert await seen(store, job_id) == [(job_id, 2)]


async def test_a_job_that_lives_is_not_overwritten(store: Store) -> None:
    job_id = await a_letter(store)
    records = await store.retention.letter_records([job_id])
    await store.retry(job_id)
    assert await store.retention.delete_letters(await seen(store, job_id)) == [job_id]
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


@pytest.mark.clause("DLQ-4")
async def test_a_ticket_that_outlived_its_letter_is_there_when_that_comes_back(store: Store) -> None:
    job_id = await a_letter(store)

    await store.retention.restore_letters(await archived(store, job_id))

    [ticket] = await store.tickets.take(limit=9, lease=DAY)
    assert ticket.id == f"{job_id}:1"


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
