"""Dead letters, plans and tickets in a SQLite file."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

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
from holdfast.ports import Hint, HintKind
from holdfast.ports.letters import PlanRow, Seen, TicketRow
from holdfast.stores.letter_rows import (
    Columns,
    group_from,
    letter_from,
    marks,
    sources,
    step_from,
    step_rows,
)
from holdfast.stores.sqlite.replaying import bring_back, close_letters, note_steps
from holdfast.stores.sqlite.retention import SqliteKeeping, with_instants
from holdfast.stores.sqlite.submitting import SQL
from holdfast.stores.sqlite.times import micros, micros_of

T = TypeVar("T")

AS_THEY_ARE = (
    "name",
    "queue",
    "owner",
    "error_class",
    "fingerprint",
    "stage",
    "plan",
    "escalated",
    "replays",
    "before",
)
"""What a filter says, and SQL takes as it is."""


class SqliteLetters(SqliteKeeping):
    """The `LetterStore` port; the store that it is a part of brings the file and the clock."""

    async def redaction_key(self) -> bytes:
        [row] = await self._reader.rows(SQL["redaction_key"], {})
        return bytes.fromhex(row["redaction_key"])

    async def letter(self, job_id: str, *, owner: str | None = None) -> Letter:
        rows = await self._reader.rows(SQL["letter"], {"id": letter_id(job_id), "owner": owner})
        if not rows:
            raise LetterNotFound(f"there is no dead letter of job {job_id}")
        return letter_from(with_instants(rows[0]))

    async def letters(self, wanted: LetterFilter) -> list[Letter]:
        rows = await self._reader.rows(SQL["letters"], _values(wanted))
        return [letter_from(with_instants(row)) for row in rows]

    async def replayable_letters(
        self, name: str, *, ages: tuple[timedelta, timedelta], limit: int, after: Letter | None = None
    ) -> list[Letter]:
        youngest, oldest = (micros(self._clock.now() - age) for age in ages)
        values = {"name": name, "until": youngest, "since": oldest, "limit": limit}
        place = {"after_at": 0, "after": ""}
        if after is not None:
            place = {"after_at": micros(after.last_failure_at), "after": after.job_id}
        rows = await self._reader.rows(SQL["replayable_letters"], values | place)
        return [letter_from(with_instants(row)) for row in rows]

    async def letter_groups(self, wanted: LetterFilter) -> list[Group]:
        rows = await self._reader.rows(SQL["letter_groups"], _values(wanted))
        return [group_from(_group(row)) for row in rows]

    async def letter_counts(self) -> dict[tuple[str, str], int]:
        rows = await self._reader.rows(SQL["letter_counts"], {})
        return {(row["name"], row["state"]): row["letters"] for row in rows}

    async def letter_steps(self, job_id: str) -> list[LetterStep]:
        rows = await self._reader.rows(SQL["letter_steps"], {"id": letter_id(job_id)})
        return [step_from(with_instants(row)) for row in rows]

    async def move_letters(
        self,
        seen: Sequence[Seen],
        steps: Sequence[Step],
        *,
        plan: Plan | None = None,
        args: str | None = None,
    ) -> list[str]:
        return await self._locked(partial(_move, seen=seen, steps=steps, plan=plan, args=args))

    async def plan(self, token: str) -> PlanRow:
        rows = await self._reader.rows(SQL["plan"], {"token": token})
        if not rows:
            raise PlanStale(f"there is no plan {token}; plan the replay again")
        return PlanRow(*rows[0])

    async def running_plans(self) -> list[PlanRow]:
        return [PlanRow(*row) for row in await self._reader.rows(SQL["running_plans"], {})]

    async def standing(self, token: str) -> tuple[float, Standing]:
        rows = await self._reader.rows(SQL["standing"], {"token": token})
        states = {LetterState(row["state"]): row["letters"] for row in rows}
        return self._clock.now().timestamp(), Standing(states, sum(row["repeated"] for row in rows))

    async def advance_plan(self, row: PlanRow, plan: Plan, *, take: int = 0) -> list[str] | None:
        queues = await self._locked(partial(_advance, row=row, plan=plan, take=take))
        for queue in set((queues or {}).values()):
            self._reader.tell(Hint(HintKind.READY, queue))
        return None if queues is None else list(queues)

    async def original_args(self, job_id: str) -> str | None:
        rows = await self._reader.rows(SQL["original_args"], {"id": letter_id(job_id)})
        return rows[0]["args"] if rows else None

    async def take_tickets(self, *, limit: int, lease: timedelta) -> list[TicketRow]:
        if not await self._reader.rows(SQL["due_tickets"], {"limit": 1, "now": micros(self._clock.now())}):
            return []  # nearly always: nobody's write lock is asked for
        rows = await self._locked(partial(_take_tickets, limit=limit, lease=micros_of(lease)))
        found = [with_instants(row) for row in rows]
        return [
            TicketRow(**{**row, "facts": json.loads(row["facts"]), "logged": bool(row["logged"])})
            for row in found
        ]

    async def tickets_told(self, ticket_ids: Sequence[str], *, quiet: bool = False) -> None:
        values = {"ids": json.dumps(list(ticket_ids)), "quiet": quiet}
        await self._locked(
            lambda connection, now: connection.execute(SQL["tickets_told"], {**values, "now": now})
        )

    async def tickets_logged(self, ticket_ids: Sequence[str]) -> None:
        ids = json.dumps(list(ticket_ids))
        await self._locked(lambda connection, _: connection.execute(SQL["tickets_logged"], {"ids": ids}))

    async def groups_told(self, fingerprints: Sequence[str], *, within: timedelta) -> set[str]:
        values = {"fingerprints": json.dumps(list(fingerprints)), "since": self._ago(within)}
        return set(await self._reader.json(SQL["groups_told"], values))

    async def raise_alarm(self, kind: str, facts: Mapping[str, Any]) -> bool:
        return await self._locked(partial(_raise_alarm, kind=kind, facts=json.dumps(facts)))

    async def clear_alarm(self, kind: str) -> bool:
        cleared = await self._writer.write(
            lambda connection: connection.execute(SQL["clear_alarm"], {"kind": kind}).rowcount
        )
        return bool(cleared)

    async def deaths_within(self, length: timedelta) -> int:
        [row] = await self._reader.rows(SQL["deaths_within"], {"since": self._ago(length)})
        return int(row["letters"])

    def _ago(self, length: timedelta) -> int:
        return micros(self._clock.now() - length)

    async def _locked(self, operation: Callable[[sqlite3.Connection, int], T]) -> T:
        """Run *operation* with the time at which the write lock is held."""
        return await self._writer.write(lambda connection: operation(connection, micros(self._clock.now())))


def _values(wanted: LetterFilter) -> dict[str, Any]:
    return {
        **{name: getattr(wanted, name) for name in AS_THEY_ARE},
        "limit": wanted.listed,
        "job_ids": None if wanted.job_ids is None else json.dumps([letter_id(one) for one in wanted.job_ids]),
        "states": None if wanted.states is None else json.dumps(wanted.states),
    }


def _group(row: sqlite3.Row) -> Columns:
    seen = {f"{name}_at": row[name] for name in ("first_seen", "last_seen")}
    instants = with_instants(seen)
    return {
        **{name: row[name] for name in row.keys()},  # noqa: SIM118 - a driver's row is no mapping
        "names": json.loads(row["names"]),
        "first_seen": instants["first_seen_at"],
        "last_seen": instants["last_seen_at"],
    }


def _move(
    connection: sqlite3.Connection,
    now: int,
    *,
    seen: Sequence[Seen],
    steps: Sequence[Step],
    plan: Plan | None,
    args: str | None,
) -> list[str]:
    """Take steps with the letters that are as they were seen, in the transaction that is open."""
    states = json.dumps(sources(steps[0]))
    wanted = {"seen": json.dumps(list(seen)), "states": states, "planned": plan is not None}
    moved = [row["job_id"] for row in connection.execute(SQL["letters_as_seen"], wanted)]
    if not moved:
        return []
    ids, left = json.dumps(moved), marks(steps)
    changed = {**left._asdict(), "corrected": args is not None, "ids": ids, "now": now}
    connection.execute(SQL["move_letters"], changed)
    note_steps(connection, moved, now, step_rows(steps))
    if args is not None:
        connection.execute(SQL["keep_args"], {"ids": ids})
        connection.execute(SQL["correct_args"], {"ids": ids, "args": args})
    if plan is not None:
        made = {"token": left.plan, "running": plan.is_running, "state": plan.dump(), "now": now}
        connection.execute(SQL["add_plan"], made)
    return moved


def _advance(
    connection: sqlite3.Connection, now: int, *, row: PlanRow, plan: Plan, take: int
) -> dict[str, str] | None:
    """Move a plan, and replay the letters whose turn it is; give their jobs' queues by their ids."""
    moved = {**row._asdict(), "state": plan.dump(), "running": plan.is_running, "now": now}
    if not connection.execute(SQL["advance_plan"], moved).rowcount:
        return None
    turn = {"token": row.token, "take": take}
    ids = [found["job_id"] for found in connection.execute(SQL["letters_to_replay"], turn)]
    told = {"plan": row.token, "actor": plan.actor}
    queues = bring_back(
        connection, ids, now, restart=plan.restart, same_deadline=plan.same_deadline, told=told
    )
    connection.execute(SQL["replay_letters"], {"ids": json.dumps(list(queues)), "now": now})
    meta = {"plan": row.token, **({"restart": True} if plan.restart else {})}
    note_steps(connection, list(queues), now, [("replaying", plan.actor, "", json.dumps(meta))])
    # A letter in a plan has a failed job. If that is not so, a plan must not wait for it for ever.
    others = [job_id for job_id in ids if job_id not in queues]
    close_letters(connection, others, now, actor="holdfast", notes="its job is not failed any more")
    return queues


def _take_tickets(connection: sqlite3.Connection, now: int, *, limit: int, lease: int) -> list[sqlite3.Row]:
    due = connection.execute(SQL["due_tickets"], {"limit": limit, "now": now}).fetchall()
    ids = json.dumps([row["id"] for row in due])
    connection.execute(SQL["lease_tickets"], {"ids": ids, "lease": lease, "now": now})
    return due


def _raise_alarm(connection: sqlite3.Connection, now: int, *, kind: str, facts: str) -> bool:
    if not connection.execute(SQL["raise_alarm"], {"kind": kind, "now": now}).rowcount:
        return False
    connection.execute(SQL["alarm_ticket"], {"kind": kind, "facts": facts, "now": now})
    return True
