"""A store of each kind, on a stopped clock: every instant that it writes is known."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import asyncpg
import pytest

from holdfast.ports import Store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.seeded_system import InlineExecutor
from tests.servers import Prepare
from tests.stateful.model import START

T = TypeVar("T")
Ask = Callable[[Coroutine[Any, Any, Any]], Any]

MEMORY = Path("/dev/shm")

TABLES = (
    *("jobs", "payloads", "finished", "stages", "job_events", "job_keys", "job_versions"),
    *("signals", "paused_queues", "lost_workers"),
)

STILL_CLOCK = f"""
CREATE OR REPLACE VIEW holdfast.clock AS
    SELECT timestamptz '{START.isoformat()}' + clock_offset AS now FROM holdfast.meta WHERE only_row
"""
"""The database's clock without the running time: only `clock_offset` moves it."""


class Bench(Protocol):
    """A store under test, and what a test does around it."""

    @property
    def url(self) -> str: ...

    @property
    def store(self) -> Store: ...

    def set_clock(self, now: datetime) -> None:
        """Set the clock of the database to *now*."""
        ...

    def wipe(self) -> None:
        """Leave nothing but the schema."""
        ...

    def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop that the store was opened on."""
        ...


@dataclass
class StillClock:
    """A clock that moves only when the test sets it."""

    at: datetime = START

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


class SqliteBench:
    """A SQLite file."""

    def __init__(self, path: str, ask: Ask) -> None:
        self.url = f"sqlite:///{path}"
        self.ask = ask
        self._path = path
        self._clock = StillClock()
        self.store: Store = SqliteStore(
            path, clock=self._clock, writing=InlineExecutor(), reading=InlineExecutor()
        )

    def set_clock(self, now: datetime) -> None:
        self._clock.at = now

    def wipe(self) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            for table in TABLES:
                connection.execute(f"DELETE FROM holdfast_{table}")


class PostgresBench:
    """A PostgreSQL database whose clock was stopped."""

    def __init__(self, dsn: str, ask: Ask, beside: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.url = dsn
        self.ask = ask
        self._beside = beside
        self.store: Store = PostgresStore(dsn)

    def set_clock(self, now: datetime) -> None:
        self.ask(self._beside.execute("UPDATE holdfast.meta SET clock_offset = $1", now - START))

    def wipe(self) -> None:
        self.ask(self._beside.execute("; ".join(f"DELETE FROM holdfast.{table}" for table in TABLES)))


async def with_still_clock(dsn: str) -> None:
    """Give a database the schema, and stop its clock."""
    store = PostgresStore(dsn)
    await store.apply_schema()
    await store.close()
    connection = await asyncpg.connect(dsn)
    await connection.execute(STILL_CLOCK)
    await connection.close()


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    """Give every database of this folder a stopped clock."""
    return with_still_clock


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Run coroutines on one event loop for the whole test."""
    with asyncio.Runner() as runner:
        yield runner.get_loop().run_until_complete


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, ask: Ask) -> Iterator[Bench]:
    """A store of each kind, open."""
    made: Bench = request.getfixturevalue(f"{request.param}_bench")
    ask(made.store.open())
    yield made
    ask(made.store.close())


@pytest.fixture
def sqlite_bench(ask: Ask) -> Iterator[Bench]:
    """A SQLite file that only this test uses; in memory where that can be, since no power is cut here."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield SqliteBench(f"{folder}/jobs.db", ask)


@pytest.fixture
def postgres_bench(ask: Ask, postgres_dsn: str) -> Iterator[Bench]:
    """A PostgreSQL database that only this test uses."""
    beside = ask(asyncpg.connect(postgres_dsn))
    yield PostgresBench(postgres_dsn, ask, beside)
    ask(beside.close())
