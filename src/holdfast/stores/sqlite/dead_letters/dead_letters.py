"""Dead letters in a SQLite file."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.core.dead_letters.letter import Group, Letter, LetterFilter, LetterStep, Step, letter_id
from holdfast.core.dead_letters.replay_plan import Plan
from holdfast.core.errors import LetterNotFound
from holdfast.ports import Clock
from holdfast.ports.dead_letters import Seen
from holdfast.stores.letter_rows import (
    Columns,
    group_from,
    letter_from,
    letter_update,
    sources,
    step_from,
    step_rows,
)
from holdfast.stores.sqlite.dead_letters.replaying import record_steps
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.rows import with_instants
from holdfast.stores.sqlite.times import micros
from holdfast.stores.sqlite.writer import Writer

_PLAIN_FIELDS = (
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
"""The fields of a filter that are bound without conversion."""


class SqliteDeadLetters:
    """The `DeadLetterStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def get(self, job_id: str, *, owner: str | None = None) -> Letter:
        rows = await self._reader.rows(SQL["letter"], {"id": letter_id(job_id), "owner": owner})
        if not rows:
            raise LetterNotFound(f"there is no dead letter of job {job_id}")
        return letter_from(with_instants(rows[0]))

    async def find(self, letter_filter: LetterFilter) -> list[Letter]:
        rows = await self._reader.rows(SQL["letters"], _values(letter_filter))
        return [letter_from(with_instants(row)) for row in rows]

    async def find_replayable(
        self, name: str, *, ages: tuple[timedelta, timedelta], limit: int, after: Letter | None = None
    ) -> list[Letter]:
        youngest, oldest = (micros(self._clock.now() - age) for age in ages)
        values = {"name": name, "until": youngest, "since": oldest, "limit": limit}
        position = {"after_at": 0, "after": ""}
        if after is not None:
            position = {"after_at": micros(after.last_failure_at), "after": after.job_id}
        rows = await self._reader.rows(SQL["replayable_letters"], values | position)
        return [letter_from(with_instants(row)) for row in rows]

    async def groups(self, letter_filter: LetterFilter) -> list[Group]:
        rows = await self._reader.rows(SQL["letter_groups"], _values(letter_filter))
        return [group_from(_group(row)) for row in rows]

    async def counts(self) -> dict[tuple[str, str], int]:
        rows = await self._reader.rows(SQL["letter_counts"], {})
        return {(row["name"], row["state"]): row["letters"] for row in rows}

    async def steps(self, job_id: str) -> list[LetterStep]:
        rows = await self._reader.rows(SQL["letter_steps"], {"id": letter_id(job_id)})
        return [step_from(with_instants(row)) for row in rows]

    async def move(
        self,
        seen: Sequence[Seen],
        steps: Sequence[Step],
        *,
        plan: Plan | None = None,
        args: str | None = None,
    ) -> list[str]:
        return await self._writer.write(partial(_move, seen=seen, steps=steps, plan=plan, args=args))

    async def original_args(self, job_id: str) -> str | None:
        rows = await self._reader.rows(SQL["original_args"], {"id": letter_id(job_id)})
        return rows[0]["args"] if rows else None

    async def count_since(self, age: timedelta) -> int:
        since = {"since": micros(self._clock.now() - age)}
        [row] = await self._reader.rows(SQL["count_letters_since"], since)
        return int(row["letters"])


def _values(letter_filter: LetterFilter) -> dict[str, Any]:
    return {
        **{name: getattr(letter_filter, name) for name in _PLAIN_FIELDS},
        "limit": letter_filter.listed,
        "job_ids": None
        if letter_filter.job_ids is None
        else json.dumps([letter_id(one) for one in letter_filter.job_ids]),
        "states": None if letter_filter.states is None else json.dumps(letter_filter.states),
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
    """Apply steps to letters whose version is still the one that was read, in the open transaction."""
    states = json.dumps(sources(steps[0]))
    as_seen = {"seen": json.dumps(list(seen)), "states": states, "planned": plan is not None}
    moved = [row["job_id"] for row in connection.execute(SQL["unchanged_letters"], as_seen)]
    if not moved:
        return []
    ids, update = json.dumps(moved), letter_update(steps)
    changed = {**update._asdict(), "corrected": args is not None, "ids": ids, "now": now}
    connection.execute(SQL["move_letters"], changed)
    record_steps(connection, moved, now, step_rows(steps))
    if args is not None:
        connection.execute(SQL["keep_original_args"], {"ids": ids})
        connection.execute(SQL["correct_args"], {"ids": ids, "args": args})
    if plan is not None:
        made = {"token": update.plan, "running": plan.is_running, "state": plan.dump(), "now": now}
        connection.execute(SQL["add_plan"], made)
    return moved
