"""Deletes old rows from tables without an index by age: a scan of their key, in batches."""

from datetime import timedelta
from typing import Any

from holdfast.stores.postgres.connections import LONG_ANSWER, Connections

LOOKS = 10
"""The maximum number of rows read for each row that may be deleted."""

LEAST = 1_000
"""The number of rows that are always read: reading them costs next to nothing."""


class PostgresPurgeScan:
    """A scan that continues where the last call stopped, and starts over at the end.

    Rows that cannot be deleted yet stay; read from the start each time, they would cost more and more. The position is
    known to this object alone: another process scans on its own, and a row is deleted once.
    """

    def __init__(self, sql: str, *first: Any) -> None:
        self._sql = sql
        self._first = first
        self._position = first

    async def purge(self, connections: Connections, older_than: timedelta, limit: int) -> int:
        """Delete rows that are *older_than* that, at most *limit*, and return their number."""
        if limit <= 0:
            return 0
        began_later = self._position != self._first
        purged = await self._piece(connections, older_than, limit)
        if began_later and purged < limit and self._position == self._first:
            purged += await self._piece(connections, older_than, limit - purged)
        return purged

    async def _piece(self, connections: Connections, older_than: timedelta, limit: int) -> int:
        values = [older_than, limit, max(limit * LOOKS, LEAST), *self._position]
        [row] = await connections.fetch(self._sql, *values, timeout=LONG_ANSWER)
        purged, *position = row
        self._position = self._first if position[0] is None else tuple(position)
        return int(purged)
