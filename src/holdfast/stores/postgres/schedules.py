"""Recurring jobs in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.jobs.job import Submission
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.jobs.submitting import submit_unique
from holdfast.stores.queries import Queries


class PostgresSchedules:
    """The `ScheduleStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def last_ticks(self, names: Sequence[str]) -> tuple[datetime, dict[str, datetime]]:
        rows = await self._connections.fetch(self._sql["last_ticks"], list(names))
        return rows[0]["now"], {row["name"]: row["last_at"] for row in rows if row["name"] is not None}

    async def begin(self, names: Sequence[str]) -> None:
        await self._connections.fetch(self._sql["begin_schedules"], sorted(names))

    async def advance(self, name: str, old: datetime, new: datetime, batch: Sequence[Submission]) -> bool:
        async with self._connections.acquire() as connection, connection.transaction():
            moved = await connection.fetch(self._sql["advance_schedule"], name, old, new)
            if moved:
                queues = sorted({item.queue for item in batch})
                await submit_unique(connection, self._sql, batch, queues)
        return bool(moved)
