"""A worker keeps the leases of what it runs, and gives back jobs whose claim never reached it."""

import asyncio
import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast import Holdfast, Status
from holdfast.core.jobs.job import Claim
from holdfast.errors import StoreUnavailable
from holdfast.ports import LeaseExtender, Store
from holdfast.ports.store import Leased
from tests.contract.conftest import Logger
from tests.contract.steps import TIMEOUT, eventually

if TYPE_CHECKING:
    from holdfast.engine.worker.worker import Worker


class LosesAnswers:
    """A store whose claims are committed, and whose answers to the first of them get lost."""

    def __init__(self, store: Store, *, answers: int) -> None:
        self._store = store
        self._answers = answers
        self.lost: list[Claim] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, *args: Any, **kwargs: Any) -> list[Claim]:
        claims = await self._store.claim(*args, **kwargs)
        if claims and self._answers:
            self._answers -= 1
            self.lost += claims
            raise StoreUnavailable("the answer was lost")
        return claims


def losing(hold: Holdfast, *, answers: int) -> LosesAnswers:
    store = LosesAnswers(hold.runtime.store, answers=answers)
    hold.runtime = replace(hold.runtime, store=cast("Store", store))
    return store


@pytest.mark.clause("JOB-10")
async def test_a_claim_whose_answer_was_lost_costs_no_attempt(hold: Holdfast, logger: Logger) -> None:
    store = losing(hold, answers=2)
    runs: list[int] = []

    @hold.job("work", attempts=1)
    async def work(number: int) -> None:
        runs.append(number)

    jobs = await work.submit_many([(number,) for number in range(5)])
    async with hold.worker(poll=0.05):
        for job in jobs:
            await job.result(timeout=TIMEOUT)

    assert len(store.lost) >= 2
    assert sorted(runs) == list(range(5))
    assert {(await job.read()).attempt for job in jobs} == {1}
    assert sum(line["jobs"] for line in logger.lines("lost claims released")) == len(store.lost)


async def test_only_what_is_not_held_is_given_back(hold: Holdfast) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @hold.job("long", queue="slow")
    async def long() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    @hold.job("work")
    async def work() -> None:
        may_end.set()

    store = losing(hold, answers=0)
    running = await long.submit()
    async with hold.worker(poll=0.05, queues=["slow", "default"]):
        async with asyncio.timeout(TIMEOUT):
            await begun.wait()
        store._answers = 1
        await work.submit()

        assert await running.result(timeout=TIMEOUT) == "done"

    assert (await running.read()).lease_token == 1


@pytest.mark.clause("JOB-7")
async def test_a_worker_that_is_cancelled_while_it_claims_leaves_no_job_behind(hold: Holdfast) -> None:
    committed = asyncio.Event()

    class HangsAfterClaims(LosesAnswers):
        async def claim(self, *args: Any, **kwargs: Any) -> list[Claim]:
            claims = await self._store.claim(*args, **kwargs)
            if claims:
                committed.set()
                await asyncio.Event().wait()
            return claims

    hold.runtime = replace(hold.runtime, store=cast("Store", HangsAfterClaims(hold.runtime.store, answers=0)))

    @hold.job("work", attempts=1)
    async def work() -> None: ...

    job = await work.submit()

    workers: list[Worker] = []

    async def program() -> None:
        async with hold.worker(poll=0.05) as worker:
            workers.append(worker)
            await asyncio.Event().wait()

    running = asyncio.create_task(program())
    async with asyncio.timeout(TIMEOUT):
        await committed.wait()
        main = workers[0]._main
        assert main is not None
        main.cancel()
        with pytest.raises(RuntimeError):
            await running

    left = await eventually(job.read, lambda read: read.status is Status.QUEUED)
    assert (left.attempt, left.leased_by) == (0, None)


@pytest.mark.clause("JOB-5")
async def test_a_job_that_blocks_the_event_loop_keeps_its_lease(hold: Holdfast, logger: Logger) -> None:
    runs = 0

    def seen() -> bool:
        return bool(logger.lines("leases extended by guard") and logger.lines("event loop blocked"))

    @hold.job("block", attempts=1)
    async def block() -> None:
        nonlocal runs
        runs += 1
        began = time.monotonic()
        while not seen() and time.monotonic() - began < TIMEOUT:
            time.sleep(0.01)

    job = await block.submit()
    async with hold.worker(lease=3, poll=0.05):
        await job.result(timeout=TIMEOUT)

    assert runs == 1
    assert (await job.read()).lease_token == 1
    [blocked] = logger.lines("event loop blocked")
    assert (blocked["name"], blocked["job_id"]) == ("block", job.id)
    assert blocked["line"]
    await no_guard_is_left()


async def no_guard_is_left() -> None:
    for thread in threading.enumerate():
        if thread.name == "holdfast-lease-guard":
            await asyncio.to_thread(thread.join, TIMEOUT)
            assert not thread.is_alive()


@pytest.mark.clause("JOB-5")
async def test_a_log_that_blocks_keeps_no_lease_from_being_extended(hold: Holdfast) -> None:
    extended, log_goes_on, asked = 0, threading.Event(), threading.Event()

    class Extender:
        def __init__(self, inner: LeaseExtender) -> None:
            self._inner = inner
            self.close = inner.close

        def extend(self, worker: str, *, lease: timedelta) -> int:
            nonlocal extended
            jobs = self._inner.extend(worker, lease=lease)
            extended += 1
            return jobs

    class CountsExtensions(LosesAnswers):
        def lease_extender(self) -> Extender:
            return Extender(self._store.lease_extender())

    class Blocks:
        """A log that takes no line from any thread but the event loop's."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner
            self._loop_thread = threading.get_ident()

        verbose = False

        def __getattr__(self, name: str) -> Any:
            def log(event: str, **fields: Any) -> None:
                if threading.get_ident() != self._loop_thread:
                    asked.set()
                    log_goes_on.wait(TIMEOUT)
                getattr(self._inner, name)(event, **fields)

            return log

    store = cast("Store", CountsExtensions(hold.runtime.store, answers=0))
    hold.runtime = replace(hold.runtime, store=store, logger=Blocks(hold.runtime.logger))

    @hold.job("block", attempts=1)
    async def block() -> bool:
        began = time.monotonic()
        while not (extended >= 3 and asked.is_set()) and time.monotonic() - began < TIMEOUT / 2:
            time.sleep(0.01)
        return extended >= 3

    job = await block.submit()
    async with hold.worker(lease=3, poll=0.05):
        assert await job.result(timeout=TIMEOUT)
        log_goes_on.set()
    await no_guard_is_left()


async def test_an_outage_is_over_when_lost_claims_are_no_longer_looked_for(
    hold: Holdfast, logger: Logger
) -> None:
    asked = asyncio.Event()

    class NeverTellsWhatIsLeased(LosesAnswers):
        async def leased_to(self, worker: str) -> list[Leased]:
            asked.set()
            raise StoreUnavailable("too slow")

    store = NeverTellsWhatIsLeased(hold.runtime.store, answers=1)
    hold.runtime = replace(hold.runtime, store=cast("Store", store))

    @hold.job("work")
    async def work() -> None: ...

    await work.submit()
    # The lease is longer than a worker waits after a claim that failed: it looks for lost claims at least once.
    async with hold.worker(lease=3, poll=0.05), asyncio.timeout(TIMEOUT):
        await asked.wait()
        before = len(logger.lines("store available"))
        while len(logger.lines("store available")) == before:
            await asyncio.sleep(0.01)

    assert store.lost
    assert {line["service"] for line in logger.lines("store unavailable")} <= {"worker", "lost claims"}
