"""How deep queues are: live jobs by state, whatever has ended, and how long the first in line has waited."""

from datetime import timedelta

import pytest

from holdfast import Status
from holdfast.core.jobs.transitions import hold, park
from holdfast.core.providers.holder import Holder
from holdfast.ports import Store
from tests.builders import a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import a_claim, a_completed_job, a_failed_job, claimed, submitted

MINUTE = timedelta(minutes=1)


async def depth(store: Store) -> dict[tuple[str, str], int]:
    return {(found.queue, found.state): found.jobs for found in await store.queues.depths()}


async def age(store: Store, *, queue: str = "default") -> timedelta:
    [oldest] = [
        found.oldest
        for found in await store.queues.depths()
        if (found.queue, found.state) == (queue, "ready")
    ]
    return oldest


def about(length: timedelta) -> object:
    """Time passes while a test runs, but not seconds."""
    return pytest.approx(length.total_seconds(), abs=10)


@pytest.mark.clause("OBS-2")
async def test_live_jobs_are_counted_by_queue_and_state(store: Store) -> None:
    claim = await a_claim(store)
    waiting = park(claim, "sleeps", delay=timedelta(hours=1), seen=0, awaits=False)
    await store.settle("worker", [waiting])
    held = hold(await a_claim(store), "its breaker is open", held_by=Holder("llm"))
    await store.settle("worker", [held])
    await submitted(store, a_job(), a_job(queue="slow"))
    await claimed(store, queue="slow")
    await submitted(store, a_job(), a_job(delay=MINUTE), a_job(queue="slow"))

    assert await depth(store) == {
        ("default", "ready"): 2,
        ("default", "scheduled"): 1,
        ("default", "waiting"): 1,
        ("default", "held"): 1,
        ("slow", "ready"): 1,
        ("slow", "processing"): 1,
    }


@pytest.mark.clause("OBS-2")
async def test_jobs_that_have_ended_have_no_depth(store: Store) -> None:
    await a_completed_job(store)
    await a_failed_job(store)
    [job_id] = await submitted(store, a_job())
    assert await store.cancel(job_id) is Status.CANCELLED

    assert await store.queues.depths() == []


@pytest.mark.clause("OBS-2")
async def test_the_age_is_that_of_the_job_that_has_been_ready_longest(
    store: Store, clock: DatabaseClock
) -> None:
    await submitted(store, a_job())
    await clock.advance(5 * MINUTE)
    await submitted(store, a_job(), a_job(queue="slow"))

    assert (await age(store)).total_seconds() == about(5 * MINUTE)
    assert (await age(store, queue="slow")).total_seconds() == about(timedelta(0))


async def test_a_job_is_ready_from_its_due_time_on_not_from_its_submission(
    store: Store, clock: DatabaseClock
) -> None:
    await submitted(store, a_job(delay=5 * MINUTE))
    await clock.advance(6 * MINUTE)
    await store.promote(limit=10)
    await clock.advance(2 * MINUTE)

    assert (await age(store)).total_seconds() == about(2 * MINUTE)
