"""Dispatches in PostgreSQL."""

from collections.abc import Sequence
from datetime import timedelta

from holdfast.core.jobs.job import Claim, known_id
from holdfast.ports.fleets import Dispatch, DispatchBatch
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.queries import Queries
from holdfast.stores.rows import claims_from


class PostgresDispatches:
    """The `DispatchStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def take(self, queue: str, *, limit: int, resend: timedelta) -> DispatchBatch:
        rows = await self._connections.fetch(self._sql["take_dispatches"], queue, limit, resend)
        dispatches = [
            Dispatch(row["job_id"], row["name"], row["number"]) for row in rows if row["job_id"] is not None
        ]
        return DispatchBatch(dispatches, rows[0]["outstanding"] + len(dispatches))

    async def withdraw(self, job_ids: Sequence[str]) -> None:
        await self._connections.fetch(self._sql["withdraw_dispatches"], list(job_ids))

    async def claim(
        self, worker: str, job_ids: Sequence[str], *, lease: timedelta, knows: Sequence[str] | None = None
    ) -> list[Claim]:
        known = None if knows is None else list(knows)
        ids = [known_id(job_id) for job_id in job_ids]
        return claims_from(
            await self._connections.fetch(self._sql["claim_dispatched"], worker, lease, known, ids)
        )

    async def expire_lease(self, job_id: str, worker: str) -> bool:
        return bool(await self._connections.fetch(self._sql["expire_lease"], known_id(job_id), worker))
