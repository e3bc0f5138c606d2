"""What `within=` refuses, and what it then says to do."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg2
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from holdfast import Holdfast, JobFunction
from holdfast.core.within import ACCEPTED, kind_of
from holdfast.errors import SchemaMissing, SchemaTooOld, WithinUnsupported
from tests.contract.callers import POSTGRES, SQLITE, Caller, Plain, a_caller
from tests.contract.conftest import Database, SqliteFile, apply_schema


@pytest.fixture
def greet(hold: Holdfast) -> JobFunction[[str], str]:
    return hold.job("greet")(_greet)


def alchemy(database: Database, driver: str) -> str:
    if isinstance(database, SqliteFile):
        return f"sqlite:///{database.path}"
    return database.url.replace("postgresql", f"postgresql+{driver}", 1)


@pytest.mark.parametrize(
    "thing", ["a connection", object(), sqlite3.Cursor, Session], ids=lambda thing: type(thing).__name__
)
async def test_anything_else_is_refused_with_a_list_of_what_is_taken(
    greet: JobFunction[[str], str], thing: object
) -> None:
    with pytest.raises(WithinUnsupported) as refused:
        await greet.options(within=thing).submit("Ada")

    assert str(refused.value) == f"within= got {type(thing).__name__}; it takes {ACCEPTED}"


async def test_an_engine_is_no_transaction(database: Database, greet: JobFunction[[str], str]) -> None:
    with pytest.raises(WithinUnsupported, match="within= got Engine; it takes"):
        await greet.options(within=create_engine(alchemy(database, "psycopg"))).submit("Ada")


class MyConnection(sqlite3.Connection):
    """A user's own subclass."""


def test_a_subclass_is_taken_for_what_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db", factory=MyConnection)) as connection:
        assert kind_of(connection).value == "a sqlite3 connection"


async def refuses(caller: Caller, greet: JobFunction[[str], str], why: str) -> None:
    """Try to submit in a transaction of *caller*, which must be refused with *why*."""
    await caller.open()
    try:
        await caller.begin()
        with pytest.raises(WithinUnsupported, match=why):
            await caller.submit(greet, "Ada")
        await caller.rollback()
    finally:
        await caller.close()


async def no_transaction_on_sqlite3(database: Any) -> tuple[Any, str]:
    return sqlite3.connect(database.path, isolation_level=None), "execute BEGIN IMMEDIATE first"


async def no_transaction_on_aiosqlite(database: Any) -> tuple[Any, str]:
    return await aiosqlite.connect(database.path, isolation_level=None), "execute BEGIN IMMEDIATE first"


async def no_transaction_on_sqlalchemy_and_sqlite(database: Any) -> tuple[Any, str]:
    engine = create_engine(alchemy(database, ""), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    return engine.connect(), "execute BEGIN IMMEDIATE first"


async def no_transaction_on_asyncpg(database: Any) -> tuple[Any, str]:
    return await asyncpg.connect(database.url), "open one with `async with connection.transaction():`"


async def no_transaction_on_psycopg(database: Any) -> tuple[Any, str]:
    return psycopg.connect(database.url, autocommit=True), "open one with `with connection.transaction():`"


async def no_transaction_on_async_psycopg(database: Any) -> tuple[Any, str]:
    connection = await psycopg.AsyncConnection.connect(database.url, autocommit=True)
    return connection, "open one with `async with connection.transaction():`"


async def no_transaction_on_psycopg2(database: Any) -> tuple[Any, str]:
    connection = psycopg2.connect(database.url)
    connection.autocommit = True
    return connection, "set `connection.autocommit = False`, or execute BEGIN"


async def no_transaction_on_sqlalchemy(database: Any) -> tuple[Any, str]:
    engine = create_engine(alchemy(database, "psycopg"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    return engine.connect(), "another isolation level than AUTOCOMMIT"


async def no_transaction_on_async_sqlalchemy(database: Any) -> tuple[Any, str]:
    engine = create_async_engine(
        alchemy(database, "asyncpg"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    return await engine.connect(), "another isolation level than AUTOCOMMIT"


ON_SQLITE = [no_transaction_on_sqlite3, no_transaction_on_aiosqlite, no_transaction_on_sqlalchemy_and_sqlite]
ON_POSTGRES = [
    no_transaction_on_asyncpg,
    no_transaction_on_psycopg,
    no_transaction_on_async_psycopg,
    no_transaction_on_psycopg2,
    no_transaction_on_sqlalchemy,
    no_transaction_on_async_sqlalchemy,
]


@pytest.mark.parametrize(
    ("database", "connect"),
    [("sqlite", connect) for connect in ON_SQLITE] + [("postgres", connect) for connect in ON_POSTGRES],
    indirect=["database"],
)
async def test_a_connection_in_no_transaction_is_refused_with_how_to_open_one(
    database: Database,
    hold: Holdfast,
    greet: JobFunction[[str], str],
    connect: Callable[[Database], Awaitable[tuple[Any, str]]],
) -> None:
    connection, how = await connect(database)
    try:
        with pytest.raises(WithinUnsupported) as refused:
            await greet.options(within=connection).submit("Ada")
    finally:
        closed = connection.close()
        if closed is not None:
            await closed

    assert "in no transaction" in str(refused.value)
    assert how in str(refused.value)
    assert await hold.find() == []


async def test_django_outside_atomic_is_refused_with_how_to_open_a_transaction(
    database: Database, hold: Holdfast, greet: JobFunction[[str], str]
) -> None:
    path = database.path if isinstance(database, SqliteFile) else None
    caller = a_caller("Django", dsn=None if path else database.url, path=path)
    await caller.open()
    try:
        with pytest.raises(WithinUnsupported, match=r"open one with `with transaction.atomic\(\):`"):
            await caller.submit(greet, "Ada")
    finally:
        await caller.close()

    assert await hold.find() == []


@pytest.mark.parametrize("name", [name for name in SQLITE if "by hand" not in name])
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_connection_to_sqlite_is_refused_when_the_jobs_are_in_postgresql(
    greet: JobFunction[[str], str], tmp_path: Path, name: str
) -> None:
    await refuses(
        a_caller(name, path=str(tmp_path / "own.db")),
        greet,
        "and the jobs are in PostgreSQL; pass a connection to",
    )


@pytest.mark.parametrize("name", POSTGRES)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_connection_to_postgresql_is_refused_when_the_jobs_are_in_sqlite(
    greet: JobFunction[[str], str], postgres_dsn: str, name: str
) -> None:
    await refuses(a_caller(name, dsn=postgres_dsn), greet, "and the jobs are in SQLite; pass a connection to")


@pytest.mark.parametrize("name", SQLITE)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_connection_to_another_file_is_refused_since_no_worker_would_look_there(
    greet: JobFunction[[str], str], tmp_path: Path, name: str
) -> None:
    await refuses(
        a_caller(name, path=str(tmp_path / "other.db")),
        greet,
        r"got a connection to '.*other.db', and the jobs are in",
    )


@pytest.mark.parametrize("name", POSTGRES)
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_a_postgresql_database_without_the_tables_is_named_as_such(
    greet: JobFunction[[str], str], postgres_server: Any, name: str
) -> None:
    empty = postgres_server.create_database()
    caller = a_caller(name, dsn=empty)
    await caller.open()
    try:
        await caller.begin()
        with pytest.raises(SchemaMissing, match="holdfast schema apply"):
            await caller.submit(greet, "Ada")
        await caller.rollback()
    finally:
        await caller.close()
        postgres_server.drop_database(empty)


async def test_tables_of_an_earlier_version_are_named_as_such(postgres_server: Any) -> None:
    dsn = postgres_server.create_database(apply_schema)
    greet = Holdfast(dsn).job("greet")(_greet)
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE holdfast.jobs DROP COLUMN deadline_at")
        with pytest.raises(SchemaTooOld, match="holdfast schema apply"):
            greet.options(within=connection).submit_sync("Ada")
    postgres_server.drop_database(dsn)


@pytest.mark.parametrize("name", [name for name, (kind, _) in SQLITE.items() if issubclass(kind, Plain)])
async def test_a_sqlite_file_without_the_tables_is_named_as_such(tmp_path: Path, name: str) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path / 'new.db'}")  # never opened, so the tables are not made yet
    greet = hold.job("greet")(_greet)
    caller = a_caller(name, path=str(tmp_path / "new.db"))
    await caller.open()
    try:
        await caller.begin()
        with pytest.raises(SchemaMissing, match="holdfast schema apply"):
            await caller.submit(greet, "Ada")
        await caller.rollback()
    finally:
        await caller.close()


ASYNC = [
    *[("sqlite", name) for name, (kind, _) in SQLITE.items() if issubclass(kind, Caller)],
    *[("postgres", name) for name, (kind, _) in POSTGRES.items() if issubclass(kind, Caller)],
]


@pytest.mark.parametrize(("database", "name"), ASYNC, indirect=["database"])
async def test_plain_code_with_an_async_connection_is_refused_with_the_advice_to_await(
    database: Database, hold: Holdfast, greet: JobFunction[[str], str], name: str
) -> None:
    path = database.path if isinstance(database, SqliteFile) else None
    caller = a_caller(name, dsn=None if path else database.url, path=path)
    await caller.open()
    try:
        await caller.begin()
        with pytest.raises(WithinUnsupported, match=r"write `await submit\(...\)` there"):
            greet.options(within=caller.within).submit_sync("Ada")
        await caller.rollback()
    finally:
        await caller.close()
    assert await hold.find() == []


async def _greet(name: str) -> str:
    return f"hello {name}"
