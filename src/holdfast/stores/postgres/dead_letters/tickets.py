"""Tickets and alarms in PostgreSQL."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.ports.dead_letters import TicketRow
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.queries import Queries


class PostgresTickets:
    """The `TicketStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def take(self, *, limit: int, lease: timedelta) -> list[TicketRow]:
        rows = await self._connections.fetch(self._sql["take_tickets"], limit, lease)
        return [TicketRow(**{**row, "facts": json.loads(row["facts"])}) for row in rows]

    async def mark_notified(self, ticket_ids: Sequence[str], *, quiet: bool = False) -> None:
        await self._connections.fetch(self._sql["mark_notified"], list(ticket_ids), quiet)

    async def mark_logged(self, ticket_ids: Sequence[str]) -> None:
        await self._connections.fetch(self._sql["mark_logged"], list(ticket_ids))

    async def groups_notified(self, fingerprints: Sequence[str], *, within: timedelta) -> set[str]:
        rows = await self._connections.fetch(self._sql["groups_notified"], list(fingerprints), within)
        return {row["fingerprint"] for row in rows}

    async def raise_alarm(self, kind: str, facts: Mapping[str, Any]) -> bool:
        return bool(await self._connections.fetch(self._sql["raise_alarm"], kind, json.dumps(facts)))

    async def clear_alarm(self, kind: str) -> bool:
        return bool(await self._connections.fetch(self._sql["clear_alarm"], kind))
