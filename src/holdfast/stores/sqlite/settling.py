"""Ends or requeues jobs of a SQLite file. Each function runs in the open transaction."""

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.ports.store import Settled
from holdfast.stores.rows import TIMEOUT, Lease, failure_text, refused, requeue_meta, settled
from holdfast.stores.sqlite import leasing
from holdfast.stores.sqlite.deadlines import overdue, overdue_among
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.times import micros_of
from holdfast.stores.sqlite.within import SqliteRunner


def settle(connection: SqliteRunner, now: int, *, batch: Sequence[Transition]) -> list[Settled]:
    """Write *batch*, and return the outcome of each change."""
    ends = [change for change in batch if isinstance(change, Finish)]
    applied: list[Lease] = []
    late: list[Lease] = []
    if len(ends) < len(batch):
        stages = [_stage_row(change) for change in batch if isinstance(change, StageWrite)]
        backs = [_back_row(change) for change in batch if isinstance(change, Requeue)]
        if stages:
            applied += leasing.apply(connection, now, stages, "reset_attempts", "store_stages")
        if backs:
            applied += leasing.apply(connection, now, backs, "requeue_history", "requeue", "announce_retries")
    if ends:
        overdue = overdue_among(connection, now, ends)
        if overdue:
            due = [end for end in ends if end.id in overdue or not end.if_overdue]
            written = _finish(connection, due, now, "finish_overdue")
            late = _late(due, written, overdue)
        else:
            completed = [end for end in ends if end.status is Status.COMPLETED]
            written = _complete(connection, completed, now) if completed else []
            if len(completed) < len(ends):
                others = [end for end in ends if end.status is not Status.COMPLETED and not end.if_overdue]
                written += _finish(connection, others, now, "finish")
        if len(written) < len(ends):
            late += _keep_late(connection, ends, now, besides=written)
        applied += written
    names, kept = frozenset(applied), frozenset(late)
    return settled(batch, names, kept, leasing.lease_outcomes(connection, refused(batch, names, kept)))


def _late(ends: Sequence[Finish], written: Sequence[Lease], overdue: Collection[str]) -> list[Lease]:
    """Return the leases that were written after the deadline; a cancellation is never late."""
    cancelled = {end[:2] for end in ends if end.status is Status.CANCELLED}
    return [name for name in written if name[0] in overdue and name not in cancelled]


def _complete(connection: SqliteRunner, ends: Sequence[Finish], now: int) -> list[Lease]:
    """Move completed jobs to the finished ones: the path of nearly every job."""
    results = {f"{end.token}:{end.id}": end.result for end in ends}
    values = {"batch": json.dumps(results, ensure_ascii=False), "now": now}
    return _moved(connection, ends, connection.execute(SQL["finish_completed"], values).rowcount)


def _finish(connection: SqliteRunner, ends: Sequence[Finish], now: int, statement: str) -> list[Lease]:
    """Move jobs that end to the finished ones."""
    rows = [_end_row(end) for end in ends]
    values = {"batch": json.dumps(rows, ensure_ascii=False), "now": now, "timeout": TIMEOUT}
    return _moved(connection, ends, connection.execute(SQL[statement], values).rowcount)


def _moved(connection: SqliteRunner, ends: Sequence[Finish], copied: int) -> list[Lease]:
    """Delete jobs that were copied to the finished ones from the hot table; the copy checks the lease token."""
    kept = ends if copied == len(ends) else leasing.still_leased(connection, ends)
    remove(connection, [end.id for end in kept])
    return [end[:2] for end in kept]


def remove(connection: SqliteRunner, ended: Sequence[str]) -> None:
    """Delete ended jobs from the hot table, whose trigger records the ends for the jobs that wait for them."""
    connection.execute(SQL["delete_jobs"], {"ids": json.dumps(list(ended))})


def _keep_late(
    connection: SqliteRunner, ends: Sequence[Finish], now: int, *, besides: Sequence[Lease]
) -> list[Lease]:
    """Keep the results among *ends* whose lease the deadline ended."""
    kept = []
    for end in ends:
        if end.status is Status.COMPLETED and end[:2] not in besides:
            values = {"id": end.id, "token": end.token, "result": end.result, "now": now}
            if connection.execute(SQL["keep_late"], values).rowcount:
                kept.append(end[:2])
    return kept


def expire(connection: sqlite3.Connection, now: int, *, limit: int) -> list[str]:
    """End jobs whose deadline has passed, and return their ids."""
    ended = overdue(connection, now, limit=limit)
    if ended:
        connection.execute(SQL["expire"], {"ids": json.dumps(ended), "now": now, "failure": TIMEOUT})
        remove(connection, ended)
    return ended


def cancel(connection: sqlite3.Connection, now: int, *, job_id: str, owner: str | None) -> Status | None:
    """End a queued job, or store a request for the worker of a running one; return `None` if it is neither."""
    values = {"id": job_id, "owner": owner, "now": now}
    if connection.execute(SQL["cancel_queued"], values).rowcount:
        remove(connection, [job_id])
        return Status.CANCELLED
    if connection.execute(SQL["request_cancel"], values).rowcount:
        return Status.PROCESSING
    return None


def _stage_row(change: StageWrite) -> list[Any]:
    return [
        change.id,
        change.token,
        *change.key,
        change.status,
        change.attempt,
        change.fingerprint,
        change.result,
        failure_text(change.failure),
        change.provider,
        change.brief_fingerprint,
    ]


def _back_row(change: Requeue) -> list[Any]:
    delay = None if change.delay is None else micros_of(change.delay)
    return [
        change.id,
        change.token,
        delay,
        int(change.gives_back),
        change.event,
        requeue_meta(change),
        change.seen,
        int(change.awaits),
        None if change.held_by is None else change.held_by.text,
        int(change.keeps_losses),
    ]


def _end_row(change: Finish) -> Sequence[Any]:
    """Return the row to write: the value itself, in the order of its fields, unless it failed."""
    if change.failure is None:
        return change
    return change._replace(failure=failure_text(change.failure))  # type: ignore[arg-type]  # the row holds its text
