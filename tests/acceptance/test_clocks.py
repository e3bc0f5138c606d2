"""The database's clock decides; a jump of it costs leases and nothing else.

On PostgreSQL that is the server's, so a worker whose own clock is wrong does no harm. Processes that share a
SQLite file share a machine, and its clock is the database's: there the clock of all processes jumps.
"""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast_simulator import Rule, Script, Slow
from tests import invariants
from tests.acceptance.harness.app import BUDGET, submit_orders
from tests.acceptance.harness.clocks import FOLLOWED_WITHIN, WrongClock, forget
from tests.acceptance.harness.databases import open_database
from tests.acceptance.harness.polling import throttled, ticks, until
from tests.acceptance.harness.processes import Process, Service, WorkerHost, WorkerPool
from tests.acceptance.harness.recovery import drain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.harness.databases import Database

TEN_MINUTES = 600
IN_PROGRESS = 30
CLOSE = 60
"""Seconds within which two clocks say the same, on a machine that may be busy."""

SHOW_CLOCKS = """
import sys, time
for line in sys.stdin:
    print(time.time(), time.monotonic(), flush=True)
"""


pytestmark = pytest.mark.usefixtures("faketime")


def test_a_wrong_clock_jumps_and_measures_time_as_before(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path / "clock", seconds=TEN_MINUTES)
    with subprocess.Popen(
        [sys.executable, "-u", "-c", SHOW_CLOCKS],
        env=clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def off_by() -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("now\n")
            process.stdin.flush()
            shown, monotonic = map(float, process.stdout.readline().split())
            assert abs(monotonic - time.monotonic()) < CLOSE
            return shown - time.time()

        assert abs(off_by() - TEN_MINUTES) < CLOSE
        clock.jump_to(-TEN_MINUTES)
        until(lambda: abs(off_by() + TEN_MINUTES) < CLOSE, within=10, what="the clock to jump")
        process.communicate()
    forget(process.pid)


@pytest.mark.clause("JOB-4", "postgres")
def test_workers_whose_clocks_are_wrong_keep_their_leases_and_leave_others_theirs(
    postgres_database: Database, tmp_path: Path
) -> None:
    ahead = WrongClock(tmp_path / "ahead", seconds=TEN_MINUTES)
    behind = WrongClock(tmp_path / "behind", seconds=-TEN_MINUTES)
    hosts = tuple(WorkerHost(postgres_database.url, clock=clock) for clock in (ahead, behind, None))
    all_are_slow = Script.of(Rule(Slow(timedelta(seconds=0.3))))
    # The lease is short beside ten minutes, and long beside what a busy machine may do to a worker.
    options = ("--lease", "30")
    with (
        Service(tmp_path, all_are_slow) as service,
        WorkerPool(postgres_database.url, tmp_path, service.url, options=options, hosts=hosts) as pool,
    ):
        pool.wait_until_at_work()
        assert [round(off_by(member) / TEN_MINUTES) for member in pool.members] == [1, -1, 0]
        orders = submit_orders(postgres_database.url, 150)
        until(lambda: len(service.calls()) >= 30, within=60, what="calls in flight")
        ahead.jump_to(-TEN_MINUTES)
        behind.jump_to(TEN_MINUTES)

        drain(postgres_database, pool, within=120)
        codes = pool.stop()

    world = postgres_database.world()
    assert codes == [0, 0, 0]
    assert (pool.lines("jobs reclaimed"), pool.lines("lease lost"), pool.lines("write fenced")) == (
        [],
        [],
        [],
    )
    assert {row["losses"] for row in world.jobs} == {0}
    invariants.all_hold(world, service.calls(), acknowledged=orders, budget=BUDGET)


@pytest.mark.parametrize("seconds", [TEN_MINUTES, -TEN_MINUTES], ids=["forwards", "backwards"])
def test_a_jump_of_the_clock_that_sqlite_workers_share_loses_and_doubles_nothing(
    tmp_path: Path, seconds: int
) -> None:
    clock = WrongClock(tmp_path / "clock", seconds=0)
    # The first calls outlast the pause, so that jobs are in progress at the jump; a client waits 5 seconds.
    slow = Script.of(
        Rule(Slow(timedelta(seconds=FOLLOWED_WITHIN + 2)), times=IN_PROGRESS),
        Rule(Slow(timedelta(seconds=0.3))),
    )
    with (
        open_database("sqlite", tmp_path) as database,
        Service(tmp_path, slow) as service,
        WorkerPool(
            database.url,
            tmp_path,
            service.url,
            options=("--lease", "30", "--slots", str(IN_PROGRESS // 3)),
            hosts=(WorkerHost(database.url, clock=clock),) * 3,
        ) as pool,
    ):
        pool.wait_until_at_work()
        orders = submit_orders(database.url, 80)
        until(lambda: len(service.calls()) >= IN_PROGRESS, within=60, what="calls in flight")
        jump_at_once(clock, pool, seconds)
        if seconds < 0:
            # A job that waited for its next attempt is due ten minutes later now, and no other is.
            untouched = throttled(lambda: database.completed("default") >= len(orders) - IN_PROGRESS)
            until(untouched, within=120, what="all jobs that were not in progress at the jump")
            jump_at_once(clock, pool, 0)

        drain(database, pool, within=120)
        codes = pool.stop()
        world = database.world()

    assert codes == [0, 0, 0]
    assert seconds < 0 or pool.lines("jobs reclaimed"), "no lease ended early, so the clock did not jump"
    assert invariants.damage(world, service.calls(), orders) == (0, 0, 0)


def jump_at_once(clock: WrongClock, pool: WorkerPool, seconds: int) -> None:
    """Let the clock jump for all workers at the same instant, as the clock of one machine does."""
    for member in pool.members:
        member.pause()
    clock.jump_to(seconds)
    for _ in ticks(FOLLOWED_WITHIN):
        pass
    for member in pool.members:
        member.resume()


def off_by(worker: Process) -> float:
    """How many seconds a worker's log is ahead of us."""
    [started] = worker.lines("worker started")
    return (datetime.fromisoformat(started["timestamp"]) - datetime.now(UTC)).total_seconds()
