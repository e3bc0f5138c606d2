"""The inbox of a store: which messages were received, and which job each of them has made."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from holdfast.core.jobs.job import Submission
from holdfast.core.messages.inbox import InboxAnswer, InboxItem

Make = Callable[[InboxItem, Any], Awaitable[Submission | None]]
"""Called in the transaction with a new message and the connection; returns the job that the message asks for."""


class InboxStore(Protocol):
    """The operations of a store on received messages. No message is acknowledged before one of them has returned."""

    async def receive(self, consumer: str, batch: Sequence[InboxItem]) -> list[InboxAnswer]:
        """Record the messages of *batch*, and what each asks for, in one transaction; answer each, in order.

        The key of a job is its message's id, so that it makes one job also after its row was purged. A repeated
        message whose job has ended requests the announcement of that end once more. Sent again after
        `StoreUnavailable`, the same batch has the same effect once.
        """
        ...

    async def receive_with(self, consumer: str, batch: Sequence[InboxItem], make: Make) -> list[InboxAnswer]:
        """Do what `receive` does, with jobs from *make*, which is called for new messages only.

        What it writes with the connection that it gets is committed with the job, or not at all: if it raises, its own
        writes are rolled back, the answer has the error, and the others of *batch* are not affected. On SQLite it runs
        in the thread of the writer, and may not wait for anything.
        """
        ...

    async def purge(self, *, older_than: timedelta, limit: int) -> int:
        """Delete what was received longer ago than that; return how many. The keys of the jobs are kept."""
        ...
