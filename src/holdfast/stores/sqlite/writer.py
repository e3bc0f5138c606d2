"""One writer, many writes: what waits together is committed together.

While one transaction is under way, further operations gather; the next transaction takes them
all. A lone write waits for nobody, and under load one fsync serves hundreds.
"""

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from holdfast.core.errors import StoreUnavailable
from holdfast.ports import Clock, Executor
from holdfast.stores.sqlite.database import run_in, translated
from holdfast.stores.sqlite.fork_safety import Opened
from holdfast.stores.sqlite.times import micros

EAGER = 0.00005
"""Seconds after which a busy thread hands the interpreter over, while a SQLite file is open.

The writer needs the interpreter before and after each statement. With the usual five milliseconds a
busy event loop makes every transaction wait ten times over, SQLite's lock in hand: measured, a drain
runs half as fast again without that wait.
"""

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection, int], T]
"""Gets the connection, and the time in microseconds at which the write lock is held.

A time taken before that may be long past: a lease made of it could have run out already, and the history would show
events in an order in which they did not happen.
"""


class _Waiting(NamedTuple):
    operation: Operation[Any]
    answer: asyncio.Future[Any]


class Writer:
    """Runs write operations in gathered transactions, off the event loop."""

    def __init__(self, path: str, executor: Executor, clock: Clock) -> None:
        self._path = path
        self._executor = executor
        self._clock = clock
        self._opened: Opened | None = None
        self._waiting: list[_Waiting] = []
        self._flushing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the file once."""
        if self._opened is None:
            self._opened = await run_in(self._executor, lambda: Opened(self._path, writes=True))
            sys.setswitchinterval(min(EAGER, sys.getswitchinterval()))

    async def close(self) -> None:
        """Finish what waits, then let go of the file."""
        while self._waiting or self._is_flushing():
            await asyncio.wait([self._flush_soon()])
        opened, self._opened = self._opened, None
        if opened is not None:
            await self._executor.run(opened.close)

    async def write(self, operation: Operation[T]) -> T:
        """Run *operation* in a transaction, perhaps with others; return once it is durable."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(operation, answer))
        self._flush_soon()
        return await answer

    async def execute(self, sql: str, values: Mapping[str, Any]) -> int:
        """Run one statement as an operation of its own, with the time as `:now`; return how many rows it changed."""
        return await self.write(
            lambda connection, now: connection.execute(sql, {**values, "now": now}).rowcount
        )

    def _is_flushing(self) -> bool:
        return self._flushing is not None and not self._flushing.done()

    def _flush_soon(self) -> "asyncio.Task[None]":
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush(), name="holdfast sqlite writer")
            self._flushing.add_done_callback(self._flushed)
        return self._flushing

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._write_batch(batch)
        finally:
            self._flushing = None
            left, self._waiting = self._waiting, []  # none, unless this task was cancelled
            _answer_all(left, _given_up(left))

    def _flushed(self, task: "asyncio.Task[None]") -> None:
        """Begin again after a task that was cancelled before its first step, and so has run none of its lines."""
        if self._flushing is task and self._waiting:
            self._flush_soon()

    async def _write_batch(self, batch: list[_Waiting]) -> None:
        """Commit off the loop. Even if that could not be tried, or is not waited for, everybody is answered."""
        outcomes = _given_up(batch)
        try:
            outcomes = await run_in(self._executor, lambda: self._written(batch))
        except StoreUnavailable as error:
            outcomes = [_Failed(error) for _ in batch]
        finally:
            _answer_all(batch, outcomes)

    def _written(self, batch: list[_Waiting]) -> list[Any]:
        """Write *batch*, and let no fork happen meanwhile."""
        if self._opened is None:
            return [_Failed(StoreUnavailable("the store was closed; open a new Holdfast")) for _ in batch]
        try:
            with self._opened.use() as connection:
                return self._commit(connection, batch)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked for the write
            return [_Failed(error) for _ in batch]

    def _commit(self, connection: sqlite3.Connection, batch: list[_Waiting]) -> list[Any]:
        """Try all in one transaction; if one of them spoils it, each in its own."""
        try:
            with translated(self._path):
                connection.execute("BEGIN IMMEDIATE")
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked for the write
            return [
                _Failed(error) for _ in batch
            ]  # a lock that is held is waited for once, not once for each
        try:
            return self._transact(connection, [waiting.operation for waiting in batch])
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked for the write
            if len(batch) == 1:
                return [_Failed(error)]
        return [outcome for waiting in batch for outcome in self._commit(connection, [waiting])]

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


class _Failed(NamedTuple):
    error: Exception


def _given_up(batch: list[_Waiting]) -> list[Any]:
    return [
        _Failed(StoreUnavailable("the write was given up; whether it took place is unknown")) for _ in batch
    ]


def _answer_all(batch: list[_Waiting], outcomes: list[Any]) -> None:
    for (_, answer), outcome in zip(batch, outcomes, strict=True):
        if answer.done():
            continue  # whoever asked has gone; the write stands all the same
        if isinstance(outcome, _Failed):
            answer.set_exception(outcome.error)
        else:
            answer.set_result(outcome)
