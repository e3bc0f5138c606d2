"""Connections to PostgreSQL, and what their errors mean to a caller."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from holdfast.core.errors import SchemaMissing, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

# A queue's statistics are always stale, so the planner is left no choice: its tables are joined
# by primary key and read by index, whatever their estimated size. The time limits free the row
# locks of a worker that was stopped inside a transaction; SKIP LOCKED would pass them by for ever.
SESSION = {
    "application_name": "holdfast",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "idle_in_transaction_session_timeout": "10s",
    "statement_timeout": "30s",
    "lock_timeout": "10s",
}

_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.DiskFullError,
    OSError,
    TimeoutError,
)


class Connections:
    """A small pool: one connection each to claim, settle, submit, and one to spare."""

    def __init__(self, url: str, *, size: int, timeout: float) -> None:
        self._url = url
        self._size = size
        self._timeout = timeout
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect once. Raises `StoreUnavailable` if nobody answers."""
        async with self._opening:
            if self._pool is None:
                self._pool = await self._connect()

    async def _connect(self) -> "asyncpg.Pool[asyncpg.Record]":
        with translated():
            return await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._size,
                timeout=self._timeout,
                command_timeout=60,
                max_inactive_connection_lifetime=0,
                server_settings=SESSION,
            )

    async def close(self) -> None:
        """Disconnect, waiting for what is under way, but not for a server that is gone."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), 5)
        except (TimeoutError, *_GONE):
            pool.terminate()

    async def lone(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Open a connection outside the pool, for listening."""
        with translated():
            return await asyncpg.connect(self._url, timeout=self._timeout, server_settings=SESSION)

    async def fetch(self, sql: str, *values: Any) -> "list[asyncpg.Record]":
        """Run one statement in a transaction of its own."""
        async with self.borrow() as connection:
            return await connection.fetch(sql, *values)

    @asynccontextmanager
    async def borrow(self) -> "AsyncIterator[PoolConnectionProxy[asyncpg.Record]]":
        """Lend a connection. Errors come out as Holdfast's own."""
        if self._pool is None:
            await self.open()
        if self._pool is None:
            raise StoreUnavailable("the store was closed; open a new Holdfast")
        with translated():
            async with self._pool.acquire(timeout=self._timeout) as connection:
                yield connection


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into ones that say what to do next."""
    try:
        yield
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise StoreReadOnly(
            "the PostgreSQL database is read-only; point the URL at the primary, or wait for the failover to end"
        ) from error
    except (
        asyncpg.UndefinedTableError,
        asyncpg.InvalidSchemaNameError,
        asyncpg.UndefinedFunctionError,
    ) as error:
        raise SchemaMissing(
            "the database has no Holdfast schema; run `holdfast schema apply`, or call apply_schema()"
        ) from error
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise StoreUnavailable(f"PostgreSQL refuses the connection: {_first_line(error)}") from error
    except _GONE as error:
        raise StoreUnavailable(f"PostgreSQL does not answer: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
