"""Queues in PostgreSQL."""

from holdfast.core.jobs.states import Status
from holdfast.ports.queues import Depth, Pause
from holdfast.stores.postgres.connections import LONG_ANSWER, Connections
from holdfast.stores.queries import Queries


class PostgresQueues:
    """The `QueueStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def pause(self, queue: str, *, actor: str, reason: str) -> bool:
        return bool(await self._connections.fetch(self._sql["pause_queue"], queue, actor, reason))

    async def resume(self, queue: str) -> bool:
        resumed = await self._connections.fetch(self._sql["resume_queue"], queue)
        await self._connections.fetch(self._sql["notify"], [f"ready:{queue}"])
        return bool(resumed)

    async def paused(self) -> list[Pause]:
        return [Pause(*row) for row in await self._connections.fetch(self._sql["paused_queues"])]

    async def counts(self) -> dict[tuple[str, Status], int]:
        rows = await self._connections.fetch(self._sql["counts"], timeout=LONG_ANSWER)
        return {(queue, Status(status)): count for queue, status, count in rows}

    async def depths(self) -> list[Depth]:
        return [Depth(*row) for row in await self._connections.fetch(self._sql["depths"])]

    async def recent(self, *, limit: int) -> list[str]:
        return [row["queue"] for row in await self._connections.fetch(self._sql["recent_queues"], limit)]
