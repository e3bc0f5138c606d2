"""Leases in PostgreSQL, extended by a thread of its own."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from holdfast.stores.postgres.connections import Connections
from holdfast.stores.queries import Queries


class _LoopAndConnections(NamedTuple):
    runner: asyncio.Runner
    connections: Connections


class PostgresLeaseExtender:
    """The `LeaseExtender` port, with an event loop and one connection that are created on first use."""

    def __init__(self, connect: Callable[[], Connections], sql: Queries) -> None:
        self._connect = connect
        self._sql = sql
        self._opened: _LoopAndConnections | None = None

    def extend(self, worker: str, *, lease: timedelta) -> int:
        if self._opened is None:
            self._opened = _LoopAndConnections(asyncio.Runner(), self._connect())
        runner, connections = self._opened
        return len(runner.run(connections.fetch(self._sql["extend_all"], worker, lease)))

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with opened.runner:
                opened.runner.run(opened.connections.close())
