"""A worker keeps what it runs, and gives back what it never heard of."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast import Holdfast, Status, StoreUnavailable
from holdfast.core.jobs import Claim
from holdfast.ports import Store
from tests.contract.conftest import Journal
from tests.contract.steps import PATIENCE, eventually

if TYPE_CHECKING:
    from holdfast.engine.worker import Worker


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
    store = LosesAnswers(hold.parts.store, answers=answers)
    hold.parts = replace(hold.parts, store=cast("Store", store))
    return store


@pytest.mark.clause("JOB-10")
async def test_a_claim_whose_answer_was_lost_costs_no_attempt(hold: Holdfast, journal: Journal) -> None:
    store = losing(hold, answers=2)
    runs: list[int] = []

    @hold.job("work", attempts=1)
    async def work(number: int) -> None:
        runs.append(number)

    jobs = await work.submit_many([(number,) for number in range(5)])
    async with hold.worker(poll=0.05):
        for job in jobs:
            await job.result(timeout=PATIENCE)

    assert len(store.lost) >= 2
    assert sorted(runs) == list(range(5))
    assert {(await job.read()).attempt for job in jobs} == {1}
    assert sum(line["jobs"] for line in journal.lines("lost claims released")) == len(store.lost)


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
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        store._answers = 1
        await work.submit()

        assert await running.result(timeout=PATIENCE) == "done"

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

    hold.parts = replace(hold.parts, store=cast("Store", HangsAfterClaims(hold.parts.store, answers=0)))

    @hold.job("work", attempts=1)
    async def work() -> None: ...

    job = await work.submit()

    workers: list[Worker] = []

    async def program() -> None:
        async with hold.worker(poll=0.05) as worker:
            workers.append(worker)
            await asyncio.Event().wait()

    running = asyncio.create_task(program())
    async with asyncio.timeout(PATIENCE):
        await committed.wait()
        main = workers[0]._main
        assert main is not None
        main.cancel()
        with pytest.raises(RuntimeError):
            await running

    left = await eventually(job.read, lambda read: read.status is Status.QUEUED)
    assert (left.attempt, left.leased_by) == (0, None)


@pytest.mark.clause("JOB-5")
async def test_a_job_that_blocks_the_event_loop_keeps_its_lease(hold: Holdfast, journal: Journal) -> None:
    runs = 0

    def seen() -> bool:
        return bool(journal.lines("leases extended by guard") and journal.lines("event loop blocked"))

    @hold.job("block", attempts=1)
    async def block() -> None:
        nonlocal runs
        runs += 1
        began = time.monotonic()
        while not seen() and time.monotonic() - began < PATIENCE:
            time.sleep(0.01)

    job = await block.submit()
    async with hold.worker(lease=3, poll=0.05):
        await job.result(timeout=PATIENCE)

    assert runs == 1
    assert (await job.read()).lease_token == 1
    [blocked] = journal.lines("event loop blocked")
    assert (blocked["name"], blocked["job_id"]) == ("block", job.id)
    assert blocked["line"]
    for thread in threading.enumerate():
        if thread.name == "holdfast-lease-guard":
            thread.join(PATIENCE)
            assert not thread.is_alive()
