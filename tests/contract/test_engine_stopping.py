"""A worker that is stopped finishes what it has in hand, or gives it back as it was."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Status
from holdfast.core.jobs.job import Claim
from holdfast.ports import Store
from holdfast.types import EventKind
from tests.contract.conftest import DatabaseClock, Logger
from tests.contract.steps import LEASE, TIMEOUT, claimed, eventually


class Work:
    """A job that runs until it is allowed to end, and says when it began and how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.stopped = 0

    async def run(self) -> str:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            for _ in range(20):
                await asyncio.sleep(0)  # cleaning up takes a while
            self.stopped += 1
            raise
        return "done"

    async def wait_until_begun(self) -> None:
        async with asyncio.timeout(TIMEOUT):
            await self.begun.wait()


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.mark.clause("JOB-7")
async def test_a_stopped_worker_finishes_its_job_and_claims_no_other(hold: Holdfast, work: Work) -> None:
    job_type = hold.job("work")(work.run)
    job = await job_type.submit()

    async with hold.worker(poll=0.05, grace=TIMEOUT) as worker:
        await work.wait_until_begun()
        worker.stop()
        late = await job_type.submit()
        work.may_end.set()

    assert ((await job.read()).status, (await late.read()).status) == (Status.COMPLETED, Status.QUEUED)
    assert await job.result() == "done"


@pytest.mark.clause("JOB-7")
async def test_what_does_not_end_in_time_is_given_back_with_its_attempt(hold: Holdfast, work: Work) -> None:
    job = await hold.job("work", attempts=1)(work.run).submit()

    async with hold.worker(poll=0.05, grace=0.05):
        await work.wait_until_begun()
    given_back = await job.read()
    last = (await job.events())[-1]
    work.may_end.set()
    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == "done"

    assert work.stopped == 1
    assert (given_back.status, given_back.attempt, given_back.retry_after) == (Status.QUEUED, 0, None)
    assert (last.kind, last.meta) == (EventKind.QUEUED, {"reason": "worker shut down"})
    assert (await job.read()).attempt == 1


@pytest.mark.clause("JOB-7")
async def test_a_second_request_to_stop_ends_the_grace_and_loses_nothing(hold: Holdfast, work: Work) -> None:
    job = await hold.job("work", attempts=1)(work.run).submit()

    async with asyncio.timeout(TIMEOUT), hold.worker(poll=0.05, grace=600) as worker:
        await work.wait_until_begun()
        worker.stop()
        worker.stop()

    given_back = await job.read()
    assert (work.stopped, given_back.status, given_back.attempt) == (1, Status.QUEUED, 0)


@pytest.mark.clause("JOB-7")
async def test_a_worker_that_is_stopped_as_it_starts_leaves_jobs_as_they_were(
    hold: Holdfast, work: Work
) -> None:
    job = await hold.job("work", attempts=1)(work.run).submit()

    async with hold.worker(poll=0.05, grace=0) as worker:
        worker.stop()

    left = await job.read()
    assert (left.status, left.attempt) == (Status.QUEUED, 0)


@pytest.mark.clause("JOB-7")
async def test_finished_stages_survive_a_shutdown_and_the_others_lose_no_attempt(
    hold: Holdfast, work: Work
) -> None:
    runs: list[str] = []

    @hold.stage("fetch", attempts=1)
    async def fetch() -> str:
        runs.append("fetch")
        return "page"

    @hold.stage("llm", attempts=1)
    async def llm(page: str) -> str:
        runs.append("llm")
        return page + await work.run()

    @hold.job("review", attempts=1)
    async def review() -> str:
        return await llm(await fetch())

    job = await review.submit()
    async with hold.worker(poll=0.05, grace=0):
        await work.wait_until_begun()
    work.may_end.set()
    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == "pagedone"

    assert runs == ["fetch", "llm", "llm"]


@pytest.mark.clause("JOB-7")
async def test_a_thread_that_cannot_be_stopped_writes_nothing_afterwards(hold: Holdfast) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @hold.job("blocking", attempts=1)
    def blocking() -> str:
        first = not begun.is_set()
        begun.set()
        if first:
            may_end.wait(TIMEOUT)
            ended.set()
            return "from the stopped worker"
        return "from the next"

    job = await blocking.submit()
    async with hold.worker(poll=0.05, grace=0):
        await asyncio.to_thread(begun.wait, TIMEOUT)
    given_back = await job.read()
    may_end.set()
    await asyncio.to_thread(ended.wait, TIMEOUT)
    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == "from the next"

    assert (given_back.status, given_back.attempt) == (Status.QUEUED, 0)


@pytest.mark.clause("JOB-7")
async def test_a_handler_that_ends_well_though_it_was_stopped_is_completed(hold: Holdfast) -> None:
    begun = asyncio.Event()

    @hold.job("stubborn")
    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished anyway"
        return "never"

    job = await stubborn.submit()
    async with hold.worker(poll=0.05, grace=0):
        await asyncio.wait_for(begun.wait(), TIMEOUT)

    assert await job.result(timeout=TIMEOUT) == "finished anyway"


async def test_an_error_in_the_block_stops_the_worker_cleanly(hold: Holdfast, work: Work) -> None:
    job = await hold.job("work")(work.run).submit()

    async def block() -> None:
        async with hold.worker(poll=0.05, grace=0):
            await work.wait_until_begun()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()

    assert (await job.read()).status is Status.QUEUED


@pytest.mark.clause("JOB-6")
async def test_a_worker_that_overslept_its_lease_lets_go_of_the_job(
    hold: Holdfast, store: Store, clock: DatabaseClock, work: Work, logger: Logger
) -> None:
    job = await hold.job("work")(work.run).submit()

    async with hold.worker(slots=1, lease=3, poll=0.05):
        await work.wait_until_begun()
        await clock.advance(timedelta(seconds=60))
        await store.reclaim(limit=1)
        thief = await claimed(store, "another")
        async with asyncio.timeout(TIMEOUT):
            while not work.stopped:
                await asyncio.sleep(0.005)

    held = await job.read()
    assert (held.leased_by, held.lease_token, held.status) == ("another", thief.token, Status.PROCESSING)
    assert [line["job_id"] for line in logger.lines("lease lost")] == [job.id]


@pytest.mark.clause("JOB-6")
async def test_a_result_that_comes_after_the_lease_is_thrown_away(
    hold: Holdfast, store: Store, clock: DatabaseClock, work: Work, logger: Logger
) -> None:
    job = await hold.job("work")(work.run).submit()

    async with hold.worker(slots=1, lease=LEASE, poll=0.05):
        await work.wait_until_begun()
        await clock.advance(2 * LEASE)
        await store.reclaim(limit=1)
        await claimed(store, "another")
        work.may_end.set()

    held = await eventually(job.read, lambda job: job.leased_by is not None)
    assert (held.leased_by, held.status, held.result) == ("another", Status.PROCESSING, None)
    assert [line["job_id"] for line in logger.lines("write fenced")] == [job.id]


class SlowToAnswer:
    """A store whose claims are committed at once, and answered only when the test says so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.committed, self.may_answer = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        claims = await self._store.claim(*args, **options)
        self.committed.set()
        await self.may_answer.wait()
        return claims


@pytest.mark.clause("JOB-7")
async def test_a_block_that_fails_while_its_worker_claims_leaves_no_job_behind_it(hold: Holdfast) -> None:
    @hold.job("work")
    async def work() -> str:
        return "done"

    job = await work.submit()
    slow = SlowToAnswer(hold.runtime.store)
    hold.runtime = replace(hold.runtime, store=slow)
    with suppress(RuntimeError):
        async with hold.worker(poll=0.05):
            await asyncio.wait_for(slow.committed.wait(), TIMEOUT)
            asyncio.get_running_loop().call_later(0.05, slow.may_answer.set)
            raise RuntimeError("the block fails")

    given_back = await job.read()
    assert (given_back.status, given_back.attempt, given_back.leased_by) == (Status.QUEUED, 0, None)
