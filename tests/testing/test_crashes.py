"""Jobs that fail or crash again and again, and quarantined jobs beside many others, in virtual time."""

import asyncio
from itertools import count

import pytest

from holdfast import Backoff, ErrorClass, Holdfast, JobFailed, Retryable
from holdfast.testing import Simulation, simulation


@pytest.mark.clause("JOB-10", "sqlite")
def test_a_new_stage_key_in_each_run_does_not_make_retries_endless() -> None:
    hold = Holdfast("sqlite:///nowhere.db", attempts=3, backoff=Backoff.constant(60))
    runs = count(1)

    @hold.stage("store")
    async def store_one(number: int) -> int:
        return number

    @hold.job("restless")
    async def restless() -> None:
        number = next(runs)
        await store_one.options(key=str(number))(number)
        raise Retryable("not yet")

    async def meet(sim: Simulation) -> None:
        job = await restless.submit()
        with pytest.raises(JobFailed, match="300 runs of the job"):
            await job.result()

    with simulation(hold) as sim:
        sim.run(meet(sim))

    assert next(runs) == 301


@pytest.mark.clause("JOB-10", "sqlite")
def test_a_job_that_crashes_after_another_stage_each_time_takes_two_workers_for_each_attempt() -> None:
    hold = Holdfast("sqlite:///nowhere.db", attempts=3)
    deaths = 0
    sims: list[Simulation] = []

    @hold.stage("store")
    async def store_one(number: int) -> int:
        return number

    @hold.job("deadly")
    async def deadly() -> None:
        nonlocal deaths
        deaths += 1
        await store_one.options(key=str(deaths))(deaths)
        await sims[0].kill_worker()

    @hold.job("harmless")
    async def harmless() -> None:
        await asyncio.sleep(1)

    async def meet(sim: Simulation) -> list[int]:
        sims.append(sim)
        job = await deadly.submit()
        others = await harmless.submit_many(() for _ in range(20))
        with pytest.raises(JobFailed) as failed:
            await job.result()
        assert failed.value.failure.error_class is ErrorClass.WORKER_LOST
        for other in others:
            await other.result()
        return [(await other.read()).attempt for other in others]

    with simulation(hold, slots=100) as sim:
        attempts = sim.run(meet(sim))

    assert deaths == 6
    assert max(attempts) <= 3, "none was lost with another quarantined job in its last attempt"


@pytest.mark.clause("JOB-10", "sqlite")
def test_short_jobs_do_not_wait_for_a_quarantined_job() -> None:
    hold = Holdfast("sqlite:///nowhere.db", attempts=3)
    begun = asyncio.Event()
    sims: list[Simulation] = []
    waits: list[float] = []

    @hold.job("quarantined")
    async def quarantined() -> None:
        begun.set()
        await asyncio.sleep(12)

    @hold.job("short")
    async def short(submitted_at: float) -> None:
        waits.append(asyncio.get_running_loop().time() - submitted_at)
        await asyncio.sleep(0.1)

    async def meet(sim: Simulation) -> None:
        sims.append(sim)
        job = await quarantined.submit()
        for _ in range(2):
            await begun.wait()
            begun.clear()
            await sim.kill_worker()
        await begun.wait()
        loop = asyncio.get_running_loop()
        now = loop.time()
        others = await short.submit_many((now,) for _ in range(500))
        for other in others:
            await other.result()
        assert loop.time() - now < 5, "all were done before the quarantined job was"
        await job.result()

    with simulation(hold, slots=100) as sim:
        sim.run(meet(sim))

    assert len(waits) == 500
    assert max(waits) < 3
