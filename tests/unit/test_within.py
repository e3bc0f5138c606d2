"""Which objects `within=` takes."""

import sqlite3
from contextlib import closing

import pytest

from holdfast.core.errors import WithinUnsupported
from holdfast.core.within import ACCEPTED, Kind, ensure_blocking, kind_of, no_transaction, wrong_database

KINDS = {
    "asyncpg.connection.Connection": Kind.ASYNCPG,
    "asyncpg.pool.PoolConnectionProxy": Kind.ASYNCPG,
    "psycopg.Connection": Kind.PSYCOPG,
    "psycopg.AsyncConnection": Kind.PSYCOPG_ASYNC,
    "psycopg2.extensions.connection": Kind.PSYCOPG2,
    "sqlite3.Connection": Kind.SQLITE3,
    "aiosqlite.core.Connection": Kind.AIOSQLITE,
    "sqlalchemy.orm.session.Session": Kind.SQLALCHEMY_SESSION,
    "sqlalchemy.orm.scoping.scoped_session": Kind.SQLALCHEMY_SESSION,
    "sqlalchemy.engine.base.Connection": Kind.SQLALCHEMY_CONNECTION,
    "sqlalchemy.ext.asyncio.session.AsyncSession": Kind.SQLALCHEMY_ASYNC_SESSION,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": Kind.SQLALCHEMY_ASYNC_SESSION,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": Kind.SQLALCHEMY_ASYNC_CONNECTION,
    "django.utils.connection.ConnectionProxy": Kind.DJANGO,
    "django.db.backends.base.base.BaseDatabaseWrapper": Kind.DJANGO,
}


def a_class(path: str) -> type:
    """Make a class that is called *path*, as the one of a driver that need not be installed."""
    module, _, name = path.rpartition(".")
    return type(name, (), {"__module__": module})


@pytest.mark.parametrize(("path", "kind"), KINDS.items())
def test_a_connection_is_known_by_the_name_of_its_class(path: str, kind: Kind) -> None:
    assert kind_of(a_class(path)()) is kind


@pytest.mark.parametrize(("path", "kind"), KINDS.items())
def test_so_is_one_of_a_derived_class(path: str, kind: Kind) -> None:
    derived = type("Traced", (a_class(path),), {"__module__": "shop.database"})

    assert kind_of(derived()) is kind


def test_every_kind_is_known_by_some_name() -> None:
    assert set(KINDS.values()) == set(Kind)


def test_a_real_connection_is_known() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert kind_of(connection) is Kind.SQLITE3


@pytest.mark.parametrize("path", ["psycopg.Cursor", "shop.Connection", "asyncpg_pool.Connection"])
def test_anything_else_is_refused_by_its_name_with_what_is_taken(path: str) -> None:
    name = path.rpartition(".")[2]

    with pytest.raises(WithinUnsupported) as refused:
        kind_of(a_class(path)())

    assert str(refused.value) == f"within= got {name}; it takes {ACCEPTED}"


@pytest.mark.parametrize("kind", Kind)
def test_what_is_called_async_or_has_no_other_interface_needs_an_event_loop(kind: Kind) -> None:
    only_async = {Kind.ASYNCPG, Kind.AIOSQLITE}

    assert kind.awaits == ("an async " in kind.value or kind in only_async)


def test_a_connection_to_another_database_is_refused_with_where_the_jobs_are() -> None:
    error = wrong_database(Kind.PSYCOPG2, "SQLite")

    assert isinstance(error, WithinUnsupported)
    assert str(error) == (
        "within= got a psycopg2 connection, and the jobs are in SQLite; "
        "pass a connection to the database of the jobs"
    )


def test_a_connection_in_no_transaction_is_refused_with_how_to_open_one() -> None:
    error = no_transaction("write BEGIN first")

    assert isinstance(error, WithinUnsupported)
    assert str(error) == "within= got a connection that is in no transaction; write BEGIN first"


def test_the_twin_without_an_event_loop_takes_blocking_connections_only() -> None:
    ensure_blocking(a_class("sqlite3.Connection")(), "publish")

    with pytest.raises(WithinUnsupported) as refused:
        ensure_blocking(a_class("asyncpg.connection.Connection")(), "publish")

    assert str(refused.value) == (
        "publish_sync() got an asyncpg connection, which can be used on its event loop only; "
        "write `await publish(...)` there"
    )
