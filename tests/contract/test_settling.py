"""What became of an attempt is written whole, for every kind of end."""

from datetime import timedelta

import pytest

from holdfast import Status
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.failures.failure import ErrorClass
from holdfast.core.jobs.stages import StageKey, StageRow, StageStatus
from holdfast.core.jobs.transitions import Finish, cancel, complete, fail, release
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.types import EventKind
from tests.builders import STAGE_ARGS, a_failure, a_job, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, a_claim, claimed, submitted

POLICY = RetryPolicy(3, Backoff.constant(60))


async def test_a_completed_job_keeps_its_result_and_its_history(store: Store) -> None:
    claim = await a_claim(store, a_job(args='{"n":1}', owner="ada"))
    running = await store.get(claim.id)

    assert await store.settle("worker", [complete(claim, '{"é":[1,2.5,null]}')]) == [Settled.WRITTEN]

    job = await store.get(claim.id)
    assert (job.status, job.result, job.args) == (Status.COMPLETED, '{"é":[1,2.5,null]}', '{"n":1}')
    assert (job.owner, job.attempt, job.last_attempt, job.generation) == ("ada", 1, 1, 1)
    assert (job.created_at, job.started_at, job.last_attempt_at) == (
        running.created_at,
        running.started_at,
        running.last_attempt_at,
    )
    assert (job.lease_expires_at, job.retry_after, job.failure) == (None, None, None)
    assert job.finished_at is not None
    assert job.finished_at >= running.updated_at


async def test_a_failed_job_keeps_its_failure_and_the_stage_it_failed_in(store: Store) -> None:
    claim = await a_claim(store)
    failure = a_failure(ErrorClass.AUTH_DENIED, "401 from the gateway", stack="Traceback ...")
    end = Finish(claim.id, claim.token, Status.FAILED, failure=failure, stage="llm[#2]")

    assert await store.settle("worker", [end]) == [Settled.WRITTEN]

    job = await store.get(claim.id)
    assert (job.status, job.failure, job.stage, job.result) == (Status.FAILED, failure, "llm[#2]", None)


async def test_a_cancelled_job_has_neither_result_nor_failure(store: Store) -> None:
    claim = await a_claim(store)

    assert await store.settle("worker", [cancel(claim)]) == [Settled.WRITTEN]

    job = await store.get(claim.id)
    assert (job.status, job.result, job.failure) == (Status.CANCELLED, None, None)


@pytest.mark.clause("RET-6")
async def test_a_retry_parks_the_job_with_all_that_belongs_to_it(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store)
    running = await store.get(claim.id)
    await clock.advance(timedelta(seconds=5))

    assert await store.settle("worker", [fail(claim, a_failure(), POLICY, roll=0, attempt=1)]) == [
        Settled.WRITTEN
    ]

    job = await store.get(claim.id)
    assert (job.status, job.leased_by, job.lease_expires_at) == (Status.QUEUED, None, None)
    assert (job.attempt, job.last_attempt, job.last_attempt_at) == (1, 1, running.started_at)
    assert job.updated_at >= running.updated_at + timedelta(seconds=5)
    assert job.retry_after == job.updated_at + timedelta(seconds=60)
    assert job.lease_token > claim.token


@pytest.mark.clause("RET-6")
async def test_a_retried_job_is_claimed_when_its_wait_is_over_with_the_next_attempt(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store)
    await store.settle("worker", [fail(claim, a_failure(), POLICY, roll=0, attempt=1)])
    waiting = await store.claim("worker", "default", limit=1, lease=LEASE)
    await clock.advance(timedelta(seconds=60))
    await store.promote(limit=1)

    again = await claimed(store)

    assert (waiting, again.id, again.attempt) == ([], claim.id, 2)


async def test_a_released_job_gets_its_attempt_back(store: Store) -> None:
    claim = await a_claim(store)

    await store.settle("worker", [release(claim, "worker shut down")])

    job = await store.get(claim.id)
    assert (job.status, job.attempt, job.retry_after) == (Status.QUEUED, 0, None)
    assert (await claimed(store)).attempt == 1


async def test_a_release_with_a_delay_parks_the_job(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store)

    await store.settle("worker", [release(claim, "no job of that name", delay=timedelta(seconds=30))])

    job = await store.get(claim.id)
    assert (job.attempt, job.retry_after) == (0, job.updated_at + timedelta(seconds=30))
    await clock.advance(timedelta(seconds=30))
    assert await store.promote(limit=9) == (1, None)


@pytest.mark.clause("STG-1")
async def test_a_stored_stage_stays_as_it_is(store: Store) -> None:
    claim = await a_claim(store)
    first, second = a_stage(claim, result='"first"'), a_stage(claim, result='"second"')
    await store.settle("worker", [first])

    await store.settle("worker", [second, a_stage(claim, status=StageStatus.STARTED, attempt=7)])

    [row] = await store.stages([claim.id])
    assert row._replace(age=0.0) == StageRow(
        claim.id, StageKey("fetch", "#1"), StageStatus.DONE, 1, STAGE_ARGS, '"first"'
    )


@pytest.mark.clause("STG-2")
@pytest.mark.parametrize("status", [StageStatus.DONE, StageStatus.FAILED])
async def test_the_end_of_a_stage_sets_the_attempts_back_for_the_next_one(
    store: Store, clock: DatabaseClock, status: StageStatus
) -> None:
    await submitted(store, a_job())
    for _ in range(2):
        claim = await claimed(store)
        await store.settle("worker", [fail(claim, a_failure(), POLICY, roll=0, attempt=1)])
        await clock.advance(timedelta(seconds=60))
        await store.promote(limit=1)
    third = await claimed(store)

    await store.settle("worker", [a_stage(third, status=status, attempt=3)])

    job = await store.get(third.id)
    assert (third.attempt, job.attempt, job.last_attempt) == (3, 1, 3)


@pytest.mark.clause("STG-2")
async def test_a_stage_that_only_began_leaves_the_attempts_alone(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store)
    await store.settle("worker", [fail(claim, a_failure(), POLICY, roll=0, attempt=1)])
    await clock.advance(timedelta(seconds=60))
    await store.promote(limit=1)
    second = await claimed(store)

    await store.settle("worker", [a_stage(second, status=StageStatus.STARTED, attempt=4)])

    assert (await store.get(claim.id)).attempt == 2
    [row] = await store.stages([claim.id])
    assert (row.status, row.attempt) == (StageStatus.STARTED, 4)


@pytest.mark.clause("STG-1")
@pytest.mark.parametrize("order", ["note-first", "result-first"])
async def test_a_note_and_the_result_that_overtook_it_may_be_written_together(
    store: Store, order: str
) -> None:
    claim, neighbour = await a_claim(store), await a_claim(store)
    pair = [a_stage(claim, status=StageStatus.STARTED), a_stage(claim, result='"page"')]
    pair = pair if order == "note-first" else pair[::-1]

    answer = await store.settle("worker", [*pair, complete(neighbour, '"fine"')])

    assert answer == [Settled.WRITTEN, Settled.WRITTEN, Settled.WRITTEN]
    [row] = await store.stages([claim.id])
    assert (row.status, row.result) == (StageStatus.DONE, '"page"')
    assert (await store.get(neighbour.id)).status is Status.COMPLETED


async def test_a_claim_says_that_there_are_stages_to_read(store: Store) -> None:
    claim = await a_claim(store)
    await store.settle("worker", [a_stage(claim, "fetch"), a_stage(claim, "llm", call="de")])
    await store.settle("worker", [release(claim, "worker shut down")])

    again = await claimed(store)

    assert (claim.stages > 0, again.stages > 0) == (False, True)
    rows = await store.stages([again.id])
    assert {str(row.key) for row in rows} == {"fetch", "llm[de]"}


async def test_a_batch_of_every_kind_is_answered_in_its_order(store: Store) -> None:
    one, two, three, four = [await a_claim(store) for _ in range(4)]

    answers = await store.settle(
        "worker",
        [
            complete(one, "1"),
            a_stage(two),
            release(three, "worker shut down"),
            complete(one._replace(token=99), "2"),
            fail(four, a_failure(), POLICY, roll=0, attempt=1),
            cancel(two),
        ],
    )

    assert answers == [
        Settled.WRITTEN,
        Settled.WRITTEN,
        Settled.WRITTEN,
        Settled.FENCED,
        Settled.WRITTEN,
        Settled.WRITTEN,
    ]
    kinds = [(await store.events(claim.id))[-1].kind for claim in (one, two, three, four)]
    assert kinds == [EventKind.COMPLETED, EventKind.CANCELLED, EventKind.QUEUED, EventKind.RETRY]


async def test_nothing_to_settle_is_no_error(store: Store) -> None:
    assert await store.settle("worker", []) == []


async def test_of_two_notes_that_come_together_the_one_that_gives_the_attempt_back_counts(
    store: Store,
) -> None:
    claim = await a_claim(store)
    notes = [a_stage(claim, status=StageStatus.STARTED, attempt=number) for number in (2, 1)]

    assert await store.settle("worker", notes) == [Settled.WRITTEN, Settled.WRITTEN]

    [stage] = await store.stages([claim.id])
    assert stage.attempt == 1
