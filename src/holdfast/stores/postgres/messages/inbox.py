"""The inbox in PostgreSQL: messages, their jobs and their dead letters are written in one transaction."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.core.jobs.job import Receipt, Submission
from holdfast.core.jobs.states import Status
from holdfast.core.messages.dead_message import DeadMessage
from holdfast.core.messages.inbox import EarlierMessage, InboxAnswer, InboxItem
from holdfast.core.messages.reception import Reception
from holdfast.ports.messages.inbox import Make
from holdfast.ports.store import SubmissionRefusal
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.dead_letters.dead_messages import add_dead_messages
from holdfast.stores.postgres.jobs.submitting import submit_unique
from holdfast.stores.postgres.messages.announcements import announce_again
from holdfast.stores.postgres.notify import Sender
from holdfast.stores.queries import Queries
from holdfast.stores.rows import columns

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Connection

LONGEST_CALL = 5.0
"""Seconds that a consumer's function may take in the transaction: the server ends one that idles for ten."""

_ROW = [attrgetter(name) for name in ("message_id", "fingerprint", "job_id")]


class PostgresInbox:
    """The `InboxStore` port."""

    def __init__(self, connections: Connections, sql: Queries, sender: Sender) -> None:
        self._connections = connections
        self._sql = sql
        self._sender = sender

    async def receive(self, consumer: str, batch: Sequence[InboxItem]) -> list[InboxAnswer]:
        reception = Reception(batch)
        async with self._connections.acquire() as connection, connection.transaction():
            new = await self._record(connection, consumer, reception)
            for item in new:
                if not isinstance(item.work, Submission):
                    reception.recorded(item)
            dead = [item.work for item in new if isinstance(item.work, DeadMessage)]
            await add_dead_messages(connection, self._sql, dead)
            jobs = [(item, item.work) for item in new if isinstance(item.work, Submission)]
            receipts = await self._submit(connection, [work for _, work in jobs])
            for (item, _), receipt in zip(jobs, receipts, strict=True):
                _note(reception, item, receipt)
            return await self._finish(connection, consumer, reception)

    async def receive_with(self, consumer: str, batch: Sequence[InboxItem], make: Make) -> list[InboxAnswer]:
        reception = Reception(batch)
        async with self._connections.acquire() as connection, connection.transaction():
            for item in await self._record(connection, consumer, reception):
                await self._make(connection, item, make, reception)
            return await self._finish(connection, consumer, reception)

    async def purge(self, *, older_than: timedelta, limit: int) -> int:
        return len(await self._connections.fetch(self._sql["purge_inbox"], older_than, limit))

    async def _record(self, connection: "Connection", consumer: str, reception: Reception) -> list[InboxItem]:
        """Record the messages that are new, and return those; note what is known of the others."""
        recorded: list[InboxItem] = []
        pending = reception.items
        while pending:
            rows = await connection.fetch(self._sql["record_messages"], consumer, *columns(pending, *_ROW))
            new = {row["message_id"] for row in rows}
            recorded += [item for item in pending if item.message_id in new]
            others = [item.message_id for item in pending if item.message_id not in new]
            if not others:
                break
            known = await connection.fetch(self._sql["repeat_messages"], consumer, others)
            for row in known:
                earlier = EarlierMessage(row["fingerprint"], row["job_id"])
                reception.found(row["message_id"], earlier)
            # A row that was purged between the two statements is recorded again.
            gone = set(others) - {row["message_id"] for row in known}
            pending = [item for item in pending if item.message_id in gone]
        return recorded

    async def _make(
        self, connection: "Connection", item: InboxItem, make: Make, reception: Reception
    ) -> None:
        """Call the consumer's function for a new message, in a savepoint: only its own writes are rolled back."""
        savepoint = connection.transaction()
        await savepoint.start()
        try:
            async with asyncio.timeout(LONGEST_CALL):
                work = await make(item, connection)
            made = item._replace(work=work)
            [answer] = await self._submit(connection, [work]) if work is not None else [None]
        except Exception as error:
            if connection.is_closed():
                raise
            await savepoint.rollback()
            reception.failed(item, error)
            return
        if answer is None:
            await savepoint.commit()
            reception.recorded(made)
            return
        if isinstance(answer, Receipt) and not answer.existing:
            await savepoint.commit()
        else:
            await savepoint.rollback()  # an earlier job stands for the message
        _note(reception, made, answer)

    async def _submit(
        self, connection: "Connection", batch: Sequence[Submission]
    ) -> list[Receipt | SubmissionRefusal]:
        if not batch:
            return []
        hints = self._sender.due({item.queue for item in batch})
        timeout = self._connections.answer_timeout(item.args for item in batch)
        return await submit_unique(connection, self._sql, batch, hints, timeout=timeout)

    async def _finish(
        self, connection: "Connection", consumer: str, reception: Reception
    ) -> list[InboxAnswer]:
        """Correct the rows of messages that have an earlier job, or failed; answer, and request announcements again."""
        if reception.jobs:
            named = list(reception.jobs), list(reception.jobs.values())
            await connection.execute(self._sql["name_jobs"], consumer, *named)
        if reception.unrecorded:
            await connection.execute(self._sql["forget_messages"], consumer, reception.unrecorded)
        repeated = reception.repeated
        if not repeated:
            return reception.answers({})
        rows = await connection.fetch(self._sql["job_states"], sorted(set(repeated.values())))
        states = {row["id"]: Status(row["status"]) for row in rows}
        for job_id in sorted(job_id for job_id, status in states.items() if status.ended):
            await announce_again(connection, self._sql, job_id)
        return reception.answers(states)


def _note(reception: Reception, item: InboxItem, answer: Receipt | SubmissionRefusal) -> None:
    if isinstance(answer, SubmissionRefusal):
        reception.failed(item, answer.error)
    else:
        reception.submitted(item, answer)
