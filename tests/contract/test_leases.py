"""Leases run out, are extended, and leave nothing behind."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Status
from holdfast.core.jobs.transitions import release
from holdfast.ports import Store
from holdfast.ports.store import Extension, Leased
from holdfast.types import EventKind
from tests.builders import a_job, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, a_claim, claimed, submitted

NOTHING_NEW = Extension(frozenset(), frozenset())
PAST_LEASE = LEASE + timedelta(seconds=1)


@pytest.mark.clause("JOB-4")
async def test_a_job_whose_lease_ran_out_goes_back_to_its_queue(store: Store, clock: DatabaseClock) -> None:
    lost = await a_claim(store)
    await clock.advance(PAST_LEASE)

    assert await store.reclaim(limit=10) == [lost.id]

    job = await store.get(lost.id)
    assert (job.status, job.leased_by, job.lease_expires_at) == (Status.QUEUED, None, None)
    assert (job.retry_after, job.attempt, job.losses) == (None, 1, 1)
    assert job.lease_token > lost.token


@pytest.mark.clause("JOB-4")
async def test_a_lease_that_still_runs_is_left_alone(store: Store, clock: DatabaseClock) -> None:
    held = await a_claim(store)
    await clock.advance(LEASE - timedelta(seconds=20))

    assert await store.reclaim(limit=10) == []

    job = await store.get(held.id)
    assert (job.status, job.leased_by, job.lease_token) == (Status.PROCESSING, "worker", held.token)


@pytest.mark.clause("JOB-4")
async def test_a_lost_lease_costs_the_attempt_it_was_for(store: Store, clock: DatabaseClock) -> None:
    await submitted(store, a_job())
    seen = []
    for _ in range(3):
        claim = await claimed(store)
        seen.append((claim.attempt, claim.losses))
        await clock.advance(PAST_LEASE)
        await store.reclaim(limit=10)

    assert seen == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.clause("JOB-4")
async def test_a_lease_says_nothing_about_a_queued_job(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store)
    await store.settle("worker", [release(claim, "worker shut down")])

    again = await claimed(store, "another")

    assert again.id == claim.id
    await clock.advance(PAST_LEASE)
    assert await store.reclaim(limit=10) == [claim.id]


@pytest.mark.clause("JOB-4")
async def test_jobs_are_reclaimed_in_batches_the_longest_lost_first(
    store: Store, clock: DatabaseClock
) -> None:
    ids = []
    for _ in range(3):
        ids.append((await a_claim(store)).id)
        await clock.advance(timedelta(seconds=1))
    await clock.advance(PAST_LEASE)

    assert set(await store.reclaim(limit=2)) == set(ids[:2])
    assert await store.reclaim(limit=2) == ids[2:]
    assert await store.reclaim(limit=2) == []


@pytest.mark.clause("JOB-4")
async def test_every_lost_job_is_reclaimed_by_one_sweep_only(
    store: Store, other_store: Store, clock: DatabaseClock
) -> None:
    lost = await a_claim(store)
    await clock.advance(PAST_LEASE)

    assert await store.reclaim(limit=10) + await other_store.reclaim(limit=10) == [lost.id]
    kinds = [event.kind for event in await store.events(lost.id)]
    assert kinds == [EventKind.QUEUED, EventKind.PROCESSING, EventKind.QUEUED]


@pytest.mark.clause("JOB-5")
async def test_an_extended_lease_runs_from_now(store: Store, clock: DatabaseClock) -> None:
    claim = await a_claim(store)
    await clock.advance(LEASE / 3)

    extension = await store.extend([(claim.id, claim.token)], lease=LEASE)

    job = await store.get(claim.id)
    assert extension == NOTHING_NEW
    assert job.started_at is not None
    assert job.lease_expires_at is not None
    assert job.lease_expires_at >= job.started_at + LEASE / 3 + LEASE
    await clock.advance(LEASE - timedelta(seconds=10))
    assert await store.reclaim(limit=10) == []


@pytest.mark.clause("JOB-5")
async def test_all_leases_of_a_worker_are_extended_together(store: Store, clock: DatabaseClock) -> None:
    held = [await a_claim(store) for _ in range(3)]
    asked = await a_claim(store)
    await store.cancel(asked.id)
    gone = await a_claim(store)
    await store.settle("worker", [release(gone, "worker shut down")])

    extension = await store.extend([(c.id, c.token) for c in [*held, asked, gone]], lease=2 * LEASE)

    assert extension.lost == {gone.id}
    assert extension.cancel_requested == {asked.id}
    await clock.advance(PAST_LEASE)
    assert await store.reclaim(limit=10) == []


@pytest.mark.clause("JOB-4")
@pytest.mark.clause("JOB-5")
async def test_extending_one_lease_lets_the_others_run_out(store: Store, clock: DatabaseClock) -> None:
    extended, other = await a_claim(store), await a_claim(store)
    await clock.advance(LEASE / 2)
    await store.extend([(extended.id, extended.token)], lease=LEASE)
    await clock.advance(LEASE / 2 + timedelta(seconds=1))

    assert await store.reclaim(limit=10) == [other.id]


async def test_nothing_to_extend_is_no_error(store: Store) -> None:
    assert await store.extend([], lease=LEASE) == NOTHING_NEW


async def test_a_stored_stage_result_gives_the_next_stage_its_attempts_and_forgives_no_loss(
    store: Store, clock: DatabaseClock
) -> None:
    await a_claim(store)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=10)
    second = await claimed(store)
    await store.settle("worker", [a_stage(second)])
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=10)

    third = await claimed(store)

    assert (second.attempt, second.losses) == (2, 1)
    assert (third.attempt, third.losses) == (2, 2)


async def test_a_release_gives_the_attempt_back_and_keeps_a_row_of_losses(
    store: Store, clock: DatabaseClock
) -> None:
    await a_claim(store)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=10)
    second = await claimed(store)
    await store.settle("worker", [release(second, "worker shut down")])

    third = await claimed(store)

    assert (second.attempt, second.losses) == (2, 1)
    assert (third.attempt, third.losses) == (2, 1)


async def extended_outside(store: Store, worker: str) -> int:
    """Extend all leases of *worker* as a thread does whose event loop is blocked."""
    extender = store.lease_extender()

    def extend() -> int:
        try:
            return extender.extend(worker, lease=LEASE)
        finally:
            extender.close()

    return await asyncio.to_thread(extend)


@pytest.mark.clause("JOB-5")
async def test_leases_are_extended_without_the_event_loop(store: Store, clock: DatabaseClock) -> None:
    for _ in range(2):
        await a_claim(store)
    await clock.advance(LEASE / 2)

    extended = await extended_outside(store, "worker")

    assert extended == 2
    await clock.advance(LEASE - timedelta(seconds=10))
    assert await store.reclaim(limit=10) == []


@pytest.mark.clause("JOB-5")
@pytest.mark.clause("JOB-6")
async def test_no_lease_of_another_worker_and_no_lost_one_is_extended_with_them(
    store: Store, clock: DatabaseClock
) -> None:
    lost = await a_claim(store)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=10)
    queued = await store.get(lost.id)
    await submitted(store, a_job())
    others = await store.claim("another", "default", limit=2, lease=LEASE)
    await clock.advance(LEASE / 2)

    assert await extended_outside(store, "worker") == 0

    assert queued.status is Status.QUEUED
    await clock.advance(LEASE / 2 + timedelta(seconds=1))
    assert set(await store.reclaim(limit=10)) == {claim.id for claim in others}


async def test_an_extender_connects_again_after_its_close(store: Store) -> None:
    await a_claim(store)
    extender = store.lease_extender()

    def twice() -> list[int]:
        counts = []
        for _ in range(2):
            counts.append(extender.extend("worker", lease=LEASE))
            extender.close()
        extender.close()
        return counts

    assert await asyncio.to_thread(twice) == [1, 1]


async def test_a_worker_learns_what_is_leased_to_it(store: Store, clock: DatabaseClock) -> None:
    await a_claim(store)
    await clock.advance(PAST_LEASE)
    await store.reclaim(limit=10)
    again = await claimed(store)
    await submitted(store, a_job())
    await claimed(store, "another")

    assert await store.leased_to("worker") == [Leased(again.id, again.token, 2)]
    assert await store.leased_to("absent") == []
