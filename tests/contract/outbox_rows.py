"""Reads the outbox as another program would: with plain SQL."""

import sqlite3
from contextlib import closing
from typing import Any

import asyncpg

from tests.contract.conftest import Database, SqliteFile

COLUMNS = "aggregate_type, aggregate_id, message_type, payload, message_id, headers, routing_key, key, job_id, trace"


async def outbox_rows(database: Database) -> list[dict[str, Any]]:
    """Return the messages of the outbox, in the order of their publication."""
    if isinstance(database, SqliteFile):
        with closing(sqlite3.connect(database.path)) as file:
            file.row_factory = sqlite3.Row
            sql = f"SELECT {COLUMNS} FROM holdfast_outbox_messages ORDER BY sequence"
            return [dict(row) for row in file.execute(sql)]
    connection = await asyncpg.connect(database.url)
    try:
        sql = f"SELECT {COLUMNS} FROM holdfast.outbox_messages ORDER BY sequence"
        return [dict(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()
