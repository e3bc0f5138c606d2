"""Leases in PostgreSQL, extended by a thread of its own."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from holdfast.stores.postgres.connections import Connections
from holdfast.stores.queries import Queries


class _Link(NamedTuple):
    runner: asyncio.Runner
    connections: Connections


class PostgresLeaseExtender:
    """The `LeaseExtender` port, with an event loop and one connection that are created on first use."""

    def __init__(self, connect: Callable[[], Connections], sql: Queries) -> None:
        self._connect = connect
        self._sql = sql
        self._link: _Link | None = None

    def extend(self, worker: str, *, lease: timedelta) -> int:
        if self._link is None:
            self._link = _Link(asyncio.Runner(), self._connect())
        runner, connections = self._link
        return len(runner.run(connections.fetch(self._sql["extend_all"], worker, lease)))

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with link.runner:
                link.runner.run(link.connections.close())
