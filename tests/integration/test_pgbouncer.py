"""Everything works through PgBouncer in transaction mode, once it is said that it is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import psycopg
import pytest

from holdfast import Backoff, Holdfast, Retryable, Status
from holdfast.errors import ConfigError
from holdfast.stores.postgres.connections import SESSION
from holdfast.stores.postgres.store import PostgresStore
from tests.poolers import PgBouncer
from tests.servers import ServerMissingError, in_ci

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.servers import PostgresServer

TIMEOUT = 30
NEVER = 60


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """PgBouncer in front of the tests' PostgreSQL."""
    try:
        made = PgBouncer(postgres_server.dsn()).__enter__()
    except ServerMissingError as missing:
        (pytest.fail if in_ci() else pytest.skip)(str(missing))
    yield made
    made.close()


@pytest.fixture
def dsn(pooler: PgBouncer, postgres_dsn: str) -> str:
    """The address of an empty database through the pooler."""
    return pooler.dsn(postgres_dsn)


@pytest.fixture
async def hold(dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holdfast]:
    """A Holdfast that knows of the pooler, and of no direct address."""
    monkeypatch.setenv("HOLDFAST_DATABASE_POOLED", "true")
    made = Holdfast(dsn, backoff=Backoff.none())
    await made.apply_schema()
    async with made:
        yield made


async def double(n: int) -> int:
    return 2 * n


async def test_many_clients_share_two_servers_and_every_job_is_done_once(hold: Holdfast, dsn: str) -> None:
    runs: list[int] = []

    @hold.stage()
    async def half(n: int) -> int:
        runs.append(n)
        return n

    @hold.job("shared")
    async def shared(n: int) -> int:
        return 2 * await half(n)

    async with hold.worker(slots=20, poll=0.05), hold.worker(slots=20, poll=0.05):
        jobs = await asyncio.gather(*[shared.options(key=f"k{n}").submit(n) for n in range(60)])
        jobs += await shared.submit_many([[n] for n in range(60, 200)])
        results = await asyncio.gather(*[job.result(timeout=TIMEOUT) for job in jobs])

    assert results == [2 * n for n in range(200)]
    assert sorted(runs) == list(range(200))


async def test_two_applications_with_a_schema_each_share_the_pooler(hold: Holdfast, dsn: str) -> None:
    other = Holdfast(dsn, schema="billing")
    await other.apply_schema()
    ours, theirs = hold.job("double")(double), other.job("double")(double)

    async with other, hold.worker(poll=0.05), other.worker(poll=0.05):
        jobs = [await ours.submit(1), await theirs.submit(2)]
        results = [await job.result(timeout=TIMEOUT) for job in jobs]
        found = [[job.id for job in await each.find()] for each in (hold, other)]

    assert results == [2, 4]
    assert found == [[job.id] for job in jobs]


async def test_retries_waits_signals_cancellations_and_deadlines_work(hold: Holdfast) -> None:
    tries: list[int] = []

    @hold.job("story", attempts=3)
    async def story() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise Retryable("not yet")
        await hold.sleep("50ms")
        return str(await hold.wait_for("word", timeout="1h"))

    @hold.job("parent")
    async def parent() -> str:
        return await (await story.submit()).result()

    @hold.job("endless", deadline="300ms")
    async def endless() -> None:
        await asyncio.Event().wait()

    async with hold.worker(poll=0.05):
        waiting, doomed = await parent.submit(), await endless.submit()
        later = await story.options(delay="1h").submit()
        assert await later.cancel() is Status.CANCELLED
        while not (found := [job for job in await hold.find() if job.name == "story" and job.waiting]):
            await asyncio.sleep(0.05)
        await hold.signal(found[0].id, "word", "go")

        assert await waiting.result(timeout=TIMEOUT) == "go"
        assert (await hold.wait(doomed.id, timeout=TIMEOUT)).timed_out_at is not None


async def test_a_job_is_stored_in_the_callers_own_transaction(hold: Holdfast, dsn: str) -> None:
    doubled = hold.job("double")(double)
    mine = await asyncpg.connect(dsn, statement_cache_size=0)
    await mine.execute("CREATE TABLE mine (n integer)")
    async with mine.transaction():
        await mine.execute("INSERT INTO mine VALUES (1)")
        kept = await doubled.options(within=mine).submit(1)
    transaction = mine.transaction()
    await transaction.start()
    gone = await doubled.options(within=mine, key="gone").submit(2)
    await transaction.rollback()
    await mine.close()
    with psycopg.connect(dsn, prepare_threshold=None) as plain:
        blocking = doubled.options(within=plain).submit_sync(3)

    async with hold.worker(poll=0.05):
        assert await kept.result(timeout=TIMEOUT) == 2
        assert await hold.handle(blocking.id, "double").result(timeout=TIMEOUT) == 6
    assert gone.id not in {job.id for job in await hold.find()}


async def test_our_settings_hold_in_our_transactions_and_leak_into_no_other(hold: Holdfast, dsn: str) -> None:
    connections = hold.runtime.store._connections  # type: ignore[attr-defined]  # the only access to the session's settings
    async with connections.acquire() as connection:
        ours = {name: await connection.fetchval(f"SHOW {name}") for name in SESSION}
    others = await asyncio.gather(*[shown(dsn, "enable_seqscan") for _ in range(8)])

    assert {name: value for name, value in ours.items() if not name.startswith("tcp_")} == {
        name: value for name, value in SESSION.items() if not name.startswith("tcp_")
    }
    assert set(others) == {"on"}


async def shown(dsn: str, name: str) -> str:
    """Ask a server behind the pooler for a setting, as another client would."""
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        async with connection.transaction():
            return str(await connection.fetchval(f"SHOW {name}"))
    finally:
        await connection.close()


async def test_with_a_direct_address_an_idle_worker_is_notified_of_a_job(
    hold: Holdfast, dsn: str, postgres_dsn: str
) -> None:
    store = PostgresStore(dsn, pooled=True, direct_url=postgres_dsn)
    notified = asyncio.Event()
    unsubscribe = store.listen(lambda hint: notified.set() if hint.subject == "default" else None)
    listening = await asyncpg.connect(postgres_dsn)
    async with asyncio.timeout(TIMEOUT):
        while not await listening.fetchval(LISTENING):
            await asyncio.sleep(0.02)

        await hold.job("double")(double).submit(1)
        await notified.wait()

    unsubscribe()
    await store.close()
    await listening.close()


LISTENING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'holdfast listener' AND query LIKE '%pg_notify%'"
)
"""A process that listens notifies the others of that, right after it has begun to."""


async def test_without_one_no_process_tries_to_listen(hold: Holdfast) -> None:
    facts = await hold.runtime.store.facts()

    assert (facts["listens"], facts["connections_per_worker"]) == ("no", "6")


async def test_a_pooler_that_is_not_configured_is_named_with_the_setting(dsn: str) -> None:
    hold = Holdfast(dsn)

    with pytest.raises(ConfigError, match="HOLDFAST_DATABASE_POOLED=true"):
        await hold.open()
    await hold.close()


async def test_a_pooler_that_restarts_costs_no_job(
    postgres_server: PostgresServer, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_POOLED", "true")
    with PgBouncer(postgres_server.dsn()) as pooler:
        hold = Holdfast(pooler.dsn(postgres_dsn), backoff=Backoff.none())
        await hold.apply_schema()
        doubled = hold.job("double")(double)
        async with hold, hold.worker(poll=0.05):
            before = await doubled.submit_many([[n] for n in range(50)])
            pooler.stop()
            late = asyncio.create_task(doubled.options(key="late").submit(50))
            pooler.start()

            jobs = [*before, await late]
            assert [await job.result(timeout=TIMEOUT) for job in jobs] == [2 * n for n in range(51)]


def test_a_direct_address_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_DIRECT_URL", "mysql://app:hidden@host/app")

    with pytest.raises(ConfigError, match="must begin with postgresql://") as caught:
        Holdfast("postgresql://app@host/app")
    assert "hidden" not in str(caught.value)
