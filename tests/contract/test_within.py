"""A job that is stored in its caller's own transaction shares that transaction's fate."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast, Status
from holdfast.core.jobs.job import Receipt
from holdfast.errors import WithinUnsupported
from holdfast.ports import Store
from tests.builders import a_job
from tests.contract.conftest import Database, SqliteFile
from tests.contract.steps import LEASE, submitted


class CallersConnection:
    """A connection of the user's own, with a table of theirs, driven alike with either driver."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def run(self, sql: str) -> Any:
        if isinstance(self.raw, sqlite3.Connection):
            return self.raw.execute(sql).fetchall()
        return await self.raw.fetch(sql)


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator[CallersConnection]:
    if isinstance(database, SqliteFile):
        raw = sqlite3.connect(database.path, isolation_level=None)
        yield CallersConnection(raw)
        raw.close()
    else:
        connection = await asyncpg.connect(database.url)
        yield CallersConnection(connection)
        await connection.close()


@pytest.fixture
async def caller(database: Database, store: Store) -> AsyncIterator[CallersConnection]:
    async with connected(database) as connection:
        await connection.run("CREATE TABLE orders (number integer)")
        yield connection


@pytest.mark.clause("OUT-1", "jobs")
async def test_a_commit_stores_the_callers_rows_and_the_job_together(
    store: Store, caller: CallersConnection
) -> None:
    job = a_job()

    await caller.run("BEGIN")
    await caller.run("INSERT INTO orders VALUES (7)")
    answers = await store.submit_within(caller.raw, [job])
    before = await store.queues.counts()
    await caller.run("COMMIT")

    assert (answers, before) == ([Receipt(job.id)], {})
    [claim] = await store.claim("worker", "default", limit=9, lease=LEASE)
    assert claim.id == job.id
    assert len(await caller.run("SELECT * FROM orders")) == 1


@pytest.mark.clause("OUT-1", "jobs")
async def test_a_rollback_leaves_neither_row_nor_job_nor_key(store: Store, caller: CallersConnection) -> None:
    await caller.run("BEGIN")
    await caller.run("INSERT INTO orders VALUES (7)")
    await store.submit_within(caller.raw, [a_job(key="k", subject="c1", version=5), a_job()])
    await caller.run("ROLLBACK")

    assert await store.queues.counts() == {}
    assert await caller.run("SELECT * FROM orders") == []
    await submitted(store, a_job(key="k"), a_job(subject="c1", version=1))


@pytest.mark.clause("OUT-1", "jobs")
async def test_keys_hold_within_a_transaction(store: Store, caller: CallersConnection) -> None:
    [earlier] = await submitted(store, a_job(key="old"))
    first = a_job(key="new")

    await caller.run("BEGIN")
    answers = await store.submit_within(caller.raw, [a_job(key="old"), first, a_job(key="new")])
    await caller.run("COMMIT")

    assert answers == [Receipt(earlier, existing=True), Receipt(first.id), Receipt(first.id, existing=True)]


async def test_a_connection_outside_a_transaction_is_refused(store: Store, caller: CallersConnection) -> None:
    with pytest.raises(WithinUnsupported, match="in no transaction"):
        await store.submit_within(caller.raw, [a_job()])

    assert await store.queues.counts() == {}


@pytest.mark.parametrize("connection", [None, "a connection", object()], ids=["none", "text", "object"])
async def test_something_that_is_no_connection_is_refused(store: Store, connection: object) -> None:
    with pytest.raises(WithinUnsupported, match="it takes a"):
        await store.submit_within(connection, [a_job()])


@pytest.mark.clause("OUT-1", "jobs")
async def test_a_job_submitted_within_a_transaction_runs_after_the_commit(
    hold: Holdfast, caller: CallersConnection
) -> None:
    welcome = hold.job("welcome")(_welcome)

    async with hold.worker(poll=60):
        await caller.run("BEGIN")
        job = await welcome.options(within=caller.raw).submit("Ada")
        await caller.run("COMMIT")

        assert await job.result(timeout=20) == "welcome Ada"
    assert (await job.read()).status is Status.COMPLETED


async def _welcome(name: str) -> str:
    return f"welcome {name}"


async def test_a_caller_may_have_its_own_idea_of_a_row(caller: CallersConnection, store: Store) -> None:
    if isinstance(caller.raw, sqlite3.Connection):
        caller.raw.row_factory = lambda cursor, row: {
            column[0]: cell for column, cell in zip(cursor.description, row, strict=True)
        }
    job = a_job(key="k1")
    await submitted(store, job)

    await caller.run("BEGIN")
    [answer] = await store.submit_within(caller.raw, [a_job(key="k1")])
    await caller.run("COMMIT")

    assert answer == Receipt(job.id, existing=True)
