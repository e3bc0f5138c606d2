"""Operators take a letter further step by step, each step is on record, and none is taken twice."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import ErrorClass
from holdfast.core.dead_letters.letter import Cause, LetterState, close, discard, remediate, triage, validate
from holdfast.core.jobs.transitions import complete
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.builders import a_job
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import a_claim, claimed
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

NEW, TRIAGED, REMEDIATED = LetterState.NEW, LetterState.TRIAGED, LetterState.REMEDIATED


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
