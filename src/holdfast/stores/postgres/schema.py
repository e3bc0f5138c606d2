"""Bringing a PostgreSQL database to this code's schema, all or nothing."""

from typing import TYPE_CHECKING

import asyncpg

from holdfast.core.errors import StoreUnavailable
from holdfast.ports import SchemaState
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.sqlfiles import migrations
from holdfast.stores.versions import MIN_COMPATIBLE, ensure_fit

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Connection

_LOCK = 0x686F6C64  # "hold": two machines that apply at once take turns
_TRIES = 10
_PATIENCE = 3_600.0  # seconds; the connection's own limit is for the short statements of a worker


class Schema:
    """The schema's versions and its migrations."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._migrations = migrations(__package__)
        self._wanted = self._migrations[-1][0]

    async def ensure_usable(self) -> None:
        """Raise a `SchemaError` that says what to run, if the schema does not fit."""
        ensure_fit(await self.state())

    async def state(self) -> SchemaState:
        """Tell the version found; 0 if there is none."""
        async with self._connections.borrow() as connection:
            return await self._found(connection)

    async def _found(self, connection: "Connection") -> SchemaState:
        if await connection.fetchval("SELECT to_regclass('holdfast.meta')") is None:
            return SchemaState(0, self._wanted, 0)
        row = await connection.fetchrow("SELECT schema_version, min_compatible FROM holdfast.meta")
        version, min_compatible = row or (0, 0)
        return SchemaState(version, self._wanted, min_compatible)

    async def apply(self) -> SchemaState:
        """Run what is missing in one transaction, and tell what was found before.

        Workers go on meanwhile. One that has what the migration needs next, and needs what that has locked, may
        cost it the transaction: then nothing was changed, and it begins anew.
        """
        for _ in range(_TRIES - 1):
            try:
                return await self._apply()
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, asyncpg.DeadlockDetectedError):
                    raise
        return await self._apply()

    async def _apply(self) -> SchemaState:
        async with self._connections.borrow() as connection, connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK, timeout=_PATIENCE)
            before = await self._found(connection)
            for version, script in self._migrations:
                if version > before.found:
                    await connection.execute(script, timeout=_PATIENCE)
                    await connection.execute(
                        "UPDATE holdfast.meta SET schema_version = $1, min_compatible = $2",
                        version,
                        MIN_COMPATIBLE,
                    )
        return before
