"""Dispatches in a SQLite file."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from holdfast.core.jobs.job import Claim, known_id
from holdfast.ports.fleets import Dispatch, DispatchBatch
from holdfast.stores.rows import claims_from
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.times import micros_of
from holdfast.stores.sqlite.writer import Writer


class SqliteDispatches:
    """The `DispatchStore` port."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def take(self, queue: str, *, limit: int, resend: timedelta) -> DispatchBatch:
        return await self._writer.write(partial(_take, queue=queue, limit=limit, resend=micros_of(resend)))

    async def withdraw(self, job_ids: Sequence[str]) -> None:
        await self._writer.execute(SQL["withdraw_dispatches"], {"ids": json.dumps(list(job_ids))})

    async def claim(
        self, worker: str, job_ids: Sequence[str], *, lease: timedelta, knows: Sequence[str] | None = None
    ) -> list[Claim]:
        claim = partial(
            _claim,
            worker=worker,
            ids=json.dumps([known_id(job_id) for job_id in job_ids]),
            lease=micros_of(lease),
            knows=None if knows is None else json.dumps(list(knows)),
        )
        return claims_from(json.loads(await self._writer.write(claim)))

    async def expire_lease(self, job_id: str, worker: str) -> bool:
        def expire(connection: sqlite3.Connection, now: int) -> bool:
            values = {"id": known_id(job_id), "worker": worker, "now": now}
            return bool(connection.execute(SQL["expire_lease"], values).fetchall())

        return await self._writer.write(expire)


def _take(connection: sqlite3.Connection, now: int, *, queue: str, limit: int, resend: int) -> DispatchBatch:
    asked = {"queue": queue, "now": now, "resend": resend}
    connection.execute(SQL["outdated_dispatches"], asked)
    [outstanding] = connection.execute(SQL["outstanding_dispatches"], asked).fetchone()
    count = len(json.loads(outstanding))
    room = max(0, limit - count)
    [ids] = connection.execute(
        SQL["due_dispatches"], {"queue": queue, "outstanding": outstanding, "limit": room}
    ).fetchone()
    if ids == "[]":
        return DispatchBatch([], count)
    due = {"ids": ids, "queue": queue, "now": now}
    connection.execute(SQL["take_dispatches"], due)
    dispatches = [Dispatch(*row) for row in connection.execute(SQL["taken_dispatches"], due)]
    return DispatchBatch(dispatches, count + len(dispatches))


def _claim(
    connection: sqlite3.Connection, now: int, *, worker: str, ids: str, lease: int, knows: str | None
) -> str:
    """Lease ready jobs whose dispatches have arrived, and return them as JSON."""
    arrived = {"ids": ids, "now": now, "knows": knows}
    connection.execute(SQL["arrived_dispatches"], arrived)
    ready, found = connection.execute(SQL["claimable_dispatched"], arrived).fetchone()
    if ready != "[]":
        connection.execute(SQL["claim"], {"worker": worker, "lease": lease, "now": now, "ids": ready})
    return str(found)
