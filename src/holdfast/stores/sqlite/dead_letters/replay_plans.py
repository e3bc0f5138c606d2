"""Replay plans in a SQLite file."""

import json
import sqlite3
from functools import partial

from holdfast.core.dead_letters.letter import LetterState
from holdfast.core.dead_letters.replay_plan import Plan, PlanCounts
from holdfast.core.errors import PlanStale
from holdfast.ports import Clock, Hint, HintKind
from holdfast.ports.dead_letters import PlanRow
from holdfast.stores.sqlite.dead_letters.replaying import close_letters, record_steps, requeue_failed
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.writer import Writer


class SqliteReplayPlans:
    """The `ReplayPlanStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def get(self, token: str) -> PlanRow:
        rows = await self._reader.rows(SQL["plan"], {"token": token})
        if not rows:
            raise PlanStale(f"there is no plan {token}; plan the replay again")
        return PlanRow(*rows[0])

    async def running(self) -> list[PlanRow]:
        return [PlanRow(*row) for row in await self._reader.rows(SQL["running_plans"], {})]

    async def counts(self, token: str) -> tuple[float, PlanCounts]:
        rows = await self._reader.rows(SQL["plan_counts"], {"token": token})
        states = {LetterState(row["state"]): row["letters"] for row in rows}
        return self._clock.now().timestamp(), PlanCounts(states, sum(row["repeated"] for row in rows))

    async def advance(self, row: PlanRow, plan: Plan, *, take: int = 0) -> list[str] | None:
        queues = await self._writer.write(partial(_advance, row=row, plan=plan, take=take))
        for queue in set((queues or {}).values()):
            self._reader.notify(Hint(HintKind.READY, queue))
        return None if queues is None else list(queues)


def _advance(
    connection: sqlite3.Connection, now: int, *, row: PlanRow, plan: Plan, take: int
) -> dict[str, str] | None:
    """Advance a plan, and replay its next letters; return their jobs' queues by id."""
    moved = {**row._asdict(), "state": plan.dump(), "running": plan.is_running, "now": now}
    if not connection.execute(SQL["advance_plan"], moved).rowcount:
        return None
    turn = {"token": row.token, "take": take}
    ids = [found["job_id"] for found in connection.execute(SQL["letters_to_replay"], turn)]
    details = {"plan": row.token, "actor": plan.actor}
    queues = requeue_failed(
        connection, ids, now, restart=plan.restart, same_deadline=plan.same_deadline, details=details
    )
    connection.execute(SQL["replay_letters"], {"ids": json.dumps(list(queues)), "now": now})
    meta = {"plan": row.token, **({"restart": True} if plan.restart else {})}
    record_steps(connection, list(queues), now, [("replaying", plan.actor, "", json.dumps(meta))])
    # A letter in a plan has a failed job. If it has not, the plan must not wait for it forever.
    others = [job_id for job_id in ids if job_id not in queues]
    close_letters(connection, others, now, actor="holdfast", notes="its job is not failed any more")
    return queues
