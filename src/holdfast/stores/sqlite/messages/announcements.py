"""Announcements in a SQLite file."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from holdfast.core.jobs.job import known_id
from holdfast.core.messages.announcements import AnnouncementKind, PendingAnnouncement, RenderedAnnouncement
from holdfast.ports import Clock
from holdfast.stores.sqlite.messages.outbox_writer import add_messages
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.times import instant, micros, micros_of
from holdfast.stores.sqlite.within import SqliteRunner
from holdfast.stores.sqlite.writer import Writer


class SqliteAnnouncements:
    """The `AnnouncementStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def take(self, names: Sequence[str], *, limit: int, lease: timedelta) -> list[PendingAnnouncement]:
        asked = {"names": json.dumps(list(names)), "limit": limit}
        due = await self._reader.rows(
            SQL["due_announcements"], {**asked, "limit": 1, "now": micros(self._clock.now())}
        )
        if not due:
            return []  # nearly always, and without the write lock
        rows = await self._writer.write(
            lambda connection, now: _take(connection, {**asked, "now": now}, lease=micros_of(lease))
        )
        return [_pending(row) for row in rows]

    async def publish(self, batch: Sequence[RenderedAnnouncement]) -> int:
        return await self._writer.write(lambda connection, now: _publish(connection, batch, now))

    async def postpone(self, taken: PendingAnnouncement, delay: timedelta) -> None:
        values = {"sequence": taken.sequence, "tries": taken.tries, "delay": micros_of(delay)}
        await self._writer.execute(SQL["postpone_announcement"], values)

    async def again(self, job_id: str) -> bool:
        return await self._writer.write(
            lambda connection, now: announce_again(connection, known_id(job_id), now=now)
        )


def announce_again(connection: SqliteRunner, job_id: str, *, now: int) -> bool:
    """Announce the end of a job once more, in the open transaction, as `AnnouncementStore.again` promises."""
    if connection.execute(SQL["count_again"], {"id": job_id}).rowcount:
        connection.execute(SQL["announce_again"], {"id": job_id, "now": now})
    [announced] = connection.execute(SQL["is_announced"], {"id": job_id}).fetchone()
    return bool(announced)


def _take(connection: sqlite3.Connection, asked: dict[str, object], *, lease: int) -> list[sqlite3.Row]:
    due = connection.execute(SQL["due_announcements"], asked).fetchall()
    sequences = json.dumps([row["sequence"] for row in due])
    connection.execute(
        SQL["take_announcements"], {"sequences": sequences, "lease": lease, "now": asked["now"]}
    )
    return due


def _publish(connection: sqlite3.Connection, batch: Sequence[RenderedAnnouncement], now: int) -> int:
    taken = json.dumps([(each.taken.sequence, each.taken.tries) for each in batch])
    [text] = connection.execute(SQL["held_announcements"], {"batch": taken}).fetchone()
    held = frozenset(json.loads(text))
    messages = [message for each in batch if each.taken.sequence in held for message in each.messages]
    add_messages(connection, messages, now=now)
    connection.execute(SQL["delete_announcements"], {"sequences": text})
    return len(held)


def _pending(row: sqlite3.Row) -> PendingAnnouncement:
    found = {name: row[name] for name in row.keys()}  # noqa: SIM118 - a driver's row is no mapping
    return PendingAnnouncement(**{**found, "kind": AnnouncementKind(row["kind"]), "at": instant(row["at"])})
