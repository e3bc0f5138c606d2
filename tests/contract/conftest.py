"""Every test of this folder runs on each store, with a clock that the test moves."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import pytest

from holdfast import Backoff, Holdfast
from holdfast.ports import Store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.telemetry.logs import StructuredLogger
from holdfast.wiring.threads import Threads
from tests.contract.services import Service
from tests.servers import PostgresServer, Prepare


class DatabaseClock(Protocol):
    """The clock that decides in a store."""

    async def advance(self, length: timedelta) -> None:
        """Let *length* pass, for every process that uses this database."""
        ...

    async def now(self) -> datetime:
        """Ask what time it is in the database."""
        ...


class Database(Protocol):
    """Where the jobs of one test are."""

    @property
    def url(self) -> str: ...

    @property
    def clock(self) -> DatabaseClock: ...

    def new_store(self) -> Store:
        """Make a store with connections of its own, as another process would have it."""
        ...


@dataclass
class FakeClock:
    """A clock that moves when the test moves it, and a microsecond whenever it is read."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def now(self) -> datetime:
        self.at += timedelta(microseconds=1)
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


@dataclass
class SqliteTime:
    """Moves the clock that is given to every store of the file."""

    fake: FakeClock

    async def advance(self, length: timedelta) -> None:
        self.fake.at += length

    async def now(self) -> datetime:
        return self.fake.now()


@dataclass
class PostgresTime:
    """Moves the offset that the database adds to its own clock."""

    dsn: str

    async def advance(self, length: timedelta) -> None:
        await self._ask("UPDATE holdfast.meta SET clock_offset = clock_offset + $1 RETURNING 1", length)

    async def now(self) -> datetime:
        now = await self._ask("SELECT holdfast.holdfast_now()")
        assert isinstance(now, datetime)
        return now

    async def _ask(self, sql: str, *values: Any) -> Any:
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetchval(sql, *values)
        finally:
            await connection.close()


@dataclass
class SqliteFile:
    """A SQLite file that only this test uses."""

    path: str
    fake: FakeClock = field(default_factory=FakeClock)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def clock(self) -> DatabaseClock:
        return SqliteTime(self.fake)

    def new_store(self) -> Store:
        writing, reading = Threads("test-writer", limit=1), Threads("test-reader", limit=1)
        return SqliteStore(self.path, clock=self.fake, writing=writing, reading=reading)


@dataclass
class PostgresDatabase:
    """A PostgreSQL database that only this test uses."""

    url: str

    @property
    def clock(self) -> DatabaseClock:
        return PostgresTime(self.url)

    def new_store(self) -> Store:
        return PostgresStore(self.url)


async def apply_schema(dsn: str) -> None:
    store = PostgresStore(dsn)
    try:
        await store.apply_schema()
    finally:
        await store.close()


async def wipe(dsn: str) -> None:
    """Make the database as it was, whatever a test left in it: rows, tables of its own, connections."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(WIPE)
    finally:
        await connection.close()


WIPE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
UPDATE holdfast.meta SET clock_offset = '0';
DO $$
DECLARE found regclass;
BEGIN
    FOR found IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE 'DROP TABLE ' || found;
    END LOOP;
    FOR found IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'holdfast'::regnamespace
                    AND relname <> 'meta' LOOP
        EXECUTE 'DELETE FROM ' || found;
    END LOOP;
END $$;
"""


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    """Give the database of this folder the schema."""
    return apply_schema


@pytest.fixture(scope="session")
def shared_dsn(postgres_server: PostgresServer, prepare_postgres: Prepare) -> str:
    """One database for all tests of this folder: making hundreds of them takes longer than the tests."""
    return postgres_server.create_database(prepare_postgres)


@pytest.fixture
def postgres_dsn(shared_dsn: str) -> Iterator[str]:
    """The address of a database that is empty but for the schema, and that only this test uses meanwhile."""
    yield shared_dsn
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, wipe(shared_dsn)).result()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """The place where a test's jobs are, once for each store."""
    if request.param == "sqlite":
        return SqliteFile(str(tmp_path / "jobs.db"))
    return PostgresDatabase(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
def clock(database: Database) -> DatabaseClock:
    """The database's own clock. With `hold` on SQLite it moves for `store` alone: two processes that disagree."""
    return database.clock


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    """A store, open."""
    made = database.new_store()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def other_store(database: Database, store: Store) -> AsyncIterator[Store]:
    """A second store on the same database, with connections of its own."""
    made = database.new_store()
    await made.open()
    yield made
    await made.close()


class Logger:
    """A logger whose lines a test can read."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.writer = StructuredLogger(level="DEBUG", stream=self.stream)

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Give what was logged, as JSON objects: all of it, or the lines of one *event*."""
        lines: list[dict[str, Any]] = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if event in (None, line["event"])]


@pytest.fixture
def logger() -> Logger:
    """What `hold` logs, from DEBUG upwards."""
    return Logger()


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    """A whole Holdfast whose retries are due at once, three attempts unless a test says otherwise."""
    made = Holdfast(database.url, attempts=3, backoff=Backoff.none(), logger=logger.writer)
    async with made:
        yield made


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """An outside service, which is well. Calls that still wait for it are answered in the end."""
    made = Service()
    yield made
    made.answering.set()
