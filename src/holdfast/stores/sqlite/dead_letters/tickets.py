"""Tickets and alarms in a SQLite file."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.ports import Clock
from holdfast.ports.dead_letters import TicketRow
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.rows import with_instants
from holdfast.stores.sqlite.times import micros, micros_of
from holdfast.stores.sqlite.writer import Writer


class SqliteTickets:
    """The `TicketStore` port."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def take(self, *, limit: int, lease: timedelta) -> list[TicketRow]:
        if not await self._reader.rows(SQL["due_tickets"], {"limit": 1, "now": micros(self._clock.now())}):
            return []  # nearly always, and without the write lock
        rows = await self._writer.write(
            lambda connection, now: _take(connection, now, limit=limit, lease=micros_of(lease))
        )
        found = [with_instants(row) for row in rows]
        return [
            TicketRow(**{**row, "facts": json.loads(row["facts"]), "logged": bool(row["logged"])})
            for row in found
        ]

    async def mark_notified(self, ticket_ids: Sequence[str], *, quiet: bool = False) -> None:
        await self._writer.execute(
            SQL["mark_notified"], {"ids": json.dumps(list(ticket_ids)), "quiet": quiet}
        )

    async def mark_logged(self, ticket_ids: Sequence[str]) -> None:
        await self._writer.execute(SQL["mark_logged"], {"ids": json.dumps(list(ticket_ids))})

    async def groups_notified(self, fingerprints: Sequence[str], *, within: timedelta) -> set[str]:
        since = micros(self._clock.now() - within)
        values = {"fingerprints": json.dumps(list(fingerprints)), "since": since}
        return set(await self._reader.json(SQL["groups_notified"], values))

    async def raise_alarm(self, kind: str, facts: Mapping[str, Any]) -> bool:
        values = {"kind": kind, "facts": json.dumps(facts)}
        return await self._writer.write(
            lambda connection, now: _raise_alarm(connection, {**values, "now": now})
        )

    async def clear_alarm(self, kind: str) -> bool:
        return bool(await self._writer.execute(SQL["clear_alarm"], {"kind": kind}))


def _take(connection: sqlite3.Connection, now: int, *, limit: int, lease: int) -> list[sqlite3.Row]:
    due = connection.execute(SQL["due_tickets"], {"limit": limit, "now": now}).fetchall()
    ids = json.dumps([row["id"] for row in due])
    connection.execute(SQL["take_tickets"], {"ids": ids, "lease": lease, "now": now})
    return due


def _raise_alarm(connection: sqlite3.Connection, values: dict[str, Any]) -> bool:
    if not connection.execute(SQL["raise_alarm"], values).rowcount:
        return False
    connection.execute(SQL["add_alarm_ticket"], values)
    return True
