"""A parent that waits for a thousand children completes once, with all their results, while workers are killed."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

from tests import invariants
from tests.acceptance.harness.app import BUDGET, build
from tests.acceptance.harness.fault_injector import LEASE
from tests.acceptance.harness.polling import throttled, until
from tests.acceptance.harness.processes import WorkerPool
from tests.acceptance.harness.recovery import drain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.harness.databases import Database

CHILDREN = 1_000
WORKERS = 3
SLOTS = 20
KILLS = 8
"""Workers that die, one after each eighth of the children, the last one when only the parent may be left."""


def test_a_parent_of_a_thousand_completes_once_with_all_results_while_workers_are_killed(
    database: Database, tmp_path: Path
) -> None:
    options = ("--lease", str(LEASE), "--slots", str(SLOTS))
    with WorkerPool(database.url, tmp_path, size=WORKERS, options=options) as pool:
        pool.wait_until_at_work()
        parent = submit_parent(database.url)

        for number in range(1, KILLS + 1):
            await_children(database, pool, CHILDREN * number // KILLS)
            kill_one(database, pool)
        drain(database, pool, within=120)

    world = database.world()
    [row] = [row for row in world.ended if row["id"] == parent]
    assert json.loads(row["result"])[:-1] == [f"child {number}" for number in range(CHILDREN)]
    assert len(world.ended) == CHILDREN + 1
    invariants.all_hold(world, (), acknowledged=[row["id"] for row in world.jobs], budget=BUDGET)
    assert len(pool.former) >= KILLS


def submit_parent(url: str) -> str:
    async def submit() -> str:
        app = build(url)
        async with app.service, app.hold:
            return (await app.parent.submit(CHILDREN)).id

    return asyncio.run(submit())


def await_children(database: Database, pool: WorkerPool, number: int) -> None:
    """Wait until *number* jobs have completed; workers that die meanwhile are replaced."""

    def enough() -> bool:
        pool.replace_dead()
        return database.completed("default") >= number

    until(throttled(enough), within=120, what=f"{number} children to complete")


def kill_one(database: Database, pool: WorkerPool) -> None:
    """Kill a worker that holds a lease, if there is one; sometimes it is the parent's."""
    holders = set(database.holders().values())
    busy = [member for member in pool.members if member.process.pid in holders]
    random.Random(len(pool.former)).choice(busy or pool.members).kill()
