"""Finds old keys, versions and stubs in a SQLite file: a scan of an index, in batches."""

import sqlite3
from typing import Any

from holdfast.stores.sqlite.queries import SQL

LOOKS = 10
"""The maximum number of rows read for each row that may be deleted."""

LEAST = 1_000
"""The number of rows that are always read: reading them costs next to nothing."""


class SqlitePurgeScan:
    """A scan that continues where the last call stopped, and starts over at the end.

    Rows that cannot be deleted yet stay; read from the start each time, they would cost more and more, with every
    other writer waiting.
    """

    def __init__(self, look: str, **first: Any) -> None:
        self._look = look
        self._first = first
        self._position = first

    def unneeded(self, connection: sqlite3.Connection, until: int, limit: int) -> list[list[Any]]:
        """Return rows that are outdated, at most *limit*, each without the column that says so."""
        if limit <= 0:
            return []
        began_later = self._position is not self._first
        found = self._piece(connection, until, limit)
        if began_later and len(found) < limit and self._position is self._first:
            found += self._piece(connection, until, limit - len(found))
        return found

    def _piece(self, connection: sqlite3.Connection, until: int, limit: int) -> list[list[Any]]:
        walk = max(limit * LOOKS, LEAST)
        values = {**self._position, "until": until, "walk": walk}
        found: list[list[Any]] = []
        looked_at = 0
        position: list[Any] = []
        for *position, unneeded in connection.execute(SQL[self._look], values).fetchall():
            looked_at += 1
            if unneeded:
                found.append(position)
            if len(found) == limit:
                break
        is_at_end = len(found) < limit and looked_at < walk
        self._position = self._first if is_at_end else dict(zip(self._first, position, strict=False))
        return found
