"""Retries failed jobs in a SQLite file, for their owner or for a plan."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.stores.sqlite.queries import SQL

NO_DETAILS: Mapping[str, Any] = {}


def requeue_failed(
    connection: sqlite3.Connection,
    job_ids: Sequence[str],
    now: int,
    *,
    owner: str | None = None,
    generation: int | None = None,
    restart: bool = False,
    same_deadline: bool = False,
    details: Mapping[str, Any] = NO_DETAILS,
) -> dict[str, str]:
    """Requeue those jobs that have failed and belong to *owner*, as new generations; return their queues by id.

    If a *generation* is given, only jobs that have failed in that one.
    """
    asked = {"ids": json.dumps(list(job_ids)), "owner": owner, "generation": generation}
    queues = {row["id"]: row["queue"] for row in connection.execute(SQL["failed_jobs"], asked)}
    if queues:
        ids = json.dumps(list(queues))
        how = {"restart": restart, "same_deadline": same_deadline, "meta": json.dumps(details)}
        for statement in ("retry", "retry_history", "delete_stages", "delete_finished"):
            connection.execute(SQL[statement], {"ids": ids, "now": now, **how})
        if restart:
            connection.execute(SQL["record_restart"], {"ids": ids, "now": now})
    return queues


def retry(
    connection: sqlite3.Connection, now: int, *, job_id: str, owner: str | None, generation: int | None
) -> bool:
    """Retry a failed job for its owner, and close its letter; return false if it has not failed."""
    back = requeue_failed(connection, [job_id], now, owner=owner, generation=generation)
    close_letters(connection, back, now, actor="owner", notes="retried by its owner")
    return bool(back)


def close_letters(
    connection: sqlite3.Connection,
    job_ids: Sequence[str] | Mapping[str, str],
    now: int,
    *,
    actor: str,
    notes: str,
) -> None:
    """Close the letters of these jobs, if they have any: nothing is left to repair."""
    values = {"ids": json.dumps(list(job_ids)), "notes": notes, "now": now}
    closed = [row["job_id"] for row in connection.execute(SQL["close_letters"], values)]
    record_steps(connection, closed, now, [("closed", actor, notes, "{}")])


def record_steps(
    connection: sqlite3.Connection,
    job_ids: Sequence[str],
    now: int,
    steps: Sequence[tuple[str, str, str, str]],
) -> None:
    """Record steps of letters, in order: state, actor, reason and meta of each."""
    values = {"ids": json.dumps(list(job_ids)), "steps": json.dumps(steps), "now": now}
    connection.execute(SQL["record_steps"], values)
