"""Bringing failed jobs back in a SQLite file, whoever asks for it: their owner, or a plan."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.stores.sqlite.submitting import SQL

NOBODY: Mapping[str, Any] = {}


def bring_back(
    connection: sqlite3.Connection,
    job_ids: Sequence[str],
    now: int,
    *,
    owner: str | None = None,
    generation: int | None = None,
    restart: bool = False,
    same_deadline: bool = False,
    told: Mapping[str, Any] = NOBODY,
) -> dict[str, str]:
    """Make new generations of those jobs that have failed and are *owner*'s; give their queues by their ids.

    With a *generation*, only of jobs that have failed in that one.
    """
    wanted = {"ids": json.dumps(list(job_ids)), "owner": owner, "generation": generation}
    queues = {row["id"]: row["queue"] for row in connection.execute(SQL["failed_jobs"], wanted)}
    if queues:
        ids = json.dumps(list(queues))
        how = {"restart": restart, "same_deadline": same_deadline, "meta": json.dumps(told)}
        for statement in ("retry", "retry_history", "forget_stages", "forget_end"):
            connection.execute(SQL[statement], {"ids": ids, "now": now, **how})
        if restart:
            connection.execute(SQL["mark_restart"], {"ids": ids, "now": now})
    return queues


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
    note_steps(connection, closed, now, [("closed", actor, notes, "{}")])


def note_steps(
    connection: sqlite3.Connection,
    job_ids: Sequence[str],
    now: int,
    steps: Sequence[tuple[str, str, str, str]],
) -> None:
    """Write down steps of letters, in order: state, actor, reason and meta of each."""
    values = {"ids": json.dumps(list(job_ids)), "steps": json.dumps(steps), "now": now}
    connection.execute(SQL["note_steps"], values)
