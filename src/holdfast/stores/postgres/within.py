"""Adapts the caller's own connection, of any supported driver, to the store's statements."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, TypeVar

from holdfast.aio.coroutines import run_here
from holdfast.core.errors import SchemaMissing, SchemaTooOld, WithinUnsupported
from holdfast.core.within import Kind, kind_of, no_transaction, wrong_database
from holdfast.stores import sqlalchemy
from holdfast.stores.postgres.connections import NO_SCHEMA, translated

T = TypeVar("T")

IDLE = 0
"""The transaction status of libpq for a connection that is in no transaction."""


class PostgresRunner(Protocol):
    """What submitting needs of a connection; asyncpg's needs no adapter."""

    async def fetch(self, query: str, /, *args: Any) -> Sequence[Any]:
        """Run a statement and return its rows, which are read by name."""
        ...

    async def fetchrow(self, query: str, /, *args: Any) -> Any:
        """Run a statement and return its first row, or `None`."""
        ...

    async def execute(self, query: str, /, *args: Any, timeout: float | None = None) -> Any:
        """Run a statement for its effect. *timeout* applies to the store's own connections: the caller's has its own."""
        ...


Work = Callable[[PostgresRunner], Coroutine[Any, Any, T]]


async def run_within(connection: Any, work: Work[T]) -> T:
    """Run *work* on the caller's *connection*, in the transaction that it is in.

    With a blocking connection, this never waits for an event loop. Raises `WithinUnsupported`, or the errors
    of the caller's driver: the transaction belongs to the caller.
    """
    kind = kind_of(connection)
    if kind is Kind.ASYNCPG:
        if not connection.is_in_transaction():
            raise no_transaction("open one with `async with connection.transaction():`")
        with translated():
            return await work(connection)
    with _explained():
        if kind in sqlalchemy.KINDS:
            return await sqlalchemy.with_connection(
                kind, connection, lambda plain: run_here(work(_by_sqlalchemy(kind, plain)))
            )
        return await work(_by_driver(kind, connection))


def _by_driver(kind: Kind, connection: Any) -> PostgresRunner:
    match kind:
        case Kind.PSYCOPG:
            _ensure_in_transaction(connection, "open one with `with connection.transaction():`")
            psycopg = import_module("psycopg")
            # The connection's own cursor class may have other placeholders and rows.
            return BlockingAdapter(lambda: psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row))
        case Kind.PSYCOPG_ASYNC:
            _ensure_in_transaction(connection, "open one with `async with connection.transaction():`")
            return AsyncPsycopgAdapter(connection)
        case Kind.PSYCOPG2:
            _ensure_in_transaction(connection, "set `connection.autocommit = False`, or execute BEGIN")
            plain = import_module("psycopg2.extensions").cursor
            return BlockingAdapter(lambda: connection.cursor(cursor_factory=plain))
        case Kind.DJANGO if connection.vendor == "postgresql":
            if not connection.in_atomic_block and connection.get_autocommit():
                raise no_transaction("open one with `with transaction.atomic():`")
            return BlockingAdapter(connection.cursor)
        case _:
            raise wrong_database(kind, "PostgreSQL")


def _by_sqlalchemy(kind: Kind, connection: Any) -> PostgresRunner:
    if connection.dialect.name != "postgresql":
        raise wrong_database(kind, "PostgreSQL")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise no_transaction("choose another isolation level than AUTOCOMMIT for it")
    return PostgresSqlAlchemyAdapter(connection)


def _ensure_in_transaction(connection: Any, how: str) -> None:
    """Reject autocommit outside a transaction; without autocommit, the driver opens one with the next statement."""
    if connection.autocommit and connection.info.transaction_status == IDLE:
        raise no_transaction(how)


class _Adapter(ABC):
    @abstractmethod
    async def fetch(self, query: str, /, *args: Any) -> Sequence[Any]: ...

    async def fetchrow(self, query: str, /, *args: Any) -> Any:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def execute(self, query: str, /, *args: Any, timeout: float | None = None) -> None:
        await self.fetch(query, *args)


class BlockingAdapter(_Adapter):
    """Cursors of a blocking driver, as PEP 249 describes them, with `%s` for a value."""

    def __init__(self, cursor: Callable[[], AbstractContextManager[Any]]) -> None:
        self._cursor = cursor

    async def fetch(self, query: str, /, *args: Any) -> Sequence[Any]:
        with self._cursor() as cursor:
            cursor.execute(*as_format(query, args))
            return _named(cursor, cursor.fetchall()) if cursor.description else []


class AsyncPsycopgAdapter(_Adapter):
    """Cursors of an async connection of psycopg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._psycopg = import_module("psycopg")

    async def fetch(self, query: str, /, *args: Any) -> Sequence[Any]:
        tuples = self._psycopg.rows.tuple_row
        async with self._psycopg.AsyncCursor(self._connection, row_factory=tuples) as cursor:
            await cursor.execute(*as_format(query, args))
            return _named(cursor, await cursor.fetchall()) if cursor.description else []


class PostgresSqlAlchemyAdapter(_Adapter):
    """A connection of SQLAlchemy, which logs these statements with its own."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, /, *args: Any) -> Sequence[Any]:
        if self._connection.dialect.paramstyle != "numeric_dollar":
            query, args = as_format(query, args)
        result = self._connection.exec_driver_sql(query, args)
        return list(result.mappings()) if result.returns_rows else []


def _named(cursor: Any, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def as_format(query: str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return a statement with `%s` instead of `$1`, and its values in the order of their placeholders.

    >>> as_format("SELECT $2, $1 || $1", ("a", "b"))
    ('SELECT %s, %s || %s', ('b', 'a', 'a'))
    """
    text, order = _with_format_markers(query)
    return text, tuple(args[number] for number in order)


@lru_cache(maxsize=64)
def _with_format_markers(query: str) -> tuple[str, tuple[int, ...]]:
    order = tuple(int(number) - 1 for number in re.findall(r"\$(\d+)", query))
    return re.sub(r"\$\d+", "%s", query.replace("%", "%%")), order


_MEANINGS = {
    "42P01": SchemaMissing(NO_SCHEMA),
    "3F000": SchemaMissing(NO_SCHEMA),
    "42883": SchemaMissing(NO_SCHEMA),
    "42703": SchemaTooOld("the schema is older than this code; run `holdfast schema apply`"),
}


@contextmanager
def _explained() -> Iterator[None]:
    """Explain a missing or outdated schema; all other errors of the driver are raised as they are."""
    try:
        yield
    except WithinUnsupported:
        raise
    except Exception as error:
        meaning = _MEANINGS.get(_sqlstate(error))
        if meaning is None:
            raise
        raise type(meaning)(*meaning.args) from error


def _sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE: of the driver's error, or of the one inside a framework's error."""
    errors = [error, getattr(error, "orig", None), error.__cause__]
    codes = [getattr(each, name, None) for each in errors for name in ("sqlstate", "pgcode")]
    return next((code for code in codes if code), "")
