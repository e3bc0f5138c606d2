"""Connections that are put away while the process forks.

SQLite notes in memory which locks its process holds. A child inherits the notes and not the locks: it would
wait for ever for a writer that is in its parent, or write while its parent takes the log away. So nothing
is open at the moment of a fork; parent and child open anew what they go on to use.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from weakref import WeakSet

from holdfast.stores.sqlite.database import connect


class Opened:
    """A connection for one operation at a time."""

    def __init__(self, path: str, *, writes: bool) -> None:
        self._connect = partial(connect, path, writes=writes)
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        with _ALL_LOCK:
            _ALL.add(self)
        with self.use():
            return  # an error shows now

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection, and let no fork happen meanwhile."""
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._put_away()

    def hold_still(self) -> None:
        """Wait for the operation under way, close, and let no other begin."""
        self._lock.acquire()
        self._put_away()

    def go_on(self) -> None:
        """Let operations begin again."""
        self._lock.release()

    def _put_away(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


_ALL: "WeakSet[Opened]" = WeakSet()
_ALL_LOCK = threading.Lock()
_STILL: list[Opened] = []


def _before_fork() -> None:
    _ALL_LOCK.acquire()
    _STILL.extend(_ALL)
    for opened in _STILL:
        opened.hold_still()


def _after_fork() -> None:
    """Runs in the parent and in the child, each of which has the locks taken above."""
    for opened in _STILL:
        opened.go_on()
    _STILL.clear()
    _ALL_LOCK.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
