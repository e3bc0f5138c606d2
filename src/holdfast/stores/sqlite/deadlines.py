"""Deadlines of jobs in a SQLite file, and late results. Each function runs in the open transaction."""

import json
import sqlite3
from collections.abc import Sequence

from holdfast.core.jobs.job import Submission
from holdfast.core.jobs.transitions import Finish
from holdfast.stores.rows import Lease
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.submitting import submit
from holdfast.stores.sqlite.within import SqliteRunner


def overdue(connection: SqliteRunner, now: int, *, limit: int) -> list[str]:
    """Return the ids of jobs whose deadline has passed."""
    [ids] = connection.execute(SQL["overdue"], {"now": now, "limit": limit}).fetchone()
    return list(json.loads(ids))


def overdue_among(
    connection: SqliteRunner, now: int, leases: Sequence[Finish] | Sequence[Lease]
) -> frozenset[str]:
    """Return the jobs of *leases* whose deadline has passed. They are read only if there is any such job at all."""
    if not overdue(connection, now, limit=1):
        return frozenset()
    job_ids = json.dumps([lease[0] for lease in leases])
    [ids] = connection.execute(SQL["overdue_among"], {"ids": job_ids, "now": now}).fetchone()
    return frozenset(json.loads(ids))


def accept_late(
    connection: sqlite3.Connection,
    now: int,
    *,
    job_id: str,
    owner: str | None,
    late_at: int | None,
    meta: str,
    then: Submission | None,
) -> bool:
    """Accept a late result, and submit *then* with it; return false if there is none."""
    late = {"id": job_id, "owner": owner, "late_at": late_at, "now": now}
    if not connection.execute(SQL["accept_late"], late).rowcount:
        return False
    connection.execute(SQL["accept_history"], {"id": job_id, "meta": meta, "now": now})
    if then is not None:
        submit(connection, [then], now=now)
    return True
