"""Letters that were validated are replayed under their plan, each once, and their jobs say how it went."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import ErrorClass, Status
from holdfast.core.dead_letters.letter import (
    Cause,
    LetterFilter,
    LetterState,
    close,
    discard,
    triage,
    validate,
)
from holdfast.core.dead_letters.replay_plan import Phase
from holdfast.core.errors import PlanStale
from holdfast.core.jobs.stages import RESTARTED, StageKey, StageStatus
from holdfast.core.jobs.transitions import Finish
from holdfast.ports import Store
from holdfast.ports.dead_letters import PlanRow
from holdfast.ports.store import Settled
from holdfast.types import EventKind, Failure
from tests.builders import a_failure, a_job, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, a_claim, claimed
from tests.contract.stored_letters import (
    REPAIR,
    a_failure_at,
    a_letter,
    a_plan,
    a_replay,
    completed,
    failed,
    moved,
    path_of,
    planned,
    replayed,
    seen,
    state_of,
)

SOON = timedelta(minutes=5)

NEW, VALIDATED, REPLAYING = LetterState.NEW, LetterState.VALIDATED, LetterState.REPLAYING

ANEW = {"cause": None, "evidence": None, "safe": None, "notes": None}
"""What is not known of a failure before its triage."""


async def a_letter_with_stages(store: Store) -> str:
    """Let a job fail in its second stage; its third was under way."""
    claim = await a_claim(store)
    stages = [
        a_stage(claim, "fetch", result='"page"'),
        a_stage(claim, "llm", status=StageStatus.FAILED, attempt=3),
        a_stage(claim, "notify", status=StageStatus.STARTED),
    ]
    await failed(store, claim, None, *stages, stage="llm")
    return claim.id


@pytest.mark.clause("OPS-1")
async def test_a_plan_is_stored_with_the_letters_that_were_validated_for_it(store: Store) -> None:
    ids = [await a_letter(store) for _ in range(2)]

    plan = await planned(store, *ids)

    assert await store.replay_plans.get(plan.token) == PlanRow(plan.token, 1, plan.dump())
    for job_id in ids:
        letter = await store.dead_letters.get(job_id)
        assert (letter.state, letter.plan, letter.safe) == (
            VALIDATED,
            plan.token,
            "the service knows the key",
        )
    assert len(await store.dead_letters.find(LetterFilter(plan=plan.token))) == 2
    assert await store.replay_plans.running() == []


async def test_a_plan_that_no_letter_joined_is_not_stored(store: Store) -> None:
    job_id = await a_letter(store)
    step = validate("it is safe", "plan-1", actor="ada")

    assert await store.dead_letters.move(await seen(store, job_id), [step], plan=a_plan(1)) == []

    with pytest.raises(PlanStale, match="plan the replay again"):
        await store.replay_plans.get("plan-1")


async def test_a_plan_that_is_stored_as_running_is_found_by_workers(store: Store) -> None:
    plan = await planned(store, await a_letter(store), plan=a_plan(1, phase=Phase.CANARY))

    assert await store.replay_plans.running() == [PlanRow(plan.token, 1, plan.dump())]


async def test_a_plan_runs_until_a_caller_writes_that_it_does_not(store: Store) -> None:
    plan = await planned(store, await a_letter(store))
    paced = replace(plan, phase=Phase.PACED)

    assert await store.replay_plans.advance(await store.replay_plans.get(plan.token), paced) == []
    [row] = await store.replay_plans.running()
    assert row == PlanRow(plan.token, 2, paced.dump())

    assert await store.replay_plans.advance(row, plan) == []
    assert await store.replay_plans.running() == []


@pytest.mark.clause("OPS-2")
async def test_a_replay_keeps_what_is_finished_and_starts_with_fresh_attempts(
    store: Store, clock: DatabaseClock
) -> None:
    job_id = await a_letter_with_stages(store)
    ended = await store.get(job_id)
    await clock.advance(timedelta(hours=1))

    claim = await a_replay(store, job_id)

    job = await store.get(job_id)
    assert (claim.id, claim.attempt, claim.generation, claim.losses) == (job_id, 1, 2, 0)
    assert claim.token > ended.lease_token
    assert (job.status, job.failure, job.stage) == (Status.PROCESSING, None, None)
    assert job.queued_at >= ended.queued_at + timedelta(hours=1)
    assert job.created_at == ended.created_at
    assert [(row.key.name, row.result) for row in await store.stages([job_id])] == [("fetch", '"page"')]
    assert claim.stages > 0


@pytest.mark.clause("OPS-2")
async def test_a_restart_forgets_all_stages_but_not_what_they_did(store: Store) -> None:
    job_id = await a_letter_with_stages(store)
    before = await store.events(job_id)

    claim = await a_replay(store, job_id, restart=True)

    assert claim.stages == 1
    assert [row.key for row in await store.stages([job_id])] == [StageKey(RESTARTED, "#2")], "and says so"
    after = await store.events(job_id)
    assert after[: len(before)] == before
    assert dict((await store.dead_letters.steps(job_id))[-1].meta) == {"plan": "plan-1", "restart": True}


async def test_a_replay_is_in_the_history_of_its_job_and_of_its_letter(store: Store) -> None:
    job_id = await a_letter(store)
    before = await store.events(job_id)

    await a_replay(store, job_id)

    events = await store.events(job_id)
    assert events[: len(before)] == before
    [replay] = [event for event in events if event.kind is EventKind.REPLAYED]
    assert dict(replay.meta) == {"generation": 2, "plan": "plan-1", "actor": "ada"}
    letter, step = await store.dead_letters.get(job_id), (await store.dead_letters.steps(job_id))[-1]
    assert (letter.state, letter.replays, letter.plan) == (REPLAYING, 1, "plan-1")
    assert (step.state, step.actor, dict(step.meta)) == (REPLAYING, "ada", {"plan": "plan-1"})
    assert (step.at, letter.updated_at) == (replay.at, replay.at)


@pytest.mark.clause("OPS-2")
async def test_a_worker_of_the_failed_generation_can_write_nothing(store: Store) -> None:
    claim = await a_claim(store)
    await failed(store, claim)
    again = await a_replay(store, claim.id)

    for token in (claim.token, again.token - 1):
        end = Finish(claim.id, token, Status.FAILED, failure=a_failure())
        assert await store.settle("worker", [end]) == [Settled.FENCED]

    assert await state_of(store, claim.id) is REPLAYING


async def test_a_replayed_job_has_as_long_as_it_had_or_keeps_its_deadline(
    store: Store, clock: DatabaseClock
) -> None:
    fresh, same = [await a_letter(store, a_job(deadline=SOON)) for _ in range(2)]
    deadline_at = (await store.get(same)).deadline_at
    await clock.advance(timedelta(minutes=1))

    await replayed(store, await planned(store, fresh))
    await replayed(store, await planned(store, same, plan=a_plan(1, "plan-2")), same_deadline=True)

    job = await store.get(fresh)
    assert job.deadline_at is not None
    assert job.deadline_at - job.queued_at == SOON
    assert (await store.get(same)).deadline_at == deadline_at


async def test_corrected_arguments_are_those_that_a_replay_runs_with(store: Store) -> None:
    job_id = await a_letter(store, a_job(args='{"price":null}'))
    await moved(store, job_id, *REPAIR, args='{"price":1}')
    step = validate("it is safe", "plan-1", actor="ada")
    assert await store.dead_letters.move(await seen(store, job_id), [step], plan=a_plan(1)) == [job_id]

    assert await replayed(store, a_plan(1)) == [job_id]

    assert (await claimed(store)).args == '{"price":1}'


async def test_the_oldest_letters_go_first_and_no_more_than_asked_for(store: Store) -> None:
    ids = [await a_letter(store) for _ in range(4)]
    plan = await planned(store, *ids)

    assert await replayed(store, plan, take=0) == []
    assert await replayed(store, plan, take=1) == ids[:1]
    assert sorted(await replayed(store, plan, take=2)) == ids[1:3]
    assert await replayed(store, plan, take=9) == ids[3:]
    assert await replayed(store, plan, take=9) == []


@pytest.mark.clause("OPS-2")
async def test_from_a_plan_that_has_moved_on_nothing_is_replayed(store: Store) -> None:
    ids = [await a_letter(store) for _ in range(2)]
    plan = await planned(store, *ids)
    row = await store.replay_plans.get(plan.token)
    assert await replayed(store, plan, take=1) == ids[:1]

    assert await store.replay_plans.advance(row, replace(plan, phase=Phase.PACED), take=9) is None

    assert await state_of(store, ids[1]) is VALIDATED
    assert (await store.replay_plans.get(plan.token)).version == 2


@pytest.mark.clause("OPS-2")
async def test_of_two_who_advance_a_plan_at_once_one_does(store: Store, other_store: Store) -> None:
    ids = [await a_letter(store) for _ in range(6)]
    plan = await planned(store, *ids)
    row = await store.replay_plans.get(plan.token)

    answers = await asyncio.gather(
        *[
            place.replay_plans.advance(row, replace(plan, phase=Phase.PACED), take=3)
            for place in (store, other_store, store, other_store)
        ]
    )

    assert [answer for answer in answers if answer is not None] == [ids[:3]]
    assert len(await store.claim("worker", "default", limit=9, lease=LEASE)) == 3
    assert [await state_of(store, job_id) for job_id in ids] == [REPLAYING] * 3 + [VALIDATED] * 3


async def test_a_letter_that_has_taken_another_step_is_out_of_its_plan(store: Store) -> None:
    stays, goes = [await a_letter(store) for _ in range(2)]
    plan = await planned(store, stays, goes)

    await moved(store, goes, triage(Cause.CODE, actor="bob"))

    assert (await store.dead_letters.get(goes)).plan is None
    assert await replayed(store, plan) == [stays]
    assert (await store.get(goes)).status is Status.FAILED


@pytest.mark.clause("OPS-1")
async def test_a_letter_is_verified_when_its_job_has_completed(store: Store) -> None:
    job_id = await a_letter(store)
    claim = await a_replay(store, job_id)

    await completed(store, claim)

    letter, job = await store.dead_letters.get(job_id), await store.get(job_id)
    assert (letter.state, letter.plan, letter.deaths) == (LetterState.VERIFIED, "plan-1", 1)
    last = (await store.dead_letters.steps(job_id))[-1]
    assert (last.state, last.actor, last.at) == (LetterState.VERIFIED, "holdfast", job.finished_at)


@pytest.mark.clause("OPS-1")
async def test_a_verified_letter_is_closed_by_a_person(store: Store) -> None:
    job_id = await a_letter(store)
    await completed(store, await a_replay(store, job_id))

    await moved(store, job_id, close("the row was repaired", actor="ada"))

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.notes) == (LetterState.CLOSED, "the row was repaired")
    assert await path_of(store, job_id) == [
        NEW,
        LetterState.TRIAGED,
        LetterState.REMEDIATED,
        VALIDATED,
        REPLAYING,
        LetterState.VERIFIED,
        LetterState.CLOSED,
    ]


@pytest.mark.parametrize("is_claimed", [True, False])
async def test_a_letter_is_discarded_when_its_job_is_cancelled(store: Store, is_claimed: bool) -> None:
    job_id = await a_letter(store)
    await replayed(store, await planned(store, job_id))
    if is_claimed:
        claim = await claimed(store)
        await store.settle("worker", [Finish(claim.id, claim.token, Status.CANCELLED)])
    else:
        await store.cancel(job_id)

    last = (await store.dead_letters.steps(job_id))[-1]
    assert await state_of(store, job_id) is LetterState.DISCARDED
    assert (last.actor, last.reason) == ("holdfast", "its job was cancelled")


@pytest.mark.clause("OPS-1")
async def test_no_step_is_taken_while_a_job_is_under_way(store: Store) -> None:
    job_id = await a_letter(store)
    await a_replay(store, job_id)

    for step in (
        triage(Cause.DATA, actor="ada"),
        discard("no longer needed", actor="ada"),
        close("done", actor="ada"),
    ):
        assert await store.dead_letters.move(await seen(store, job_id), [step]) == []

    assert await state_of(store, job_id) is REPLAYING


async def test_a_replay_that_waits_for_its_retry_is_under_way(store: Store) -> None:
    job_id = await a_letter(store)
    claim = await a_replay(store, job_id)
    await store.cancel(job_id)

    assert await state_of(store, job_id) is REPLAYING
    await completed(store, claim)
    assert await state_of(store, job_id) is LetterState.VERIFIED


BUG, BUSY = ErrorClass.BUG, ErrorClass.UPSTREAM_5XX


@pytest.mark.clause("OPS-3")
@pytest.mark.parametrize(
    ("first", "second", "repeated", "escalated"),
    [
        (a_failure_at("shop:pay", BUG), a_failure_at("shop:pay", BUG), True, True),
        (a_failure_at("shop:pay", BUG), a_failure_at("shop:send", BUG), False, True),
        (a_failure_at("shop:pay", BUSY), a_failure_at("shop:pay", BUSY), True, False),
        (a_failure_at("shop:pay", BUSY), a_failure_at("shop:pay", BUG), False, False),
        (a_failure_at("shop:pay", BUG), a_failure_at("shop:pay", BUSY), False, False),
    ],
    ids=["same bug", "bug elsewhere", "same, but retried", "became a bug", "was a bug"],
)
async def test_a_replay_that_fails_again_returns_its_letter(
    store: Store, first: Failure, second: Failure, repeated: bool, escalated: bool
) -> None:
    job_id = await a_letter(store, failure=first)
    before = await store.dead_letters.get(job_id)
    claim = await a_replay(store, job_id)

    await failed(store, claim, second, stage="llm")

    letter = await store.dead_letters.get(job_id)
    assert (letter.state, letter.deaths, letter.replays, letter.generation) == (NEW, 2, 1, 2)
    assert (letter.repeated, letter.escalated) == (repeated, escalated)
    assert (letter.failure, letter.stage) == (second, "llm")
    assert {name: getattr(letter, name) for name in ANEW} == ANEW
    assert letter.plan == "plan-1"
    assert (letter.first_failure_at, letter.first_reason) == (before.first_failure_at, before.first_reason)
    assert letter.last_failure_at > before.last_failure_at
    assert (await path_of(store, job_id))[-2:] == [REPLAYING, NEW]


@pytest.mark.clause("OPS-3")
async def test_a_letter_that_was_escalated_stays_so(store: Store) -> None:
    job_id = await a_letter(store, failure=a_failure_at("shop:pay", BUG))
    await failed(store, await a_replay(store, job_id), a_failure_at("shop:pay", BUG))

    second = await a_replay(store, job_id, plan=a_plan(1, "plan-2"))
    await failed(store, second, a_failure_at("shop:pay", BUSY))

    letter = await store.dead_letters.get(job_id)
    assert (letter.deaths, letter.replays, letter.escalated, letter.repeated) == (3, 2, True, False)
    assert [found.job_id for found in await store.dead_letters.find(LetterFilter(escalated=True))] == [job_id]


async def test_a_plan_shows_the_states_of_its_letters(store: Store, clock: DatabaseClock) -> None:
    ids = [await a_letter(store, failure=a_failure_at("shop:pay")) for _ in range(5)]
    plan = await planned(store, *ids)
    assert await replayed(store, plan, take=4) == ids[:4]
    claims = {claim.id: claim for claim in await store.claim("worker", "default", limit=9, lease=LEASE)}

    await completed(store, claims[ids[0]])
    await failed(store, claims[ids[1]], a_failure_at("shop:pay"))
    await failed(store, claims[ids[2]], a_failure_at("shop:send"))
    before = await clock.now()
    now, counts = await store.replay_plans.counts(plan.token)

    assert dict(counts.states) == {LetterState.VERIFIED: 1, NEW: 2, REPLAYING: 1, VALIDATED: 1}
    assert counts.repeated == 1
    assert before.timestamp() <= now <= (await clock.now()).timestamp()
    _, nothing = await store.replay_plans.counts("plan-9")
    assert (dict(nothing.states), nothing.repeated) == ({}, 0)


async def test_a_subscriber_is_notified_that_jobs_are_replayed(store: Store) -> None:
    job_id = await a_letter(store)
    plan = await planned(store, job_id)
    notified = asyncio.Event()
    unlisten = store.listen(lambda _: notified.set())

    await replayed(store, plan)

    async with asyncio.timeout(20):
        await notified.wait()
    unlisten()
