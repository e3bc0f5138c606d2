"""Closes connections while the process forks.

SQLite records in memory which locks its process holds. A child inherits the record but not the locks: it would
wait forever for a writer that is in its parent, or write while its parent deletes the log. So nothing is open
at the moment of a fork; parent and child open again what they continue to use.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from weakref import WeakSet

from holdfast.stores.sqlite.database import connect


class ForkSafeConnection:
    """A connection for one operation at a time."""

    def __init__(self, path: str, *, writes: bool) -> None:
        self._connect = partial(connect, path, writes=writes)
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        with _ALL_LOCK:
            _ALL.add(self)
        with self.use():
            return  # raises an error now, not at the first use

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, and block forks meanwhile."""
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close_file()

    def close_for_fork(self) -> None:
        """Wait for the operation under way, close the file, and block further operations."""
        self._lock.acquire()
        self._close_file()

    def allow_use(self) -> None:
        """Allow operations again."""
        self._lock.release()

    def _close_file(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


_ALL: "WeakSet[ForkSafeConnection]" = WeakSet()
_ALL_LOCK = threading.Lock()
_CLOSED_FOR_FORK: list[ForkSafeConnection] = []


def _before_fork() -> None:
    _ALL_LOCK.acquire()
    _CLOSED_FOR_FORK.extend(_ALL)
    for connection in _CLOSED_FOR_FORK:
        connection.close_for_fork()


def _after_fork() -> None:
    """Runs in the parent and in the child, each of which has the locks taken above."""
    for connection in _CLOSED_FOR_FORK:
        connection.allow_use()
    _CLOSED_FOR_FORK.clear()
    _ALL_LOCK.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
