"""A hundred thousand jobs that sleep or wait hold no slot, make no claim dearer, and wake in time."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.engine.options import WorkerOptions
from holdfast.engine.worker.maintenance import BATCH, Maintenance
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.telemetry.logs import StructuredLogger
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.testing import simulation
from holdfast.testing.seeded_system import InlineExecutor
from tests.integration import crowds
from tests.integration.plans import carry_out, connect
from tests.integration.test_sqlite_plans import NOW, PARKED, READY, SQL, fill, steps, with_schema
from tests.runtimes import a_runtime

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from holdfast.ports import Store
    from tests.servers import PostgresServer

CROWD = 100_000
SOME = 1_000
CLAIMED = 100
SOON = timedelta(seconds=2)
LEASE = timedelta(seconds=90)

_WAIT = "UPDATE {0}jobs SET waiting = true, pending = 1 WHERE retry_after IS NOT NULL"
_AWAITED = "INSERT INTO {0}awaited (child_id, parent_id) SELECT id, id FROM {0}jobs WHERE waiting"

_COME_DUE = "UPDATE holdfast.jobs SET retry_after = now() WHERE waiting"


class Cost(NamedTuple):
    """What a claim and a promotion touch: steps of SQLite's machine, or pages of PostgreSQL."""

    claim: int
    promote: int


class Database(Protocol):
    """A database in which jobs are parked by the thousand."""

    async def park(self, count: int) -> None:
        """Add *count* jobs that wait until some time ahead, each for another job, and some that are ready."""
        ...

    async def costs(self) -> Cost:
        """Measure a claim among those that are ready, and a promotion of as many as fit."""
        ...

    async def come_due(self) -> Store:
        """Let the time of all that wait have come, and open the store."""
        ...


class SqliteCrowd:
    """A SQLite file; its clock is ours."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = StillClock(NOW)

    async def park(self, count: int) -> None:
        with closing(with_schema(self._path)) as connection:
            fill(connection, READY, SOME)
            fill(connection, PARKED, count)
            for statement in (_WAIT, _AWAITED):
                connection.execute(statement.format("holdfast_"))

    async def costs(self) -> Cost:
        with closing(with_schema(self._path)) as connection:
            return Cost(steps(connection, _claim), steps(connection, _promote))

    async def come_due(self) -> Store:
        self._clock.now_is = 10 * NOW
        store = SqliteStore(
            str(self._path), clock=self._clock, writing=InlineExecutor(), reading=InlineExecutor()
        )
        await store.open()
        return store


def _claim(connection: sqlite3.Connection) -> None:
    values = {"queue": "default", "limit": CLAIMED, "now": NOW, "knows": '["work"]'}
    ids, _ = connection.execute(SQL["claimable"], values).fetchone()
    assert len(json.loads(ids)) == CLAIMED
    connection.execute(SQL["claim"], {"worker": "worker", "lease": 1, "now": NOW, "ids": ids})


def _promote(connection: sqlite3.Connection) -> None:
    assert connection.execute(SQL["promote"], {"limit": SOME, "now": 10 * NOW}).rowcount == SOME


class StillClock:
    """A clock that shows what it is set to, in microseconds."""

    def __init__(self, now: int) -> None:
        self.now_is = now

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_is / 1e6, UTC)

    def monotonic(self) -> float:
        return self.now_is / 1e6


class PostgresCrowd:
    """A PostgreSQL, which analysed its tables while they were tiny."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def park(self, count: int) -> None:
        connection = await crowds.prepared(self._dsn)
        await crowds.analyse_while_tiny(connection)
        await crowds.fill(connection, crowds.READY, SOME)
        await crowds.fill(connection, crowds.PARKED, count)
        for statement in (_WAIT, _AWAITED):
            await connection.execute(statement.format("holdfast."))
        await connection.execute("VACUUM holdfast.jobs")
        await connection.close()

    async def costs(self) -> Cost:
        connection = await connect(self._dsn)
        try:
            claim = await carry_out(connection, "claim", "worker", "90 s", ["work"], "default", CLAIMED)
            assert claim.root["Actual Rows"] == CLAIMED
            await connection.execute(_COME_DUE)
            await connection.execute("VACUUM holdfast.jobs")
            promote = await carry_out(connection, "promote", SOME)
        finally:
            await connection.close()
        return Cost(claim.buffers, promote.buffers)

    async def come_due(self) -> Store:
        connection = await asyncpg.connect(self._dsn)
        await connection.execute(_COME_DUE)
        await connection.close()
        store = PostgresStore(self._dsn)
        await store.open()
        return store


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Two empty databases of the same kind."""
    if request.param == "sqlite":
        yield SqliteCrowd(tmp_path / "few.db"), SqliteCrowd(tmp_path / "many.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    made = server.create_database(), server.create_database()
    yield tuple(map(PostgresCrowd, made))
    for dsn in made:
        server.drop_database(dsn)


async def test_neither_claims_nor_wake_ups_cost_more_beside_a_parked_crowd(
    databases: tuple[Database, Database],
) -> None:
    few, many = databases
    await few.park(SOME)
    await many.park(CROWD)

    alone, crowded = await few.costs(), await many.costs()

    assert alone.claim > CLAIMED
    assert crowded.claim <= 1.5 * alone.claim
    assert crowded.promote <= 1.5 * alone.promote


async def test_a_parked_crowd_holds_no_slot_and_becomes_ready_in_one_go(
    databases: tuple[Database, Database],
) -> None:
    database, _ = databases
    await database.park(CROWD)
    store = await database.come_due()
    try:
        assert len(await store.claim("worker", "default", limit=2 * SOME, lease=LEASE)) == SOME
        sweeps = await sweep_until_it_rests(store)

        assert sweeps == CROWD // BATCH + 1
        assert len(await store.claim("worker", "default", limit=CROWD, lease=LEASE)) == CROWD
    finally:
        await store.close()


async def sweep_until_it_rests(store: Store) -> int:
    """Sweep as a worker does, as long as there is no pause between two sweeps; return how often."""
    runtime = a_runtime(
        store=store,
        clock=StillClock(NOW),
        random=Even(),
        logger=StructuredLogger(),
        metrics=MetricRegistry(),
    )
    sweeper = Maintenance(runtime, WorkerOptions(), lambda: None)
    sweeps = 1
    while await sweeper.run_once() == 0:
        sweeps += 1
    return sweeps


class Even:
    """Random numbers that are always in the middle."""

    def random(self) -> float:
        return 0.5


def test_a_crowd_of_sleepers_and_listeners_is_at_work_within_two_seconds_of_its_time() -> None:
    hold = Holdfast("sqlite:///never-made.db")
    rose: dict[int, datetime] = {}

    @hold.job("rest")
    async def rest(number: int, seconds: float) -> None:
        await hold.sleep(seconds)
        rose[number] = sim.now

    @hold.job("listen")
    async def listen(number: int) -> None:
        await hold.wait_for("go")
        rose[-number] = sim.now

    async def life() -> tuple[datetime, datetime]:
        began = sim.now
        listeners = await listen.submit_many((number,) for number in range(1, 1 + SOME // 2))
        await rest.submit_many((number, 3600 + number % 7) for number in range(SOME))
        await sim.advance("1h")
        signalled_at = sim.now
        for listener in listeners:
            await hold.signal(listener.id, "go")
        await sim.advance("10s")
        return began, signalled_at

    with simulation(hold, slots=20) as sim:
        began, signalled_at = sim.run(life())

    due = {number: began + timedelta(seconds=3600 + number % 7) for number in range(SOME)}
    due |= {-number: signalled_at for number in range(1, 1 + SOME // 2)}
    assert rose.keys() == due.keys()
    assert max(rose[number] - due[number] for number in due) <= SOON
    assert all(rose[number] >= due[number] for number in due)


def test_a_sleeper_that_takes_its_time_between_two_runs_rises_no_later_for_it() -> None:
    hold = Holdfast("sqlite:///never-made.db")
    came: list[datetime] = []

    @hold.job("rest")
    async def rest() -> None:
        came.append(sim.now)
        await asyncio.sleep(100)  # stands for work that is no stage, and is done in every run
        await hold.sleep("1h")

    async def life() -> None:
        job = await rest.submit()
        await sim.advance("30m")
        await hold.signal(job.id, "wakes it for nothing")
        await job.result()

    with simulation(hold) as sim:
        sim.run(life())

    first, _, risen = came
    due = first + timedelta(seconds=100) + timedelta(hours=1)
    assert due <= risen <= due + SOON
