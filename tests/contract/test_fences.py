"""A worker that lost its lease can write nothing, whatever it tries and however it lost it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from holdfast import Job, Status
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.failures.failure import ErrorClass
from holdfast.core.jobs.job import Claim, Event
from holdfast.core.jobs.stages import StageRow, StageStatus
from holdfast.core.jobs.transitions import Transition, cancel, complete, fail, hold, release
from holdfast.core.providers.holder import Holder
from holdfast.ports import Store
from holdfast.ports.store import Settled
from tests.builders import a_failure, a_stage
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, a_claim, claimed

POLICY = RetryPolicy(3, Backoff.constant(5))


def a_retry(claim: Claim) -> Transition:
    return fail(claim, a_failure(), POLICY, roll=0.5, attempt=1)


def an_end(claim: Claim) -> Transition:
    return fail(claim, a_failure(ErrorClass.BUG), POLICY, roll=0.5, attempt=1)


WRITES: dict[str, Callable[[Claim], Transition]] = {
    "complete": lambda claim: complete(claim, '"late"'),
    "fail": an_end,
    "retry": a_retry,
    "release": lambda claim: release(claim, "worker shut down"),
    "release-parked": lambda claim: release(claim, "held", delay=timedelta(seconds=30)),
    "hold": lambda claim: hold(claim, "its breaker is open", held_by=Holder("llm")),
    "cancel": cancel,
    "stage-done": a_stage,
    "stage-started": lambda claim: a_stage(claim, status=StageStatus.STARTED),
    "stage-failed": lambda claim: a_stage(claim, status=StageStatus.FAILED),
}


async def reclaimed(store: Store, clock: DatabaseClock, stale: Claim) -> None:
    await clock.advance(LEASE + timedelta(seconds=1))
    assert await store.reclaim(limit=10) == [stale.id]


async def claimed_by_another(store: Store, clock: DatabaseClock, stale: Claim) -> None:
    await reclaimed(store, clock, stale)
    assert (await claimed(store, "another")).id == stale.id


async def released_and_claimed_anew(store: Store, clock: DatabaseClock, stale: Claim) -> None:
    """The attempt number is the same as before: only the token distinguishes the two leases."""
    assert await store.settle("worker", [release(stale, "worker shut down")]) == [Settled.WRITTEN]
    assert (await claimed(store, "another")).attempt == stale.attempt


async def failed_and_brought_back(store: Store, clock: DatabaseClock, stale: Claim) -> None:
    """A new generation begins its attempts at one, but not its tokens."""
    assert await store.settle("worker", [an_end(stale)]) == [Settled.WRITTEN]
    await store.retry(stale.id)
    assert (await claimed(store, "another")).attempt == stale.attempt


async def ended(store: Store, clock: DatabaseClock, stale: Claim) -> None:
    assert await store.settle("worker", [complete(stale, '"first"')]) == [Settled.WRITTEN]


LOSSES: dict[str, Callable[[Store, DatabaseClock, Claim], Awaitable[None]]] = {
    "reclaimed": reclaimed,
    "claimed-by-another": claimed_by_another,
    "released": released_and_claimed_anew,
    "brought-back": failed_and_brought_back,
    "ended": ended,
}


async def everything_about(store: Store, job_id: str) -> tuple[Job, list[StageRow], list[Event]]:
    stages = [row._replace(age=0.0) for row in await store.stages([job_id])]  # it grows without a write
    return await store.get(job_id), stages, await store.events(job_id)


@pytest.mark.clause("JOB-6")
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_worker_that_lost_its_lease_can_write_nothing(
    store: Store, clock: DatabaseClock, loss: str
) -> None:
    stale = await a_claim(store)
    await LOSSES[loss](store, clock, stale)
    before = await everything_about(store, stale.id)

    answers = {name: await store.settle("worker", [write(stale)]) for name, write in WRITES.items()}

    assert answers == {name: [Settled.FENCED] for name in WRITES}
    assert await everything_about(store, stale.id) == before


@pytest.mark.clause("JOB-6")
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lease_that_was_lost_is_not_extended(store: Store, clock: DatabaseClock, loss: str) -> None:
    stale = await a_claim(store)
    await LOSSES[loss](store, clock, stale)
    before = await store.get(stale.id)

    extension = await store.extend([(stale.id, stale.token)], lease=LEASE)

    assert extension.lost == {stale.id}
    assert await store.get(stale.id) == before


@pytest.mark.clause("JOB-6")
async def test_under_the_present_lease_every_write_goes_through(store: Store) -> None:
    answers = {
        name: await store.settle("worker", [write(await a_claim(store))]) for name, write in WRITES.items()
    }

    assert answers == {name: [Settled.WRITTEN] for name in WRITES}


@pytest.mark.clause("JOB-6")
async def test_a_fresh_write_does_not_carry_a_stale_one_of_the_same_job_along(
    store: Store, clock: DatabaseClock
) -> None:
    stale = await a_claim(store)
    await reclaimed(store, clock, stale)
    fresh = await claimed(store)
    late, good = a_stage(stale, "fetch", result='"late"'), a_stage(fresh, "read")

    answer = await store.settle("worker", [late, good, complete(stale, '"late"')])

    assert answer == [Settled.FENCED, Settled.WRITTEN, Settled.FENCED]
    assert [row.key.name for row in await store.stages([fresh.id])] == ["read"]
    assert (await store.get(fresh.id)).status is Status.PROCESSING


@pytest.mark.clause("JOB-6")
async def test_one_fenced_write_does_not_stop_its_neighbours(store: Store, clock: DatabaseClock) -> None:
    stale = await a_claim(store)
    await claimed_by_another(store, clock, stale)
    good = await a_claim(store)

    answer = await store.settle("worker", [complete(stale, '"late"'), complete(good, '"good"')])

    assert answer == [Settled.FENCED, Settled.WRITTEN]
    assert (await store.get(good.id)).result == '"good"'


@pytest.mark.clause("JOB-6")
async def test_a_write_that_is_sent_again_after_a_lost_answer_changes_nothing_twice(store: Store) -> None:
    claim = await a_claim(store)
    again = [a_stage(claim), a_retry(claim)]
    await store.settle("worker", again)
    before = await everything_about(store, claim.id)

    answer = await store.settle("worker", again)

    assert answer == [Settled.FENCED, Settled.FENCED]
    assert await everything_about(store, claim.id) == before
