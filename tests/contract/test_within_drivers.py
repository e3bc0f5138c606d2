"""Whatever the user's connection is, a job submitted within its transaction shares that transaction's fate."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast, JobFunction
from tests.contract.callers import POSTGRES, SQLITE, Caller, a_caller
from tests.contract.conftest import Database, PostgresDatabase, SqliteFile
from tests.contract.steps import TIMEOUT

pytestmark = pytest.mark.clause("OUT-1", "jobs")

CALLERS = [
    pytest.param((store, name), id=f"{store}-{name}")
    for store, names in (("sqlite", SQLITE), ("postgres", POSTGRES))
    for name in names
]


@pytest.fixture(params=CALLERS)
def who(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The store, and the kind of the caller's connection."""
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture
def database(who: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if who[0] == "sqlite":
        return SqliteFile(str(tmp_path / "jobs.db"))
    return PostgresDatabase(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
async def caller(who: tuple[str, str], database: Database, hold: Holdfast) -> AsyncIterator[Caller]:
    await asked(database, "CREATE TABLE orders (number integer)")
    path = database.path if isinstance(database, SqliteFile) else None
    made = a_caller(who[1], dsn=None if path else database.url, path=path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def greet(hold: Holdfast) -> JobFunction[[str], str]:
    @hold.job("greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    return greet


async def asked(database: Database, sql: str) -> list[Any]:
    """Ask on a connection that has nothing to do with the caller's."""
    if isinstance(database, SqliteFile):
        other = sqlite3.connect(database.path)
        try:
            return other.execute(sql).fetchall()
        finally:
            other.close()
    connection = await asyncpg.connect(database.url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def orders(database: Database) -> list[int]:
    return [number for (number,) in await asked(database, "SELECT number FROM orders ORDER BY 1")]


async def jobs(hold: Holdfast) -> set[str]:
    return {job.id for job in await hold.find()}


async def test_a_commit_keeps_the_callers_row_and_the_job(
    hold: Holdfast, caller: Caller, greet: JobFunction[[str], str], database: Database
) -> None:
    await caller.begin()
    await caller.insert(7)
    job = await caller.submit(greet, "Ada")
    before = await jobs(hold), await orders(database)
    await caller.commit()

    assert before == (set(), [])
    assert (await jobs(hold), await orders(database)) == ({job.id}, [7])


async def test_a_rollback_leaves_neither_row_nor_job_nor_key(
    hold: Holdfast, caller: Caller, greet: JobFunction[[str], str], database: Database
) -> None:
    await caller.begin()
    await caller.insert(7)
    await caller.submit(greet.options(key="k"), "Ada")
    await caller.rollback()

    assert (await jobs(hold), await orders(database)) == (set(), [])
    assert not (await greet.options(key="k").submit("Bob")).existing


async def test_a_savepoint_that_is_rolled_back_takes_its_job_along_and_no_other(
    hold: Holdfast, caller: Caller, greet: JobFunction[[str], str], database: Database
) -> None:
    await caller.begin()
    await caller.insert(1)
    kept = await caller.submit(greet, "Ada")
    await caller.savepoint()
    await caller.insert(2)
    await caller.submit(greet.options(key="k"), "Bob")
    await caller.rollback_to()
    later = await caller.submit(greet.options(key="k"), "Cyd")
    await caller.commit()

    assert not later.existing
    assert (await jobs(hold), await orders(database)) == ({kept.id, later.id}, [1])


async def test_a_savepoint_that_is_released_leaves_its_job_to_the_transaction(
    hold: Holdfast, caller: Caller, greet: JobFunction[[str], str], database: Database
) -> None:
    await caller.begin()
    await caller.insert(1)
    await caller.savepoint()
    await caller.insert(2)
    job = await caller.submit(greet, "Ada")
    await caller.release()
    before = await jobs(hold)
    await caller.commit()

    assert before == set()
    assert (await jobs(hold), await orders(database)) == ({job.id}, [1, 2])


async def test_a_key_stands_for_one_job_inside_the_transaction_and_outside(
    caller: Caller, greet: JobFunction[[str], str]
) -> None:
    earlier = await greet.options(key="old").submit("Ada")

    await caller.begin()
    same = await caller.submit(greet.options(key="old"), "Ada")
    new = await caller.submit(greet.options(key="new"), "Bob")
    again = await caller.submit(greet.options(key="new"), "another")
    await caller.commit()

    assert (same.id, same.existing) == (earlier.id, True)
    assert (new.existing, again.id, again.existing, again.payload_differs) == (False, new.id, True, True)


async def test_what_a_submission_says_of_its_job_arrives_whole(
    caller: Caller, greet: JobFunction[[str], str]
) -> None:
    tomorrow = datetime.now(UTC).replace(microsecond=123456) + timedelta(days=1)
    chosen = greet.options(
        key="k %s $1", owner="an 'owner'", queue="slow", priority=-7, run_at=tomorrow, deadline="2h"
    ).options(subject="c1", version=2**40)

    await caller.begin()
    handle = await caller.submit(chosen, 'Ä"\\%s')
    await caller.commit()
    job = await handle.read()

    assert (job.owner, job.queue, job.priority) == ("an 'owner'", "slow", -7)
    assert (job.subject, job.version, job.retry_after) == ("c1", 2**40, tomorrow)
    assert job.deadline_at == job.created_at + timedelta(hours=2)
    assert job.args == '{"name":"Ä\\"\\\\%s"}'


async def test_many_jobs_are_stored_together(
    hold: Holdfast, caller: Caller, greet: JobFunction[[str], str]
) -> None:
    await caller.begin()
    made = await caller.submit_many(greet.options(priority=3, delay="1h"), [("Ada",), ("Bob",), ("Cyd",)])
    await caller.commit()

    found = await hold.find()
    assert {job.id for job in found} == {job.id for job in made}
    assert {(job.priority, job.retry_after is not None) for job in found} == {(3, True)}


async def test_a_worker_wakes_after_the_commit(
    hold: Holdfast, caller: Caller, greet: JobFunction[[str], str]
) -> None:
    async with hold.worker(poll=3 * TIMEOUT):
        await caller.begin()
        job = await caller.submit(greet, "Ada")
        await caller.commit()

        assert await job.result(timeout=TIMEOUT) == "hello Ada"


async def test_a_commit_is_announced_and_a_rollback_is_not(
    hold: Holdfast, caller: Caller, greet: JobFunction[[str], str], database: Database
) -> None:
    async with listening(database) as announced:
        await caller.begin()
        await caller.submit(greet, "Ada")
        await caller.rollback()
        after_rollback = await announced()
        await caller.begin()
        await caller.submit(greet, "Ada")
        await caller.commit()
        after_commit = await announced()

    assert (after_rollback, after_commit) == (False, True)


@asynccontextmanager
async def listening(database: Database) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
    """Give a function that returns whether anything, since its last call, has woken a worker."""
    if isinstance(database, SqliteFile):
        with closing(sqlite3.connect(database.path)) as watcher:
            yield _watched(watcher)
    else:
        connection = await asyncpg.connect(database.url)
        yield await _listened(connection)
        await connection.close()


def _watched(watcher: sqlite3.Connection) -> Callable[[], Awaitable[bool]]:
    seen = watcher.execute("PRAGMA data_version").fetchone()

    async def announced() -> bool:
        nonlocal seen
        before, seen = seen, watcher.execute("PRAGMA data_version").fetchone()
        return bool(before != seen)

    return announced


async def _listened(connection: Any) -> Callable[[], Awaitable[bool]]:
    received: asyncio.Queue[str] = asyncio.Queue()
    await connection.add_listener("holdfast", lambda *said: received.put_nowait(said[-1]))

    async def announced() -> bool:
        await connection.execute(
            "SELECT pg_notify('holdfast', 'that is all')"
        )  # notifications keep their order
        said = []
        while (one := await asyncio.wait_for(received.get(), TIMEOUT)) != "that is all":
            said.append(one)
        assert set(said) <= {"ready:default"}
        return bool(said)

    return announced
