"""A worker takes what is ready, at once, and asks again at once."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from holdfast import Backoff, Holdfast, JobFailed, Retryable, Status
from holdfast.engine.runtime import Runtime
from holdfast.errors import JobNotFound, ResultTimeout
from holdfast.ports import Hint, HintKind, Store
from holdfast.types import EventKind
from holdfast.wiring.assemble import assemble
from tests.contract.conftest import Database, DatabaseClock
from tests.contract.steps import TIMEOUT, eventually

NEVER = 60
"""A poll so rare that a worker which depends on it fails the test."""


async def double(n: int) -> int:
    return 2 * n


async def test_a_submitted_job_runs_and_its_result_comes_back(hold: Holdfast) -> None:
    job = await hold.job("double")(double).submit(21)

    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == 42

    kinds = [event.kind for event in await job.events()]
    assert kinds == [EventKind.QUEUED, EventKind.PROCESSING, EventKind.COMPLETED]
    assert await job.result() == 42


@pytest.mark.clause("JOB-8")
async def test_an_idle_worker_is_woken_by_a_submission(hold: Holdfast) -> None:
    doubled = hold.job("double")(double)

    async with hold.worker(poll=NEVER) as worker:
        await worker.ready.wait()
        for n in range(3):
            job = await doubled.submit(n)
            assert await job.result(timeout=TIMEOUT) == 2 * n


@pytest.mark.clause("JOB-8")
async def test_an_idle_worker_is_woken_by_a_submission_from_another_process(
    hold: Holdfast, database: Database
) -> None:
    hold.job("double")(double)
    elsewhere = Holdfast(database.url, logger=hold.runtime.logger)

    async with elsewhere, hold.worker(poll=NEVER) as worker:
        await worker.ready.wait()
        job = await elsewhere.job("double")(double).submit(4)

        assert await job.result(timeout=TIMEOUT) == 8


class SilentStore:
    """A store whose hints all get lost."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def listen(self, receive: Callable[[Hint], None], kinds: Collection[HintKind]) -> Callable[[], None]:
        return lambda: None


@pytest.mark.clause("JOB-8")
async def test_an_idle_worker_that_gets_no_notification_finds_a_job_by_polling(
    hold: Holdfast, database: Database
) -> None:
    def silently(*args: Any, **given: Any) -> Runtime:
        runtime = assemble(*args, **given)
        return replace(runtime, store=cast("Store", SilentStore(runtime.store)))

    unnotified = Holdfast(database.url, logger=hold.runtime.logger, assemble=silently)
    doubled = unnotified.job("double")(double)

    async with unnotified, unnotified.worker(poll=0.05) as worker:
        await worker.ready.wait()
        job = await doubled.submit(4)

        assert await job.result(timeout=TIMEOUT) == 8


@pytest.mark.clause("JOB-8")
@pytest.mark.parametrize("slots", [1, 2, 7])
async def test_after_a_job_the_next_is_claimed_at_once(hold: Holdfast, slots: int) -> None:
    jobs = await hold.job("double")(double).submit_many([[n] for n in range(60)])

    async with hold.worker(slots=slots, poll=NEVER):
        results = await asyncio.gather(*[job.result(timeout=TIMEOUT) for job in jobs])

    assert results == [2 * n for n in range(60)]


@pytest.mark.clause("JOB-8")
async def test_a_job_that_waits_for_its_retry_needs_no_poll(hold: Holdfast) -> None:
    tries: list[int] = []

    @hold.job("flaky", backoff=Backoff.constant("50ms"))
    async def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise Retryable("not yet")
        return len(tries)

    async with hold.worker(poll=NEVER):
        assert await (await flaky.submit()).result(timeout=TIMEOUT) == 3


async def test_no_more_jobs_run_at_once_than_there_are_slots(hold: Holdfast) -> None:
    running: list[int] = []
    most: list[int] = []

    @hold.job("count")
    async def count(n: int) -> None:
        running.append(n)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(n)

    jobs = await count.submit_many([[n] for n in range(30)])
    async with hold.worker(slots=3, poll=0.05):
        await asyncio.gather(*[job.result(timeout=TIMEOUT) for job in jobs])

    assert max(most) <= 3


async def test_a_worker_serves_its_queues_only(hold: Holdfast) -> None:
    doubled = hold.job("double")(double)
    other = await doubled.options(queue="other").submit(1)
    mine = await doubled.options(queue="mine").submit(2)

    async with hold.worker(queues=["mine", "else"], poll=0.05):
        assert await mine.result(timeout=TIMEOUT) == 4

    assert (await other.read()).status is Status.QUEUED


async def test_a_job_for_later_is_not_run_before(hold: Holdfast, clock: DatabaseClock, store: Store) -> None:
    doubled = hold.job("double")(double)
    later = await doubled.options(delay="1h").submit(1)
    at = await doubled.options(run_at=datetime.now(UTC) + timedelta(hours=1)).submit(2)
    now = await doubled.options(run_at=datetime.now(UTC) - timedelta(hours=1)).submit(3)

    async with hold.worker(poll=0.05):
        assert await now.result(timeout=TIMEOUT) == 6
        waiting = [(await later.read()).status, (await at.read()).status]
        await clock.advance(timedelta(hours=2))
        await store.promote(limit=10)
        results = [await later.result(timeout=TIMEOUT), await at.result(timeout=TIMEOUT)]

    assert (waiting, results) == ([Status.QUEUED, Status.QUEUED], [2, 4])


async def test_a_result_that_takes_too_long_leaves_the_job_alone(hold: Holdfast) -> None:
    job = await hold.job("double")(double).submit(21)

    with pytest.raises(ResultTimeout):
        await job.result(timeout=0.01)

    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == 42


async def test_many_may_wait_for_one_job_and_for_its_failure(hold: Holdfast) -> None:
    @hold.job("fail", attempts=1)
    async def fail() -> None:
        raise ValueError("no good")

    job = await fail.submit()
    again = hold.handle(job.id, "fail")
    async with hold.worker(poll=0.05):
        outcomes = await asyncio.gather(
            *[each.result(timeout=TIMEOUT) for each in (job, job, again)], return_exceptions=True
        )

    assert [type(outcome) for outcome in outcomes] == [JobFailed] * 3
    assert "no good" in str(outcomes[0])


async def test_a_job_may_name_itself_and_what_comes_after_it(hold: Holdfast) -> None:
    @hold.job("countdown")
    async def countdown(n: int) -> str:
        if n == 0:
            return await last()
        job = await countdown.submit(n - 1)
        return await job.result(timeout=TIMEOUT)

    @hold.stage("last")
    async def last() -> str:
        return "ignition"

    async with hold.worker(poll=0.05):
        assert await (await countdown.submit(2)).result(timeout=TIMEOUT) == "ignition"


async def test_a_wait_for_a_job_that_is_not_there_is_refused(hold: Holdfast) -> None:
    with pytest.raises(JobNotFound):
        await hold.handle("00000000-0000-7000-8000-000000000000").result(timeout=TIMEOUT)


@pytest.mark.clause("JOB-5")
async def test_the_lease_of_a_long_job_is_extended_while_it_runs(hold: Holdfast, store: Store) -> None:
    may_end = asyncio.Event()

    @hold.job("long")
    async def long() -> str:
        await may_end.wait()
        return "done"

    job = await long.submit()
    async with hold.worker(lease=6, poll=0.05):
        began = await eventually(job.read, lambda job: job.lease_expires_at is not None)
        later = await eventually(job.read, lambda job: job.lease_expires_at != began.lease_expires_at)
        may_end.set()
        assert await job.result(timeout=TIMEOUT) == "done"

    assert began.lease_expires_at is not None
    assert later.lease_expires_at is not None
    assert later.lease_expires_at > began.lease_expires_at
    assert (await job.read()).attempt == 1
