"""Providers and the jobs that are held for them, in PostgreSQL."""

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.core.providers.holder import Holder
from holdfast.ports.providers import KeyWrite, ProviderEvent, ProviderRow
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.queries import Queries
from holdfast.stores.rows import columns

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Connection

_KEY = [attrgetter(name) for name in ("key", "version", "state", "expires")]


class PostgresProviders:
    """The `ProviderStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def read(self, names: Sequence[str]) -> tuple[float, dict[str, ProviderRow]]:
        rows = await self._connections.fetch(self._sql["providers"], list(names))
        found = {
            row["name"]: ProviderRow(row["version"], row["state"]) for row in rows if row["name"] is not None
        }
        return rows[0]["now"], found

    async def swap(
        self,
        name: str,
        version: int,
        state: str | None,
        events: Sequence[tuple[str, str]] = (),
        *,
        keys: Sequence[KeyWrite] = (),
    ) -> bool:
        kinds, metas = [kind for kind, _ in events], [meta for _, meta in events]
        values = [name, version, state, kinds, metas]
        if not keys:
            return bool(await self._connections.fetch(self._sql["swap_provider"], *values))
        async with self._connections.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            # Every writer locks new keys, known keys, then the provider, with keys sorted, so that two cannot deadlock.
            written = (
                await self._write_keys(
                    connection, "add_provider_keys", name, [k for k in keys if not k.version]
                )
                and await self._write_keys(
                    connection, "swap_provider_keys", name, [k for k in keys if k.version]
                )
                and (state is None or bool(await connection.fetch(self._sql["swap_provider"], *values)))
            )
            await (transaction.commit() if written else transaction.rollback())
        return written

    async def _write_keys(
        self, connection: "Connection", statement: str, name: str, keys: Sequence[KeyWrite]
    ) -> bool:
        """Write *keys*; false if one of them was changed meanwhile."""
        if not keys:
            return True
        ordered = sorted(keys)
        rows = await connection.fetch(self._sql[statement], name, *columns(ordered, *_KEY))
        return len(rows) == len(keys)

    async def read_keys(self, name: str, keys: Sequence[str]) -> dict[str, ProviderRow]:
        rows = await self._connections.fetch(self._sql["provider_keys"], name, list(keys))
        return {row["key"]: ProviderRow(row["version"], row["state"]) for row in rows}

    async def delete_expired_keys(self, *, limit: int) -> int:
        return len(await self._connections.fetch(self._sql["delete_expired_provider_keys"], limit))

    async def names(self) -> list[str]:
        return [row["name"] for row in await self._connections.fetch(self._sql["provider_names"])]

    async def events(self, name: str, *, limit: int) -> list[ProviderEvent]:
        rows = await self._connections.fetch(self._sql["provider_events"], name, limit)
        return [ProviderEvent(row["name"], row["at"], row["kind"], json.loads(row["meta"])) for row in rows]

    async def holders(self) -> list[Holder]:
        rows = await self._connections.fetch(self._sql["holders"])
        return [Holder.parse(row["held_by"]) for row in rows]

    async def count_held(self) -> dict[Holder, int]:
        rows = await self._connections.fetch(self._sql["held_jobs"])
        return {Holder.parse(row["held_by"]): row["jobs"] for row in rows}

    async def release(self, holder: Holder, *, limit: int) -> int:
        [row] = await self._connections.fetch(self._sql["release_held"], holder.text, limit)
        return int(row["jobs"])
