"""Deleting what is old from tables that no index has by age: a walk along their key, a piece at a time."""

from datetime import timedelta
from typing import Any

from holdfast.stores.postgres.connections import LONG_ANSWER, Connections

LOOKS = 10
"""How many rows are looked at, at most, for each that may be deleted."""

LEAST = 1_000
"""As many rows are always looked at: those cost next to nothing."""


class PostgresPurgeScan:
    """Goes on where it has come to, and begins again at the end.

    What cannot be deleted yet stays on the way; looked at from the start each time, it would cost more and more. The
    place is known here alone: another scan walks beside this one, and neither deletes what the other has.
    """

    def __init__(self, sql: str, *first: Any) -> None:
        self._sql = sql
        self._first = first
        self._place = first

    async def purge(self, connections: Connections, older_than: timedelta, limit: int) -> int:
        """Delete what is *older_than* that, at most *limit* rows, and count them."""
        if limit <= 0:
            return 0
        began_later = self._place != self._first
        purged = await self._piece(connections, older_than, limit)
        if began_later and purged < limit and self._place == self._first:
            purged += await self._piece(connections, older_than, limit - purged)
        return purged

    async def _piece(self, connections: Connections, older_than: timedelta, limit: int) -> int:
        values = [older_than, limit, max(limit * LOOKS, LEAST), *self._place]
        [row] = await connections.fetch(self._sql, *values, timeout=LONG_ANSWER)
        purged, *place = row
        self._place = self._first if place[0] is None else tuple(place)
        return int(purged)
