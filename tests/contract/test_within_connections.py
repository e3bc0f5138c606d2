"""Submissions within a caller's connection: across styles, through a framework's helpers, at awkward moments."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from holdfast import Holdfast, JobFunction
from tests.contract.conftest import Database, SqliteFile
from tests.contract.steps import TIMEOUT

pytestmark = pytest.mark.clause("OUT-1", "jobs")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    number: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def greet(hold: Holdfast) -> JobFunction[[str], str]:
    @hold.job("greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    return greet


@pytest.fixture
def engine(database: Database, hold: Holdfast) -> Iterator[Any]:
    made = create_engine(alchemy(database), poolclass=NullPool)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def async_engine(engine: Any, database: Database) -> Any:
    return create_async_engine(alchemy(database, is_async=True), poolclass=NullPool)


def alchemy(database: Database, *, is_async: bool = False) -> str:
    if isinstance(database, SqliteFile):
        return f"sqlite{'+aiosqlite' if is_async else ''}:///{database.path}"
    return database.url.replace("postgresql", f"postgresql+{'asyncpg' if is_async else 'psycopg2'}", 1)


async def ids(hold: Holdfast) -> list[str]:
    return [job.id for job in await hold.find()]


async def test_objects_that_a_session_has_not_written_yet_go_with_the_job(
    hold: Holdfast, greet: JobFunction[[str], str], engine: Any
) -> None:
    with Session(engine) as session, session.begin():
        session.add(Order(number=7))
        made = await greet.options(within=session).submit("Ada")

    with Session(engine) as session:
        assert session.get(Order, 7) is not None
    assert await ids(hold) == [made.id]


async def test_async_code_may_submit_within_a_plain_connection(
    hold: Holdfast, greet: JobFunction[[str], str], database: Database
) -> None:
    if isinstance(database, SqliteFile):
        connection: Any = sqlite3.connect(database.path)
    else:
        connection = psycopg.connect(database.url)
    with closing(connection):
        dropped = await greet.options(within=connection).submit("Ada")
        connection.rollback()
        kept = await greet.options(within=connection).submit("Ada")
        connection.commit()

    assert dropped.id != kept.id
    assert await ids(hold) == [kept.id]


async def test_plain_code_that_an_async_session_runs_submits_within_it(
    hold: Holdfast, greet: JobFunction[[str], str], async_engine: Any
) -> None:
    def plain(session: Session) -> str:
        session.add(Order(number=7))
        return greet.options(within=session).submit_sync("Ada").id

    async with AsyncSession(async_engine) as session, session.begin():
        made = await session.run_sync(plain)
        before = await ids(hold)

    assert (before, await ids(hold)) == ([], [made])


async def test_a_scoped_session_stands_for_the_session_of_its_scope(
    hold: Holdfast, greet: JobFunction[[str], str], engine: Any
) -> None:
    session = scoped_session(sessionmaker(engine))
    session.add(Order(number=7))
    made = await greet.options(within=session).submit("Ada")
    session.commit()
    session.remove()

    assert await ids(hold) == [made.id]


async def test_an_async_scoped_session_stands_for_the_session_of_its_scope(
    hold: Holdfast, greet: JobFunction[[str], str], async_engine: Any
) -> None:
    session = async_scoped_session(async_sessionmaker(async_engine), scopefunc=asyncio.current_task)
    session.add(Order(number=7))
    made = await greet.options(within=session).submit("Ada")
    await session.commit()
    await session.remove()

    assert await ids(hold) == [made.id]


async def test_a_psycopg_transaction_block_on_an_autocommit_connection_is_a_transaction(
    postgres_dsn: str,
) -> None:
    hold = Holdfast(postgres_dsn)
    greet = hold.job("greet")(_greet)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        with connection.transaction():
            kept = greet.options(within=connection).submit_sync("Ada")
            with connection.transaction() as nested:
                greet.options(within=connection).submit_sync("Bob")
                raise psycopg.Rollback(nested)

        async with hold:
            assert await ids(hold) == [kept.id]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_an_error_of_the_callers_transaction_comes_in_the_words_of_its_driver(
    hold: Holdfast, greet: JobFunction[[str], str], postgres_dsn: str
) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            await greet.options(within=connection).submit("Ada")
        connection.rollback()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_transaction_that_has_not_written_yet_waits_for_the_one_that_writes(
    hold: Holdfast, greet: JobFunction[[str], str], database: SqliteFile
) -> None:
    other = sqlite3.connect(database.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    asyncio.get_running_loop().call_later(0.1, other.execute, "COMMIT")

    def deferred() -> str:
        with closing(sqlite3.connect(database.path, isolation_level=None, timeout=TIMEOUT)) as connection:
            connection.execute("BEGIN")
            made = greet.options(key="k", within=connection).submit_sync("Ada")
            connection.execute("COMMIT")
            return made.id

    made = await asyncio.to_thread(deferred)
    other.close()

    assert await ids(hold) == [made]


async def test_a_submission_that_is_cancelled_writes_nothing_after_the_rollback(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    hold = Holdfast(f"sqlite:///{path}")
    greet = hold.job("greet")(_greet)
    loop = asyncio.get_running_loop()
    async with hold, aiosqlite.connect(path) as connection:
        submitting = asyncio.ensure_future(greet.options(within=connection, key="k").submit("Ada"))

        def cancel_in_the_middle(statement: str) -> None:
            if "INSERT INTO holdfast_job_keys" in statement:
                loop.call_soon_threadsafe(submitting.cancel)

        await connection.set_trace_callback(cancel_in_the_middle)
        await asyncio.wait([submitting])
        await connection.rollback()
        for _ in range(20):  # a straggler would have its turn between these
            await connection.execute("SELECT 1")

        assert submitting.cancelled()
        assert not connection.in_transaction
        assert await ids(hold) == []


async def _greet(name: str) -> str:
    return f"hello {name}"
