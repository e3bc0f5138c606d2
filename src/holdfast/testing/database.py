"""The database of a test, shared by all simulated processes and deleted afterwards."""

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.dead_letters.replay_plan import Plan
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.schedules import Schedule
from holdfast.core.jobs.states import Status
from holdfast.core.jobs.transitions import Finish
from holdfast.ports import Clock, Hint, HintKind, Promotion
from holdfast.ports.dead_letters import PlanRow
from holdfast.ports.store import Settled
from holdfast.stores.sqlite.dead_letters.replay_plans import SqliteReplayPlans
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.settling import settle
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.subscriptions import Subscriptions
from holdfast.testing.processes import PROCESS
from holdfast.testing.seeded_system import InlineExecutor

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class TemporaryFileExecutor(InlineExecutor):
    """Runs a store's calls inline. The file is temporary: it is not flushed, and all connections are closed together."""

    def __init__(self) -> None:
        self._connections: list[sqlite3.Connection] = []

    def run(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        return super().run(lambda: self._prepare(function()))

    def close_connections(self) -> None:
        """Close every connection, also those of processes that died."""
        for connection in self._connections:
            connection.close()

    def _prepare(self, result: T) -> T:
        if isinstance(result, sqlite3.Connection):
            result.execute("PRAGMA synchronous = OFF")
            self._connections.append(result)
        return result


class _SharedReader(Reader):
    """Shares the subscriptions of all processes: each gets every hint, and the file need not be watched."""

    def __init__(self, path: str, executor: InlineExecutor, subscriptions: Subscriptions) -> None:
        super().__init__(path, executor)
        self.subscriptions = subscriptions

    def listen(self, on_hint: Callable[[Hint], None], kinds: Collection[HintKind]) -> Callable[[], None]:
        return self.subscriptions.subscribe(on_hint, kinds)


_HAS_WORK = """
SELECT EXISTS (SELECT 1 FROM holdfast_plans WHERE running)
    OR EXISTS (SELECT 1 FROM holdfast_tickets WHERE told_at IS NULL)
    OR EXISTS (SELECT 1
                 FROM holdfast_dead_letters
                WHERE state = 'new' AND replays = 0 AND failure -> 'retryable' = 'true'
                  AND name IN (SELECT value FROM json_each(:names)))
    OR EXISTS (SELECT 1
                 FROM holdfast_announcements
                WHERE tries = 0
                  AND name IN (SELECT value FROM json_each(:announced)))
"""


class _NotifyingPlans(SqliteReplayPlans):
    """Wakes the workers when a plan advances: they may be resting."""

    async def advance(self, row: PlanRow, plan: Plan, *, take: int = 0) -> list[str] | None:
        jobs = await super().advance(row, plan, take=take)
        self._reader.notify(Hint(HintKind.READY, ""))
        return jobs


class TemporaryStore(SqliteStore):
    """The real store on a temporary file, which no connection of an application is to."""

    async def settle_within(self, connection: Any, end: Finish) -> Settled:
        """End the job at once: a transaction of another database cannot be joined."""
        [settled] = self._writer.write_here(partial(settle, batch=[end]))
        self._notify_ends([end.id])
        return settled


class SharedStore(TemporaryStore):
    """The real store of one process. It detects when the process has nothing to do."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        file: TemporaryFileExecutor,
        subscriptions: Subscriptions,
        auto_replayed: Callable[[], list[str]],
        announced: Callable[[], list[str]],
        schedules: Callable[[], list[Schedule]],
    ) -> None:
        reader = _SharedReader(path, file, subscriptions)
        super().__init__(path, clock=clock, writing=file, reading=file, reader=reader)
        self.replay_plans = _NotifyingPlans(self._writer, reader, clock)
        self._auto_replayed = auto_replayed
        self._announced = announced
        self._schedules = schedules

    async def claim(
        self,
        worker: str,
        queue: str,
        *,
        limit: int,
        lease: timedelta,
        knows: Sequence[str] | None = None,
    ) -> list[Claim]:
        claims = await super().claim(worker, queue, limit=limit, lease=lease, knows=knows)
        process = PROCESS.get()
        if claims and process is not None:
            process.wake()
        return claims

    async def promote(self, *, limit: int) -> Promotion:
        """Promote due jobs; if there are none, and no job runs, let the process rest."""
        promotion = await super().promote(limit=limit)
        process = PROCESS.get()
        if process is not None:
            process.expect(None if promotion.next_due is None else promotion.next_due.total_seconds())
            process.expect_tick(await self._until_next_tick())
            if not promotion.promoted and not await self._anything_runs():
                process.rest()
        return promotion

    async def _until_next_tick(self) -> float | None:
        """Return the seconds until a recurring job is due; 0 if its schedule is not stored yet."""
        schedules = self._schedules()
        if not schedules:
            return None
        now, last_ticks = await self.schedules.last_ticks([schedule.name for schedule in schedules])
        ticks = [
            next(each.ticks(last_ticks[each.name])) if each.name in last_ticks else now for each in schedules
        ]
        return max((min(ticks) - now).total_seconds(), 0.0)

    async def _anything_runs(self) -> bool:
        if any(status is Status.PROCESSING for _, status in await self.queues.counts()):
            return True
        # Replays, tickets, letters that are replayed automatically, or announcements.
        names = {"names": json.dumps(self._auto_replayed()), "announced": json.dumps(self._announced())}
        [row] = await self._reader.rows(_HAS_WORK, names)
        return bool(row[0])
