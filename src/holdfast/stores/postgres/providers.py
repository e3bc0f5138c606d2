"""Providers and the jobs that are held for them, in PostgreSQL."""

import json
from collections.abc import Sequence

from holdfast.ports.providers import ProviderEvent, ProviderRow
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.sqlfiles import Statements


class PostgresProviders:
    """The `ProviderStore` port; the store that it is a part of brings the connections."""

    _connections: Connections
    _sql: Statements

    async def providers(self, names: Sequence[str]) -> tuple[float, dict[str, ProviderRow]]:
        rows = await self._connections.fetch(self._sql["providers"], list(names))
        found = {
            row["name"]: ProviderRow(row["version"], row["state"]) for row in rows if row["name"] is not None
        }
        return rows[0]["now"], found

    async def swap_provider(
        self, name: str, version: int, state: str, events: Sequence[tuple[str, str]] = ()
    ) -> bool:
        kinds, metas = [kind for kind, _ in events], [meta for _, meta in events]
        values = [name, version, state, kinds, metas]
        return bool(await self._connections.fetch(self._sql["swap_provider"], *values))

    async def provider_names(self) -> list[str]:
        return [row["name"] for row in await self._connections.fetch(self._sql["provider_names"])]

    async def provider_events(self, name: str, *, limit: int) -> list[ProviderEvent]:
        rows = await self._connections.fetch(self._sql["provider_events"], name, limit)
        return [ProviderEvent(row["name"], row["at"], row["kind"], json.loads(row["meta"])) for row in rows]

    async def holders(self) -> list[str]:
        return [row["held_by"] for row in await self._connections.fetch(self._sql["holders"])]

    async def held(self) -> dict[str, int]:
        rows = await self._connections.fetch(self._sql["held_jobs"])
        return {row["held_by"]: row["jobs"] for row in rows}

    async def let_out(self, holder: str, *, limit: int) -> int:
        [row] = await self._connections.fetch(self._sql["let_out"], holder, limit)
        return int(row["jobs"])
