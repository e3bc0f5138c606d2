"""A network that silently loses connections costs a wait of bounded duration, and nothing else.

Both ends of a half-open connection believe in it: what one of them sends vanishes, and no error ever comes.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.ports import HintKind
from holdfast.stores.postgres.connections import ANSWER, Connections
from holdfast.stores.postgres.notify import CHANNEL, Listener
from holdfast.stores.postgres.store import PostgresStore
from holdfast.wiring.assemble import assemble
from holdfast_simulator import Rule, Script, Slow
from tests import invariants
from tests.acceptance.harness.app import BUDGET, submit_orders
from tests.acceptance.harness.fault_injector import LEASE
from tests.acceptance.harness.polling import until
from tests.acceptance.harness.processes import Service, WorkerHost, WorkerPool
from tests.acceptance.harness.proxy import Proxy
from tests.acceptance.harness.recovery import drain
from tests.builders import a_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast.engine.runtime import Runtime
    from holdfast.ports import Hint
    from tests.acceptance.harness.databases import Database
    from tests.acceptance.harness.proxy import Route

SHORT = 0.5
"""Seconds that the stores of these tests wait for an answer, so that the tests need not wait for long."""

FOREVER = 20.0
"""Seconds after which a test believes that something hangs."""


@pytest.fixture
def database(postgres_database: Database) -> Database:
    return postgres_database


@pytest.fixture
def route(database: Database) -> Iterator[Route]:
    with Proxy(*database.address) as proxy:
        yield proxy.route()


async def test_a_silent_connection_is_given_up_and_so_are_its_idle_neighbours(
    database: Database, route: Route
) -> None:
    async with opened(database.through(route)) as store:
        await asyncio.gather(*(store.queues.counts() for _ in range(5)))
        assert route.half_open() == 5

        async with asyncio.timeout(FOREVER):
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await store.claim("worker", "default", limit=1, lease=timedelta(seconds=1))

            # One wait has been enough: the other four connections would have cost one each.
            for _ in range(5):
                assert await store.claim("worker", "default", limit=1, lease=timedelta(seconds=1)) == []


@pytest.mark.parametrize("key", [None, "letter-7"], ids=["without a key", "with a key"])
async def test_a_submission_into_a_silent_connection_is_sent_again_and_makes_one_job(
    database: Database, route: Route, key: str | None
) -> None:
    def with_a_short_timeout(*args: Any, **kwargs: Any) -> Runtime:
        return replace(assemble(*args, **kwargs), store=PostgresStore(database.through(route), answer=SHORT))

    hold = Holdfast(database.url, assemble=with_a_short_timeout)

    @hold.job("greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    async with hold, asyncio.timeout(FOREVER):
        assert route.half_open() > 0

        handle = await greet.options(key=key).submit("Ada")

        assert [job.id for job in await hold.find()] == [handle.id]


async def test_much_data_gets_more_time_than_a_short_statement(database: Database, route: Route) -> None:
    heavy = [a_job(args=f'{{"text": "{"x" * 900_000}"}}') for _ in range(4)]
    async with opened(database.through(route)) as store:
        # Each piece is held back, so the upload alone takes longer than the answer to a short statement may.
        route.slow_down(SHORT / 40)

        async with asyncio.timeout(4 * FOREVER):
            assert len(await store.submit(heavy)) == 4


async def test_a_store_with_silent_connections_is_closed_all_the_same(
    database: Database, route: Route
) -> None:
    store = PostgresStore(database.through(route), answer=SHORT)
    await store.open()
    await asyncio.gather(*(store.queues.counts() for _ in range(5)))
    route.half_open()

    async with asyncio.timeout(FOREVER):
        await store.close()


async def test_a_listener_whose_connection_fell_silent_listens_again(
    database: Database, route: Route
) -> None:
    hints: asyncio.Queue[Hint] = asyncio.Queue()
    connections = Connections(database.through(route), size=1, timeout=10, answer=SHORT)
    listener = Listener(connections, heartbeat=SHORT)
    listener.add(hints.put_nowait, (HintKind.READY,))
    async with asyncio.timeout(FOREVER):
        await hints.get()  # a listener reports that it listens
        assert route.half_open() == 1

        await hints.get()
        await notified(database, "ready:default")
        hint = await hints.get()

    assert (hint.kind, hint.subject) == ("ready", "default")
    await listener.close()


@pytest.mark.clause("JOB-4", "postgres")
def test_a_worker_with_silent_connections_continues_without_a_restart(
    database: Database, route: Route, tmp_path: Path
) -> None:
    all_are_slow = Script.of(Rule(Slow(timedelta(seconds=0.3))))
    host = WorkerHost(database.through(route), route)
    options = ("--lease", str(LEASE))
    with (
        Service(tmp_path, all_are_slow) as service,
        WorkerPool(database.url, tmp_path, service.url, options=options, hosts=(host,)) as pool,
    ):
        pool.wait_until_at_work()
        orders = submit_orders(database.url, 60)
        until(lambda: len(service.calls()) >= 5, within=10, what="calls in flight")

        def silenced_until_it_notices() -> bool:
            route.half_open()
            return bool(pool.lines("store unavailable"))

        until(silenced_until_it_notices, within=ANSWER + FOREVER, what="the worker to miss an answer")
        assert database.live(), "it was done before anything could go wrong"

        drain(database, pool, within=ANSWER + 60)
        codes = pool.stop()

    assert (pool.former, codes) == ([], [0])
    invariants.all_hold(database.world(), service.calls(), acknowledged=orders, budget=BUDGET)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """A store with a short timeout for answers."""
    store = PostgresStore(url, answer=SHORT)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def notified(database: Database, words: str) -> None:
    connection = await asyncpg.connect(database.url)
    try:
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, words)
    finally:
        await connection.close()
