"""The database with the jobs: its schema, its clock and its configuration."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from holdfast.engine.operations.store_access import OperatorService, StoreAccess, in_sync
from holdfast.engine.runtime import Runtime
from holdfast.ports import SchemaState
from holdfast.wiring.assemble import is_postgres, schema_of_absent_file, sqlite_path


class Database(OperatorService):
    """Inspects the database, for operators. Reached as `hold.database`; `hold.apply_schema` changes it."""

    def __init__(self, runtime: Runtime, access: StoreAccess, url: Callable[[], str]) -> None:
        super().__init__(runtime, access)
        self._url = url

    @property
    def is_postgres(self) -> bool:
        """Whether it is a PostgreSQL database; otherwise it is an SQLite file."""
        return is_postgres(self._url())

    @property
    def missing_file(self) -> str | None:
        """The path of the SQLite file if it does not exist; opening the database would create it."""
        path = sqlite_path(self._url())
        return None if path is None or Path(path).exists() else path

    async def now(self) -> datetime:
        """Return the time of the database, by which leases, delays and deadlines are measured."""
        await self._access.open()
        return await self._store.now()

    async def schema_state(self) -> SchemaState:
        """Return the version of the schema, 0 if there is none. A missing SQLite file is not created."""
        if self.missing_file is not None:
            return schema_of_absent_file()
        return await self._store.schema_state()

    async def facts(self) -> Mapping[str, str]:
        """Return the settings of the database that decide whether it is durable, and its time."""
        await self._store.schema_state()  # connects, also to a database whose schema does not fit
        return await self._store.facts()

    async def ensure_writable(self) -> None:
        """Write without changing anything. Raises `StoreReadOnly`."""
        await self._access.open()
        await self._store.promote(limit=0)

    now_sync = in_sync(now)
    schema_state_sync = in_sync(schema_state)
    facts_sync = in_sync(facts)
    ensure_writable_sync = in_sync(ensure_writable)
