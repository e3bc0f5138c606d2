"""How long waits last, in virtual time: to the second, whatever runs beside them."""

import asyncio
from datetime import timedelta

from holdfast import Holdfast
from holdfast.errors import ResultTimeout
from holdfast.testing import Simulation, simulated

SOON = timedelta(seconds=2)
"""Within this time a worker notices what is due."""

hold = Holdfast("sqlite:////a/folder/that/does/not/exist/jobs.db")


@hold.stage()
async def work(seconds: float) -> None:
    await asyncio.sleep(seconds)


@hold.job("beside")
async def beside(worked: float, slept: float) -> None:
    await asyncio.gather(work(worked), hold.sleep(slept))


@hold.job("never", queue="later")
async def never() -> None: ...


@hold.job("waiting")
async def waiting() -> int:
    child, gave_up = await never.options(delay="1d").submit(), 0
    while gave_up < 3:
        try:
            await child.result(timeout="10m")
        except ResultTimeout:
            gave_up += 1
    return gave_up


@simulated(hold)
async def test_a_sleep_is_not_late_by_the_stage_that_ran_beside_it(sim: Simulation) -> None:
    began = sim.now

    await (await beside.submit(1500, 1600)).result()

    assert timedelta(seconds=1600) <= sim.now - began <= timedelta(seconds=1600) + SOON


@simulated(hold)
async def test_a_sleep_that_is_over_before_the_stage_beside_it_adds_nothing(sim: Simulation) -> None:
    began = sim.now

    await (await beside.submit(1500, 100)).result()

    assert timedelta(seconds=1500) <= sim.now - began <= timedelta(seconds=1500) + SOON


@simulated(hold)
async def test_each_wait_for_a_result_lasts_as_long_as_it_says(sim: Simulation) -> None:
    began = sim.now

    assert await (await waiting.submit()).result() == 3

    assert timedelta(minutes=30) <= sim.now - began <= timedelta(minutes=30) + 3 * SOON
