"""Leases of a SQLite file, extended by a thread of its own."""

from datetime import timedelta

from holdfast.ports import Clock
from holdfast.stores.sqlite.database import translated
from holdfast.stores.sqlite.fork_safety import ForkSafeConnection
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.times import micros, micros_of


class SqliteLeaseExtender:
    """The `LeaseExtender` port, with a connection that is opened on first use."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._opened: ForkSafeConnection | None = None

    def extend(self, worker: str, *, lease: timedelta) -> int:
        with translated(self._path):
            if self._opened is None:
                self._opened = ForkSafeConnection(self._path, writes=True)
            with self._opened.use() as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    # Read under the lock: a lease computed from an earlier time could have expired already.
                    values = {"worker": worker, "lease": micros_of(lease), "now": micros(self._clock.now())}
                    extended = connection.execute(SQL["extend_all"], values).rowcount
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        return extended

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
