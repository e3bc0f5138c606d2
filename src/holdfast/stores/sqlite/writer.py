"""Writes to a SQLite file: one thread commits queued operations together.

While one transaction is in flight, further operations queue; the next transaction takes them
all. A single write does not wait, and under load one fsync serves hundreds.
"""

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

from holdfast.aio.batcher import Batcher
from holdfast.core.errors import StoreUnavailable
from holdfast.ports import Clock, Executor
from holdfast.stores.sqlite.database import run_in, translated
from holdfast.stores.sqlite.fork_safety import ForkSafeConnection
from holdfast.stores.sqlite.times import micros

EAGER = 0.00005
"""Seconds after which a busy thread releases the interpreter's lock, while a SQLite file is open.

The writer needs that lock before and after each statement. With the default of five milliseconds a busy
event loop delays every transaction ten times, while it holds SQLite's write lock: measured, draining a
queue is 1.5 times as fast without that wait.
"""

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection, int], T]
"""Takes the connection, and the time in microseconds at which the write lock was taken.

An earlier time may be long past: a lease computed from it could have expired already, and the history would show
events in the wrong order.
"""


class _Failed(NamedTuple):
    error: Exception

    def reraise(self) -> NoReturn:
        """Raise the error to one of the callers that share it, without the frames of those before."""
        raise self.error.with_traceback(None)


class Writer:
    """Runs write operations in shared transactions, off the event loop."""

    def __init__(self, path: str, executor: Executor, clock: Clock) -> None:
        self._path = path
        self._executor = executor
        self._clock = clock
        self._opened: ForkSafeConnection | None = None
        self._batcher: Batcher[Operation[Any], Any] = Batcher(
            self._write_batch, name="holdfast sqlite writer"
        )

    async def open(self) -> None:
        """Open the file once."""
        if self._opened is None:
            self._opened = await run_in(self._executor, lambda: ForkSafeConnection(self._path, writes=True))
            sys.setswitchinterval(min(EAGER, sys.getswitchinterval()))

    async def close(self) -> None:
        """Finish queued operations, then close the file."""
        await self._batcher.drain()
        opened, self._opened = self._opened, None
        if opened is not None:
            await self._executor.run(opened.close)

    async def write(self, operation: Operation[T]) -> T:
        """Run *operation* in a transaction, perhaps with others; return once it is durable. Raises what *operation* raises."""
        outcome = await self._batcher.ask(operation)
        if isinstance(outcome, _Failed):
            outcome.reraise()
        return outcome  # type: ignore[no-any-return]  # what the operation gave

    def write_here(self, operation: Operation[T]) -> T:
        """Run *operation* in a transaction of its own, in this thread. Raises what it raises."""
        [outcome] = self._write_batch_here([operation])
        if isinstance(outcome, _Failed):
            outcome.reraise()
        return outcome  # type: ignore[no-any-return]  # what the operation gave

    async def execute(self, sql: str, values: Mapping[str, Any]) -> int:
        """Run one statement as an operation of its own, with the time as `:now`; return the number of rows it changed."""
        return await self.write(
            lambda connection, now: connection.execute(sql, {**values, "now": now}).rowcount
        )

    async def _write_batch(self, batch: list[Operation[Any]]) -> list[Any]:
        """Commit in another thread; the outcome of an operation that failed is a `_Failed`."""
        try:
            return await run_in(self._executor, lambda: self._write_batch_here(batch))
        except StoreUnavailable as error:
            return [_Failed(error) for _ in batch]
        except asyncio.CancelledError:
            self._batcher.give_up()  # the thread may be blocked: every caller that waits for it gets the error
            raise

    def _write_batch_here(self, batch: list[Operation[Any]]) -> list[Any]:
        """Write *batch*, and block forks meanwhile."""
        if self._opened is None:
            return [_Failed(StoreUnavailable("the store was closed; open a new Holdfast")) for _ in batch]
        try:
            with self._opened.use() as connection:
                return self._commit(connection, batch)
        except Exception as error:  # noqa: BLE001 - raised to the callers that asked for the writes
            return [_Failed(error) for _ in batch]

    def _commit(self, connection: sqlite3.Connection, batch: list[Operation[Any]]) -> list[Any]:
        """Run all in one transaction; if one of them fails, each in its own."""
        try:
            with translated(self._path):
                connection.execute("BEGIN IMMEDIATE")
        except Exception as error:  # noqa: BLE001 - raised to the callers that asked for the writes
            return [
                _Failed(error) for _ in batch
            ]  # the lock timeout is spent once, not once for each operation
        try:
            return self._transact(connection, batch)
        except Exception as error:  # noqa: BLE001 - raised to the caller that asked for the write
            if len(batch) == 1:
                return [_Failed(error)]
        return [outcome for operation in batch for outcome in self._commit(connection, [operation])]

    def _transact(self, connection: sqlite3.Connection, operations: list[Operation[Any]]) -> list[Any]:
        with translated(self._path):
            try:
                outcomes = [operation(connection, micros(self._clock.now())) for operation in operations]
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return outcomes
