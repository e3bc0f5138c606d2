"""The inbox in a SQLite file: messages, their jobs and their dead letters are written in one transaction."""

import json
import sqlite3
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, cast

from holdfast.aio.coroutines import run_here
from holdfast.core.errors import ConfigError
from holdfast.core.jobs.job import Receipt, Submission
from holdfast.core.jobs.states import Status
from holdfast.core.messages.dead_message import DeadMessage
from holdfast.core.messages.inbox import EarlierMessage, InboxAnswer, InboxItem
from holdfast.core.messages.reception import Reception
from holdfast.ports import Clock, Hint, HintKind
from holdfast.ports.messages.inbox import Make
from holdfast.ports.store import SubmissionRefusal
from holdfast.stores.sqlite.dead_letters.dead_messages import add_dead_messages
from holdfast.stores.sqlite.messages.announcements import announce_again
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.submitting import submit
from holdfast.stores.sqlite.times import micros
from holdfast.stores.sqlite.writer import Writer

WAITED = ("never wakes it here", "no running event loop")
"""What Python says when a coroutine waits where there is no event loop."""


class SqliteInbox:
    """The `InboxStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def receive(self, consumer: str, batch: Sequence[InboxItem]) -> list[InboxAnswer]:
        answers = await self._writer.write(
            lambda connection, now: _Transaction(connection, now, consumer, batch).receive()
        )
        self._notify({item.work.queue for item in batch if isinstance(item.work, Submission)})
        return answers

    async def receive_with(self, consumer: str, batch: Sequence[InboxItem], make: Make) -> list[InboxAnswer]:
        def receive(connection: sqlite3.Connection, now: int) -> tuple[list[InboxAnswer], set[str]]:
            transaction = _Transaction(connection, now, consumer, batch)
            return transaction.receive_with(make), transaction.queues

        answers, queues = await self._writer.write(receive)
        self._notify(queues)
        return answers

    async def purge(self, *, older_than: timedelta, limit: int) -> int:
        until = micros(self._clock.now() - older_than)
        return await self._writer.execute(SQL["purge_inbox"], {"until": until, "limit": limit})

    def _notify(self, queues: set[str]) -> None:
        for queue in queues:
            self._reader.notify(Hint(HintKind.READY, queue))


class _Transaction:
    """One reception, in the open transaction of the writer."""

    def __init__(
        self, connection: sqlite3.Connection, now: int, consumer: str, batch: Sequence[InboxItem]
    ) -> None:
        self._connection = connection
        self._now = now
        self._consumer = consumer
        self._reception = Reception(batch)
        self.queues: set[str] = set()
        """The queues of the jobs that were made."""

    def receive(self) -> list[InboxAnswer]:
        """Write what the messages ask for."""
        new = self._record()
        for item in new:
            if not isinstance(item.work, Submission):
                self._reception.recorded(item)
        dead = [item.work for item in new if isinstance(item.work, DeadMessage)]
        add_dead_messages(self._connection, dead, now=self._now)
        jobs = [(item, item.work) for item in new if isinstance(item.work, Submission)]
        receipts = submit(self._connection, [work for _, work in jobs], now=self._now)
        for (item, _), receipt in zip(jobs, receipts, strict=True):
            self._note(item, receipt)
        return self._finish()

    def receive_with(self, make: Make) -> list[InboxAnswer]:
        """Write what *make* returns for the new messages."""
        new = self._record()
        # The transaction may hold writes of others, which a commit of the function would tear apart.
        self._connection.set_authorizer(_refuse_transactions)
        try:
            for item in new:
                self._make(item, make)
        finally:
            self._connection.set_authorizer(None)
        return self._finish()

    def _record(self) -> list[InboxItem]:
        """Record the messages that are new, and return those; note what is known of the others."""
        items = self._reception.items
        known = self._run("known_messages", ids=_json([item.message_id for item in items])).fetchall()
        for message_id, fingerprint, job_id in known:
            self._reception.found(message_id, EarlierMessage(fingerprint, job_id))
        seen = {message_id for message_id, _, _ in known}
        if seen:
            self._run("repeat_messages", ids=_json(sorted(seen)))
        new = [item for item in items if item.message_id not in seen]
        rows = [[item.message_id, item.fingerprint, item.job_id] for item in new]
        if rows:
            self._run("record_messages", batch=_json(rows), now=self._now)
        return new

    def _make(self, item: InboxItem, make: Make) -> None:
        """Call the consumer's function for a new message, in a savepoint: only its own writes are rolled back."""
        self._connection.execute("SAVEPOINT holdfast_message")
        made, answer = item, None
        try:
            work = run_here(cast("Coroutine[Any, Any, Submission | None]", make(item, self._connection)))
            made = item._replace(work=work)
            if work is not None:
                [answer] = submit(self._connection, [work], now=self._now)
        except Exception as error:  # noqa: BLE001 - the edge of the consumer's function
            self._connection.execute("ROLLBACK TO holdfast_message")
            self._reception.failed(item, _explained(error))
        else:
            if answer is None:
                self._reception.recorded(made)
            else:
                if isinstance(answer, SubmissionRefusal) or answer.existing:
                    # An earlier job stands for the message.
                    self._connection.execute("ROLLBACK TO holdfast_message")
                elif work is not None:
                    self.queues.add(work.queue)
                self._note(made, answer)
        self._connection.execute("RELEASE holdfast_message")

    def _note(self, item: InboxItem, answer: Receipt | SubmissionRefusal) -> None:
        if isinstance(answer, SubmissionRefusal):
            self._reception.failed(item, answer.error)
        else:
            self._reception.submitted(item, answer)

    def _finish(self) -> list[InboxAnswer]:
        """Correct the rows of messages that have an earlier job, or failed; answer, and request announcements again."""
        reception = self._reception
        for message_id, job_id in reception.jobs.items():
            self._run("name_jobs", message_id=message_id, job_id=job_id)
        if reception.unrecorded:
            self._run("forget_messages", ids=_json(reception.unrecorded))
        repeated = reception.repeated
        if not repeated:
            return reception.answers({})
        jobs = {"ids": _json(sorted(set(repeated.values())))}
        rows = self._connection.execute(SQL["job_states"], jobs).fetchall()
        states = {job_id: Status(status) for job_id, status in rows}
        for job_id in sorted(job_id for job_id, status in states.items() if status.ended):
            announce_again(self._connection, job_id, now=self._now)
        return reception.answers(states)

    def _run(self, statement: str, **values: Any) -> sqlite3.Cursor:
        return self._connection.execute(SQL[statement], {"consumer": self._consumer, **values})


def _refuse_transactions(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


def _explained(error: Exception) -> Exception:
    """Return what the function did wrong, if SQLite refused it."""
    if isinstance(error, sqlite3.DatabaseError) and "not authorized" in str(error):
        return ConfigError(
            "a consumer's function may not end the transaction that it is given; leave commit and rollback to Holdfast"
        )
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in WAITED):
        return ConfigError(
            "on SQLite, a consumer's function with a delivery runs in the thread that writes, and cannot await anything; "
            "make it a plain function"
        )
    return error


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
