"""A job that fails leaves a dead letter, whichever process ends it, and letters are found and grouped."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Backoff, ErrorClass, Holdfast, JobFailed, Status
from holdfast.core.dead_letters.letter import Cause, LetterFilter, LetterState, discard, triage
from holdfast.core.errors import LetterNotFound
from holdfast.core.failures.backoff import RetryPolicy
from holdfast.core.failures.failure import deadline_passed
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.transitions import Finish, cancel, fail, hold, park
from holdfast.core.providers.holder import Holder
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.types import Failure
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import Database, DatabaseClock, SqliteFile
from tests.contract.steps import TIMEOUT, a_claim, a_completed_job, claimed, eventually, submitted
from tests.contract.stored_letters import REPAIR, a_failure_at, a_letter, failed, moved

SOON = timedelta(minutes=5)
POLICY = RetryPolicy(3, Backoff.none())

NEW, TRIAGED, REMEDIATED = LetterState.NEW, LetterState.TRIAGED, LetterState.REMEDIATED


async def letters(store: Store) -> list[str]:
    return [letter.job_id for letter in await store.dead_letters.find(LetterFilter())]


@pytest.mark.clause("DLQ-1")
async def test_a_job_that_fails_leaves_a_letter_that_describes_the_failure(store: Store) -> None:
    failure = a_failure_at("shop.jobs:pay", message="the card was refused")
    claim = await a_claim(store, a_job(name="pay", owner="ada", queue="default"))
    await failed(store, claim, failure)

    letter = await store.dead_letters.get(claim.id)

    job = await store.get(claim.id)
    assert job.finished_at is not None
    assert (letter.job_id, letter.payload_ref) == (claim.id, claim.id)
    assert (letter.name, letter.queue, letter.owner) == ("pay", "default", "ada")
    assert (letter.state, letter.version, letter.generation, letter.attempt) == (NEW, 1, 1, 1)
    assert letter.failure == failure
    assert (letter.error_class, letter.last_stack) == (ErrorClass.UPSTREAM_5XX, "Traceback")
    assert letter.fingerprint == failure.fingerprint
    assert letter.first_reason == "UPSTREAM_5XX"
    assert {letter.first_failure_at, letter.last_failure_at, letter.updated_at} == {job.finished_at}
    assert (letter.deaths, letter.replays, letter.holds) == (1, 0, 0)
    assert (letter.escalated, letter.repeated, letter.corrected) == (False, False, False)
    assert {letter.cause, letter.evidence, letter.safe, letter.plan, letter.notes, letter.stage} == {None}
    assert letter.sanitized_context["place"] == "shop.jobs:pay"


@pytest.mark.clause("DLQ-1")
async def test_its_first_step_says_why(store: Store) -> None:
    job_id = await a_letter(store, failure=a_failure(message="the card was refused"))

    [step] = await store.dead_letters.steps(job_id)

    letter = await store.dead_letters.get(job_id)
    assert (step.state, step.actor, step.reason) == (NEW, "holdfast", "the card was refused")
    assert (step.at, dict(step.meta)) == (
        letter.last_failure_at,
        {"error_class": "UPSTREAM_5XX", "generation": 1},
    )


@pytest.mark.clause("DLQ-1")
@pytest.mark.parametrize("says", [Status.COMPLETED, Status.FAILED])
async def test_a_job_that_is_settled_after_its_deadline_leaves_a_letter(
    store: Store, clock: DatabaseClock, says: Status
) -> None:
    claim = await a_claim(store, a_job(deadline=SOON))
    await clock.advance(2 * SOON)
    end = Finish(claim.id, claim.token, says, result='"late"' if says is Status.COMPLETED else None)

    await store.settle("worker", [end])

    letter = await store.dead_letters.get(claim.id)
    assert (letter.error_class, letter.state) == (ErrorClass.TIMEOUT, NEW)
    assert letter.failure == deadline_passed(claim.name)


@pytest.mark.clause("DLQ-1")
async def test_jobs_that_are_found_overdue_leave_letters(store: Store, clock: DatabaseClock) -> None:
    queued, running = a_job(deadline=SOON, priority=0), a_job(deadline=SOON, priority=9)
    ids = await submitted(store, queued, running)
    assert (await claimed(store)).id == running.id
    await clock.advance(2 * SOON)

    await store.expire(limit=9)

    assert sorted(await letters(store)) == sorted(ids)
    assert {(await store.dead_letters.get(job_id)).error_class for job_id in ids} == {ErrorClass.TIMEOUT}


async def test_a_letter_is_there_as_soon_as_its_job_has_failed(store: Store, other_store: Store) -> None:
    claim = await a_claim(store)
    settling = asyncio.create_task(failed(store, claim))

    await eventually(lambda: other_store.get(claim.id), lambda job: job.status is Status.FAILED)

    assert await letters(other_store) == [claim.id]
    await settling


async def test_jobs_that_end_well_leave_no_letter(store: Store) -> None:
    await a_completed_job(store)
    claim = await a_claim(store)
    await store.settle("worker", [cancel(claim)])
    [queued] = await submitted(store, a_job())
    await store.cancel(queued)

    assert await letters(store) == []
    assert await store.dead_letters.counts() == {}


@pytest.mark.clause("DLQ-1")
async def test_a_worker_that_lost_its_lease_leaves_no_letter(store: Store, clock: DatabaseClock) -> None:
    lost = await a_claim(store)
    await clock.advance(timedelta(minutes=10))
    assert await store.reclaim(limit=9) == [lost.id]

    end = Finish(lost.id, lost.token, Status.FAILED, failure=a_failure())
    assert await store.settle("worker", [end]) == [Settled.FENCED]

    assert await letters(store) == []


async def test_a_job_that_failed_without_a_word_has_a_letter_too(store: Store) -> None:
    claim = await a_claim(store)

    await store.settle("worker", [Finish(claim.id, claim.token, Status.FAILED)])

    letter = await store.dead_letters.get(claim.id)
    assert (letter.error_class, letter.first_reason, letter.fingerprint) == (
        ErrorClass.UNKNOWN,
        "UNKNOWN",
        "UNKNOWN",
    )
    assert [step.reason for step in await store.dead_letters.steps(claim.id)] == [""]


@pytest.mark.parametrize("odd", ["a\x00b", "a\ud800b", "\U0001f600 né"], ids=["nul", "surrogate", "far away"])
async def test_odd_characters_in_a_failure_keep_no_job_from_ending(store: Store, odd: str) -> None:
    job_id = await a_letter(store, failure=a_failure(message=odd))

    letter = await store.dead_letters.get(job_id)

    assert (await store.get(job_id)).status is Status.FAILED
    assert letter.failure.message == odd
    assert len(await store.dead_letters.steps(job_id)) == 1


@pytest.mark.clause("DLQ-1")
async def test_the_first_failure_is_that_of_the_first_attempt(store: Store, clock: DatabaseClock) -> None:
    first = await a_claim(store)
    await store.settle("worker", [fail(first, a_failure(), POLICY, roll=0, attempt=1)])
    retried_at = (await store.get(first.id)).updated_at
    await clock.advance(timedelta(hours=1))
    await store.promote(limit=9)

    await failed(store, await claimed(store))

    letter = await store.dead_letters.get(first.id)
    assert letter.first_failure_at == retried_at
    assert letter.last_failure_at >= retried_at + timedelta(hours=1)
    assert letter.attempt == 2


@pytest.mark.clause("DLQ-1")
async def test_it_counts_how_often_its_job_was_held_but_not_how_often_it_waited(store: Store) -> None:
    claim = await a_claim(store)
    for _ in range(2):
        await store.settle("worker", [hold(claim, "its breaker is open", held_by=Holder("llm"))])
        assert await store.providers.release(Holder("llm"), limit=9) == 1
        claim = await claimed(store)
    waits = park(claim, "sleeps", delay=timedelta(0), seen=-1, awaits=False)
    await store.settle("worker", [waits])

    await failed(store, await claimed(store))

    assert (await store.dead_letters.get(claim.id)).holds == 2


@pytest.mark.clause("STG-3")
async def test_it_names_the_stage_that_failed_and_its_attempts(store: Store) -> None:
    claim = await a_claim(store)
    stages = [a_stage(claim, "fetch"), a_stage(claim, "llm", status=StageStatus.FAILED, attempt=3)]
    await failed(store, claim, None, *stages, stage="llm")

    letter = await store.dead_letters.get(claim.id)

    assert (letter.stage, letter.attempt) == ("llm", 3)
    assert [found.job_id for found in await store.dead_letters.find(LetterFilter(stage="llm"))] == [claim.id]


@pytest.mark.clause("STG-3")
async def test_a_stage_that_used_its_budget_is_named_by_the_letter_of_its_job(
    hold: Holdfast, store: Store
) -> None:
    @hold.stage()
    async def grade(text: str) -> str:
        raise ConnectionError("connection refused")

    @hold.job()
    async def mark_essay(text: str) -> str:
        return await grade(text)

    job = await mark_essay.submit("once upon a time")
    async with hold.worker():
        with pytest.raises(JobFailed):
            await job.result(timeout=TIMEOUT)

    letter = await store.dead_letters.get(job.id)
    assert (letter.stage, letter.attempt, letter.state) == ("grade", 3, NEW)


@pytest.mark.clause("JOB-10")
async def test_a_job_whose_worker_is_lost_each_time_becomes_a_letter(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store)
    await clock.advance(timedelta(minutes=10))
    await store.reclaim(limit=9)

    claim = await claimed(store)
    await failed(store, claim, Failure.of(ErrorClass.WORKER_LOST, "the worker was lost during the attempt"))

    letter = await store.dead_letters.get(claim.id)
    assert (letter.error_class, letter.attempt) == (ErrorClass.WORKER_LOST, 2)


async def test_a_foreign_letter_is_not_there(store: Store) -> None:
    job_id = await a_letter(store, a_job(owner="ada"))

    assert (await store.dead_letters.get(job_id, owner="ada")).job_id == job_id
    for asked, owner in ((job_id, "bob"), (job_id, ""), (a_job().id, None), ("no-uuid", None)):
        with pytest.raises(LetterNotFound):
            await store.dead_letters.get(asked, owner=owner)


async def test_an_id_in_a_filter_means_what_it_means_alone(store: Store) -> None:
    job_id = await a_letter(store)
    letter = await store.dead_letters.get(job_id)

    for spelled in (job_id.upper(), f"urn:uuid:{job_id}", f"{{{job_id}}}"):
        assert await store.dead_letters.get(spelled) == letter
        assert await store.dead_letters.find(LetterFilter(job_ids=(spelled,))) == [letter]
    for list_them in (store.dead_letters.find, store.dead_letters.groups):
        with pytest.raises(
            LetterNotFound, match="there is no dead letter of job 'no-uuid'; a job's id is a UUID"
        ):
            await list_them(LetterFilter(job_ids=("no-uuid",)))


async def test_letters_are_listed_newest_first_by_what_a_person_asks_for(store: Store) -> None:
    pay = await a_letter(store, a_job(name="pay", owner="ada"), failure=a_failure_at("shop:pay"))
    bug = await a_letter(
        store, a_job(name="send", owner="bob"), failure=a_failure_at("shop:send", ErrorClass.BUG)
    )
    last = await a_letter(store, a_job(name="send", owner="ada"), failure=a_failure_at("shop:pay"))
    await moved(store, bug, triage(Cause.CODE, actor="ada"))
    fingerprint = (await store.dead_letters.get(pay)).fingerprint

    async def found(asked: LetterFilter) -> list[str]:
        return [letter.job_id for letter in await store.dead_letters.find(asked)]

    assert await found(LetterFilter()) == [last, bug, pay]
    assert await found(LetterFilter(limit=1)) == [last]
    assert await found(LetterFilter(before=bug)) == [pay]
    assert await found(LetterFilter(job_ids=(pay.upper(), bug))) == [bug, pay]
    assert await found(LetterFilter(job_ids=())) == []
    assert await found(LetterFilter(states=(NEW,))) == [last, pay]
    assert await found(LetterFilter(states=(NEW, TRIAGED), name="send")) == [last, bug]
    assert await found(LetterFilter(owner="ada")) == [last, pay]
    assert await found(LetterFilter(error_class="BUG")) == [bug]
    assert await found(LetterFilter(fingerprint=fingerprint)) == [last, pay]
    assert await found(LetterFilter(queue="other")) == []
    assert await found(LetterFilter(plan="none")) == []
    assert await found(LetterFilter(escalated=False)) == [last, bug, pay]
    assert await found(LetterFilter(escalated=True)) == []
    assert await store.dead_letters.counts() == {
        ("pay", "new"): 1,
        ("send", "new"): 1,
        ("send", "triaged"): 1,
    }


async def test_letters_with_one_fingerprint_are_a_group(store: Store, clock: DatabaseClock) -> None:
    first = await a_letter(store, a_job(name="send"), failure=a_failure_at("shop:pay"))
    await clock.advance(timedelta(hours=1))
    other = await a_letter(store, a_job(name="pay"), failure=a_failure_at("shop:send", ErrorClass.BUG))
    await clock.advance(timedelta(hours=1))
    last = await a_letter(store, a_job(name="pay"), failure=a_failure_at("shop:pay"))
    await moved(store, first, discard("no longer needed", actor="ada"))

    alike, alone = await store.dead_letters.groups(LetterFilter())

    assert (alike.error_class, alike.place, alike.names) == ("UPSTREAM_5XX", "shop:pay", ("pay", "send"))
    assert (alike.letters, alike.open) == (2, 1)
    assert alike.first_seen == (await store.dead_letters.get(first)).first_failure_at
    assert alike.last_seen == (await store.dead_letters.get(last)).last_failure_at
    assert (alone.fingerprint, alone.place, alone.letters) == (
        (await store.dead_letters.get(other)).fingerprint,
        "shop:send",
        1,
    )
    assert [group.place for group in await store.dead_letters.groups(LetterFilter(name="send"))] == [
        "shop:pay"
    ]
    assert len(await store.dead_letters.groups(LetterFilter(limit=1))) == 1


async def test_the_redaction_key_of_a_store_never_changes(store: Store, other_store: Store) -> None:
    key = await store.redaction_key()

    assert len(key) == 32
    assert await other_store.redaction_key() == key
    await store.apply_schema()
    assert await store.redaction_key() == key


async def test_no_two_stores_have_the_same_redaction_key(store: Store, tmp_path: Path) -> None:
    other = SqliteFile(str(tmp_path / "other.db")).new_store()
    await other.open()
    try:
        assert await other.redaction_key() != await store.redaction_key()
    finally:
        await other.close()


async def test_a_letter_outlives_its_store(store: Store, database: Database) -> None:
    job_id = await a_letter(store)
    await moved(store, job_id, *REPAIR)
    letter, steps = await store.dead_letters.get(job_id), await store.dead_letters.steps(job_id)
    await store.close()

    again = database.new_store()
    await again.open()
    try:
        assert await again.dead_letters.get(job_id) == letter
        assert await again.dead_letters.steps(job_id) == steps
    finally:
        await again.close()
