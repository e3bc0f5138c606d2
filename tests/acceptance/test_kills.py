"""Workers that are killed, paused or cut off from their database lose nothing and do nothing twice.

`HOLDFAST_CHAOS_SECONDS=60` makes the first test longer; `make chaos` is the long one.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import warnings
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

from holdfast import Status
from holdfast_simulator import Rule, Script, Slow
from tests import invariants
from tests.acceptance.harness.app import BUDGET, submit_orders
from tests.acceptance.harness.chaos import run_chaos
from tests.acceptance.harness.fault_injector import LEASE
from tests.acceptance.harness.polling import ticks, until
from tests.acceptance.harness.processes import Process, Service, WorkerPool
from tests.acceptance.harness.recovery import drain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.harness.databases import Database, StoreName
    from tests.servers import PrivatePostgres

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "10"))


@pytest.mark.clause("JOB-1")
@pytest.mark.clause("JOB-3")
@pytest.mark.clause("JOB-4")
@pytest.mark.clause("JOB-6")
def test_nothing_is_lost_or_done_twice_while_everything_goes_wrong(
    store_name: StoreName, needs_its_server: None, tmp_path: Path
) -> None:
    report = run_chaos(store_name, seconds=SECONDS, seed=1, folder=tmp_path)

    assert report.broken == []
    assert report.acknowledged > SECONDS
    assert report.fenced + report.leases_lost > 0
    assert report.faults["kill"] >= SECONDS // 2
    if store_name == "postgres":
        assert (report.faults["crash"] >= 1, report.network_faults >= 1) == (True, True)
    for kind, reason in report.left_out.items():
        warnings.warn(f"left out: {kind}: {reason}", stacklevel=1)


def pause_outside_a_write(member: Process, database: Database) -> None:
    """Pause a worker that holds no lock: one that has SQLite's write lock would stop all others, too."""
    while True:
        member.pause()
        if database.store != "sqlite":
            return
        with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"), timeout=1)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                member.resume()
            else:
                connection.rollback()
                return


@pytest.mark.clause("JOB-6")
def test_a_worker_that_slept_through_its_lease_writes_nothing(database: Database, tmp_path: Path) -> None:
    first_is_slow = Script.of(Rule(Slow(timedelta(seconds=2)), times=1))
    with working(database, tmp_path, first_is_slow, workers=2) as (service, pool):
        [order] = submit_orders(database.url, 1)
        until(service.calls, within=10, what="the first call")
        [paused] = [member for member in pool.members if member.process.pid in database.holders().values()]
        pause_outside_a_write(paused, database)
        until(lambda: not database.world().live, within=20, what="another worker to finish the job")
        written = database.world()
        paused.resume()
        until(
            lambda: paused.lines("write fenced") + paused.lines("lease lost"),
            within=10,
            what="the paused worker to notice that it lost its lease",
        )

        codes = pool.stop()

    assert codes == [0, 0]
    assert database.world() == written
    invariants.all_hold(written, service.calls(), acknowledged=[order], budget=BUDGET)


@pytest.mark.clause("JOB-4", "postgres")
@pytest.mark.parametrize("away", [0.2, 2 * LEASE], ids=["shorter than a lease", "longer than a lease"])
def test_a_worker_continues_without_a_restart_when_its_postgres_comes_back(
    postgres_database: Database, tmp_path: Path, away: float
) -> None:
    server = server_of(postgres_database)
    all_are_slow = Script.of(Rule(Slow(timedelta(seconds=0.7))))
    with working(postgres_database, tmp_path, all_are_slow, workers=1) as (service, pool):
        before = submit_orders(postgres_database.url, 20)
        until(lambda: len(service.calls()) >= 5, within=10, what="calls in flight")
        server.stop("immediate")
        until(
            lambda: pool.lines("store unavailable"),
            within=20,
            what="the worker to report the outage",
        )
        for _ in ticks(away):
            assert pool.members[0].alive
        server.start()
        after = submit_orders(postgres_database.url, 5)

        drain(postgres_database, pool, within=90)
        codes = pool.stop()

    assert (pool.former, codes) == ([], [0])
    invariants.all_hold(
        postgres_database.world(), service.calls(), acknowledged=before + after, budget=BUDGET
    )


@pytest.mark.clause("JOB-1")
def test_what_was_acknowledged_survives_the_death_of_all_processes(
    database: Database, tmp_path: Path
) -> None:
    with working(database, tmp_path, Script(), workers=2) as (service, pool):
        orders = submit_orders(database.url, 200)
        for member in pool.members:
            member.kill()
        if database.server is not None:
            database.server.kill()
            database.server.start()

        drain(database, pool, within=90)

    world = database.world()
    assert world.with_status(Status.COMPLETED) == set(orders)
    invariants.all_hold(world, service.calls(), acknowledged=orders, budget=BUDGET)


def test_a_commit_that_was_acknowledged_too_early_would_be_found_out(
    postgres_database: Database, tmp_path: Path
) -> None:
    """Shows that the tests above would fail for an engine whose commits are not durable."""
    server = server_of(postgres_database)
    asyncio.run(acknowledge_too_early(postgres_database))
    orders = submit_orders(postgres_database.url, 10)

    server.kill()
    server.start()

    with pytest.raises(AssertionError, match="10 acknowledged jobs are gone"):
        invariants.every_acknowledged_job_completed(postgres_database.world(), orders)


async def acknowledge_too_early(database: Database) -> None:
    """Have the server confirm commits that it has not written, in every session from now on."""
    connection = await asyncpg.connect(database.url)
    try:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    finally:
        await connection.close()


@contextmanager
def working(
    database: Database, folder: Path, script: Script, *, workers: int
) -> Iterator[tuple[Service, WorkerPool]]:
    """A service that follows *script*, and workers that have begun to claim."""
    with (
        Service(folder, script) as service,
        WorkerPool(database.url, folder, service.url, workers, ("--lease", str(LEASE))) as pool,
    ):
        pool.wait_until_at_work()
        yield service, pool


def server_of(database: Database) -> PrivatePostgres:
    assert database.server is not None
    return database.server
