"""Waits of parked jobs in a SQLite file: for a time, a signal, or other jobs. Each function runs in the open transaction."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from holdfast.core.jobs.job import MOST_SIGNALS
from holdfast.ports import Promotion
from holdfast.stores.rows import signal_meta
from holdfast.stores.sqlite import leasing
from holdfast.stores.sqlite.queries import SQL


def promote(connection: sqlite3.Connection, now: int, *, limit: int) -> Promotion:
    """Make parked jobs ready that are due."""
    count = connection.execute(SQL["promote"], {"limit": limit, "now": now}).rowcount
    [due] = connection.execute(SQL["next_due"], {"now": now}).fetchone()
    return Promotion(count, None if due is None else timedelta(microseconds=due))


def signal(
    connection: sqlite3.Connection,
    now: int,
    *,
    job_id: str,
    owner: str | None,
    name: str,
    data: str,
    actor: str,
) -> bool:
    """Store a signal for a job, and wake it; return false if the job accepts none."""
    sent = {"id": job_id, "owner": owner, "name": name, "data": data, "most": MOST_SIGNALS, "now": now}
    if not connection.execute(SQL["send_signal"], sent).rowcount:
        return False
    connection.execute(SQL["wake_signalled"], {"id": job_id, "now": now})
    connection.execute(SQL["signal_history"], {"id": job_id, "now": now, "meta": signal_meta(name, actor)})
    return True


def await_jobs(
    connection: sqlite3.Connection, _: int, *, job_id: str, token: int, others: Sequence[str]
) -> bool:
    """Register a leased job to be woken once *others* have ended; return false if its token no longer matches."""
    if not leasing.still_leased(connection, [(job_id, token)]):
        return False
    awaited = {"id": job_id, "children": json.dumps(list(others))}
    connection.execute(SQL["await_jobs"], awaited)
    connection.execute(SQL["count_pending"], awaited)
    return True


def wake(connection: sqlite3.Connection, now: int, *, limit: int) -> int:
    """Deliver ends to the jobs that wait for them; return the number of ends."""
    [ids] = connection.execute(SQL["undelivered_ends"], {"limit": limit}).fetchone()
    connection.execute(SQL["wake"], {"ids": ids, "now": now})
    for name in ("delete_awaited", "delete_awaited_ends"):
        connection.execute(SQL[name], {"ids": ids})
    return len(json.loads(ids))
