"""Dead letters in PostgreSQL.

A transaction that writes several tables locks plans first, then ended jobs, then letters, each of them in the order
of their ids. The triggers of the table of ended jobs write letters in the same order.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast.core.dead_letters.letter import Group, Letter, LetterFilter, LetterStep, Step, letter_id
from holdfast.core.dead_letters.replay_plan import Plan
from holdfast.core.errors import LetterNotFound
from holdfast.ports.dead_letters import Seen
from holdfast.stores.letter_rows import group_from, letter_from, letter_update, sources, step_from, step_rows
from holdfast.stores.postgres.connections import LONG_ANSWER, Connections
from holdfast.stores.queries import Queries
from holdfast.stores.rows import unzipped


class PostgresDeadLetters:
    """The `DeadLetterStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def get(self, job_id: str, *, owner: str | None = None) -> Letter:
        rows = await self._connections.fetch(self._sql["letter"], letter_id(job_id), owner)
        if not rows:
            raise LetterNotFound(f"there is no dead letter of job {job_id}")
        return letter_from(rows[0])

    async def find(self, letter_filter: LetterFilter) -> list[Letter]:
        rows = await self._connections.fetch(
            self._sql["letters"], *_values(letter_filter), timeout=LONG_ANSWER
        )
        return [letter_from(row) for row in rows]

    async def find_replayable(
        self, name: str, *, ages: tuple[timedelta, timedelta], limit: int, after: Letter | None = None
    ) -> list[Letter]:
        position = (datetime(1970, 1, 1, tzinfo=UTC), str(UUID(int=0)))
        if after is not None:
            position = (after.last_failure_at, after.job_id)
        rows = await self._connections.fetch(self._sql["replayable_letters"], name, *ages, *position, limit)
        return [letter_from(row) for row in rows]

    async def groups(self, letter_filter: LetterFilter) -> list[Group]:
        rows = await self._connections.fetch(
            self._sql["letter_groups"], *_values(letter_filter), timeout=LONG_ANSWER
        )
        return [group_from(row) for row in rows]

    async def counts(self) -> dict[tuple[str, str], int]:
        rows = await self._connections.fetch(self._sql["letter_counts"], timeout=LONG_ANSWER)
        return {(name, state): count for name, state, count in rows}

    async def steps(self, job_id: str) -> list[LetterStep]:
        rows = await self._connections.fetch(self._sql["letter_steps"], letter_id(job_id))
        return [step_from(row) for row in rows]

    async def move(
        self,
        seen: Sequence[Seen],
        steps: Sequence[Step],
        *,
        plan: Plan | None = None,
        args: str | None = None,
    ) -> list[str]:
        update = letter_update(steps)
        states, actors, reasons, metas = zip(*step_rows(steps), strict=True)
        rows = await self._connections.fetch(
            self._sql["move_letters"],
            *unzipped(seen),
            sources(steps[0]),
            *(update.state, update.cause, update.evidence, update.safe, update.notes, update.plan),
            *(states, actors, reasons, metas),
            None if plan is None else plan.dump(),
            plan is not None and plan.is_running,
            args,
            timeout=self._connections.answer_timeout([args]),
        )
        return [row["job_id"] for row in rows]

    async def original_args(self, job_id: str) -> str | None:
        rows = await self._connections.fetch(self._sql["original_args"], letter_id(job_id))
        return rows[0]["args"] if rows else None

    async def count_since(self, age: timedelta) -> int:
        [row] = await self._connections.fetch(self._sql["count_letters_since"], age)
        return int(row["letters"])


def _values(letter_filter: LetterFilter) -> list[Any]:
    """Return the values of the filter's statement."""
    return [
        None if letter_filter.job_ids is None else [letter_id(job_id) for job_id in letter_filter.job_ids],
        None if letter_filter.states is None else [state.value for state in letter_filter.states],
        letter_filter.name,
        letter_filter.queue,
        letter_filter.owner,
        letter_filter.error_class,
        letter_filter.fingerprint,
        letter_filter.stage,
        letter_filter.plan,
        letter_filter.escalated,
        letter_filter.replays,
        letter_filter.before,
        letter_filter.listed,
    ]
