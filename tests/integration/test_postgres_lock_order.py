"""Rows are locked in the order of their ids, whatever order a caller names them in: two callers never wait for each other."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.core.jobs.job import Claim
from holdfast.stores.postgres.store import PostgresStore
from tests.builders import a_job
from tests.contract.steps import LEASE, TIMEOUT, submitted
from tests.integration.cli_process import apply_schema
from tests.servers import Prepare

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
LOCK = "SELECT id FROM holdfast.jobs WHERE id = $1::uuid FOR UPDATE NOWAIT"


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    return apply_schema


@pytest.fixture
async def store(postgres_dsn: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(postgres_dsn)
    await made.open()
    yield made
    await made.close()


async def suspected_jobs(store: PostgresStore) -> list[Claim]:
    await submitted(store, *[a_job() for _ in range(5)])
    return await store.claim("worker", "default", limit=5, lease=LEASE)


async def test_jobs_are_begun_in_the_order_of_their_ids(store: PostgresStore, postgres_dsn: str) -> None:
    claims = sorted(await suspected_jobs(store), key=lambda claim: claim.id)
    first, rest = claims[0], claims[1:]
    holder, other = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    try:
        async with holder.transaction():
            await holder.fetch(LOCK, first.id)
            begun = asyncio.create_task(store.begin([(claim.id, claim.token) for claim in reversed(claims)]))
            async with asyncio.timeout(TIMEOUT):
                while not await other.fetchval(WAITING):
                    await asyncio.sleep(0.01)

            for claim in rest:  # what comes later is not locked yet
                await other.fetch(LOCK, claim.id)

        assert await begun == [True] * 5
    finally:
        await holder.close()
        await other.close()
