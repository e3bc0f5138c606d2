"""Migrates a PostgreSQL database to the schema of this code, all or nothing."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg

from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.ports.schema import LockHolder, LockWait, SchemaState
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.namespace import Namespace
from holdfast.stores.queries import Queries, migrations
from holdfast.stores.schema_version import MIN_COMPATIBLE, ensure_fit

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Connection

LOCK_TIMEOUT = 1.0
"""Seconds to wait for a lock. Every statement on that table queues behind the wait, so it is much shorter than the
5 seconds of a worker's lock_timeout."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 5.0
"""Seconds between two attempts, in which all other sessions proceed; each pause is twice as long as the one before."""

POLL_SECONDS = 0.2
"""Seconds between two queries for the holders of the lock."""

_STATEMENT_TIMEOUT = 3_600.0  # seconds; the connection's own limit is for the short statements of a worker


class Schema:
    """The schema's versions and its migrations."""

    def __init__(self, connections: Connections, namespace: Namespace, sql: Queries) -> None:
        self._connections = connections
        self._namespace = namespace
        self._sql = sql
        self._migrations = [
            (version, namespace.qualify(script)) for version, script in migrations(__package__)
        ]
        self._expected = self._migrations[-1][0]

    @property
    def name(self) -> str:
        """The name of the schema in the database."""
        return self._namespace.name

    async def ensure_usable(self) -> None:
        """Raise a `SchemaError` that says what to run, if the schema does not fit."""
        ensure_fit(await self.state())

    async def state(self) -> SchemaState:
        """Return the version found; 0 if there is none."""
        async with self._connections.acquire() as connection:
            return await self._found(connection)

    async def _found(self, connection: "Connection") -> SchemaState:
        meta = f"{self._namespace.quoted}.meta"
        if await connection.fetchval("SELECT to_regclass($1)", meta) is None:
            return SchemaState(0, self._expected, 0)
        row = await connection.fetchrow(f"SELECT schema_version, min_compatible FROM {meta}")  # noqa: S608 - a checked name
        version, min_compatible = row or (0, 0)
        return SchemaState(version, self._expected, min_compatible)

    async def apply(self, *, limit: timedelta, blocked: Callable[[LockWait], object] | None) -> SchemaState:
        """Run the missing migrations in one transaction, and return the state before.

        Workers continue meanwhile. If a session holds a lock on a table, as a backup does, or waits for one that this
        transaction holds, the transaction is rolled back: nothing was changed, *blocked* is called, and it is retried
        after a pause. Raises `StoreUnavailable` if that takes longer than *limit*.
        """
        clock = asyncio.get_running_loop().time
        began, pause = clock(), FIRST_PAUSE
        holders: tuple[LockHolder, ...] = ()
        while True:
            watch = _Watch(self._connections, self._sql["lock_holders"])
            try:
                return await self._apply(watch)
            except StoreUnavailable as error:
                if not isinstance(
                    error.__cause__, asyncpg.LockNotAvailableError | asyncpg.DeadlockDetectedError
                ):
                    raise
                holders = watch.holders or holders
                wait = LockWait(holders, timedelta(seconds=clock() - began))
                if wait.waited + timedelta(seconds=pause) > limit:
                    raise StoreUnavailable(
                        f"the schema was not applied, and nothing was changed: for {wait.waited.total_seconds():.0f} s "
                        f"there was {wait}; end that session or wait for its end, and apply again"
                    ) from error
            finally:
                await watch.stop()
            if blocked is not None:
                blocked(wait)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _apply(self, watch: "_Watch") -> SchemaState:
        async with self._connections.acquire() as connection, connection.transaction():
            await connection.execute(
                f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT * 1000:.0f}ms'; SET LOCAL statement_timeout = 0"
            )
            watch.start(await connection.fetchval("SELECT pg_backend_pid()"))
            await connection.execute("SELECT pg_advisory_xact_lock($1)", self._namespace.apply_lock)
            before = await self._found(connection)
            for version, script in self._migrations:
                if version > before.found:
                    await self._migrate(connection, version, script)
        return before

    async def _migrate(self, connection: "Connection", version: int, script: str) -> None:
        try:
            await connection.execute(script, timeout=_STATEMENT_TIMEOUT)
        except (asyncpg.DuplicateTableError, asyncpg.DuplicateFunctionError) as error:
            raise ConfigError(
                f"the schema {self.name!r} holds something else that has the name of one of Holdfast's tables; "
                "nothing was changed: choose another with HOLDFAST_DATABASE_SCHEMA"
            ) from error
        await connection.execute(
            f"UPDATE {self._namespace.quoted}.meta SET schema_version = $1, min_compatible = $2",  # noqa: S608 - a checked name
            version,
            MIN_COMPATIBLE,
        )


class _Watch:
    """Queries, on another connection, who holds the lock that a session waits for: afterwards it cannot be seen."""

    def __init__(self, connections: Connections, sql: str) -> None:
        self._connections = connections
        self._sql = sql
        self._task: asyncio.Task[None] | None = None
        self.holders: tuple[LockHolder, ...] = ()

    def start(self, pid: int) -> None:
        self._task = asyncio.create_task(self._look(pid), name="holdfast schema locks")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self, pid: int) -> None:
        # If the query fails, only the details of the message are missing.
        with suppress(StoreUnavailable, asyncpg.PostgresError):
            while True:
                await asyncio.sleep(POLL_SECONDS)
                rows = await self._connections.fetch(self._sql, pid)
                self.holders = tuple(LockHolder(*row) for row in rows) or self.holders
