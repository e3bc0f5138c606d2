"""Mistakes around claims, leases, tokens and the history: most are one line of SQL."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.states import Status
from holdfast.ports.store import Extension
from holdfast.stores.rows import TIMEOUT
from holdfast.stores.sqlite import leasing, schema, settling
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.times import micros, micros_of
from tests.planted.planting import Bug, Sql, Swap

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from datetime import timedelta

_FENCE = "job.lease_token = want.value ->> 1"
_FENCED = ("count_still_leased", "still_leased", "finish", "finish_overdue")
_REPLAYED = "job.generation + 1), :meta)\n  FROM json_each(:ids)"
_ONLY_READY = "           AND job.retry_after IS NULL\n"


async def _claim_in_two_steps(
    self: Any, worker: str, queue: str, *, limit: int, lease: timedelta, knows: Sequence[str] | None = None
) -> list[Claim]:
    known = None if knows is None else json.dumps(list(knows))
    asked = {"queue": queue, "limit": limit, "now": micros(self._clock.now()), "knows": known}
    found = await self._reader.rows(SQL["claimable"], asked)
    ids, rows = found[0]
    if ids != "[]":
        await self._writer.execute(SQL["claim"], {"worker": worker, "lease": micros_of(lease), "ids": ids})
    return [Claim(*row) for row in json.loads(rows)]


async def _reclaim_in_two_steps(self: Any, *, limit: int) -> list[str]:
    lost = {"now": micros(self._clock.now()), "limit": limit}
    ids: list[str] = await self._reader.json(SQL["expired_leases"], lost)
    await self._writer.write(partial(_reclaim_whatever_they_do_now, ids=json.dumps(ids)))
    return ids


def _reclaim_whatever_they_do_now(connection: sqlite3.Connection, now: int, *, ids: str) -> None:
    values = {"ids": ids, "now": now}
    connection.execute(SQL["reclaim_history"], values)
    connection.execute(SQL["reclaim"], values)


def _extend_by_id(
    connection: sqlite3.Connection, now: int, *, leases: Sequence[tuple[str, int]], lease: int
) -> Extension:
    ids = [job_id for job_id, _ in leases]
    connection.execute(SQL["extend"], {"lease": lease, "now": now, "ids": json.dumps(ids)})
    return Extension(lost=frozenset(), cancel_requested=frozenset())


def _hold_the_first(connection: sqlite3.Connection, rows: Sequence[Any]) -> Sequence[Any]:
    batch = {"batch": json.dumps([row[:2] for row in rows])}
    [count] = connection.execute(SQL["count_still_leased"], batch).fetchone()
    return rows[:count]


def _finish_and_remove_all(
    connection: sqlite3.Connection, rows: Sequence[Sequence[Any]], now: int, statement: str
) -> list[tuple[str, int]]:
    values = {"batch": json.dumps(rows, ensure_ascii=False), "now": now, "timeout": TIMEOUT}
    connection.execute(SQL[statement], values)
    connection.execute(SQL["delete_jobs"], {"ids": json.dumps([row[0] for row in rows])})
    return [(row[0], row[1]) for row in rows]


def _cancel_and_say_done(
    connection: sqlite3.Connection, now: int, *, job_id: str, owner: str | None
) -> Status | None:
    values = {"id": job_id, "owner": owner, "now": now}
    if connection.execute(SQL["cancel_queued"], values).rowcount:
        connection.execute(SQL["delete_jobs"], {"ids": json.dumps([job_id])})
    elif not connection.execute(SQL["request_cancel"], values).rowcount:
        return None
    return Status.CANCELLED


def _without_index(name: str) -> list[tuple[int, str]]:
    """Return the migrations without the index *name*."""
    made = re.compile(f"CREATE INDEX {name} [^;]*;")
    assert any(made.search(script) for _, script in schema.MIGRATIONS), f"there is no index {name}"
    return [(version, made.sub("", script)) for version, script in schema.MIGRATIONS]


BUGS = (
    Bug(
        "claim-in-two-steps",
        "Look for jobs on the reading connection, then take them on the writing one.",
        ("JOB-3",),
        (Swap(SqliteStore, "claim", _claim_in_two_steps),),
    ),
    Bug(
        "claim-without-priority",
        "Oldest first is fair, and fair is enough.",
        ("JOB-2",),
        (Sql("claimable", "job.priority DESC, ", ""),),
    ),
    Bug(
        "claim-takes-parked",
        "A queued job is a queued job.",
        ("JOB-2",),
        (Sql("claimable", _ONLY_READY, ""), Sql("claimable", " INDEXED BY holdfast_jobs_ready", "")),
    ),
    Bug(
        "claim-scans-the-table",
        "The planner will find a plan; one index less to maintain.",
        ("JOB-9",),
        (
            Swap(schema, "MIGRATIONS", _without_index("holdfast_jobs_ready")),
            Sql("claimable", " INDEXED BY holdfast_jobs_ready", ""),
        ),
        simulated=False,
    ),
    Bug(
        "claim-spends-nothing",
        "Count the attempt when it has failed, not when it begins.",
        ("JOB-10",),
        (Sql("claim", "+ (losses = 0 AND excused = 0)", ""),),
    ),
    Bug(
        "promote-early",
        "Make jobs ready a minute ahead, so that they start on time.",
        ("JOB-2",),
        (Sql("promote", "retry_after <= :now", "retry_after <= :now + 60000000"),),
    ),
    Bug(
        "drop-the-fence",
        "The id says which job it is.",
        ("JOB-6",),
        tuple(Sql(statement, _FENCE, "true") for statement in _FENCED),
    ),
    Bug(
        "fence-by-attempt",
        "The attempt's number distinguishes claims, too.",
        ("JOB-6",),
        (
            Sql("claimable", "lease_token + 1, max(", "attempt + 1, max("),
            *(Sql(statement, _FENCE, "job.last_attempt = want.value ->> 1") for statement in _FENCED),
        ),
    ),
    Bug(
        "token-restarts-at-retry",
        "A job that is replayed begins from scratch.",
        ("JOB-6",),
        (Sql("retry", "generation + 1, job.lease_token + job.lease_token % 2", "generation + 1, 0"),),
    ),
    Bug(
        "token-kept-at-reclaim",
        "The next claim raises the token anyway.",
        ("JOB-4",),
        (Sql("reclaim", "       lease_token = lease_token + 1,\n", ""),),
    ),
    Bug(
        "fence-counts-only",
        "If two of three still hold their lease, write two.",
        ("JOB-6",),
        (Swap(leasing, "still_leased", _hold_the_first),),
    ),
    Bug(
        "fenced-worker-removes",
        "Copy what may end, then delete the batch.",
        ("JOB-6",),
        (Swap(settling, "_finish", _finish_and_remove_all),),
    ),
    Bug(
        "reclaim-early",
        "A lease with less than half a minute left is as good as over.",
        ("JOB-4", "JOB-3"),
        (Sql("expired_leases", "lease_expires_at < :now", "lease_expires_at < :now + 30000000"),),
    ),
    Bug(
        "reclaim-by-id",
        "Find lost jobs on the reading connection, then take them back by id.",
        ("JOB-4", "JOB-3"),
        (Swap(SqliteStore, "reclaim", _reclaim_in_two_steps),),
    ),
    Bug(
        "extend-everybody",
        "What runs, runs: push all leases forward.",
        ("JOB-5", "JOB-4"),
        (Sql("extend", "id IN (SELECT value FROM json_each(:ids))", "status = 'processing'"),),
    ),
    Bug(
        "extend-by-id",
        "A worker knows which jobs it has.",
        ("JOB-6", "JOB-5"),
        (Swap(leasing, "extend", _extend_by_id),),
    ),
    Bug(
        "requeue-without-event",
        "The row says all there is to say.",
        ("JOB-11",),
        (Sql("requeue_history", " ORDER BY ordinal, part", " WHERE false ORDER BY ordinal, part"),),
    ),
    Bug(
        "reclaim-without-event",
        "The history of a crash is never read.",
        ("JOB-11",),
        (Sql("reclaim_history", " ORDER BY id, part", " WHERE false ORDER BY id, part"),),
    ),
    Bug(
        "replay-without-event",
        "The job is queued again, one can see that.",
        ("JOB-11",),
        (Sql("retry_history", _REPLAYED, _REPLAYED.replace(":ids", "'[]'")),),
    ),
    Bug(
        "retry-anything",
        "An operator who asks for a retry will have a reason.",
        ("JOB-12",),
        (Sql("failed_jobs", "job.status = 'failed'", "true"), Sql("retry", "job.status = 'failed'", "true")),
    ),
    Bug(
        "cancel-from-outside",
        "Cancelled means cancelled, whichever worker runs it.",
        (),
        (Sql("cancel_queued", "   AND status = 'queued'\n", ""),),
    ),
    Bug(
        "cancel-answered-too-soon",
        "The worker will stop it any moment, so say that it is done.",
        (),
        (Swap(settling, "cancel", _cancel_and_say_done),),
    ),
    Bug(
        "cancel-forgotten-at-requeue",
        "Back in the queue means a clean row.",
        (),
        (Sql("requeue", "SET status = 'queued',", "SET status = 'queued', cancel_requested = 0,"),),
    ),
    Bug(
        "requeue-forgets-attempts",
        "A job in the queue has not been tried yet.",
        ("JOB-10",),
        (Sql("requeue", "attempt = job.attempt - CASE", "attempt = 0 * CASE"),),
    ),
)
