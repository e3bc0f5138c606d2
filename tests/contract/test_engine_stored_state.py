"""What is stored of a claimed job is read before it runs, for a bounded time, and no job pays for its neighbour."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast import ErrorClass, Holdfast, JobFailed, JobHandle, Status
from holdfast.core.errors import StoreReadOnly
from holdfast.core.jobs.job import Claim, Signal
from holdfast.core.jobs.stages import StageRow
from holdfast.core.jobs.transitions import release
from holdfast.engine.claiming.launcher import EXPIRED
from holdfast.ports import Clock, Store
from tests.builders import a_stage
from tests.contract.conftest import Logger
from tests.contract.steps import LEASE, TIMEOUT, eventually

if TYPE_CHECKING:
    from holdfast.engine.worker.worker import Worker

Look = Callable[[Sequence[str]], Awaitable[None]]


class Watched:
    """A store of a worker in which something happens before stages or signals are read."""

    def __init__(self, hold: Holdfast, look: Look) -> None:
        self._store = hold.runtime.store
        self._look = look
        hold.runtime = replace(hold.runtime, store=cast("Store", self))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
        await self._look(job_ids)
        return await self._store.stages(job_ids)

    async def signals(self, job_ids: Sequence[str]) -> list[Signal]:
        await self._look(job_ids)
        return await self._store.signals(job_ids)


@pytest.mark.clause("JOB-10")
@pytest.mark.parametrize("with_signal", [False, True])
async def test_the_store_knows_that_a_suspected_job_runs_before_what_is_stored_of_it_is_read(
    hold: Holdfast, store: Store, with_signal: bool
) -> None:
    """If that takes the process down, the job is held responsible."""
    spent: list[int] = []

    @hold.job("work")
    async def work() -> str:
        return str(await hold.wait_for("go")) if with_signal else "done"

    async def look(job_ids: Sequence[str]) -> None:
        spent.extend([(await store.get(job_id)).attempt for job_id in job_ids])

    Watched(hold, look)
    job = await work.submit()
    await lose_a_worker(store, with_stage=not with_signal)
    if with_signal:
        await hold.signal(job.id, "go", "done")
    async with hold.worker(poll=0.05):
        assert await job.result(timeout=TIMEOUT) == "done"

    assert spent == [2]


@pytest.mark.clause("JOB-10")
@pytest.mark.parametrize("limits", [{"attempts": 2}, {"max_failed_runs": 2}])
async def test_a_job_that_lost_too_many_workers_ends_though_reading_its_stages_would_take_another_one(
    hold: Holdfast, store: Store, limits: dict[str, Any]
) -> None:
    read: list[str] = []

    @hold.job("work", **limits)
    async def work() -> None: ...

    async def look(job_ids: Sequence[str]) -> None:
        read.extend(job_ids)

    Watched(hold, look)
    job = await work.submit()
    for number in range(2):
        await lose_a_worker(store, with_stage=number == 0)
    async with hold.worker(poll=0.05):
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=TIMEOUT)

    assert failed.value.failure.error_class is ErrorClass.WORKER_LOST
    assert read == []


@pytest.mark.clause("JOB-10")
async def test_a_suspected_job_that_cannot_be_read_waits_and_keeps_its_losses(
    hold: Holdfast, store: Store
) -> None:
    readable = False

    @hold.job("work")
    async def work() -> str:
        return "done"

    async def look(_: Sequence[str]) -> None:
        if not readable:
            raise StoreReadOnly("not now")

    Watched(hold, look)
    job = await work.submit()
    await lose_a_worker(store, with_stage=True)
    async with hold.worker(poll=0.05):
        back = await eventually(job.read, lambda read: read.retry_after is not None)
        readable = True

        assert await job.result(timeout=TIMEOUT) == "done"

    assert (back.status, back.attempt, back.losses) == (Status.QUEUED, 1, 1)
    assert (await job.read()).attempt == 2


@pytest.mark.clause("JOB-10")
async def test_a_suspected_job_keeps_its_losses_if_its_worker_is_cancelled_while_it_is_read(
    hold: Holdfast, store: Store
) -> None:
    reading = asyncio.Event()
    workers: list[Worker] = []

    @hold.job("work")
    async def work() -> None: ...

    async def look(_: Sequence[str]) -> None:
        reading.set()
        await asyncio.Event().wait()

    async def program() -> None:
        async with hold.worker(poll=0.05) as worker:
            workers.append(worker)
            await asyncio.Event().wait()

    Watched(hold, look)
    job = await work.submit()
    await lose_a_worker(store, with_stage=True)
    running = asyncio.create_task(program())
    async with asyncio.timeout(TIMEOUT):
        await reading.wait()
        main = workers[0]._main
        assert main is not None
        main.cancel()
        with pytest.raises(RuntimeError):
            await running

    left = await job.read()
    assert (left.status, left.leased_by, left.attempt, left.losses) == (Status.QUEUED, None, 1, 1)


@pytest.mark.clause("JOB-10")
async def test_a_suspected_job_keeps_its_losses_if_the_answer_to_its_begin_was_lost(
    hold: Holdfast, store: Store
) -> None:
    begun = asyncio.Event()

    class LosesAnswers(Watched):
        async def begin(self, held: Sequence[tuple[str, int]]) -> list[bool]:
            await self._store.begin(held)
            begun.set()
            raise StoreReadOnly("the answer was lost")

    @hold.job("work")
    async def work() -> None: ...

    LosesAnswers(hold, look_away)
    job = await work.submit()
    await lose_a_worker(store)
    async with hold.worker(poll=0.05):
        async with asyncio.timeout(TIMEOUT):
            await begun.wait()

    left = await job.read()
    assert (left.status, left.leased_by, left.attempt, left.losses) == (Status.QUEUED, None, 1, 1)


@pytest.mark.clause("STG-2")
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_job_that_cannot_be_read_does_not_keep_its_neighbours_from_running(
    hold: Holdfast, store: Store, logger: Logger, hangs: bool
) -> None:
    heavy: list[str] = []
    readable = asyncio.Event()

    @hold.job("work")
    async def work() -> str:
        return "done"

    async def look(job_ids: Sequence[str]) -> None:
        if heavy[0] in job_ids and not readable.is_set():
            if not hangs:
                raise ValueError("no such kind of stage")
            await readable.wait()

    Watched(hold, look)
    jobs = await with_stages(store, await work.submit_many(() for _ in range(3)))
    heavy.append(jobs[0].id)
    async with hold.worker(poll=0.05, lease=4):
        for neighbour in jobs[1:]:
            assert await neighbour.result(timeout=TIMEOUT) == "done"
        back = await eventually(jobs[0].read, lambda read: read.retry_after is not None)
        readable.set()

        assert await jobs[0].result(timeout=TIMEOUT) == "done"

    assert back.status is Status.QUEUED
    assert logger.lines("claims released")


@pytest.mark.clause("STG-2")
async def test_a_job_without_stages_does_not_wait_for_those_of_its_neighbours(
    hold: Holdfast, store: Store
) -> None:
    readable = asyncio.Event()

    @hold.job("work")
    async def work() -> str:
        return "done"

    async def look(_: Sequence[str]) -> None:
        await readable.wait()

    Watched(hold, look)
    [heavy] = await with_stages(store, await work.submit_many([()]))
    light = await work.submit()
    async with hold.worker(poll=0.05):
        assert await light.result(timeout=TIMEOUT) == "done"
        readable.set()

        assert await heavy.result(timeout=TIMEOUT) == "done"


class Skips:
    """A steady clock that skips what a process has slept through."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.slept = 0.0

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.slept


@pytest.mark.clause("JOB-6")
@pytest.mark.parametrize("where", ["claim", "stages"])
async def test_a_job_whose_lease_may_be_over_before_it_begins_is_not_run(
    hold: Holdfast, store: Store, where: str
) -> None:
    clock = Skips(hold.runtime.clock)
    hold.runtime = replace(hold.runtime, clock=clock)
    runs: list[float] = []

    @hold.job("work")
    async def work() -> str:
        runs.append(clock.slept)
        return "done"

    def sleep(place: str) -> None:
        if place == where and not clock.slept:
            clock.slept = LEASE.total_seconds() * 0.7

    class Sleepy(Watched):
        async def claim(self, *args: Any, **kwargs: Any) -> list[Claim]:
            claims = await self._store.claim(*args, **kwargs)
            if claims:
                sleep("claim")
            return claims

        async def stages(self, job_ids: Sequence[str]) -> list[StageRow]:
            rows = await self._store.stages(job_ids)
            sleep("stages")
            return rows

    Sleepy(hold, look_away)
    [job] = await with_stages(store, await work.submit_many([()]))
    async with hold.worker(poll=0.05, lease=LEASE):
        assert await job.result(timeout=TIMEOUT) == "done"

    assert EXPIRED in [event.meta.get("reason") for event in await job.events()]
    assert runs == [clock.slept]


async def look_away(_: Sequence[str]) -> None:
    """Let everything be read."""


async def lose_a_worker(store: Store, *, with_stage: bool = False) -> None:
    """Claim and begin the only job as a worker does that stores a stage and is dead a moment later."""
    [claim] = await store.claim("dead", "default", limit=1, lease=timedelta(seconds=90))
    if claim.suspected:
        await store.begin([(claim.id, claim.token)])
    if with_stage:
        await store.settle("dead", [a_stage(claim)])
    await store.extend([(claim.id, claim.token)], lease=timedelta(milliseconds=1))
    async with asyncio.timeout(TIMEOUT):
        while not await store.reclaim(limit=1):
            await asyncio.sleep(0.001)


async def with_stages(store: Store, jobs: list[JobHandle[str]]) -> list[JobHandle[str]]:
    """Give each of these jobs, which are all there are, a stage that is done."""
    claims = await store.claim("earlier", "default", limit=len(jobs), lease=timedelta(seconds=90))
    await store.settle("earlier", [a_stage(claim) for claim in claims])
    await store.settle("earlier", [release(claim, "worker shut down") for claim in claims])
    return jobs
