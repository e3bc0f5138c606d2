"""A job that crashes its worker again and again ends failed, and no other job fails with it."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Status
from tests import invariants
from tests.acceptance.harness.app import KILLER_BUDGET, App, Weapon, build
from tests.acceptance.harness.processes import WorkerPool
from tests.acceptance.harness.recovery import drain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.acceptance.harness.databases import Database
    from tests.invariants import World

LEASE = "1"


def submitted(database: Database, submit: Callable[[App], Awaitable[list[str]]]) -> list[str]:
    """Submit from this process; return the ids of the submitted jobs."""

    async def run() -> list[str]:
        app = build(database.url)
        async with app.service, app.hold:
            return await submit(app)

    return asyncio.run(run())


@contextmanager
def supervised_worker(database: Database, folder: Path, *, slots: int) -> Iterator[WorkerPool]:
    """One worker process; `replace_dead` starts the next one when it has died."""
    options = ("--lease", LEASE, "--poll", "0.1", "--slots", str(slots))
    with WorkerPool(database.url, folder, size=1, options=options) as pool:
        yield pool


def run_to_the_end(database: Database, pool: WorkerPool, *, within: float) -> World:
    """Let the supervisor do its work until no job is live."""
    drain(database, pool, within=within)
    return database.world()


def failures(world: World) -> dict[str, str]:
    """The error class of each job that failed."""
    return {
        row["id"]: json.loads(row["failure"])["error_class"]
        for row in world.ended
        if row["status"] == Status.FAILED
    }


async def harmless_ones(app: App, count: int, *, job: str = "harmless") -> list[str]:
    handles = await getattr(app, job).submit_many((number,) for number in range(count))
    return [handle.id for handle in handles]


@pytest.mark.clause("JOB-10")
def test_a_killer_among_a_thousand_ends_alone(database: Database, tmp_path: Path) -> None:
    async def submit(app: App) -> list[str]:
        before = await harmless_ones(app, 500)
        killer = await app.killer.submit("_exit")
        return [killer.id, *before, *await harmless_ones(app, 500)]

    killer, *others = submitted(database, submit)

    with supervised_worker(database, tmp_path, slots=100) as pool:
        world = run_to_the_end(database, pool, within=90)

    assert failures(world) == {killer: "WORKER_LOST"}
    assert world.with_status(Status.COMPLETED) == set(others)
    assert [dead.process.returncode for dead in pool.former] == [1] * KILLER_BUDGET
    invariants.attempts_stay_within(KILLER_BUDGET, world)
    invariants.the_books_balance(world)


@pytest.mark.clause("JOB-10")
@pytest.mark.parametrize("weapon", ["segfault", "sigkill"])
def test_every_way_to_kill_a_worker_ends_the_same(database: Database, tmp_path: Path, weapon: Weapon) -> None:
    async def submit(app: App) -> list[str]:
        killer = await app.killer.submit(weapon)
        return [killer.id, *await harmless_ones(app, 30)]

    killer, *others = submitted(database, submit)

    with supervised_worker(database, tmp_path, slots=10) as pool:
        world = run_to_the_end(database, pool, within=60)

    assert failures(world) == {killer: "WORKER_LOST"}
    assert world.with_status(Status.COMPLETED) == set(others)
    assert len(pool.former) == KILLER_BUDGET
    invariants.the_books_balance(world)


@pytest.mark.clause("JOB-10")
def test_several_killers_take_no_neighbour_with_them(database: Database, tmp_path: Path) -> None:
    async def submit(app: App) -> list[str]:
        killers = [await app.killer.submit("_exit") for _ in range(3)]
        return [*(killer.id for killer in killers), *await harmless_ones(app, 40)]

    found = submitted(database, submit)
    killers, others = found[:3], found[3:]

    with supervised_worker(database, tmp_path, slots=50) as pool:
        world = run_to_the_end(database, pool, within=90)

    assert failures(world) == dict.fromkeys(killers, "WORKER_LOST")
    assert world.with_status(Status.COMPLETED) == set(others)


@pytest.mark.clause("JOB-10")
def test_a_neighbour_with_two_attempts_outlives_a_killer(database: Database, tmp_path: Path) -> None:
    async def submit(app: App) -> list[str]:
        killer = await app.killer.submit("_exit")
        return [killer.id, *await harmless_ones(app, 40, job="frugal")]

    killer, *others = submitted(database, submit)

    with supervised_worker(database, tmp_path, slots=50) as pool:
        world = run_to_the_end(database, pool, within=60)

    assert failures(world) == {killer: "WORKER_LOST"}
    assert world.with_status(Status.COMPLETED) == set(others)


@pytest.mark.clause("JOB-10")
def test_a_handler_that_leaves_by_sys_exit_leaves_its_worker_alone(
    database: Database, tmp_path: Path
) -> None:
    async def submit(app: App) -> list[str]:
        leavers: list[Any] = [app.leaver, app.leaver_in_a_thread, app.leaver_in_a_stage]
        left = [(await leaver.submit()).id for leaver in leavers]
        return [*left, *await harmless_ones(app, 30)]

    found = submitted(database, submit)
    leavers, others = found[:3], found[3:]

    with supervised_worker(database, tmp_path, slots=10) as pool:
        world = run_to_the_end(database, pool, within=60)
        codes = pool.stop()

    assert set(failures(world)) == set(leavers)
    assert "WORKER_LOST" not in failures(world).values()
    assert world.with_status(Status.COMPLETED) == set(others)
    assert (pool.former, codes) == ([], [0])
