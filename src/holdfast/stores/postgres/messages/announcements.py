"""Announcements in PostgreSQL."""

from collections.abc import Sequence
from datetime import timedelta

from holdfast.core.jobs.job import known_id
from holdfast.core.messages.announcements import AnnouncementKind, PendingAnnouncement, RenderedAnnouncement
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.messages.outbox_writer import add_messages
from holdfast.stores.postgres.within import PostgresRunner
from holdfast.stores.queries import Queries


class PostgresAnnouncements:
    """The `AnnouncementStore` port."""

    def __init__(self, connections: Connections, sql: Queries) -> None:
        self._connections = connections
        self._sql = sql

    async def take(self, names: Sequence[str], *, limit: int, lease: timedelta) -> list[PendingAnnouncement]:
        rows = await self._connections.fetch(self._sql["take_announcements"], list(names), limit, lease)
        return [PendingAnnouncement(*row)._replace(kind=AnnouncementKind(row["kind"])) for row in rows]

    async def publish(self, batch: Sequence[RenderedAnnouncement]) -> int:
        taken = sorted((each.taken.sequence, each.taken.tries) for each in batch)
        numbers = [[sequence for sequence, _ in taken], [tries for _, tries in taken]]
        async with self._connections.acquire() as connection, connection.transaction():
            rows = await connection.fetch(self._sql["delete_announcements"], *numbers)
            held = {row["sequence"] for row in rows}
            messages = [message for each in batch if each.taken.sequence in held for message in each.messages]
            await add_messages(connection, self._sql, messages)
        return len(held)

    async def postpone(self, taken: PendingAnnouncement, delay: timedelta) -> None:
        await self._connections.fetch(self._sql["postpone_announcement"], taken.sequence, taken.tries, delay)

    async def again(self, job_id: str) -> bool:
        async with self._connections.acquire() as connection:
            return await announce_again(connection, self._sql, known_id(job_id))


async def announce_again(connection: PostgresRunner, sql: Queries, job_id: str) -> bool:
    """Announce the end of a job once more, on a connection, as `AnnouncementStore.again` promises."""
    return bool(await connection.fetch(sql["announce_again"], job_id))
