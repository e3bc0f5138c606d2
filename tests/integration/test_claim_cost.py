"""What a claim costs on PostgreSQL beside a million finished and a million parked jobs: what it costs without."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
import pytest_asyncio

from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish
from holdfast.stores.postgres.store import PostgresStore
from tests.integration import crowds
from tests.integration.plans import Plan, carry_out, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.servers import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

CROWD = 1_000_000
READY = 1_000
BATCH = 100
TURNOVER = 50_000


@dataclass
class Measurements:
    """What was measured, written to a file at the end."""

    target: Path
    measured: dict[str, Any] = field(default_factory=dict)

    def note(self, name: str, **measured: int) -> None:
        """Keep what claims cost, in pages unless *name* says otherwise, and print it."""
        self.measured[name] = measured
        print(f"{name}: {measured}")


@dataclass(frozen=True)
class Databases:
    """Two databases with a thousand ready jobs each; one has nothing else, the other has the crowd."""

    alone: str
    crowded: str

    def __iter__(self) -> Iterator[str]:
        return iter((self.alone, self.crowded))


@pytest.fixture(scope="module")
def measurements(request: pytest.FixtureRequest) -> Iterator[Measurements]:
    made = Measurements(request.config.rootpath / "build" / "claim-cost.json")
    yield made
    made.target.parent.mkdir(exist_ok=True)
    made.target.write_text(json.dumps(made.measured, indent=1) + "\n", encoding="utf-8")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def databases(postgres_server: PostgresServer) -> AsyncIterator[Databases]:
    """Both were analysed when they had a few rows, and then filled."""
    made = Databases(postgres_server.create_database(), postgres_server.create_database())
    for dsn, crowd in zip(made, (0, CROWD), strict=True):
        connection = await crowds.prepared(dsn)
        await crowds.analyse_while_tiny(connection)
        await crowds.fill(connection, crowds.FINISHED, crowd)
        await crowds.fill(connection, crowds.PARKED, crowd)
        await crowds.fill(connection, crowds.HELD, crowd // 100)
        await crowds.fill(connection, crowds.READY, READY)
        await connection.close()
    yield made
    for dsn in made:
        postgres_server.drop_database(dsn)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["stale", "empty", "fresh"])
async def statistics(request: pytest.FixtureRequest, databases: Databases) -> str:
    """What the planner knows: of the tiny tables, nothing, or the truth; in this order on the same rows."""
    state: str = request.param
    for dsn in databases:
        connection = await asyncpg.connect(dsn)
        if state == "empty":
            await _forget_or_skip(connection)
        elif state == "fresh":
            await crowds.analyse(connection)
        await connection.close()
    return state


async def _forget_or_skip(connection: crowds.Connection) -> None:
    if not await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
        pytest.skip("only a superuser can make PostgreSQL forget the statistics of a table")
    await crowds.forget_statistics(connection)


@pytest.mark.clause("JOB-9", "postgres")
async def test_a_claim_is_as_cheap_beside_millions_of_finished_and_parked_jobs(
    databases: Databases, statistics: str, measurements: Measurements
) -> None:
    alone, crowded = [await claim(dsn) for dsn in databases]

    measurements.note(f"{statistics} statistics", alone=alone.buffers, crowded=crowded.buffers)
    assert crowded.buffers <= 1.5 * alone.buffers
    assert crowded.visits <= 1.5 * alone.visits


@pytest.mark.clause("JOB-9", "postgres")
async def test_a_claim_neither_scans_nor_sorts(databases: Databases, statistics: str) -> None:
    for dsn in databases:
        plan = await claim(dsn)

        assert plan.indexes == {"jobs_ready", "jobs_pkey", "payloads_pkey"}, statistics
        assert plan.unguided == []
        assert plan.nodes("Seq Scan") == []
        assert plan.nodes("Sort") == []


async def test_a_claim_is_cheap_again_once_an_old_snapshot_is_gone(
    databases: Databases, measurements: Measurements
) -> None:
    """While a transaction holds a snapshot, the entries of claimed jobs stay in the index, and claims step over them."""
    before = await claim(databases.crowded)

    async with old_snapshot(databases.crowded):
        await turn_over(databases.crowded, TURNOVER)
        held = await claim(databases.crowded)
    await vacuum(databases.crowded)
    after = await claim(databases.crowded)

    measurements.note(
        f"old snapshot over {TURNOVER} claims and ends",
        before=before.buffers,
        held=held.buffers,
        after=after.buffers,
    )
    measurements.note("the same in microseconds", before=before.micros, held=held.micros, after=after.micros)
    assert after.buffers <= 1.5 * before.buffers


async def claim(dsn: str) -> Plan:
    """Claim a batch, as the store does, and give it back."""
    connection = await connect(dsn)
    try:
        plan = await carry_out(connection, "claim", "worker", "90 s", ["work"], "default", BATCH)
    finally:
        await connection.close()
    assert plan.root["Actual Rows"] == BATCH
    return plan


@asynccontextmanager
async def old_snapshot(dsn: str) -> AsyncIterator[None]:
    """A session that reads in a transaction which stays open, as a report or a backup does."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM holdfast.meta")
    yield
    await connection.close()


async def turn_over(dsn: str, count: int) -> None:
    """Let *count* jobs be claimed and end, all of them ahead of those that are ready."""
    connection = await asyncpg.connect(dsn)
    await crowds.fill(connection, crowds.URGENT, count)
    await connection.close()
    store = PostgresStore(dsn)
    for _ in range(count // 1_000):
        claims = await store.claim("worker", "default", limit=1_000, lease=timedelta(seconds=90))
        ends = [Finish(claim.id, claim.token, Status.COMPLETED, result="null") for claim in claims]
        assert all(await store.settle("worker", ends))
    await store.close()


async def vacuum(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("VACUUM holdfast.jobs", timeout=120)
    await connection.close()
