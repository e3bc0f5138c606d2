"""Cancelling through the whole engine: before, during and after a job runs."""

import asyncio
import threading
from datetime import timedelta

import pytest

from holdfast import Holdfast, Status
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.jobs.transitions import fail, release
from holdfast.errors import JobCancelled, StateRefused
from holdfast.ports import Store
from holdfast.types import EventKind
from tests.builders import a_failure, a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import TIMEOUT, claimed


async def test_a_job_that_waits_is_cancelled_and_never_runs(hold: Holdfast) -> None:
    runs: list[int] = []

    @hold.job("work")
    async def work() -> None:
        runs.append(1)

    job, other = await work.submit(), await work.submit()
    assert await job.cancel() is Status.CANCELLED
    async with hold.worker(poll=0.05):
        await other.result(timeout=TIMEOUT)
        with pytest.raises(JobCancelled):
            await job.result(timeout=TIMEOUT)

    assert runs == [1]


@pytest.mark.parametrize("asked_by", ["its own process", "another process"])
async def test_a_running_job_is_stopped_on_request(hold: Holdfast, store: Store, asked_by: str) -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    @hold.job("work")
    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    job = await work.submit()
    async with hold.worker(poll=0.05):
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        asked = await (job.cancel() if asked_by == "its own process" else store.cancel(job.id))
        with pytest.raises(JobCancelled):
            await job.result(timeout=TIMEOUT)

    assert (asked, cleaned.is_set()) == (Status.PROCESSING, True)
    kinds = [event.kind for event in await job.events()]
    assert kinds == [EventKind.QUEUED, EventKind.PROCESSING, EventKind.CANCELLED]
    with pytest.raises(StateRefused):
        await job.cancel()


async def test_a_stage_that_was_stopped_with_its_job_is_no_failed_stage(hold: Holdfast, store: Store) -> None:
    begun = asyncio.Event()

    @hold.stage("long", attempts=1)
    async def long() -> None:
        begun.set()
        await asyncio.Event().wait()

    @hold.job("work")
    async def work() -> None:
        await long()

    job = await work.submit()
    async with hold.worker(poll=0.05):
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(timeout=TIMEOUT)

    assert await store.stages([job.id]) == []


async def test_a_job_that_ends_before_it_is_stopped_is_completed(hold: Holdfast) -> None:
    begun = asyncio.Event()

    @hold.job("work")
    async def work() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "too late"
        return "never"

    job = await work.submit()
    async with hold.worker(poll=0.05):
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        await job.cancel()

        assert await job.result(timeout=TIMEOUT) == "too late"


async def test_a_job_in_a_thread_is_cancelled_and_its_late_result_thrown_away(hold: Holdfast) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @hold.job("blocking")
    def blocking() -> str:
        begun.set()
        may_end.wait(TIMEOUT)
        ended.set()
        return "late"

    job = await blocking.submit()
    async with hold.worker(poll=0.05):
        await asyncio.to_thread(begun.wait, TIMEOUT)
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(timeout=TIMEOUT)
        may_end.set()
        await asyncio.to_thread(ended.wait, TIMEOUT)

    assert (await job.read()).result is None


async def test_a_job_that_was_to_be_cancelled_when_it_failed_is_cancelled_instead_of_tried_again(
    hold: Holdfast, store: Store, clock: DatabaseClock
) -> None:
    runs: list[int] = []

    @hold.job("work")
    async def work() -> None:
        runs.append(1)

    job = await work.submit()
    claim = await claimed(store, "another")
    await job.cancel()
    policy = RetryPolicy(3, Backoff.none())
    await store.settle("another", [fail(claim, a_failure(), policy, roll=0, attempt=1)])
    await clock.advance(timedelta(seconds=1))
    await store.promote(limit=1)
    async with hold.worker(poll=0.05):
        with pytest.raises(JobCancelled):
            await job.result(timeout=TIMEOUT)

    assert runs == []


async def test_a_job_whose_cancellation_is_requested_is_not_parked(hold: Holdfast, store: Store) -> None:
    @hold.job("work")
    async def work() -> None: ...

    job = await work.submit()
    claim = await claimed(store, "another")
    await job.cancel()
    policy = RetryPolicy(3, Backoff.constant(300))
    await store.settle("another", [fail(claim, a_failure(), policy, roll=0, attempt=1)])

    assert (await job.read()).retry_after is None
    async with hold.worker(poll=0.05):
        with pytest.raises(JobCancelled):
            await job.result(timeout=TIMEOUT)


async def test_a_job_that_no_code_knows_any_more_can_still_be_cancelled(hold: Holdfast, store: Store) -> None:
    await store.submit([a_job(name="forgotten")])
    claim = await claimed(store, "another")
    await store.cancel(claim.id)
    await store.settle("another", [release(claim, "worker shut down")])

    async with hold.worker(poll=0.05):
        with pytest.raises(JobCancelled):
            await hold.handle(claim.id).result(timeout=TIMEOUT)
