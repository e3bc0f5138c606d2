"""Deleting keys, versions and stubs that are old from a SQLite file: a walk along an index, a piece at a time."""

import sqlite3
from typing import Any

from holdfast.stores.sqlite.statements import SQL

LOOKS = 10
"""How many rows are looked at, at most, for each that may be deleted."""

LEAST = 1_000
"""As many rows are always looked at: those cost next to nothing."""


class SqlitePurgeScan:
    """Goes on where it has come to, and begins again at the end.

    What cannot be deleted yet stays on the way; looked at from the start each time, it would cost more and more, with
    every other writer waiting.
    """

    def __init__(self, look: str, **first: Any) -> None:
        self._look = look
        self._first = first
        self._place = first

    def unneeded(self, connection: sqlite3.Connection, until: int, limit: int) -> list[list[Any]]:
        """Give rows that are outdated, at most *limit*, each without the column that says so."""
        if limit <= 0:
            return []
        began_later = self._place is not self._first
        found = self._piece(connection, until, limit)
        if began_later and len(found) < limit and self._place is self._first:
            found += self._piece(connection, until, limit - len(found))
        return found

    def _piece(self, connection: sqlite3.Connection, until: int, limit: int) -> list[list[Any]]:
        walk = max(limit * LOOKS, LEAST)
        values = {**self._place, "until": until, "walk": walk}
        found: list[list[Any]] = []
        looked_at = 0
        place: list[Any] = []
        for *place, unneeded in connection.execute(SQL[self._look], values).fetchall():
            looked_at += 1
            if unneeded:
                found.append(place)
            if len(found) == limit:
                break
        is_at_end = len(found) < limit and looked_at < walk
        self._place = self._first if is_at_end else dict(zip(self._first, place, strict=False))
        return found
