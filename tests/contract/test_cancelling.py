"""Cancelling ends a waiting job, asks the worker of a running one, and is refused by an ended one."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from holdfast import Status
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.jobs.transitions import complete, fail
from holdfast.errors import JobNotFound, StateRefused
from holdfast.ports import Store
from holdfast.ports.store import Settled
from holdfast.stores.postgres.store import PostgresStore
from tests.builders import a_failure, a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import (
    LEASE,
    LONG,
    TIMEOUT,
    a_claim,
    a_completed_job,
    a_failed_job,
    claimed,
    submitted,
)

AT_ONCE = RetryPolicy(3, Backoff.none())
NOWHERE = "00000000-0000-7000-8000-000000000000"


@pytest.mark.parametrize("delay", [None, LONG], ids=["ready", "parked"])
async def test_a_waiting_job_ends_at_once(store: Store, delay: timedelta | None) -> None:
    [job_id] = await submitted(store, a_job(delay=delay))

    assert await store.cancel(job_id) is Status.CANCELLED

    job = await store.get(job_id)
    assert (job.status, job.started_at, job.retry_after) == (Status.CANCELLED, None, None)
    assert job.finished_at is not None
    assert await store.claim("worker", "default", limit=9, lease=LEASE) == []


async def test_a_job_cancelled_between_two_attempts_keeps_the_record_of_the_last_one(store: Store) -> None:
    claim = await a_claim(store)
    await store.settle("worker", [fail(claim, a_failure(), AT_ONCE, roll=0, attempt=1)])
    waiting = await store.get(claim.id)

    await store.cancel(claim.id)

    job = await store.get(claim.id)
    assert (job.attempt, job.last_attempt) == (waiting.attempt, waiting.last_attempt) == (1, 1)
    assert (job.started_at, job.last_attempt_at) == (waiting.started_at, waiting.last_attempt_at)


async def test_the_worker_of_a_running_job_is_asked_and_keeps_its_lease(store: Store) -> None:
    claim = await a_claim(store)

    assert await store.cancel(claim.id) is Status.PROCESSING

    job = await store.get(claim.id)
    assert (job.status, job.cancel_requested, job.lease_token) == (Status.PROCESSING, True, claim.token)
    assert await store.cancel_requests("worker") == [claim.id]
    assert await store.cancel_requests("another") == []
    assert await store.settle("worker", [complete(claim, '"quicker"')]) == [Settled.WRITTEN]


async def test_a_request_to_cancel_survives_a_retry_and_reaches_the_next_worker(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store)
    await store.cancel(claim.id)
    await store.settle("worker", [fail(claim, a_failure(), AT_ONCE, roll=0, attempt=1)])
    await clock.advance(timedelta(seconds=1))
    await store.promote(limit=1)

    again = await claimed(store)

    assert (claim.cancel_requested, again.cancel_requested) == (False, True)


async def test_a_request_to_cancel_survives_the_loss_of_its_worker(
    store: Store, clock: DatabaseClock
) -> None:
    claim = await a_claim(store)
    await store.cancel(claim.id)
    await clock.advance(LEASE + timedelta(seconds=1))
    await store.reclaim(limit=1)

    assert await store.cancel_requests("worker") == []
    assert (await claimed(store, "another")).cancel_requested


async def test_a_job_that_waits_for_its_retry_with_a_request_ends_when_asked_again(store: Store) -> None:
    claim = await a_claim(store)
    await store.cancel(claim.id)
    await store.settle("worker", [fail(claim, a_failure(), AT_ONCE, roll=0, attempt=1)])

    assert await store.cancel(claim.id) is Status.CANCELLED


async def test_an_ended_job_cannot_be_cancelled(store: Store) -> None:
    completed, failed = await a_completed_job(store), await a_failed_job(store)
    [cancelled] = await submitted(store, a_job())
    await store.cancel(cancelled)

    for job_id in (completed.id, failed.id, cancelled):
        before = await store.get(job_id)
        with pytest.raises(StateRefused, match="cannot be cancelled"):
            await store.cancel(job_id)
        assert await store.get(job_id) == before


@pytest.mark.parametrize("state", ["queued", "processing", "completed"])
async def test_a_foreign_job_is_not_there(store: Store, state: str) -> None:
    job = a_job(owner="ada")
    match state:
        case "queued":
            await submitted(store, job)
        case "processing":
            await a_claim(store, job)
        case _:
            await a_completed_job(store, job)
    before = await store.get(job.id)

    for owner in ("bob", ""):
        with pytest.raises(JobNotFound):
            await store.cancel(job.id, owner=owner)

    assert await store.get(job.id, owner="ada") == before


@pytest.mark.parametrize("job_id", [NOWHERE, "no uuid at all", ""])
async def test_a_job_that_never_was_is_not_there(store: Store, job_id: str) -> None:
    for ask in (store.cancel, store.retry, store.get, store.events):
        with pytest.raises(JobNotFound):
            await ask(job_id)


async def test_of_cancel_and_completion_exactly_one_wins(store: Store, other_store: Store) -> None:
    claims = [await a_claim(store) for _ in range(30)]

    async def end(claim_number: int) -> tuple[bool, Status | None]:
        claim = claims[claim_number]
        settled, cancelled = await asyncio.gather(
            store.settle("worker", [complete(claim, '"done"')]), _cancelled(other_store, claim.id)
        )
        return bool(settled[0]), cancelled

    outcomes = await asyncio.gather(*[end(number) for number in range(30)])

    statuses = [(await store.get(claim.id)).status for claim in claims]
    assert {done for done, _ in outcomes} == {True}
    assert {cancelled for _, cancelled in outcomes} <= {Status.PROCESSING, None}
    assert set(statuses) == {Status.COMPLETED}


async def test_of_cancel_and_claim_exactly_one_wins(store: Store, other_store: Store) -> None:
    ids = await submitted(store, *[a_job() for _ in range(40)])

    claims, cancels = await asyncio.gather(
        store.claim("worker", "default", limit=40, lease=LEASE),
        asyncio.gather(*[_cancelled(other_store, job_id) for job_id in ids]),
    )

    ended = {job_id for job_id, answer in zip(ids, cancels, strict=True) if answer is Status.CANCELLED}
    assert {claim.id for claim in claims} == set(ids) - ended


async def test_a_job_that_its_worker_lets_go_of_meanwhile_is_cancelled_all_the_same(
    postgres_dsn: str,
) -> None:
    """Between the look at waiting jobs and the look at running ones, the job goes from one to the other."""
    store = PostgresStore(postgres_dsn)
    claim = await a_claim(store)
    worker = await asyncpg.connect(postgres_dsn)
    letting_go = worker.transaction()
    await letting_go.start()
    await worker.execute(LET_GO, claim.id)

    cancelling = asyncio.create_task(store.cancel(claim.id))
    async with asyncio.timeout(TIMEOUT):
        while not await worker.fetchval(WAITING_FOR_A_LOCK):
            await asyncio.sleep(0.005)
    await letting_go.commit()

    assert await cancelling is Status.CANCELLED
    await worker.close()
    await store.close()


LET_GO = """
UPDATE holdfast.jobs SET status = 'queued', leased_by = NULL, lease_expires_at = NULL, lease_token = lease_token + 1
 WHERE id = $1::text::uuid
"""
WAITING_FOR_A_LOCK = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def _cancelled(store: Store, job_id: str) -> Status | None:
    try:
        return await store.cancel(job_id)
    except StateRefused:
        return None
