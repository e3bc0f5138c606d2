"""Workers that are killed, paused or cut off from their database lose nothing and do nothing twice.

`HOLDFAST_CHAOS_SECONDS=60` makes the first test the long one.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Status
from holdfast_simulator import Rule, Script, Slow
from tests import invariants
from tests.acceptance.harness.app import BUDGET, build
from tests.acceptance.harness.chaos import LEASE, drain, run_chaos
from tests.acceptance.harness.pacing import ticks, until
from tests.acceptance.harness.processes import Crew, Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.harness.databases import Database, StoreName
    from tests.servers import PrivatePostgres

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "10"))
LONG = 60.0


@pytest.mark.clause("JOB-1")
@pytest.mark.clause("JOB-3")
@pytest.mark.clause("JOB-4")
@pytest.mark.clause("JOB-6")
def test_nothing_is_lost_or_done_twice_while_everything_is_killed(
    store_name: StoreName, needs_its_server: None, tmp_path: Path
) -> None:
    report = run_chaos(store_name, seconds=SECONDS, seed=1, folder=tmp_path)

    assert report.acknowledged > SECONDS
    assert report.fenced + report.leases_lost > 0
    assert report.kills >= SECONDS // 2
    if SECONDS >= LONG:
        assert (report.kills >= 30, report.pauses >= 10, report.fenced > 0) == (True, True, True)
        assert report.restarts == (2 if store_name == "postgres" else 0)


@pytest.mark.clause("JOB-6")
def test_a_worker_that_slept_through_its_lease_writes_nothing(database: Database, tmp_path: Path) -> None:
    first_is_slow = Script.of(Rule(Slow(timedelta(seconds=0.5)), times=1))
    with working(database, tmp_path, first_is_slow, workers=2) as (service, crew):
        [order] = submit_orders(database, 1)
        until(service.calls, within=10, what="the first call")
        [sleeper] = [member for member in crew.members if member.process.pid in database.holders().values()]
        sleeper.pause()
        until(lambda: not database.world().live, within=20, what="another worker to finish the job")
        written = database.world()
        sleeper.resume()
        until(
            lambda: sleeper.lines("fenced") + sleeper.lines("lease lost"),
            within=10,
            what="the sleeper to learn that it is too late",
        )

        codes = crew.dismiss()

    assert codes == [0, 0]
    assert database.world() == written
    invariants.all_hold(written, service.calls(), acknowledged=[order], budget=BUDGET)


@pytest.mark.clause("JOB-4", "postgres")
@pytest.mark.parametrize("away", [0.2, 2 * LEASE], ids=["shorter than a lease", "longer than a lease"])
def test_a_worker_goes_on_by_itself_when_its_postgres_comes_back(
    postgres_database: Database, tmp_path: Path, away: float
) -> None:
    server = server_of(postgres_database)
    all_are_slow = Script.of(Rule(Slow(timedelta(seconds=0.7))))
    with working(postgres_database, tmp_path, all_are_slow, workers=1) as (service, crew):
        before = submit_orders(postgres_database, 20)
        until(lambda: len(service.calls()) >= 5, within=10, what="calls under way")
        server.stop("immediate")
        until(
            lambda: crew.lines("sweep put off") and crew.lines("leases not extended"),
            within=20,
            what="the worker to miss its database",
        )
        for _ in ticks(away):
            assert crew.members[0].alive
        server.start()
        after = submit_orders(postgres_database, 5)

        drain(postgres_database, crew)
        codes = crew.dismiss()

    assert (crew.former, codes) == ([], [0])
    invariants.all_hold(
        postgres_database.world(), service.calls(), acknowledged=before + after, budget=BUDGET
    )


@pytest.mark.clause("JOB-1")
def test_what_was_acknowledged_survives_the_death_of_everybody(database: Database, tmp_path: Path) -> None:
    with working(database, tmp_path, Script(), workers=2) as (service, crew):
        orders = submit_orders(database, 200)
        for member in crew.members:
            member.kill()
        if database.server is not None:
            database.server.kill()
            database.server.start()

        drain(database, crew)

    world = database.world()
    assert world.with_status(Status.COMPLETED) == set(orders)
    invariants.all_hold(world, service.calls(), acknowledged=orders, budget=BUDGET)


@contextmanager
def working(
    database: Database, folder: Path, script: Script, *, workers: int
) -> Iterator[tuple[Service, Crew]]:
    """A service that follows *script*, and workers that have begun to claim."""
    with (
        Service(folder, script) as service,
        Crew(database.url, folder, service.url, workers, ("--lease", str(LEASE))) as crew,
    ):
        crew.wait_until_at_work()
        yield service, crew


def submit_orders(database: Database, count: int) -> list[str]:
    """Submit from this process, and give the acknowledged ids."""

    async def submit() -> list[str]:
        app = build(database.url)
        async with app.service, app.hold:
            return [handle.id for handle in await app.order.submit_many((n,) for n in range(count))]

    return asyncio.run(submit())


def server_of(database: Database) -> PrivatePostgres:
    assert database.server is not None
    return database.server
