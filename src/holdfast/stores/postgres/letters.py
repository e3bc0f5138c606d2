"""Dead letters, plans and tickets in PostgreSQL.

Whoever writes several tables locks plans first, then ended jobs, then letters, and of each several in the order of
their ids. The table of ended jobs writes letters itself, and has it in the same order.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.core.dead_letters.letter import (
    Group,
    Letter,
    LetterFilter,
    LetterState,
    LetterStep,
    Step,
    letter_id,
)
from holdfast.core.dead_letters.replay_plan import Plan, Standing
from holdfast.core.errors import LetterNotFound, PlanStale
from holdfast.ports.letters import PlanRow, Seen, TicketRow
from holdfast.stores.letter_rows import (
    group_from,
    letter_from,
    marks,
    sources,
    step_from,
    step_rows,
)
from holdfast.stores.postgres.connections import LONG_ANSWER
from holdfast.stores.postgres.retention import PostgresKeeping, unzipped

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Connection


class PostgresLetters(PostgresKeeping):
    """The `LetterStore` port; the store that it is a part of brings the connections."""

    async def redaction_key(self) -> bytes:
        [row] = await self._connections.fetch(self._sql["redaction_key"])
        return bytes.fromhex(row["redaction_key"])

    async def letter(self, job_id: str, *, owner: str | None = None) -> Letter:
        rows = await self._connections.fetch(self._sql["letter"], letter_id(job_id), owner)
        if not rows:
            raise LetterNotFound(f"there is no dead letter of job {job_id}")
        return letter_from(rows[0])

    async def letters(self, wanted: LetterFilter) -> list[Letter]:
        rows = await self._connections.fetch(self._sql["letters"], *_wanted(wanted), timeout=LONG_ANSWER)
        return [letter_from(row) for row in rows]

    async def replayable_letters(
        self, name: str, *, ages: tuple[timedelta, timedelta], limit: int, after: Letter | None = None
    ) -> list[Letter]:
        place = (datetime(1970, 1, 1, tzinfo=UTC), str(UUID(int=0)))
        if after is not None:
            place = (after.last_failure_at, after.job_id)
        rows = await self._connections.fetch(self._sql["replayable_letters"], name, *ages, *place, limit)
        return [letter_from(row) for row in rows]

    async def letter_groups(self, wanted: LetterFilter) -> list[Group]:
        rows = await self._connections.fetch(
            self._sql["letter_groups"], *_wanted(wanted), timeout=LONG_ANSWER
        )
        return [group_from(row) for row in rows]

    async def letter_counts(self) -> dict[tuple[str, str], int]:
        rows = await self._connections.fetch(self._sql["letter_counts"], timeout=LONG_ANSWER)
        return {(name, state): count for name, state, count in rows}

    async def letter_steps(self, job_id: str) -> list[LetterStep]:
        rows = await self._connections.fetch(self._sql["letter_steps"], letter_id(job_id))
        return [step_from(row) for row in rows]

    async def move_letters(
        self,
        seen: Sequence[Seen],
        steps: Sequence[Step],
        *,
        plan: Plan | None = None,
        args: str | None = None,
    ) -> list[str]:
        left = marks(steps)
        states, actors, reasons, metas = zip(*step_rows(steps), strict=True)
        rows = await self._connections.fetch(
            self._sql["move_letters"],
            *unzipped(seen),
            sources(steps[0]),
            *(left.state, left.cause, left.evidence, left.safe, left.notes, left.plan),
            *(states, actors, reasons, metas),
            None if plan is None else plan.dump(),
            plan is not None and plan.is_running,
            args,
            timeout=self._connections.patience([args]),
        )
        return [row["job_id"] for row in rows]

    async def plan(self, token: str) -> PlanRow:
        rows = await self._connections.fetch(self._sql["plan"], token)
        if not rows:
            raise PlanStale(f"there is no plan {token}; plan the replay again")
        return PlanRow(*rows[0])

    async def running_plans(self) -> list[PlanRow]:
        return [PlanRow(*row) for row in await self._connections.fetch(self._sql["running_plans"])]

    async def standing(self, token: str) -> tuple[float, Standing]:
        rows = await self._connections.fetch(self._sql["standing"], token)
        found = [row for row in rows if row["state"] is not None]
        states = {LetterState(row["state"]): row["letters"] for row in found}
        return rows[0]["now"], Standing(states, sum(row["repeated"] for row in found))

    async def advance_plan(self, row: PlanRow, plan: Plan, *, take: int = 0) -> list[str] | None:
        moved = [row.token, row.version, plan.dump(), plan.is_running]
        async with self._connections.borrow() as connection, connection.transaction():
            if not await connection.fetch(self._sql["advance_plan"], *moved):
                return None
            ready = await self._lock_ready(connection, row.token, take) if take > 0 else []
            if not ready:
                return []
            values = [ready, None, row.token, plan.actor, plan.restart, plan.same_deadline, None]
            return sorted(back["id"] for back in await connection.fetch(self._sql["retry"], *values))

    async def _lock_ready(self, connection: "Connection", token: str, take: int) -> list[str]:
        """Lock the letters of a plan whose turn it is, and their jobs; name those that can go."""
        turn = [row["job_id"] for row in await connection.fetch(self._sql["letters_to_replay"], token, take)]
        failed = {row["id"] for row in await connection.fetch(self._sql["lock_failed"], turn)}
        ready = [row["job_id"] for row in await connection.fetch(self._sql["lock_planned"], token, turn)]
        strays = [job_id for job_id in ready if job_id not in failed]
        if strays:
            await connection.execute(self._sql["close_letters"], strays)
        return [job_id for job_id in ready if job_id in failed]

    async def original_args(self, job_id: str) -> str | None:
        rows = await self._connections.fetch(self._sql["original_args"], letter_id(job_id))
        return rows[0]["args"] if rows else None

    async def take_tickets(self, *, limit: int, lease: timedelta) -> list[TicketRow]:
        rows = await self._connections.fetch(self._sql["take_tickets"], limit, lease)
        return [TicketRow(**{**row, "facts": json.loads(row["facts"])}) for row in rows]

    async def tickets_told(self, ticket_ids: Sequence[str], *, quiet: bool = False) -> None:
        await self._connections.fetch(self._sql["tickets_told"], list(ticket_ids), quiet)

    async def tickets_logged(self, ticket_ids: Sequence[str]) -> None:
        await self._connections.fetch(self._sql["tickets_logged"], list(ticket_ids))

    async def groups_told(self, fingerprints: Sequence[str], *, within: timedelta) -> set[str]:
        rows = await self._connections.fetch(self._sql["groups_told"], list(fingerprints), within)
        return {row["fingerprint"] for row in rows}

    async def raise_alarm(self, kind: str, facts: Mapping[str, Any]) -> bool:
        return bool(await self._connections.fetch(self._sql["raise_alarm"], kind, json.dumps(facts)))

    async def clear_alarm(self, kind: str) -> bool:
        return bool(await self._connections.fetch(self._sql["clear_alarm"], kind))

    async def deaths_within(self, length: timedelta) -> int:
        [row] = await self._connections.fetch(self._sql["deaths_within"], length)
        return int(row["letters"])


def _wanted(wanted: LetterFilter) -> list[Any]:
    """Give a filter as the values of its statement."""
    return [
        None if wanted.job_ids is None else [letter_id(job_id) for job_id in wanted.job_ids],
        None if wanted.states is None else [state.value for state in wanted.states],
        wanted.name,
        wanted.queue,
        wanted.owner,
        wanted.error_class,
        wanted.fingerprint,
        wanted.stage,
        wanted.plan,
        wanted.escalated,
        wanted.replays,
        wanted.before,
        wanted.listed,
    ]
