"""What only happens with PostgreSQL: other people's locks, answers that come too late, a server in need."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.core.jobs.job import Receipt
from holdfast.errors import StoreUnavailable
from holdfast.stores.postgres.connections import Connections, translated
from holdfast.stores.postgres.store import PostgresStore
from tests.acceptance.harness.proxy import Proxy
from tests.builders import a_job


@pytest.fixture
async def store(postgres_dsn: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(postgres_dsn)
    await made.apply_schema()
    await made.open()
    yield made
    await made.close()


async def test_a_key_in_another_callers_open_transaction_holds_back_no_job_without_a_key(
    postgres_dsn: str, store: PostgresStore
) -> None:
    hold = Holdfast(postgres_dsn)

    @hold.job("work")
    async def work() -> None: ...

    other = await asyncpg.connect(postgres_dsn)
    async with hold:
        async with other.transaction():
            await work.options(key="k1", within=other).submit()
            keyed = asyncio.create_task(work.options(key="k1").submit())
            await asyncio.sleep(0.1)  # until it waits for the lock
            await asyncio.wait_for(work.submit(), 5)
            assert not keyed.done()
        assert (await keyed).existing
    await other.close()


async def test_a_submission_whose_first_try_commits_late_makes_one_job_and_no_error(
    postgres_dsn: str, store: PostgresStore
) -> None:
    job = a_job()
    late = await asyncpg.connect(postgres_dsn)
    transaction = late.transaction()
    await transaction.start()
    await store.submit_within(late, [job])

    again = asyncio.create_task(store.submit([job], again=True))
    await asyncio.sleep(0.1)  # until it waits for the other's row
    await transaction.commit()
    with pytest.raises(StoreUnavailable):
        await again

    assert await store.submit([job], again=True) == [Receipt(job.id)]
    await late.close()


async def test_a_connection_that_comes_back_after_the_close_is_let_go(postgres_dsn: str) -> None:
    connections = Connections(postgres_dsn, size=2, timeout=10)
    async with connections.acquire() as connection:
        await connections.close()

    assert connection.is_closed()


async def test_a_connection_that_the_server_ended_and_has_not_closed_yet_is_an_outage_that_passes(
    postgres_dsn: str,
) -> None:
    other, server = await asyncpg.connect(postgres_dsn), urlsplit(postgres_dsn)
    with Proxy("127.0.0.1", server.port or 5432) as network:
        route = network.route()
        connections = Connections(
            postgres_dsn.replace(f":{server.port}/", f":{route.port}/"), size=1, timeout=10
        )
        async with connections.acquire() as connection:
            route.withhold_ends()
            await other.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        assert await asyncio.to_thread(route.withheld.wait, 30)
        await asyncio.sleep(0)  # the server's last message is there; now it is read

        with pytest.raises(StoreUnavailable):
            await connections.fetch("SELECT 1")
        route.restore()
        assert await connections.fetch("SELECT 1")
        await connections.close()
    await other.close()


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.OutOfMemoryError,
        asyncpg.PostgresIOError,
        asyncpg.SerializationError,
        asyncpg.AdminShutdownError,
        asyncpg.IdleInTransactionSessionTimeoutError,
    ],
)
def test_a_server_in_need_is_an_outage_that_passes(error: type[asyncpg.PostgresError]) -> None:
    with pytest.raises(StoreUnavailable), translated():
        raise error("the server is in need")
