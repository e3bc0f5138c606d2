"""Stores messages that could not be published, or were refused, as failed jobs with dead letters."""

from collections.abc import Sequence
from operator import attrgetter

from holdfast.core.messages.dead_message import DeadMessage
from holdfast.stores.postgres.within import PostgresRunner
from holdfast.stores.queries import Queries
from holdfast.stores.rows import columns, failure_text


async def add_dead_messages(connection: PostgresRunner, sql: Queries, batch: Sequence[DeadMessage]) -> None:
    """Store *batch* in the open transaction of *connection*."""
    if batch:
        values = columns(
            list(batch),
            attrgetter("id"),
            attrgetter("name"),
            attrgetter("args"),
            lambda dead: failure_text(dead.failure),
            attrgetter("trace"),
        )
        await connection.execute(sql["add_dead_messages"], *values)
