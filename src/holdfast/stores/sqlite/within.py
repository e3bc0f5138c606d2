"""Adapts the caller's own connection to the file with the jobs, of any supported driver, to the store's statements."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from holdfast.core.errors import SchemaMissing, WithinUnsupported
from holdfast.core.within import Kind, kind_of, no_transaction, wrong_database
from holdfast.stores import sqlalchemy
from holdfast.stores.sqlite.database import NO_SCHEMA, translated

T = TypeVar("T")


class SqliteRunner(Protocol):
    """What runs a statement: a connection, or a cursor for a caller with row factories of its own."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Any:
        """Run a statement; the returned object has its rows."""
        ...


Work = Callable[[SqliteRunner], T]


async def run_within(connection: Any, path: str, work: Work[T]) -> T:
    """Run *work* on the caller's *connection* to the file *path*, in the transaction that it is in.

    With a blocking connection, this never waits for an event loop. Raises `WithinUnsupported`.
    """
    kind = kind_of(connection)
    if kind in sqlalchemy.KINDS:
        with _explained():
            return await sqlalchemy.with_connection(
                kind, connection, lambda plain: work(_by_sqlalchemy(kind, plain, path))
            )
    with translated(path):
        match kind:
            case Kind.SQLITE3:
                return work(_begun(connection, _plain_rows(connection), path))
            case Kind.AIOSQLITE:
                return await _run_in_thread(
                    lambda loop: _begun(connection, AiosqliteAdapter(connection, loop), path), work
                )
            case Kind.DJANGO if connection.vendor == "sqlite":
                return work(_by_django(connection, path))
            case _:
                raise wrong_database(kind, "SQLite")


def _plain_rows(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = connection.cursor()
    cursor.row_factory = None  # the caller's row factory may return rows that cannot be read by position
    return cursor


def _begun(driver: Any, runner: SqliteRunner, path: str) -> SqliteRunner:
    """Ensure that the connection is to *path* and in a transaction; begin one where its driver would."""
    _, _, found = runner.execute("PRAGMA database_list").fetchone()  # the first is the connection's own file
    if os.path.realpath(found) != os.path.realpath(path):
        raise WithinUnsupported(
            f"within= got a connection to {found or 'a database in memory'!r}, and the jobs are in {path!r}; "
            "pass a connection to that file"
        )
    if not driver.in_transaction:
        # Unless configured otherwise, the driver would begin a transaction before the first change.
        if driver.isolation_level is None or getattr(driver, "autocommit", None) is True:
            raise no_transaction("execute BEGIN IMMEDIATE first")
        runner.execute("BEGIN IMMEDIATE")
    return runner


def _by_django(connection: Any, path: str) -> SqliteRunner:
    if not connection.in_atomic_block and connection.get_autocommit():
        raise no_transaction("open one with `with transaction.atomic():`")
    with connection.cursor() as cursor:  # this runs Django's own checks: thread, broken transaction
        driver = cursor.connection
    return _begun(driver, _plain_rows(driver), path)


class SqliteSqlAlchemyAdapter:
    """A connection of SQLAlchemy, which logs these statements with its own."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = None, /) -> Any:
        return self._connection.exec_driver_sql(sql, parameters)


def _by_sqlalchemy(kind: Kind, connection: Any, path: str) -> SqliteRunner:
    if connection.dialect.name != "sqlite":
        raise wrong_database(kind, "SQLite")
    return _begun(connection.connection.driver_connection, SqliteSqlAlchemyAdapter(connection), path)


class AiosqliteAdapter:
    """A connection of aiosqlite, used from a thread beside its event loop."""

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop

    def execute(self, sql: str, parameters: Any = (), /) -> "FetchedRows":
        return asyncio.run_coroutine_threadsafe(self._fetched(sql, parameters), self._loop).result()

    async def _fetched(self, sql: str, parameters: Any) -> "FetchedRows":
        async with self._connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(sql, parameters)
            return FetchedRows(await cursor.fetchall(), cursor.rowcount)


class FetchedRows:
    """Rows that were fetched already, and the number of those that were changed."""

    def __init__(self, rows: Any, rowcount: int) -> None:
        self._rows: Iterator[Any] = iter(rows)
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return next(self._rows, None)


async def _run_in_thread(make: Callable[[asyncio.AbstractEventLoop], SqliteRunner], work: Work[T]) -> T:
    """Run *work* in a thread. A cancelled caller waits for its end: a statement after a rollback would be committed."""
    loop = asyncio.get_running_loop()
    working = asyncio.ensure_future(asyncio.to_thread(lambda: work(make(loop))))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


@contextmanager
def _explained() -> Iterator[None]:
    """Explain a missing schema; all other errors of SQLAlchemy are raised as they are."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "orig", None)
        if isinstance(cause, sqlite3.OperationalError) and "no such table: holdfast" in str(cause):
            raise SchemaMissing(NO_SCHEMA) from error
        raise
