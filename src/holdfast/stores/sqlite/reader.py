"""Reads in parallel to the writer, and hints from other processes on the same file."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from holdfast.core.errors import StoreUnavailable
from holdfast.ports import Executor, Hint, HintKind
from holdfast.stores.sqlite.database import run_in, translated
from holdfast.stores.sqlite.fork_safety import ForkSafeConnection
from holdfast.stores.subscriptions import Subscriptions

WATCH = 0.1

T = TypeVar("T")


class Reader:
    """A read-only connection, and the hints of every process that writes."""

    def __init__(self, path: str, executor: Executor) -> None:
        self._path = path
        self._executor = executor
        self._opened: ForkSafeConnection | None = None
        self.subscriptions = Subscriptions()
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the file once."""
        if self._opened is None:
            self._opened = await run_in(self._executor, lambda: ForkSafeConnection(self._path, writes=False))

    async def close(self) -> None:
        """Stop watching, and close the file."""
        task, self._watching = self._watching, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        opened, self._opened = self._opened, None
        if opened is not None:
            await self._executor.run(opened.close)

    async def read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """Read the file in another thread."""
        return await run_in(self._executor, lambda: self._looked(look))

    async def rows(self, sql: str, values: Mapping[str, Any]) -> list[sqlite3.Row]:
        """Read rows."""
        return await self.read(lambda connection: connection.execute(sql, values).fetchall())

    async def json(self, sql: str, values: Mapping[str, Any]) -> Any:
        """Read one value of JSON."""
        [row] = await self.rows(sql, values)
        return json.loads(row[0])

    def _looked(self, look: Callable[[sqlite3.Connection], T]) -> T:
        if self._opened is None:
            raise StoreUnavailable("the store was closed; open a new Holdfast")
        with translated(self._path), self._opened.use() as connection:
            return look(connection)

    def listen(self, receive: Callable[[Hint], None], kinds: Collection[HintKind]) -> Callable[[], None]:
        """Pass hints of these *kinds* to *receive* until the returned function is called."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="holdfast sqlite watcher")
        return self.subscriptions.subscribe(receive, kinds)

    def notify(self, hint: Hint) -> None:
        """Pass on a hint about a write of this process."""
        self.subscriptions.notify(hint)

    async def _watch(self) -> None:
        """Poll for commits of other processes: SQLite has no notifications, but a cheap version number."""
        seen = None
        while True:
            await asyncio.sleep(WATCH)
            try:
                [row] = await self.rows("PRAGMA data_version", {})
            except StoreUnavailable:
                continue  # the next read or write raises the error
            if seen != row[0]:  # the first poll counts, too: a process may have committed before it
                self.notify(Hint(HintKind.READY, ""))
                self.notify(Hint(HintKind.FINISHED, ""))
                self.notify(Hint(HintKind.MESSAGE, ""))
            seen = row[0]
