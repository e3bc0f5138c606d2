"""A job that fails leaves a dead letter, whichever process ends it; operators take it further step by step, and none is taken twice."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Backoff, ErrorClass, Holdfast, JobFailed, Status
from holdfast.core.dead_letters.letter import (
    Cause,
    LetterFilter,
    LetterState,
    close,
    discard,
    remediate,
    triage,
    validate,
)
from holdfast.core.errors import LetterNotFound
from holdfast.core.failures.backoff import RetryPolicy
from holdfast.core.failures.failure import deadline_passed
from holdfast.core.jobs.stages import StageStatus
from holdfast.core.jobs.transitions import Finish, cancel, complete, fail, hold, park
from holdfast.core.providers.holder import Holder
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.types import Failure
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import Database, DatabaseClock, SqliteFile
from tests.contract.steps import TIMEOUT, a_claim, a_completed_job, claimed, eventually, submitted
from tests.contract.stored_letters import (
    REPAIR,
    a_failure_at,
    a_letter,
    changed,
    completed,
    failed,
    moved,
    path_of,
    planned,
    seen,
    state_of,
)

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


@pytest.mark.clause("OPS-1")
async def test_a_step_is_recorded_with_who_took_it_and_why(store: Store, clock: DatabaseClock) -> None:
    job_id = await a_letter(store)
    await clock.advance(timedelta(hours=1))

    await moved(store, job_id, triage(Cause.DATA, actor="ada", reason="the row has no price"))

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.cause, letter.version) == (TRIAGED, Cause.DATA, 2)
    step = (await store.dead_letters.steps(job_id))[-1]
    assert (step.state, step.actor, step.reason) == (TRIAGED, "ada", "the row has no price")
    assert dict(step.meta) == {"cause": "data"}
    assert step.at == letter.updated_at
    assert letter.updated_at >= letter.last_failure_at + timedelta(hours=1)


@pytest.mark.clause("OPS-1")
async def test_several_steps_at_once_are_recorded_one_after_the_other(store: Store) -> None:
    job_id = await a_letter(store)

    await moved(store, job_id, *REPAIR)

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.cause, letter.evidence) == (REMEDIATED, Cause.DATA, "the row is repaired")
    assert letter.version == 2
    assert await path_of(store, job_id) == [NEW, TRIAGED, REMEDIATED]


@pytest.mark.clause("OPS-1")
async def test_what_a_step_does_not_mention_stays(store: Store) -> None:
    job_id = await a_letter(store)
    await moved(store, job_id, *REPAIR)

    await moved(store, job_id, triage(Cause.CODE, actor="bob"))

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.cause, letter.evidence) == (TRIAGED, Cause.CODE, "the row is repaired")


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize(
    "step",
    [
        remediate("all is well", actor="ada"),
        validate("it is safe", "plan-1", actor="ada"),
        close("done", actor="ada"),
    ],
    ids=lambda step: step.to.value,
)
async def test_no_step_is_taken_from_a_state_that_does_not_lead_there(store: Store, step: object) -> None:
    job_id = await a_letter(store)
    before = await store.dead_letters.get(job_id)

    assert await store.dead_letters.move([(job_id, 1)], [step]) == []  # type: ignore[list-item]

    assert await store.dead_letters.get(job_id) == before
    assert await path_of(store, job_id) == [NEW]


@pytest.mark.clause("OPS-1")
async def test_a_step_from_a_version_that_is_past_changes_nothing(store: Store) -> None:
    job_id = await a_letter(store)
    await moved(store, job_id, triage(Cause.DATA, actor="ada"))
    before = await store.dead_letters.get(job_id)

    assert await store.dead_letters.move([(job_id, 1)], [discard("no longer needed", actor="bob")]) == []

    assert await store.dead_letters.get(job_id) == before


@pytest.mark.clause("OPS-1")
async def test_of_two_who_take_a_step_at_once_one_does(store: Store, other_store: Store) -> None:
    ids = [await a_letter(store) for _ in range(5)]
    looked = await seen(store, *ids)

    answers = await asyncio.gather(
        store.dead_letters.move(looked, [triage(Cause.DATA, actor="ada")]),
        other_store.dead_letters.move(looked, [discard("no longer needed", actor="bob")]),
    )

    assert sorted(answers[0] + answers[1]) == sorted(ids)
    for job_id in ids:
        assert len(await path_of(store, job_id)) == 2


async def test_of_many_letters_those_move_that_are_as_they_were_seen(store: Store) -> None:
    ids = [await a_letter(store) for _ in range(3)]
    looked = await seen(store, *ids)
    await moved(store, ids[1], triage(Cause.CODE, actor="bob"))

    answer = await store.dead_letters.move([*looked, (a_job().id, 1)], [triage(Cause.DATA, actor="ada")])

    assert sorted(answer) == sorted([ids[0], ids[2]])
    assert (await store.dead_letters.get(ids[1])).cause is Cause.CODE


@pytest.mark.clause("OPS-1")
async def test_a_letter_that_was_discarded_stays_so(store: Store) -> None:
    job_id = await a_letter(store)
    await moved(store, job_id, discard("no longer needed", actor="ada"))

    assert await store.dead_letters.move(await seen(store, job_id), [triage(Cause.DATA, actor="ada")]) == []

    assert await state_of(store, job_id) is LetterState.DISCARDED
    assert (await store.dead_letters.steps(job_id))[-1].reason == "no longer needed"


async def test_corrected_arguments_are_what_the_job_has_and_the_original_ones_are_kept(store: Store) -> None:
    job_id = await a_letter(store, a_job(args='{"price":null}'))
    assert await store.dead_letters.original_args(job_id) is None

    step = replace(REPAIR[0], reason="it has a price now")
    await moved(store, job_id, step, args='{"price":1}')
    assert (await store.get(job_id)).args == '{"price":1}'
    await moved(store, job_id, REPAIR[1], args='{"price":2}')

    assert (await store.get(job_id)).args == '{"price":2}'
    assert await store.dead_letters.original_args(job_id) == '{"price":null}'
    assert (await store.dead_letters.get(job_id)).corrected


async def test_arguments_stay_as_they_are_if_the_step_is_refused(store: Store) -> None:
    job_id = await a_letter(store, a_job(args='{"price":null}'))

    assert await store.dead_letters.move([(job_id, 7)], [REPAIR[0]], args='{"price":1}') == []

    assert (await store.get(job_id)).args == '{"price":null}'
    assert await store.dead_letters.original_args(job_id) is None
    assert not (await store.dead_letters.get(job_id)).corrected


async def test_its_owner_may_retry_a_job_all_the_same_which_closes_its_letter(store: Store) -> None:
    job_id = await a_letter(store)
    await planned(store, job_id)

    await store.retry(job_id)

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.notes, letter.plan) == (LetterState.CLOSED, "retried by its owner", None)
    last = (await store.dead_letters.steps(job_id))[-1]
    assert (last.state, last.actor) == (LetterState.CLOSED, "owner")


async def test_a_job_that_its_owner_retried_and_that_failed_again_opens_its_letter(
    store: Store, clock: DatabaseClock
) -> None:
    job_id = await a_letter(store, failure=a_failure_at("shop:pay", ErrorClass.BUG, "first"))
    before = await store.dead_letters.get(job_id)
    await store.retry(job_id)
    await clock.advance(timedelta(hours=1))

    await failed(store, await claimed(store), a_failure_at("shop:pay", ErrorClass.BUG, "second"))

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.deaths, letter.replays, letter.generation) == (NEW, 2, 0, 2)
    assert (letter.failure.message, letter.notes) == ("second", None)
    assert (letter.repeated, letter.escalated) == (False, False)
    assert letter.version > before.version
    assert (letter.first_failure_at, letter.first_reason) == (before.first_failure_at, before.first_reason)
    assert letter.last_failure_at >= before.last_failure_at + timedelta(hours=1)


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_late_result_that_is_accepted_closes_the_letter(
    store: Store, clock: DatabaseClock, is_open: bool
) -> None:
    claim = await a_claim(store, a_job(deadline=SOON))
    await clock.advance(2 * SOON)
    assert await store.settle("worker", [complete(claim, '"late"')]) == [Settled.TIMED_OUT]
    if not is_open:
        await moved(store, claim.id, discard("no longer needed", actor="ada"))

    await store.accept_late(claim.id, meta="{}")

    letter = await store.dead_letters.get(claim.id)
    assert (letter.state, letter.notes) == (LetterState.CLOSED, "its late result was accepted")
    assert (await store.dead_letters.steps(claim.id))[-1].actor == "holdfast"


@pytest.mark.parametrize("state", ["new", "triaged", "remediated", "validated"])
async def test_a_job_that_completes_closes_a_letter_that_its_retry_left_open(
    store: Store, database: Database, state: str
) -> None:
    job_id = await a_letter(store)
    await planned(store, job_id)
    await store.retry(job_id)
    await changed(database, f"UPDATE :dead_letters SET state = '{state}', plan = 'plan-1', notes = NULL")
    before = await store.dead_letters.get(job_id)

    await completed(store, await claimed(store))

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.notes, letter.plan) == (LetterState.CLOSED, "its job completed", None)
    assert letter.version == before.version + 1
    last = (await store.dead_letters.steps(job_id))[-1]
    assert (last.state, last.actor, last.reason) == (LetterState.CLOSED, "holdfast", "its job completed")


@pytest.mark.parametrize("state", ["closed", "discarded", "verified"])
async def test_a_job_that_completes_leaves_a_letter_alone_that_is_not_open(
    store: Store, database: Database, state: str
) -> None:
    job_id = await a_letter(store)
    await store.retry(job_id)
    await changed(database, f"UPDATE :dead_letters SET state = '{state}'")
    before = await store.dead_letters.get(job_id), await store.dead_letters.steps(job_id)

    await completed(store, await claimed(store))

    assert (await store.dead_letters.get(job_id), await store.dead_letters.steps(job_id)) == before


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
