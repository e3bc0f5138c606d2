"""Queues in a SQLite file."""

from datetime import timedelta

from holdfast.core.jobs.states import Status
from holdfast.ports import Clock, Depth, Hint, HintKind
from holdfast.ports.queues import Pause
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.times import instant, micros
from holdfast.stores.sqlite.writer import Writer


class SqliteQueues:
    """The `QueueStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def pause(self, queue: str, *, actor: str, reason: str) -> bool:
        values = {"queue": queue, "actor": actor, "reason": reason}
        return bool(await self._writer.execute(SQL["pause_queue"], values))

    async def resume(self, queue: str) -> bool:
        resumed = await self._writer.execute(SQL["resume_queue"], {"queue": queue})
        self._reader.notify(Hint(HintKind.READY, queue))
        return bool(resumed)

    async def paused(self) -> list[Pause]:
        rows = await self._reader.rows(SQL["paused_queues"], {})
        return [Pause(row["queue"], instant(row["paused_at"]), row["actor"], row["reason"]) for row in rows]

    async def counts(self) -> dict[tuple[str, Status], int]:
        rows = await self._reader.rows(SQL["counts"], {})
        return {(queue, Status(status)): count for queue, status, count in rows}

    async def depths(self) -> list[Depth]:
        rows = await self._reader.rows(SQL["depths"], {"now": micros(self._clock.now())})
        return [
            Depth(queue, state, jobs, timedelta(microseconds=oldest)) for queue, state, jobs, oldest in rows
        ]

    async def recent(self, *, limit: int) -> list[str]:
        return [row["queue"] for row in await self._reader.rows(SQL["recent_queues"], {"limit": limit})]
