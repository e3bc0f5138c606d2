"""A parent that waits for a thousand children completes once, with all their results, while workers are killed."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

from tests import invariants
from tests.acceptance.harness.app import BUDGET, build
from tests.acceptance.harness.driver import LEASE
from tests.acceptance.harness.measuring import drain
from tests.acceptance.harness.pacing import now_and_then, until
from tests.acceptance.harness.processes import Crew

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
    with Crew(database.url, tmp_path, size=WORKERS, options=options) as crew:
        crew.wait_until_at_work()
        parent = submit_parent(database.url)

        for number in range(1, KILLS + 1):
            await_children(database, crew, CHILDREN * number // KILLS)
            kill_one(database, crew)
        drain(database, crew, within=120)

    world = database.world()
    [row] = [row for row in world.ended if row["id"] == parent]
    assert json.loads(row["result"])[:-1] == [f"child {number}" for number in range(CHILDREN)]
    assert len(world.ended) == CHILDREN + 1
    invariants.all_hold(world, (), acknowledged=[row["id"] for row in world.jobs], budget=BUDGET)
    assert len(crew.former) >= KILLS


def submit_parent(url: str) -> str:
    async def submit() -> str:
        app = build(url)
        async with app.service, app.hold:
            return (await app.parent.submit(CHILDREN)).id

    return asyncio.run(submit())


def await_children(database: Database, crew: Crew, number: int) -> None:
    """Wait until so many jobs have completed; who dies meanwhile is replaced."""

    def enough() -> bool:
        crew.tend()
        return database.completed("default") >= number

    until(now_and_then(enough), within=120, what=f"{number} children to complete")


def kill_one(database: Database, crew: Crew) -> None:
    """Kill a worker that holds something, if there is one: the parent's own, now and then."""
    holders = set(database.holders().values())
    busy = [member for member in crew.members if member.process.pid in holders]
    random.Random(len(crew.former)).choice(busy or crew.members).kill()
