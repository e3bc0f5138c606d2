"""Leases in a SQLite file: claimed, extended, begun and reclaimed. Each function runs in the open transaction."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, TypeVar

from holdfast.ports.store import Extension, Settled
from holdfast.stores import rows
from holdfast.stores.rows import Lease
from holdfast.stores.sqlite.deadlines import overdue_among
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.within import SqliteRunner

LeaseRow = TypeVar("LeaseRow", bound=Sequence[Any])
"""A row that begins with a job's id and token."""


def claim(
    connection: sqlite3.Connection,
    now: int,
    *,
    worker: str,
    queue: str,
    limit: int,
    lease: int,
    knows: str | None,
) -> str:
    """Lease ready jobs to *worker*, and return them as JSON."""
    claimable = {"queue": queue, "limit": limit, "now": now, "knows": knows}
    ids, found = connection.execute(SQL["claimable"], claimable).fetchone()
    if ids != "[]":
        connection.execute(SQL["claim"], {"worker": worker, "lease": lease, "now": now, "ids": ids})
    return str(found)


def extend(connection: sqlite3.Connection, now: int, *, leases: Sequence[Lease], lease: int) -> Extension:
    """Extend those of *leases* that still hold, and return what became of the others."""
    kept_leases = still_leased(connection, leases)
    kept = [job_id for job_id, _ in kept_leases]
    ids = json.dumps(kept)
    connection.execute(SQL["extend"], {"lease": lease, "now": now, "ids": ids})
    [to_cancel] = connection.execute(SQL["cancel_requested"], {"ids": ids}).fetchone()
    others = frozenset(job_id for job_id, _ in leases).difference(kept)
    why = lease_outcomes(connection, [gone for gone in leases if gone[0] in others])
    ended = frozenset(job_id for (job_id, _), outcome in why.items() if outcome is Settled.OVER)
    return Extension(
        lost=others - ended,
        cancel_requested=frozenset(json.loads(to_cancel)),
        timed_out=overdue_among(connection, now, kept_leases) | ended,
    )


def begin(connection: sqlite3.Connection, now: int, *, leases: Sequence[Lease]) -> list[Lease]:
    """Spend the attempts of suspected jobs; return the leases that still hold."""
    return apply(connection, now, [list(lease) for lease in leases], "begin")


def reclaim(connection: sqlite3.Connection, now: int, *, limit: int) -> list[str]:
    """Requeue jobs whose lease expired, and return their ids."""
    [ids] = connection.execute(SQL["expired_leases"], {"limit": limit, "now": now}).fetchone()
    if ids != "[]":
        lost = {"ids": ids, "now": now}
        [suspected] = connection.execute(SQL["suspected_workers"], lost).fetchone()
        if suspected != "[]":
            connection.execute(SQL["delete_lost_workers"], {"now": now})
            connection.execute(SQL["record_lost_workers"], lost)
        for statement in ("reclaim_history", "reclaim"):
            connection.execute(SQL[statement], {**lost, "suspected": suspected})
    return list(json.loads(ids))


def apply(connection: SqliteRunner, now: int, batch: list[list[Any]], *statements: str) -> list[Lease]:
    """Keep the rows of *batch* whose lease still holds, run *statements* on them, and return their leases."""
    kept = still_leased(connection, batch)
    if kept:
        ids = json.dumps([row[0] for row in kept])
        values = {"batch": json.dumps(kept, ensure_ascii=False), "ids": ids, "now": now}
        for name in statements:
            connection.execute(SQL[name], values)
    return [(row[0], row[1]) for row in kept]


def still_leased(connection: SqliteRunner, batch: Sequence[LeaseRow]) -> Sequence[LeaseRow]:
    """Keep the rows of *batch* whose job is still leased under their token."""
    leases = {"batch": json.dumps([row[:2] for row in batch])}
    [count] = connection.execute(SQL["count_still_leased"], leases).fetchone()
    if count == len(batch):
        return batch
    [indexes] = connection.execute(SQL["still_leased"], leases).fetchone()
    return [batch[index] for index in json.loads(indexes)]


def lease_outcomes(connection: SqliteRunner, leases: Sequence[Lease]) -> dict[Lease, Settled]:
    """Return what became of leases under which nothing was written; nearly always there is none."""
    return (
        rows.lease_outcomes(connection.execute(SQL["lease_outcomes"], {"batch": json.dumps(leases)}))
        if leases
        else {}
    )
