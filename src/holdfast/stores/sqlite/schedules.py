"""Recurring jobs in a SQLite file."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.core.jobs.job import Submission
from holdfast.ports import Clock, Hint, HintKind
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.submitting import submit
from holdfast.stores.sqlite.times import instant, micros
from holdfast.stores.sqlite.writer import Writer


class SqliteSchedules:
    """The `ScheduleStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def last_ticks(self, names: Sequence[str]) -> tuple[datetime, dict[str, datetime]]:
        rows = await self._reader.rows(SQL["last_ticks"], {"names": json.dumps(list(names))})
        return self._clock.now(), {name: instant(last) for name, last in rows}

    async def begin(self, names: Sequence[str]) -> None:
        await self._writer.execute(SQL["begin_schedules"], {"names": json.dumps(list(names))})

    async def advance(self, name: str, old: datetime, new: datetime, batch: Sequence[Submission]) -> bool:
        change = {"name": name, "old": micros(old), "new": micros(new)}
        moved = await self._writer.write(lambda connection, now: _advance(connection, now, change, batch))
        if moved and batch:
            self._reader.notify(Hint(HintKind.READY, batch[0].queue))
        return moved


def _advance(
    connection: sqlite3.Connection, now: int, change: dict[str, Any], batch: Sequence[Submission]
) -> bool:
    if not connection.execute(SQL["advance_schedule"], change).rowcount:
        return False
    submit(connection, batch, now=now)
    return True
