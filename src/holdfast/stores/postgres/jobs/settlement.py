"""Settles claimed jobs in PostgreSQL."""

from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Any

import asyncpg

from holdfast.core.errors import StoreUnavailable
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish, Requeue, StageWrite, Transition
from holdfast.ports.store import Settled
from holdfast.stores import rows
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.within import PostgresRunner
from holdfast.stores.queries import Queries
from holdfast.stores.rows import (
    TIMEOUT,
    Lease,
    columns,
    failure_text,
    filled,
    refused,
    requeue_meta,
    settled,
    shared,
    unzipped,
)

_ID = attrgetter("id")
_RESULT = [*map(attrgetter, ("id", "token", "result"))]
_REQUEUE: list[Callable[[Any], Any]] = [
    *map(attrgetter, ("id", "token", "delay")),
    lambda change: int(change.gives_back),
    attrgetter("event"),
    requeue_meta,
    *map(attrgetter, ("seen", "awaits")),
    lambda change: None if change.held_by is None else change.held_by.text,
    attrgetter("keeps_losses"),
]
_STAGE: list[Callable[[Any], Any]] = [
    *map(attrgetter, ("id", "token", "key.name", "key.call", "status", "attempt", "fingerprint", "result")),
    lambda change: failure_text(change.failure),
    *map(attrgetter, ("provider", "brief_fingerprint")),
]


class Settlement:
    """Writes stages, requeues and ends, each kind in one statement."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def settle(self, batch: Sequence[Transition]) -> list[Settled]:
        """Settle claimed jobs, as `Store.settle` promises."""
        # In the order in which every transaction locks jobs: a parent marks its children while they end.
        ordered = sorted(batch, key=_ID)
        stages = [change for change in ordered if isinstance(change, StageWrite)]
        backs = [change for change in ordered if isinstance(change, Requeue)]
        ends = [change for change in ordered if isinstance(change, Finish)]
        applied: set[Lease] = set()
        late: set[Lease] = set()
        unsent: list[Transition] = []
        for row in await self._write_unlocked(self._store_stages, stages, unsent):
            applied.add((row[0], row[1]))
        for row in await self._write_unlocked(self._requeue, backs, unsent):
            applied.add((row[0], row[1]))
        for row in await self._write_unlocked(self._finish, ends, unsent):
            applied.add((row[0], row[1]))
            if row[2]:
                late.add((row[0], row[1]))
        if len(applied) < len(batch):
            missing = [end for end in ends if end[:2] not in applied and end not in unsent]
            late |= await self._keep_late(missing)
        answers = settled(batch, applied, late, await self.lease_outcomes(refused(batch, applied, late)))
        if unsent:
            return [
                Settled.LOCKED if change in unsent else answer
                for change, answer in zip(batch, answers, strict=True)
            ]
        return answers

    async def settle_within(self, runner: PostgresRunner, end: Finish) -> Settled:
        """End a claimed job in the transaction of *runner*, as `Store.settle_within` promises."""
        found = await runner.fetch(self._sql["finish"], *_finish_values([end], [[end.status.value]]))
        if found:
            return Settled.TIMED_OUT if found[0]["late"] else Settled.WRITTEN
        kept = await runner.fetch(self._sql["keep_late"], *columns([end], *_RESULT))
        return Settled.LATE if kept else Settled.FENCED

    async def _write_unlocked(
        self,
        write: "Callable[[list[Any]], Awaitable[list[asyncpg.Record]]]",
        changes: Sequence[Transition],
        unsent: list[Transition],
    ) -> "list[asyncpg.Record]":
        """Write *changes*; after a lock timeout, add those of locked jobs to *unsent* and write the others.

        The changes of a job keep their order: what follows one that was not sent is not sent either.
        """
        waiting = {change.id for change in unsent}
        unsent += [change for change in changes if change.id in waiting]
        free = [change for change in changes if change.id not in waiting]
        while free:
            try:
                return await write(free)
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
                ids = [change.id for change in free]
                unlocked = {
                    row["id"] for row in await self._connections.fetch(self._sql["unlocked_jobs"], ids)
                }
                if unlocked.issuperset(ids):
                    raise  # it was not the lock of a job, or it has been released since
            unsent += [change for change in free if change.id not in unlocked]
            free = [change for change in free if change.id in unlocked]
        return []

    async def _store_stages(self, stages: list[Any]) -> "list[asyncpg.Record]":
        return await self._connections.fetch(
            self._sql["store_stages"],
            *columns(stages, *_STAGE),
            timeout=self._connections.answer_timeout(change.result for change in stages),
        )

    async def _requeue(self, backs: list[Any]) -> "list[asyncpg.Record]":
        return await self._connections.fetch(self._sql["requeue"], *columns(backs, *_REQUEUE))

    async def _finish(self, ends: list[Any]) -> "list[asyncpg.Record]":
        return await self._connections.fetch(
            self._sql["finish"],
            *_finish_values(ends, shared(ends, attrgetter("status"))),
            timeout=self._connections.answer_timeout(change.result for change in ends),
        )

    async def lease_outcomes(self, leases: Sequence[Lease]) -> dict[Lease, Settled]:
        """Return what became of leases under which nothing was written; nearly always there is none."""
        return (
            rows.lease_outcomes(await self._connections.fetch(self._sql["lease_outcomes"], *unzipped(leases)))
            if leases
            else {}
        )

    async def _keep_late(self, ends: Sequence[Finish]) -> set[Lease]:
        """Keep the results among *ends* whose lease the deadline ended."""
        results = [end for end in ends if end.status is Status.COMPLETED]
        if not results:
            return set()
        rows = await self._connections.fetch(self._sql["keep_late"], *columns(results, *_RESULT))
        return {(row[0], row[1]) for row in rows}


def _finish_values(ends: list[Any], statuses: list[Any]) -> list[Any]:
    """Return the values of finish.sql."""
    # Nearly every job completes: columns that only the others have are built without a call for each job.
    failures = [None if end.failure is None else failure_text(end.failure) for end in ends]
    if_overdue = [True if end.if_overdue else None for end in ends]
    return [
        *columns(ends, *_RESULT),
        filled(failures),
        *columns(ends, attrgetter("stage")),
        filled(if_overdue),
        *statuses,
        TIMEOUT,
    ]
