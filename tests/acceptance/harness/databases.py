"""The databases that chaos runs on, with the one thing that differs: whether they can be taken away."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from holdfast import Holdfast
from tests.invariants import World, read_leases, read_world
from tests.servers import PrivatePostgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

StoreName = Literal["postgres", "sqlite"]
STORES: tuple[StoreName, ...] = get_args(StoreName)


@dataclass(frozen=True)
class Database:
    """An empty database with the schema applied; *server* is there if it can be stopped."""

    store: StoreName
    url: str
    server: PrivatePostgres | None = None

    def world(self) -> World:
        """Read all rows."""
        return asyncio.run(read_world(self.url))

    def holders(self) -> dict[str, int]:
        """The process ids of the workers that hold a lease, by the job that they hold."""
        return {
            job_id: int(worker.split(":")[1]) for job_id, worker in asyncio.run(read_leases(self.url)).items()
        }


@contextmanager
def open_database(store: StoreName, folder: Path) -> Iterator[Database]:
    """Give a database that nobody else uses: a file, or a server of its own with fsync on."""
    if store == "sqlite":
        yield _with_schema(Database(store, f"sqlite:///{folder / 'jobs.db'}"))
        return
    with PrivatePostgres(fsync=True) as server:
        yield _with_schema(Database(store, server.create_database(), server))


def _with_schema(database: Database) -> Database:
    async def apply() -> None:
        hold = Holdfast(database.url)
        await hold.apply_schema()
        await hold.close()

    asyncio.run(apply())
    return database
