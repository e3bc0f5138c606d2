"""How soon a job that was held for its name is run by a worker that knows it, in virtual time."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, Status
from holdfast.core.jobs.transitions import hold as hold_back
from holdfast.core.providers.holder import Holder
from tests.crashpoints.planned_fault import NoFaults
from tests.simulation.world import World

POLL = 5.0


def an_application(world: World) -> Holdfast:
    process = world.process("worker", NoFaults())
    hold, _ = world.application(process, skew=timedelta(0), loses_hint=lambda: True)
    return hold


async def seconds_until_it_runs(world: World, *, after: float) -> float:
    """Have a job held while a worker that knows it is idle, *after* seconds from its start."""
    hold, begun = an_application(world), asyncio.Event()

    @hold.job("from-tomorrow", queue="mail")
    async def from_tomorrow() -> None:
        begun.set()

    async with hold, hold.worker(queues=["mail"], poll=POLL):
        await asyncio.sleep(after)
        store = hold.runtime.store
        handle = await from_tomorrow.submit()
        [claim] = await store.claim("old", "mail", limit=1, lease=timedelta(seconds=90))
        await store.settle("old", [hold_back(claim, "unknown", held_by=Holder(job=claim.name, queue="mail"))])
        held_at = world.loop.time()
        await begun.wait()
        seconds = world.loop.time() - held_at
        assert (await hold.wait(handle.id)).status is Status.COMPLETED
    return seconds


@pytest.mark.parametrize("seed", range(8))
def test_a_job_of_a_known_name_runs_within_two_polls_of_its_being_held(tmp_path: Path, seed: int) -> None:
    world = World(seed, tmp_path)

    seconds = world.loop.run_until_complete(seconds_until_it_runs(world, after=10 + seed * POLL / 7))

    assert 0 < seconds <= 2 * POLL
