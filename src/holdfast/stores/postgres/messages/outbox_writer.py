"""Stores messages in the outbox, on a connection that is in a transaction."""

from collections.abc import Sequence
from operator import attrgetter

from holdfast.core.messages.outbox import NewMessage
from holdfast.stores.postgres.within import PostgresRunner
from holdfast.stores.queries import Queries
from holdfast.stores.rows import columns

_MESSAGE = [attrgetter(name) for name in NewMessage._fields]


async def add_messages(
    connection: PostgresRunner, sql: Queries, batch: Sequence[NewMessage]
) -> frozenset[str]:
    """Store *batch*, and return the ids of those that are new."""
    if not batch:
        return frozenset()
    if len(batch) == 1:
        rows = await connection.fetch(sql["add_message"], *batch[0])
    else:
        rows = await connection.fetch(sql["add_messages"], *columns(list(batch), *_MESSAGE))
    return frozenset(row["id"] for row in rows)
