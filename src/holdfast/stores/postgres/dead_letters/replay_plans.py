"""Replay plans in PostgreSQL."""

from typing import TYPE_CHECKING

from holdfast.core.dead_letters.letter import LetterState
from holdfast.core.dead_letters.replay_plan import Plan, PlanCounts
from holdfast.core.errors import PlanStale
from holdfast.ports.dead_letters import PlanRow
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.queries import Queries

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Connection


class PostgresReplayPlans:
    """The `ReplayPlanStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def get(self, token: str) -> PlanRow:
        rows = await self._connections.fetch(self._sql["plan"], token)
        if not rows:
            raise PlanStale(f"there is no plan {token}; plan the replay again")
        return PlanRow(*rows[0])

    async def running(self) -> list[PlanRow]:
        return [PlanRow(*row) for row in await self._connections.fetch(self._sql["running_plans"])]

    async def counts(self, token: str) -> tuple[float, PlanCounts]:
        rows = await self._connections.fetch(self._sql["plan_counts"], token)
        found = [row for row in rows if row["state"] is not None]
        states = {LetterState(row["state"]): row["letters"] for row in found}
        return rows[0]["now"], PlanCounts(states, sum(row["repeated"] for row in found))

    async def advance(self, row: PlanRow, plan: Plan, *, take: int = 0) -> list[str] | None:
        moved = [row.token, row.version, plan.dump(), plan.is_running]
        async with self._connections.acquire() as connection, connection.transaction():
            if not await connection.fetch(self._sql["advance_plan"], *moved):
                return None
            ready = await self._lock_ready(connection, row.token, take) if take > 0 else []
            if not ready:
                return []
            values = [ready, None, row.token, plan.actor, plan.restart, plan.same_deadline, None]
            return sorted(back["id"] for back in await connection.fetch(self._sql["retry"], *values))

    async def _lock_ready(self, connection: "Connection", token: str, take: int) -> list[str]:
        """Lock the next letters of a plan, and their jobs; return the ids of those that can be replayed."""
        turn = [row["job_id"] for row in await connection.fetch(self._sql["letters_to_replay"], token, take)]
        failed = {row["id"] for row in await connection.fetch(self._sql["lock_failed_jobs"], turn)}
        ready = [
            row["job_id"] for row in await connection.fetch(self._sql["lock_planned_letters"], token, turn)
        ]
        not_failed = [job_id for job_id in ready if job_id not in failed]
        if not_failed:
            await connection.execute(self._sql["close_letters"], not_failed)
        return [job_id for job_id in ready if job_id in failed]
