"""Connections to PostgreSQL, and what their errors mean to a caller."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from holdfast.core.errors import ConfigError, SchemaMissing, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

# A queue's statistics are always stale, so the planner is left no choice: its tables are joined
# by primary key and read by index, whatever their estimated size. The timeouts release the row
# locks of a worker that was stopped inside a transaction; SKIP LOCKED would skip those rows forever.
# The keepalives end the sessions of a machine that vanished, which would count as connections for hours.
SESSION = {
    "application_name": "holdfast",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "idle_in_transaction_session_timeout": "10s",
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

SET_LOCAL = "; ".join(
    f"SET LOCAL {name} = '{value}'"
    for name, value in SESSION.items()
    if name != "application_name" and not name.startswith("tcp_")
)
"""The same for one transaction: behind a pooler there is no session, and keepalives belong to the pooler."""

ANSWER = 8.0
"""Seconds to wait for the answer to a statement, and a little more for each megabyte of its values.

A network can lose a connection without either end noticing: what is written vanishes, and nothing arrives.
Only a missing answer shows that. Queries take milliseconds, so this is long; and it is short enough
for a submission to be sent again within its timeout, and for a lease to be extended before it expires.
"""

SLOW_NETWORK = 1_000_000
"""Characters that even a slow network transfers in a second."""

LONG_ANSWER = 35.0
"""Seconds to wait for a statement that may read many rows: the server's own timeout is shorter."""
NO_SCHEMA = "the database has no Holdfast schema; run `holdfast schema apply`, or call apply_schema()"

_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server has ended the session, and the connection is about to be closed
    asyncpg.OperatorInterventionError,  # shutdown, crash, starting up, statement timeout
    asyncpg.InsufficientResourcesError,  # disk, memory, connections
    asyncpg.TransactionRollbackError,  # deadlock, serialisation
    asyncpg.PostgresSystemError,  # input and output
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.LockNotAvailableError,
    OSError,
    TimeoutError,
)


class Connections:
    """A few connections: one each to claim, settle and submit, and some in reserve.

    The driver's own pool resets a session whenever it is returned, which is another round trip after
    every statement. Nothing here changes a session, and a connection that failed is not used again.

    *pooled* says that a pooler gives each transaction another server. Then every statement runs in a
    transaction, nothing is prepared, and listening needs a *direct_url* to the server itself.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int,
        timeout: float,
        answer: float = ANSWER,
        pooled: bool = False,
        direct_url: str | None = None,
    ) -> None:
        self._url = url
        self._pooled = pooled
        self._direct_url = direct_url or (None if pooled else url)
        self._size = size
        self._timeout = timeout
        self._answer = answer
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(size)
        self._closed = False

    async def open(self) -> None:
        """Connect once. Raises `StoreUnavailable` if the server does not answer."""
        if self._closed:
            self._closed = False
            self._free = asyncio.Semaphore(self._size)  # the one before may belong to another event loop
        async with self.acquire():
            return

    @property
    def most(self) -> int:
        """The maximum number of connections of a process: these, one to listen, and one to extend leases."""
        return self._size + self.can_listen + 1

    def another(self, *, size: int) -> "Connections":
        """Return connections to the same server, for use on another event loop."""
        return Connections(
            self._url,
            size=size,
            timeout=self._timeout,
            answer=self._answer,
            pooled=self._pooled,
            direct_url=self._direct_url,
        )

    @property
    def can_listen(self) -> bool:
        """Whether there is a URL to the server itself, past any pooler."""
        return self._direct_url is not None

    async def close(self) -> None:
        """Disconnect; wait at most 5 seconds for a server that does not answer."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(_close(connection, timeout=min(5, self._answer)) for connection in idle))

    async def dedicated(self, name: str) -> "Connection":
        """Open a connection to the server itself for one user alone, such as a listener, under *name*."""
        settings = {**SESSION, "application_name": name}
        return await self._connect(self._direct_url or self._url, server_settings=settings)

    async def _new(self) -> "Connection":
        if self._pooled:
            only_name = {"application_name": SESSION["application_name"]}
            return await self._connect(self._url, server_settings=only_name, statement_cache_size=0)
        return await self._connect(self._url, server_settings=SESSION)

    async def _connect(self, url: str, **options: Any) -> "Connection":
        with translated(), _readable():
            return await asyncpg.connect(url, timeout=self._timeout, command_timeout=self._answer, **options)

    async def fetch(self, sql: str, *values: Any, timeout: float | None = None) -> "list[asyncpg.Record]":
        """Run one statement in a transaction of its own; *timeout* overrides the default one."""
        async with self.acquire() as connection:
            return await connection.fetch(sql, *values, timeout=timeout)

    def answer_timeout(self, texts: Iterable[str | None]) -> float:
        """Return the seconds to wait for the answer to a statement with the values *texts*."""
        return self._answer + sum(len(text) for text in texts if text) / SLOW_NETWORK

    def acquire(self) -> "AcquiredConnection":
        """Acquire a connection for the length of an `async with`. The driver's errors are raised as Holdfast's own."""
        return PoolerConnection(self) if self._pooled else AcquiredConnection(self)

    @property
    def free(self) -> asyncio.Semaphore:
        """The semaphore that counts the connections that can be acquired, until the next close."""
        if self._closed:
            raise StoreUnavailable("the store was closed; open a new Holdfast")
        return self._free

    async def check_out(self) -> "Connection":
        """Return an idle connection, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._new()

    def check_in(self, connection: "Connection", *, error: BaseException | None) -> None:
        """Accept a connection back; one with an error is closed, whatever its state."""
        if isinstance(error, TimeoutError):
            # What silenced one connection has probably silenced the idle ones: each would cost another timeout,
            # and leases would expire meanwhile.
            idle, self._idle = self._idle, []
            for other in idle:
                other.terminate()
        if error is not None or self._closed:  # after the close it is too late to be closed with the others
            connection.terminate()
        else:
            self._idle.append(connection)


class AcquiredConnection:
    """A connection for the length of an `async with`: a class, because a generator costs twice as much."""

    __slots__ = ("_connection", "_connections", "_free")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._free = connections.free  # kept: after a close and a new open there is another semaphore
        self._connection: Connection | None = None

    async def __aenter__(self) -> "Connection":
        await self._free.acquire()
        try:
            self._connection = await self._connections.check_out()
        except BaseException:
            self._free.release()
            raise
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._free.release()
        if self._connection is not None:
            self._connections.check_in(self._connection, error=error)
        if error is not None:
            with translated():
                raise error


class PoolerConnection(AcquiredConnection):
    """A loan that is one transaction: for that long the pooler keeps the same server, and its settings hold."""

    __slots__ = ("_transaction",)

    async def __aenter__(self) -> "Connection":
        connection = await super().__aenter__()
        try:
            self._transaction = connection.transaction()
            await self._transaction.start()
            await connection.execute(SET_LOCAL)
        except BaseException as error:
            await super().__aexit__(type(error), error, None)
            raise
        return connection

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                await self._transaction.commit()
            except BaseException as refusal:
                await super().__aexit__(type(refusal), refusal, None)
                raise
        # An error ends the connection, and the transaction with it.
        await super().__aexit__(kind, error, trace)


async def _close(connection: "Connection", *, timeout: float) -> None:
    try:
        await connection.close(timeout=timeout)
    except _GONE:
        connection.terminate()


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into Holdfast's, which say what to do next."""
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
        raise SchemaMissing(NO_SCHEMA) from error
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise StoreUnavailable(f"PostgreSQL refuses the connection: {_first_line(error)}") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreUnavailable(
            f"PostgreSQL refuses: {_first_line(error)}; grant the user of the URL its rights"
        ) from error
    except _GONE as error:
        if isinstance(error, ValueError):
            raise  # a value that the driver cannot send: this is no outage, and a retry would not help
        if "unsupported startup parameter" in str(error):
            raise ConfigError(
                "the address leads to a pooler such as PgBouncer; set HOLDFAST_DATABASE_POOLED=true, "
                "or give the address of the server itself"
            ) from error
        raise StoreUnavailable(f"PostgreSQL does not answer: {_first_line(error)}") from error


@contextmanager
def _readable() -> Iterator[None]:
    """Reject a URL that the driver cannot parse. Its own message is left out: it may quote a password."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            "the address of the database (DATABASE_URL) is not usable: write postgresql://user:password@host:5432/name, "
            "with special characters as in %40"
        ) from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
