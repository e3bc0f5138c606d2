"""The databases that chaos runs on, and how they differ: one has a server that can be stopped, the other a disk that can be full."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from holdfast import Holdfast
from tests.invariants import World, read_completed, read_holders, read_leases, read_world
from tests.servers import PrivatePostgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.harness.disks import SmallDisk
    from tests.acceptance.harness.proxy import Route

StoreName = Literal["postgres", "sqlite"]
STORES: tuple[StoreName, ...] = get_args(StoreName)

# WAL that a commit did not flush stays in memory for as long as these settings allow. A server that is killed loses
# it, so that a commit which was acknowledged too early is detected.
_FLUSH_NOTHING_UNASKED = {
    "wal_writer_delay": "10s",
    "wal_writer_flush_after": "1GB",
    "bgwriter_lru_maxpages": "0",
}
# After a crash a server flushes all its files, one by one, unless it may ask for all at once: seconds, or an instant.
_RECOVER_QUICKLY = {"recovery_init_sync_method": "syncfs"}


@dataclass(frozen=True)
class Database:
    """An empty database with the schema applied; *server* is set if it can be stopped, *disk* if it can be filled."""

    store: StoreName
    url: str
    server: PrivatePostgres | None = None
    disk: SmallDisk | None = None

    def world(self) -> World:
        """Read all rows."""
        return asyncio.run(read_world(self.url))

    def leases(self) -> dict[str, str]:
        """The names of the workers that hold a lease, by the job that they hold."""
        return asyncio.run(read_leases(self.url))

    def live(self) -> dict[str, str | None]:
        """The holder of each live job; `None` while it waits."""
        return asyncio.run(read_holders(self.url))

    def holders(self) -> dict[str, int]:
        """The process ids of the workers that hold a lease, by the job that they hold."""
        return {job_id: pid_of(worker) for job_id, worker in self.leases().items()}

    def completed(self, queue: str) -> int:
        """How many jobs of *queue* have completed."""
        return asyncio.run(read_completed(self.url)).get(queue, 0)

    @property
    def address(self) -> tuple[str, int]:
        """Where the server listens."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def through(self, route: Route) -> str:
        """The database's URL for a client that connects through *route*."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{route.port}"))


def pid_of(worker: str) -> int:
    """Read the process id from a worker's name."""
    return int(worker.split(":")[1])


@contextmanager
def open_server() -> Iterator[PrivatePostgres]:
    """Open a private server with fsync on, which loses all that it was not asked to flush when it is killed."""
    with PrivatePostgres(fsync=True) as server:
        asyncio.run(_set(server, _FLUSH_NOTHING_UNASKED | _RECOVER_QUICKLY))
        yield server


@contextmanager
def open_database(
    store: StoreName, folder: Path, *, disk: SmallDisk | None = None, server: PrivatePostgres | None = None
) -> Iterator[Database]:
    """Open a database of its own: a file, on *disk* if there is one, or one on *server*, by default a server of its own."""
    if store == "sqlite":
        where = folder if disk is None else disk.folder
        url = f"sqlite:///{where / 'jobs.db'}"
        asyncio.run(apply_schema(url))
        yield Database(store, url, disk=disk)
        return
    with nullcontext(server) if server else open_server() as opened:
        url = opened.create_database(apply_schema)
        try:
            yield Database(store, url, opened)
        finally:
            opened.start()  # the next test finds it running, though this one may have stopped it
            opened.drop_database(url)


async def _set(server: PrivatePostgres, settings: dict[str, str]) -> None:
    """Set those of *settings* that this version of PostgreSQL has."""
    connection = await asyncpg.connect(server.dsn())
    try:
        known = await connection.fetch("SELECT name FROM pg_settings WHERE name = ANY($1)", list(settings))
        for name in (row["name"] for row in known):
            await connection.execute(f"ALTER SYSTEM SET {name} = '{settings[name]}'")
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()


async def apply_schema(url: str) -> None:
    """Give an empty database the schema."""
    hold = Holdfast(url)
    try:
        await hold.apply_schema()
    finally:
        await hold.close()
