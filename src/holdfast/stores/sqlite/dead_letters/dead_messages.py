"""Stores messages that could not be published, or were refused, as failed jobs with dead letters."""

import json
from collections.abc import Sequence

from holdfast.core.messages.dead_message import DeadMessage
from holdfast.stores.rows import failure_text
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.within import SqliteRunner


def add_dead_messages(connection: SqliteRunner, batch: Sequence[DeadMessage], *, now: int) -> None:
    """Store *batch* in the open transaction of *connection*."""
    if batch:
        rows = [[dead.id, dead.name, dead.args, failure_text(dead.failure), dead.trace] for dead in batch]
        values = {"batch": json.dumps(rows, ensure_ascii=False), "now": now}
        connection.execute(SQL["add_dead_messages"], values)
        connection.execute(SQL["add_dead_message_payloads"], {"batch": values["batch"]})
