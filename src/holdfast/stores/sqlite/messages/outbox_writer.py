"""Stores messages in the outbox, on a connection that is in a transaction."""

import json
from collections.abc import Sequence

from holdfast.core.messages.outbox import NewMessage
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.within import SqliteRunner


def add_messages(connection: SqliteRunner, batch: Sequence[NewMessage], *, now: int) -> None:
    """Store *batch*: those whose id or key is there already are left out."""
    if batch:
        values = {"batch": json.dumps(batch, ensure_ascii=False), "now": now}
        connection.execute(SQL["add_messages"], values)
